//! What was tried, and the results.

use super::damage::{Damage, Kind};

/// What was injected, and the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct RotCounts {
    /// Partitions that were closed cleanly.
    pub worlds: u64,
    /// Damages, one at a time; each changed something.
    pub injections: u64,
    /// By kind: one bit, a sector of garbage, a file cut short.
    pub bits: u64,
    /// See above.
    pub sectors: u64,
    /// See above.
    pub truncations: u64,
    /// A block has older content of itself.
    pub stale: u64,
    /// A block has the content of another place.
    pub misdirected: u64,
    /// The same, and the other place has older content.
    pub misdirected_away: u64,
    /// Of all these, in the last acknowledged batches.
    pub in_last_batches: u64,
    /// In segments, in snapshots, in page files, and in other files.
    pub in_segments: u64,
    /// See above.
    pub in_snapshots: u64,
    /// See above.
    pub in_pages: u64,
    /// See above.
    pub in_others: u64,
    /// The start was refused, and the damaged file named.
    pub refused: u64,
    /// Everything acknowledged was there and unchanged.
    pub harmless: u64,
    /// Damaged bodies were reported when they were read; all others were there and unchanged.
    pub bodies: u64,
    /// Damaged bodies that a scrub has found.
    pub scrubbed: u64,
    /// Damages of partitions that had records of messages on pages alone, and damaged bodies that a scrub has found
    /// there.
    pub cold: u64,
    /// See above.
    pub scrubbed_cold: u64,
    /// Damaged bodies that copies in several subscriptions have, and that were reported for each.
    pub shared_bodies: u64,
    /// Damaged bodies of dead letters of bus entities, and damaged changes to properties.
    pub dead_letters: u64,
    /// See above.
    pub changes: u64,
    /// Messages that waited in a topic, and could not be compared with its rules.
    pub buried: u64,
    /// Snapshots that were skipped for an older one.
    pub snapshots_passed_over: u64,
    /// Pages that were read from their copy.
    pub pages_from_copy: u64,
}

impl RotCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.injections += other.injections;
        self.bits += other.bits;
        self.sectors += other.sectors;
        self.truncations += other.truncations;
        self.stale += other.stale;
        self.misdirected += other.misdirected;
        self.misdirected_away += other.misdirected_away;
        self.in_last_batches += other.in_last_batches;
        self.in_segments += other.in_segments;
        self.in_snapshots += other.in_snapshots;
        self.in_pages += other.in_pages;
        self.in_others += other.in_others;
        self.refused += other.refused;
        self.harmless += other.harmless;
        self.bodies += other.bodies;
        self.scrubbed += other.scrubbed;
        self.cold += other.cold;
        self.scrubbed_cold += other.scrubbed_cold;
        self.shared_bodies += other.shared_bodies;
        self.dead_letters += other.dead_letters;
        self.changes += other.changes;
        self.buried += other.buried;
        self.snapshots_passed_over += other.snapshots_passed_over;
        self.pages_from_copy += other.pages_from_copy;
    }

    /// Counts a damage, which is in the last batches or not.
    pub(super) fn note(&mut self, damage: &Damage, is_in_last_batches: bool) {
        self.injections += 1;
        *match damage.kind {
            Kind::Bit => &mut self.bits,
            Kind::Sector => &mut self.sectors,
            Kind::Truncation => &mut self.truncations,
            Kind::Stale => &mut self.stale,
            Kind::Misdirected => &mut self.misdirected,
            Kind::MisdirectedAway => &mut self.misdirected_away,
        } += 1;
        self.in_last_batches += u64::from(is_in_last_batches);
        *match damage.places[0].file.split('-').next() {
            Some("segment") => &mut self.in_segments,
            Some("snapshot") => &mut self.in_snapshots,
            Some("pages") => &mut self.in_pages,
            _ => &mut self.in_others,
        } += 1;
    }
}
