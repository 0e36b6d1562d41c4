//! Bit rot: damage to every kind of file of a partition that was closed cleanly.
//!
//! Worlds are closed with a mark, which lies in a file of its own, so that no single damage destroys the
//! last batch together with all proof of it. Without a mark the format declares one case
//! ambiguous: only [`damage_tail`] shows that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use kew_broker::OpenPartitionError;
use kew_engine::Timestamp;
use kew_log::{FaultyStorage, OpenError};

use super::clients::Clients;
use super::failure::{Failure, guard};
use super::host::Host;
use super::setting::{Setting, violation};
use super::step::Step;
use super::tape::Tape;
use super::workload::{Act, Workload, WorkloadKind, wait};
use crate::checker::Violation;
use crate::random::Stream;

const SECTOR_SIZE: usize = 512;
const PAGE_SIZE: usize = 4096;
/// The file with the marks.
const PROOF: &str = "proof";

/// How much of the log before its end counts as its last acknowledged batches.
const LAST_BATCHES_BYTES: usize = 5000;

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
        self.snapshots_passed_over += other.snapshots_passed_over;
        self.pages_from_copy += other.pages_from_copy;
    }
}

/// Damages the partition of one world in `injections` ways, one after the other.
pub fn rot(seed: u64, world: u64, injections: u64, trace: bool) -> Result<RotCounts, Box<Failure>> {
    let case = format!("rot/{world}");
    guard(&case, seed, |place| {
        let mut random = Stream::new(seed, &case);
        let closed = Closed::draw(&mut random)?;
        let mut counts = RotCounts {
            worlds: 1,
            ..RotCounts::default()
        };
        for number in 0..injections {
            let Some(damage) = closed.damage(&mut random) else {
                continue;
            };
            place.clear();
            let _ = write!(place, "injection {number}, {damage}");
            if trace {
                use std::io::Write as _;
                let _ = writeln!(std::io::stdout(), "{place}");
            }
            closed.check(&damage, random.next(), &mut counts)?;
        }
        Ok(counts)
    })
}

/// The result of damage in the last acknowledged batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailDamage {
    /// The start is refused.
    Refused,
    /// The batch is cut as a torn tail, and reported; everything before it is there.
    Cut,
}

/// Acknowledges two messages, perhaps marks the log, and flips one bit of the second.
///
/// Without the mark, nothing on the disk shows that the batch was ever complete: the format says
/// so, and only this test shows it.
pub fn damage_tail(seed: u64, is_marked: bool) -> Result<TailDamage, Box<Failure>> {
    guard("rot/tail", seed, |place| {
        let setting = Setting::ALL[0];
        let mut host = setting.prepare(seed)?;
        host.play(Step::Send)?;
        let (file, offset) = end_of(&host);
        let offset = offset as u64;
        host.play(Step::Send)?;
        let mut clients = host.known()?;
        if is_marked {
            host.play(Step::Mark)?;
        }
        let disk = host.tape().disk().kill();
        disk.flip(&file, offset + 300, 0x10);
        let _ = write!(place, "one bit of {file} at {}", offset + 300);
        clients.excuse_last();
        let mut host = match Host::open(Tape::new(disk), setting, clients, host.now(), seed) {
            Ok(host) => host,
            Err(not) => {
                let named = OpenPartitionError::to_string(&not.error);
                assert!(named.contains(&format!("{file} is damaged at byte {offset}")));
                return Ok(TailDamage::Refused);
            }
        };
        let cut = host
            .recovery()
            .tail_cut
            .clone()
            .expect("what is cut is named");
        assert_eq!((cut.file, cut.offset), (file, offset));
        // The next message gets the id of the lost one, so none is missing.
        host.drain()?;
        Ok(TailDamage::Cut)
    })
}

type Contents = BTreeMap<String, Vec<u8>>;

/// A partition that was closed cleanly: everything that its clients know is on the disk, and proven
/// durable.
struct Closed {
    setting: Setting,
    disk: FaultyStorage,
    contents: Contents,
    /// Former contents of the files, oldest first.
    past: Vec<Contents>,
    clients: Clients,
    now: Timestamp,
    /// The last segment, and the range of its last batches.
    last_segment: String,
    last_batches: Range<usize>,
    /// The segment before it, if a new one was just begun, and the range of its last batch and the
    /// roll.
    segment_end: Option<(String, Range<usize>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bit,
    Sector,
    Truncation,
    Stale,
    Misdirected,
    MisdirectedAway,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Bit,
        Self::Sector,
        Self::Truncation,
        Self::Stale,
        Self::Misdirected,
        Self::MisdirectedAway,
    ];
}

/// Changed or missing bytes, in one place or two.
struct Damage {
    kind: Kind,
    places: Vec<Place>,
}

struct Place {
    file: String,
    offset: usize,
    /// The new content; `None` if the file is cut there.
    bytes: Option<Vec<u8>>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.kind)?;
        for place in &self.places {
            let length = place.bytes.as_ref().map_or(0, Vec::len);
            write!(f, ", {} at {} ({length} bytes)", place.file, place.offset)?;
        }
        Ok(())
    }
}

impl Closed {
    fn draw(random: &mut Stream) -> Result<Self, Violation> {
        let Workload {
            setting,
            entropy,
            acts,
        } = Workload::draw(random, WorkloadKind::Storage);
        let setting = setting.plain();
        let mut host = setting.prepare(entropy)?;
        let mut past = Vec::new();
        for (act, epoch) in acts.into_iter().zip(1..) {
            past.push(contents(host.tape().disk()));
            match act {
                Act::Play(step) => host.play(step)?,
                Act::Wait => wait(&mut host)?,
                Act::Restart { is_clean } => {
                    host.end(is_clean)?;
                    host = host
                        .restart(entropy.wrapping_add(epoch))
                        .map_err(|not| violation("at a restart", &not.error))?;
                }
            }
        }
        past.push(contents(host.tape().disk()));
        for _ in 0..random.below(3) {
            host.play(Step::CreateQueue)?;
            host.play(Step::Send)?;
        }
        past.push(contents(host.tape().disk()));
        Self::close(host, setting, past, random)
    }

    /// Closes a partition with a mark, and half of the time with a snapshot.
    fn close(
        mut host: Host,
        setting: Setting,
        past: Vec<Contents>,
        random: &mut Stream,
    ) -> Result<Self, Violation> {
        if random.happens(500) {
            host.play(Step::Snapshot)?;
        }
        // At least one batch follows, so that a mark is due; sometimes so many that a new segment
        // begins, whose records alone prove the end of the former one.
        let goes_on = random.happens(400);
        let mut segment_end = None;
        loop {
            let (file, end) = end_of(&host);
            host.play(Step::CreateQueue)?;
            host.play(Step::Send)?;
            if end_of(&host).0 != file {
                let begin = end.saturating_sub(LAST_BATCHES_BYTES / 2).max(PAGE_SIZE);
                segment_end = Some((file, begin..end + SECTOR_SIZE / 8));
            }
            if segment_end.is_some() || !goes_on {
                break;
            }
        }
        if random.happens(300) {
            host.play(Step::Snapshot)?;
        }
        let (last_segment, batches_end) = end_of(&host);
        host.end(true)?;
        let begin = batches_end
            .saturating_sub(LAST_BATCHES_BYTES)
            .max(PAGE_SIZE);
        let disk = host.tape().disk().kill();
        Ok(Self {
            setting,
            contents: contents(&disk),
            disk,
            past,
            clients: host.known()?,
            now: host.now(),
            last_segment,
            last_batches: begin..batches_end,
            segment_end,
        })
    }

    /// A damage that changes something, if a few attempts find one.
    fn damage(&self, random: &mut Stream) -> Option<Damage> {
        (0..50).find_map(|_| {
            let kind = Kind::ALL[random.index(Kind::ALL.len())];
            let places = self.places(kind, random)?;
            let changes = places.iter().all(|place| {
                let now = self
                    .contents
                    .get(&place.file)
                    .map(|content| &content[place.offset..]);
                match &place.bytes {
                    Some(bytes) => now.is_some_and(|now| !now.starts_with(bytes)),
                    None => now.is_some_and(|now| !now.is_empty()),
                }
            });
            changes.then_some(Damage { kind, places })
        })
    }

    fn places(&self, kind: Kind, random: &mut Stream) -> Option<Vec<Place>> {
        let (file, at) = self.target(random);
        let size = [SECTOR_SIZE, PAGE_SIZE][random.index(2)];
        let content = &self.contents[&file];
        let place = |file: &str, offset: usize, bytes: Option<&[u8]>| Place {
            file: file.to_owned(),
            offset,
            bytes: bytes.map(<[u8]>::to_vec),
        };
        Some(match kind {
            Kind::Bit => {
                let bit = 1_u8 << random.below(8);
                vec![place(&file, at, Some(&[content[at] ^ bit]))]
            }
            Kind::Sector => {
                let offset = at / SECTOR_SIZE * SECTOR_SIZE;
                let count = SECTOR_SIZE.min(content.len() - offset);
                let fill = random.below(3);
                let garbage: Vec<u8> = (0..count)
                    .map(|_| match fill {
                        0 => 0,
                        1 => 0xff,
                        _ => random.next().to_le_bytes()[0],
                    })
                    .collect();
                vec![place(&file, offset, Some(&garbage))]
            }
            Kind::Truncation => vec![place(&file, at, None)],
            Kind::Stale => {
                let (offset, once) = self.once(&file, at, size, random)?;
                vec![place(&file, offset, Some(once))]
            }
            Kind::Misdirected => {
                let (source, offset) = self.target(random);
                let bytes = block(&self.contents[&source], offset, size);
                let offset = at / size * size;
                let count = bytes.len().min(content.len() - offset);
                vec![place(&file, offset, Some(&bytes[..count]))]
            }
            Kind::MisdirectedAway => {
                // The block is missing where it should have been written. It goes to another file, and
                // neither is the proof, so that the proof for the missing one still exists.
                let (other, offset) = self.target(random);
                if file == PROOF || other == PROOF || other == file {
                    return None;
                }
                let (from, once) = self.once(&file, at, size, random)?;
                let bytes = block(content, from, size);
                let offset = offset / size * size;
                let count = bytes.len().min(self.contents[&other].len() - offset);
                vec![
                    place(&file, from, Some(once)),
                    place(&other, offset, Some(&bytes[..count])),
                ]
            }
        })
    }

    /// A byte of a file: often of the last batches, usually of a used part.
    fn target(&self, random: &mut Stream) -> (String, usize) {
        if random.happens(400) {
            let offset = self.last_batches.start + random.index(self.last_batches.len());
            return (self.last_segment.clone(), offset);
        }
        if let Some((file, range)) = &self.segment_end
            && random.happens(200)
        {
            return (file.clone(), range.start + random.index(range.len()));
        }
        let names: Vec<&String> = self
            .contents
            .iter()
            .filter(|(name, content)| {
                !content.is_empty() && (!name.starts_with("ballast") || random.happens(50))
            })
            .map(|(name, _)| name)
            .collect();
        let file = names[random.index(names.len())];
        let content = &self.contents[file];
        let mut offset = random.index(content.len());
        for _ in 0..20 {
            let sector = block(content, offset, SECTOR_SIZE);
            if sector.iter().any(|byte| *byte != 0) {
                break;
            }
            offset = random.index(content.len());
        }
        (file.clone(), offset)
    }

    /// The former content of the block around a byte, from a time when it differed.
    fn once(
        &self,
        file: &str,
        at: usize,
        size: usize,
        random: &mut Stream,
    ) -> Option<(usize, &[u8])> {
        let now = block(&self.contents[file], at, size);
        let mut versions: Vec<&[u8]> = self
            .past
            .iter()
            .filter_map(|past| past.get(file))
            .filter(|content| content.len() > at)
            .map(|content| block(content, at, size))
            .filter(|once| once.len() == now.len() && *once != now)
            .collect();
        versions.dedup();
        if versions.is_empty() {
            return None;
        }
        Some((at / size * size, versions[random.index(versions.len())]))
    }

    /// Opens the damaged partition, and accepts only the three allowed outcomes.
    fn check(
        &self,
        damage: &Damage,
        entropy: u64,
        counts: &mut RotCounts,
    ) -> Result<(), Violation> {
        self.count(damage, counts);
        let disk = self.disk.kill();
        for place in &damage.places {
            let offset = place.offset as u64;
            match &place.bytes {
                Some(bytes) => disk.corrupt(&place.file, offset, bytes),
                None => disk.truncate(&place.file, offset),
            }
        }
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
        let warned = |begin: &str| {
            let warnings = host.recovery().warnings.iter();
            warnings.filter(|it| it.starts_with(begin)).count() as u64
        };
        counts.snapshots_passed_over += warned("a snapshot was passed over");
        counts.pages_from_copy += warned("what is damaged was read from its copy");
        let spans: Vec<_> = host.partition().log().segments().collect();
        let closed = spans.iter().take(spans.len().saturating_sub(1));
        let closed: Vec<_> = closed
            .map(|span| format!("segment-{:020}", span.number))
            .collect();
        let scrubbed = host.scrub()?;
        counts.scrubbed += scrubbed.len() as u64;
        host.drain()?;
        host.use_once()?;
        if host.clients.damage().is_empty() {
            counts.harmless += 1;
        } else {
            counts.bodies += 1;
        }
        for (file, offset) in host.clients.damage() {
            // A body's checksum is just before it, and the report names the body.
            check_place(damage, file, offset - 4)?;
            let is_found = scrubbed.contains(&(file.clone(), *offset));
            if closed.contains(file) && !is_found {
                return Err(Violation {
                    promise: "a scrub finds every damaged message",
                    seen: format!("{file} at {offset} is not found"),
                });
            }
        }
        for (file, offset) in &scrubbed {
            check_place(damage, file, offset - 4)?;
        }
        Ok(())
    }

    fn count(&self, damage: &Damage, counts: &mut RotCounts) {
        counts.injections += 1;
        *match damage.kind {
            Kind::Bit => &mut counts.bits,
            Kind::Sector => &mut counts.sectors,
            Kind::Truncation => &mut counts.truncations,
            Kind::Stale => &mut counts.stale,
            Kind::Misdirected => &mut counts.misdirected,
            Kind::MisdirectedAway => &mut counts.misdirected_away,
        } += 1;
        let place = &damage.places[0];
        let is_last = place.file == self.last_segment && self.last_batches.contains(&place.offset);
        counts.in_last_batches += u64::from(is_last);
        *match place.file.split('-').next() {
            Some("segment") => &mut counts.in_segments,
            Some("snapshot") => &mut counts.in_snapshots,
            Some("pages") => &mut counts.in_pages,
            _ => &mut counts.in_others,
        } += 1;
    }
}

/// The active segment, and the end of the log in it.
fn end_of(host: &Host) -> (String, usize) {
    let log = host.partition().log();
    let span = log.segments().last().expect("a log has a segment");
    let offset = PAGE_SIZE as u64 + log.end().as_u64() - span.first.as_u64();
    let offset = usize::try_from(offset).expect("an offset in memory");
    (format!("segment-{:020}", span.number), offset)
}

fn contents(disk: &FaultyStorage) -> Contents {
    let names = disk.files().into_iter().map(|(name, _)| name);
    names
        .map(|name| {
            let content = disk.content(&name).expect("a name has its file");
            (name, content)
        })
        .collect()
}

/// The aligned block around a byte.
fn block(content: &[u8], at: usize, size: usize) -> &[u8] {
    let begin = at / size * size;
    &content[begin..content.len().min(begin + size)]
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
