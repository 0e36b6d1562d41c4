//! The three allowed outcomes of damage, and nothing else.
//!
//! - The start is refused, and the damaged file named.
//! - Everything acknowledged is there and unchanged.
//! - Damaged bodies are reported when they are read. Everything else is there and unchanged.
//!
//! In a topic, copies in several subscriptions have one body. Each of them is reported, and listed by a scrub, if the body
//! is damaged, and it stays in its place. What waits for a rule to look at it goes to the failed transfers of its topic.

use std::collections::{BTreeMap, BTreeSet};

use kew_broker::{OpenPartitionError, ScrubReport};
use kew_engine::{BodyOwner, EntityName, SequenceNumber};
use kew_log::OpenError;
use kew_planted::Seam;

use super::counts::RotCounts;
use super::damage::Damage;
use super::{Closed, violation};
use crate::bus::entity;
use crate::checker::Violation;
use crate::disk::answers::{Damaged, Owner};
use crate::disk::host::Host;
use crate::disk::tape::Tape;
use crate::disk::topics;
use crate::disk::workload::WorkloadKind;
use crate::seam::{altered, files_of};

/// A file, and where in it something begins.
type Place = (String, u64);

impl Closed {
    /// Opens the damaged partition, and accepts only the three allowed outcomes.
    pub(super) fn check(
        &self,
        damage: &Damage,
        entropy: u64,
        counts: &mut RotCounts,
    ) -> Result<(), Violation> {
        let place = &damage.places[0];
        let is_last = place.file == self.last_segment && self.last_batches.contains(&place.offset);
        counts.note(damage, is_last);
        let disk = self.disk.kill();
        damage.inflict(&disk);
        let tape = Tape::new(disk);
        let clients = self.clients.clone();
        let mut host = match Host::open(tape, self.setting, clients, self.now, entropy) {
            Ok(host) => host,
            Err(not) => {
                counts.refused += 1;
                return check_refusal(damage, &not.error);
            }
        };
        host.allow_damage();
        count_warnings(&host, counts);
        let segments = segments(&host);
        let is_settled = self.kind != WorkloadKind::Storage && entropy.is_multiple_of(2);
        if is_settled {
            host.rest()?;
        }
        let is_cold = host.partition().state().resident().cold_runs > 0;
        let scrubbed = host.scrub()?;
        counts.scrubbed += scrubbed.len() as u64;
        if is_cold {
            counts.cold += 1;
            counts.scrubbed_cold += scrubbed.len() as u64;
        }
        let report = altered(Seam::Scrubbed, host.partition().scrub_report());
        if self.kind == WorkloadKind::Storage {
            check_lists_all(&report, &scrubbed)?;
        } else {
            host.settle()?;
            topics::look(&mut host)?;
        }
        if is_settled {
            // Nothing has moved since the scrub.
            check_is_listed(host.clients.damage(), &report, &segments)?;
        }
        host.drain()?;
        host.use_once()?;
        if damage.places.len() == 1 && host.partition().quarantined_count() > 0 {
            return Err(Violation {
                promise: "a record has two copies",
                seen: format!("{:?} are set aside", host.partition().quarantined_runs()),
            });
        }
        let damaged = host.clients.damage();
        match damaged.is_empty() {
            true => counts.harmless += 1,
            false => counts.bodies += 1,
        }
        count_owners(damaged, counts);
        counts.buried += host.clients.buried();
        for body in damaged {
            self.check_is_damaged(damage, body)?;
            let place = (body.file.clone(), body.offset);
            if segments.contains(&body.file) && !scrubbed.contains(&place) {
                return Err(not_found(&place, "no scrub"));
            }
        }
        for (file, offset) in &scrubbed {
            check_place(damage, file, offset - 4)?;
        }
        Ok(())
    }

    /// Only what is damaged may be reported. A body's checksum is just before it, and the report names the body.
    fn check_is_damaged(&self, damage: &Damage, body: &Damaged) -> Result<(), Violation> {
        let begin = usize::try_from(body.offset).expect("an offset in memory");
        let length = usize::try_from(body.length).expect("a length in memory");
        if damage.changes(&self.contents, &body.file, begin - 4..begin + length) {
            return Ok(());
        }
        Err(Violation {
            promise: "only what is damaged is reported",
            seen: format!("{body:?}"),
        })
    }
}

fn count_warnings(host: &Host, counts: &mut RotCounts) {
    let warned = |begin: &str| {
        let warnings = host.recovery().warnings.iter();
        warnings.filter(|it| it.starts_with(begin)).count() as u64
    };
    counts.snapshots_passed_over += warned("a snapshot was passed over");
    counts.pages_from_copy += warned("what is damaged was read from its copy");
}

/// The segments that a scrub reads: all, and of the last one what is durable. After a start, that is all that it has.
fn segments(host: &Host) -> Vec<String> {
    let spans = files_of(host.partition().log()).segments();
    spans
        .map(|span| format!("segment-{:020}", span.number))
        .collect()
}

/// A scrub lists what it has found, if nothing has moved since.
fn check_lists_all(report: &ScrubReport, found: &[Place]) -> Result<(), Violation> {
    let is_listed = |place: &Place| {
        let mut bodies = report.bodies.iter();
        bodies.any(|it| it.file == place.0 && it.offset == place.1)
    };
    match found.iter().find(|place| !is_listed(place)) {
        Some(place) => Err(not_found(place, "it is not listed")),
        None => Ok(()),
    }
}

/// A scrub lists each message of a bus entity whose bytes were reported as damaged, by its name and number.
fn check_is_listed(
    damaged: &[Damaged],
    report: &ScrubReport,
    segments: &[String],
) -> Result<(), Violation> {
    let listed = report.bodies.iter().filter_map(|it| match &it.needed.of {
        BodyOwner::Message(number) => {
            Some((&it.file, it.offset, &it.needed.queue, number.as_u64()))
        }
        BodyOwner::Session(_) => None,
    });
    let listed: BTreeSet<_> = listed.collect();
    for body in damaged.iter().filter(|it| segments.contains(&it.file)) {
        if let Owner::BusMessage { entity, number, .. } = &body.of
            && !listed.contains(&(&body.file, body.offset, entity, number.as_u64()))
        {
            let place = (body.file.clone(), body.offset);
            return Err(not_found(&place, &format!("{number:?} of {entity:?}")));
        }
    }
    Ok(())
}

fn not_found((file, offset): &Place, what: &str) -> Violation {
    Violation {
        promise: "a scrub finds every damaged message",
        seen: format!("{file} at {offset} is not found: {what}"),
    }
}

fn count_owners(damaged: &[Damaged], counts: &mut RotCounts) {
    let mut bodies: BTreeMap<Place, BTreeSet<usize>> = BTreeMap::new();
    let mut changes: BTreeSet<Place> = BTreeSet::new();
    let mut dead: BTreeSet<(&EntityName, SequenceNumber)> = BTreeSet::new();
    for body in damaged {
        let Owner::BusMessage {
            entity: name,
            number,
            is_change,
            is_dead,
        } = &body.of
        else {
            continue;
        };
        let place = (body.file.clone(), body.offset);
        if *is_change {
            changes.insert(place);
            continue;
        }
        if *is_dead {
            dead.insert((name, *number));
        }
        bodies.entry(place).or_default().insert(entity(name).queue);
    }
    let shared = bodies.values().filter(|of| of.len() > 1);
    counts.shared_bodies += shared.count() as u64;
    counts.changes += changes.len() as u64;
    counts.dead_letters += dead.len() as u64;
}

/// A refusal must be due to damage. It must name a damaged file, and a place before the end of the
/// damage: the part that begins there is not intact.
fn check_refusal(damage: &Damage, error: &OpenPartitionError) -> Result<(), Violation> {
    match error {
        OpenPartitionError::Log(OpenError::Corrupt { file, offset, .. }) => {
            check_place(damage, file, *offset)
        }
        _ => Err(violation("after bit rot", error)),
    }
}

fn check_place(damage: &Damage, file: &str, offset: u64) -> Result<(), Violation> {
    let is_named = damage.places.iter().any(|place| {
        let end = place.offset + place.bytes.as_ref().map_or(usize::MAX / 2, Vec::len);
        place.file == file && offset < end as u64
    });
    if is_named {
        return Ok(());
    }
    Err(Violation {
        promise: "damage is named with file and offset",
        seen: format!("{file} at {offset} is named"),
    })
}
