//! Bit rot of the segment that is written to, while it is: in its header, in bodies, and in other parts of its records.
//!
//! A scrub reads what is durable of it, while clients go on. It names the damage and each message with a damaged body,
//! and nothing else. A commit writes a damaged header again. All that is whole is served, and no later start is
//! refused.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use kew_engine::{BodyLocation, BodyOwner, EntityName, SequenceNumber};
use kew_log::{LogPosition, inspect};

use super::{Closed, PAGE_SIZE, SECTOR_SIZE, contents, end_of, send_more};
use crate::checker::Violation;
use crate::disk::failure::{Failure, guard};
use crate::disk::host::{Found, Host};
use crate::disk::setting::violation;
use crate::disk::step::Step;
use crate::disk::tape::Tape;
use crate::disk::topics;
use crate::disk::workload::WorkloadKind;
use crate::random::Stream;
use crate::seam::files_of;

/// The size of a segment's header.
const HEADER_SIZE: usize = 88;
/// The size of a record's header, which its payload follows.
const RECORD_HEADER_SIZE: u64 = 48;
/// Records begin at its multiples.
const RECORD_ALIGNMENT: usize = 8;
/// The size of the checksum before a body.
const CHECKSUM_SIZE: usize = 4;

/// Snapshots follow one another until no start needs what is damaged. Each takes a change.
const ROUNDS: u32 = 4;

/// What was damaged, and the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct ActiveCounts {
    /// Partitions that were closed cleanly, and opened again for each damage.
    pub worlds: u64,
    /// Damages, one at a time.
    pub injections: u64,
    /// Of these, in the segment's header, in a body, and anywhere in its records.
    pub in_headers: u64,
    /// See above.
    pub in_bodies: u64,
    /// See above.
    pub in_records: u64,
    /// Headers that a commit has written again.
    pub headers_written: u64,
    /// What was damaged in records was written again before the pass had ended, by the next commit.
    pub undone: u64,
    /// Damaged bodies that a scrub has found.
    pub scrubbed: u64,
    /// Passes with operations between their pieces.
    pub busy: u64,
    /// The segment was left before its pass had ended.
    pub left: u64,
    /// Starts while the damaged messages were still there.
    pub starts: u64,
    /// Damages of which clients have met some.
    pub met: u64,
}

impl ActiveCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.injections += other.injections;
        self.in_headers += other.in_headers;
        self.in_bodies += other.in_bodies;
        self.in_records += other.in_records;
        self.headers_written += other.headers_written;
        self.undone += other.undone;
        self.scrubbed += other.scrubbed;
        self.busy += other.busy;
        self.left += other.left;
        self.starts += other.starts;
        self.met += other.met;
    }
}

/// The name of a world, for running only that.
pub fn active_rot_case(kind: WorkloadKind, world: u64) -> String {
    match kind {
        WorkloadKind::Storage => format!("rot-active/{world}"),
        WorkloadKind::WithBus => format!("rot-active/bus-{world}"),
        WorkloadKind::WithTopics => format!("rot-active/topics-{world}"),
    }
}

/// Damages the segment that the partition of one world writes to in `injections` ways, one after the other.
pub fn rot_active(
    seed: u64,
    kind: WorkloadKind,
    world: u64,
    injections: u64,
) -> Result<ActiveCounts, Box<Failure>> {
    let case = active_rot_case(kind, world);
    guard(&case, seed, |place| {
        let mut random = Stream::new(seed, &case);
        let closed = Closed::draw(&mut random, kind)?;
        let mut counts = ActiveCounts {
            worlds: 1,
            ..ActiveCounts::default()
        };
        for number in 0..injections {
            place.clear();
            let _ = write!(place, "injection {number}");
            closed.damage_active(&mut random, place, &mut counts)?;
        }
        Ok(counts)
    })
}

/// A body in a file, and the message that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    file: String,
    /// With the checksum before it.
    bytes: Range<usize>,
    queue: EntityName,
    number: SequenceNumber,
}

/// What was damaged of the segment that is written to.
struct Active {
    file: String,
    /// The position of its first record.
    first: u64,
    /// Its bytes before, and which of them were changed.
    before: Vec<u8>,
    bytes: Range<usize>,
    /// The bodies that it had.
    held: Vec<Held>,
}

impl Closed {
    fn damage_active(
        &self,
        random: &mut Stream,
        place: &mut String,
        counts: &mut ActiveCounts,
    ) -> Result<(), Violation> {
        let tape = Tape::new(self.disk.kill());
        let (setting, clients) = (self.setting.whole(), self.clients.clone());
        let host = Host::open(tape, setting, clients, self.now, random.next());
        let mut host = host.map_err(|not| violation("before it is damaged", &not.error))?;
        for _ in 0..1 + random.below(3) {
            send_more(&mut host, self.kind)?;
        }
        let disk = host.tape().disk().clone();
        let known = contents(&disk);
        host.clients.know_contents(Arc::new(known));
        host.allow_damage();
        let active = Active::damage(&host, random, counts);
        let _ = write!(place, ", {:?} of {}", active.bytes, active.file);
        counts.injections += 1;

        let is_busy = random.happens(600);
        counts.busy += u64::from(is_busy);
        if is_busy && random.happens(300) {
            go_on(&mut host, self.kind)?;
        }
        let (one_in, mut piece) = (1 + random.below(6), random.below(6));
        let found = host.scrub_while(|host| {
            piece += 1;
            match is_busy && piece % one_in == 0 {
                true => go_on(host, self.kind),
                false => Ok(()),
            }
        })?;
        counts.left += u64::from(end_of(&host).0 != active.file);
        active.check_found(&host, &found, counts)?;
        go_on(&mut host, self.kind)?;
        active.check_header(&host, counts)?;

        if random.happens(500) {
            host = self.start_again(host, random.next())?;
            counts.starts += 1;
        }
        if self.kind != WorkloadKind::Storage {
            host.settle()?;
            topics::look(&mut host)?;
        }
        host.drain()?;
        host.use_once()?;
        counts.met += u64::from(!host.clients.damage().is_empty());
        for body in host.clients.damage() {
            let bytes = framed(body.offset, body.length);
            active.check_is_damaged(&body.file, bytes, body)?;
        }
        self.start_again(host, random.next())?.use_once()
    }

    /// Clients go on for a while, then the process ends and the next one begins.
    fn start_again(&self, mut host: Host, entropy: u64) -> Result<Host, Violation> {
        for _ in 0..ROUNDS {
            go_on(&mut host, self.kind)?;
            host.settle()?;
        }
        host.end(true)?;
        let host = host.restart(entropy);
        let mut host = host.map_err(|not| violation("after the scrub", &not.error))?;
        host.allow_damage();
        Ok(host)
    }
}

/// Clients go on. A queue of Queue Storage keeps what a receive can show at once.
fn go_on(host: &mut Host, kind: WorkloadKind) -> Result<(), Violation> {
    send_more(host, kind)?;
    match kind {
        WorkloadKind::Storage => host.play(Step::Delete),
        WorkloadKind::WithBus | WorkloadKind::WithTopics => Ok(()),
    }
}

impl Active {
    fn damage(host: &Host, random: &mut Stream, counts: &mut ActiveCounts) -> Self {
        let (file, end) = end_of(host);
        let disk = host.tape().disk();
        let before = disk.content(&file).expect("a segment in use has its file");
        let span = files_of(host.partition().log()).segments().last();
        let first = span.map_or(0, |span| span.first.as_u64());
        let held: Vec<Held> = held(host)
            .into_iter()
            .filter(|it| it.file == file)
            .collect();
        let records = PAGE_SIZE..end;
        let bytes = match random.below(5) {
            0 => {
                counts.in_headers += 1;
                byte(random.index(HEADER_SIZE))
            }
            1 | 2 if !held.is_empty() => {
                counts.in_bodies += 1;
                let body = &held[random.index(held.len())].bytes;
                byte(body.start + random.index(body.len()))
            }
            3 => {
                counts.in_records += 1;
                let at = PAGE_SIZE + random.index(records.len());
                let begin = at / SECTOR_SIZE * SECTOR_SIZE;
                begin..(begin + SECTOR_SIZE).min(end)
            }
            _ => {
                counts.in_records += 1;
                byte(PAGE_SIZE + random.index(records.len()))
            }
        };
        for at in bytes.clone() {
            // One bit at least.
            let mask = match bytes.len() {
                1 => 1 << random.below(8),
                _ => 1 + random.below(255),
            };
            let mask = u8::try_from(mask).expect("less than 256");
            disk.flip(&file, at as u64, mask);
        }
        Self {
            file,
            first,
            before,
            bytes,
            held,
        }
    }

    /// What is still damaged was found, with its place, and so was each message whose body is. Nothing else was.
    fn check_found(
        &self,
        host: &Host,
        found: &Found,
        counts: &mut ActiveCounts,
    ) -> Result<(), Violation> {
        let after = host.tape().disk().content(&self.file).unwrap_or_default();
        let is_changed = |at: &usize| after.get(*at) != self.before.get(*at);
        let is_of_header = self.bytes.start < PAGE_SIZE;
        for place in &found.places {
            let beginning = LogPosition::new(0);
            let positions = place.positions.clone().unwrap_or(beginning..beginning);
            let (begin, end) = (
                self.position(self.bytes.start),
                self.position(self.bytes.end),
            );
            let is_right = match is_of_header {
                true => place.offset == 0,
                false => positions.start < end && begin < positions.end,
            };
            if place.file != self.file || !is_right || !place.is_certain {
                return Err(not_right(format!("{place:?} is named")));
            }
        }
        if is_of_header {
            return match found.places.is_empty() {
                true => Err(not_right("a header is not named".to_owned())),
                false => Ok(()),
            };
        }
        let is_named = |at: usize| {
            let mut positions = found.places.iter().filter_map(|it| it.positions.as_ref());
            positions.any(|it| it.contains(&self.position(at)))
        };
        let mut missed = self
            .bytes
            .clone()
            .filter(|at| is_changed(at) && !is_named(*at));
        if let Some(at) = missed.find(|at| !self.is_padding(*at) || self.is_known(host)) {
            let places = &found.places;
            return Err(not_right(format!("byte {at} is not named: {places:?}")));
        }
        counts.undone += u64::from(!self.bytes.clone().any(|at| is_changed(&at)));
        self.check_bodies(host, found, is_changed, counts)
    }

    fn check_bodies(
        &self,
        host: &Host,
        found: &Found,
        is_changed: impl Fn(&usize) -> bool,
        counts: &mut ActiveCounts,
    ) -> Result<(), Violation> {
        for body in &found.bodies {
            let bytes = framed(body.offset, body.needed.body.length.into());
            self.check_is_damaged(&body.file, bytes, body)?;
        }
        let named = found.bodies.iter().filter_map(|it| match it.needed.of {
            BodyOwner::Message(number) => Some(Held {
                file: it.file.clone(),
                bytes: framed(it.offset, it.needed.body.length.into()),
                queue: it.needed.queue.clone(),
                number,
            }),
            BodyOwner::Session(_) => None,
        });
        let named: Vec<Held> = named.collect();
        counts.scrubbed += named.len() as u64;
        let held = held(host);
        let is_needed =
            |it: &&Held| held.contains(it) && it.bytes.clone().any(|at| is_changed(&at));
        let mut needed = self.held.iter().filter(is_needed);
        match needed.find(|it| !named.contains(it)) {
            Some(missing) => Err(not_right(format!("{missing:?} is not listed: {named:?}"))),
            None => Ok(()),
        }
    }

    /// Whether a byte may be one of the zeros between two records. Nothing reads those.
    fn is_padding(&self, at: usize) -> bool {
        let end = at.next_multiple_of(RECORD_ALIGNMENT).max(at + 1);
        let is_zero = self
            .before
            .get(at..end)
            .is_some_and(|it| it.iter().all(|byte| *byte == 0));
        is_zero && !self.held.iter().any(|it| it.bytes.contains(&at))
    }

    /// Whether a checksum of the segment shows damage.
    fn is_known(&self, host: &Host) -> bool {
        let inspected = inspect(&host.tape().disk().kill());
        inspected.is_ok_and(|it| it.damage.iter().any(|damage| damage.file == self.file))
    }

    /// Where a byte of a record is in the log.
    fn position(&self, at: usize) -> LogPosition {
        LogPosition::new(self.first + (at as u64).saturating_sub(PAGE_SIZE as u64))
    }

    /// The next commit writes a header again that the scrub has found.
    fn check_header(&self, host: &Host, counts: &mut ActiveCounts) -> Result<(), Violation> {
        if self.bytes.start >= PAGE_SIZE {
            return Ok(());
        }
        let Some(after) = host.tape().disk().content(&self.file) else {
            // Nothing is needed of it any more.
            return Ok(());
        };
        if after.get(..HEADER_SIZE) != self.before.get(..HEADER_SIZE) {
            let file = &self.file;
            return Err(not_right(format!("the header of {file} is still damaged")));
        }
        counts.headers_written += 1;
        Ok(())
    }

    /// Only what is damaged may be reported.
    fn check_is_damaged(
        &self,
        file: &str,
        bytes: Range<usize>,
        seen: &impl std::fmt::Debug,
    ) -> Result<(), Violation> {
        let is_near = self.bytes.start < bytes.end && bytes.start < self.bytes.end;
        match file == self.file && is_near {
            true => Ok(()),
            false => Err(not_right(format!("{seen:?} is whole"))),
        }
    }
}

/// The bodies of all messages, also of changes to their properties.
fn held(host: &Host) -> Vec<Held> {
    let partition = host.partition();
    let spans: Vec<_> = files_of(partition.log()).segments().collect();
    let mut held = Vec::new();
    for message in partition.state().messages() {
        for body in [&message.body].into_iter().chain(message.overlays) {
            let holds = |first: u64, end: u64| (first..end).contains(&body.record);
            let mut spans = spans.iter();
            let Some(span) = spans.find(|it| holds(it.first.as_u64(), it.end.as_u64())) else {
                continue;
            };
            held.push(Held {
                file: format!("segment-{:020}", span.number),
                bytes: in_file(body, span.first.as_u64()),
                queue: message.queue_name.clone(),
                number: message.sequence_number,
            });
        }
    }
    held
}

/// Where a body lies in a segment, with its checksum.
fn in_file(body: &BodyLocation, first: u64) -> Range<usize> {
    let record = PAGE_SIZE as u64 + body.record - first;
    let payload = record + RECORD_HEADER_SIZE;
    framed(payload + u64::from(body.offset()), body.length.into())
}

/// The bytes of a body that begins there, with the checksum before it.
fn framed(begin: u64, length: u64) -> Range<usize> {
    let at = |at: u64| usize::try_from(at).expect("an offset in memory");
    at(begin) - CHECKSUM_SIZE..at(begin + length)
}

fn byte(at: usize) -> Range<usize> {
    at..at + 1
}

fn not_right(seen: String) -> Violation {
    Violation {
        promise: "a scrub finds what is damaged of the segment that is written to",
        seen,
    }
}
