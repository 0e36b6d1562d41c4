//! Scrub: which file is read next, whose bytes are damaged, and snapshots that make damage harmless for a start.
//!
//! A pass reads every file once ([`kew_log::Scrub`]). Damaged records may have bytes of messages: those are read one by
//! one, because each has a checksum of its own, and many of a damaged batch are whole. One that several messages have,
//! because a topic gave each of its subscriptions a copy, is read once, and listed for each of them. No message is
//! changed: a damaged one stays, and reading it has the result that it always had.
//!
//! A start replays the log from a snapshot. If records behind it are damaged, or a snapshot is, the partition writes
//! snapshots until no start needs what is damaged. The same follows from damage of snapshots that a start has found,
//! and from damage of pages that a load has found, also if there is no scrub.
//!
//! A page of which both copies are damaged, and whose messages are nowhere else, is named by the next snapshots, too.
//! The report counts such pages, because no backup can be made, until their messages are set aside (`loads/warming.rs`)
//! and what is left of their runs has another page.

mod search;

use std::collections::{BTreeSet, VecDeque};

use kew_engine::{BodyOwner, EntityName, NeededBody, RunId, SequenceNumber, Timestamp};
use kew_log::{
    Body, BodyError, BootTime, LogFiles, LogPosition, PageDamage, PagesRead, Scrub, ScrubCursor,
    ScrubDamage, Scrubbed,
};

use self::search::HolderSearch;
use super::loads::Asker;
use super::{Partition, to_log};

/// How many damaged places, and how many damaged messages, are listed. All are counted.
const LISTED_MAX: usize = 1000;

/// How many bodies one job reads.
const BODIES_AT_ONCE: usize = 64;

/// What a scrub has found, as far as it was not repaired since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Whether there is a scrub at all: its rate can be 0.
    pub is_on: bool,
    /// How many passes have ended since the start.
    pub passes: u64,
    /// When the last of them ended.
    pub ended_at: Option<Timestamp>,
    /// How many bytes were read since the start.
    pub read_bytes: u64,
    /// Damage in files, of the last whole pass and of the one that goes on. The first thousand places.
    pub places: Vec<ScrubDamage>,
    /// How many places there are.
    pub places_count: u64,
    /// Bytes of messages and sessions that cannot be read. The first thousand.
    pub bodies: Vec<DamagedBody>,
    /// How many there are.
    pub bodies_count: u64,
    /// Pages with messages or remembered ids that cannot be read, and that the newest snapshot names: no backup can be
    /// made, and a start that reads one of ids fails. Known once a snapshot was written after the damage was found.
    /// With a limit for memory, most are gone a few snapshots later.
    pub unreadable_pages: u64,
    /// Messages that are set aside because their records are lost, of the first thousand runs with some. Only if they
    /// were asked for ([`Partition::quarantined_runs`]).
    pub quarantined: Vec<QuarantinedRun>,
    /// How many messages are set aside.
    pub quarantined_count: u64,
}

/// Messages of a run of numbers that are set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRun {
    /// Their queue.
    pub queue: EntityName,
    /// The first of their numbers.
    pub first: SequenceNumber,
    /// How many there are.
    pub count: u64,
}

/// Bytes that are still needed and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBody {
    /// What needs them.
    pub needed: NeededBody,
    /// The file.
    pub file: String,
    /// Where in the file they begin.
    pub offset: u64,
}

/// Blocking work of a scrub. Carry it out a step at a time, with pauses.
pub struct ScrubJob(Work);

enum Work {
    File(Box<Scrub>),
    Bodies {
        left: VecDeque<(Vec<NeededBody>, Body)>,
        damaged: Vec<DamagedBody>,
    },
}

/// The outcome of a job, for [`Partition::scrubbed`].
#[derive(Debug)]
pub struct ScrubOutcome(Done);

#[derive(Debug)]
enum Done {
    File(Scrubbed),
    Bodies(Vec<DamagedBody>),
}

impl ScrubJob {
    /// Reads a piece. Returns how many bytes that were, and `None` at the end.
    pub fn step(&mut self) -> Option<u64> {
        match &mut self.0 {
            Work::File(scrub) => scrub.step(),
            Work::Bodies { left, damaged } => {
                let (holders, body) = left.pop_front()?;
                let (file, offset) = match body.read() {
                    Ok(_) => return Some(body.len_bytes()),
                    Err(BodyError::Damaged { file, offset }) => (file, offset),
                    Err(BodyError::Gone(position)) => ("a lost segment".into(), position.as_u64()),
                    // The next pass finds it again.
                    Err(BodyError::Io(failure)) if failure.is_no_descriptor() => return Some(0),
                    Err(BodyError::Io(failure)) => (failure.file, failure.offset.unwrap_or(0)),
                };
                damaged.extend(holders.into_iter().map(|needed| DamagedBody {
                    needed,
                    file: file.clone(),
                    offset,
                }));
                Some(body.len_bytes())
            }
        }
    }

    /// The outcome, once [`ScrubJob::step`] has returned `None`.
    pub fn finish(self) -> ScrubOutcome {
        ScrubOutcome(match self.0 {
            Work::File(scrub) => Done::File(scrub.finish()),
            Work::Bodies { damaged, .. } => Done::Bodies(damaged),
        })
    }

    /// Carries out all of it, without a pause.
    pub fn run(mut self) -> ScrubOutcome {
        while self.step().is_some() {}
        self.finish()
    }
}

impl ScrubOutcome {
    /// What it has found in files.
    pub fn places(&self) -> &[ScrubDamage] {
        match &self.0 {
            Done::File(scrubbed) => &scrubbed.damage,
            Done::Bodies(_) => &[],
        }
    }

    /// Whether a commit is to write the header of what was read again.
    pub(crate) fn leaves_header(&self) -> bool {
        matches!(&self.0, Done::File(scrubbed) if scrubbed.header.is_some())
    }

    /// Bytes of messages and sessions that it could not read.
    pub fn bodies(&self) -> &[DamagedBody] {
        match &self.0 {
            Done::File(_) => &[],
            Done::Bodies(damaged) => damaged,
        }
    }
}

/// How far a partition's scrub has come.
pub(super) struct Scrubbing {
    /// A job is under way.
    is_out: bool,
    /// `None` between two passes.
    cursor: Option<ScrubCursor>,
    next_pass_at: BootTime,
    passes: u64,
    ended_at: Option<Timestamp>,
    read_bytes: u64,
    /// Of the last whole pass, and of the one that goes on.
    before: Findings,
    found: Findings,
    /// Damage of pages that loads have found, each place once.
    loaded: Listed<ScrubDamage>,
    loaded_places: BTreeSet<(String, u64)>,
    /// Looks for what has bytes in the damaged records of the file that was read last.
    search: Option<HolderSearch>,
    /// Bodies that lie in such records: all that has each of them.
    suspects: VecDeque<Vec<NeededBody>>,
    /// A file of this pass was not read for lack of a descriptor.
    is_incomplete: bool,
    /// No start may need what lies before this position.
    avoided: Option<LogPosition>,
}

#[derive(Default)]
struct Findings {
    places: Listed<ScrubDamage>,
    bodies: Listed<DamagedBody>,
}

/// The first ones, and how many there are.
struct Listed<T> {
    first: Vec<T>,
    count: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            first: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Listed<T> {
    fn push(&mut self, item: T) {
        self.count += 1;
        if self.first.len() < LISTED_MAX {
            self.first.push(item);
        }
    }
}

impl Scrubbing {
    /// Whether records of a run are needed for the search.
    pub(super) fn is_pinned(&self, run: RunId) -> bool {
        self.search.as_ref().is_some_and(|it| it.is_pinned(run))
    }
}

impl Default for Scrubbing {
    fn default() -> Self {
        Self {
            is_out: false,
            cursor: None,
            next_pass_at: BootTime::ZERO,
            passes: 0,
            ended_at: None,
            read_bytes: 0,
            before: Findings::default(),
            found: Findings::default(),
            loaded: Listed::default(),
            loaded_places: BTreeSet::new(),
            search: None,
            suspects: VecDeque::new(),
            is_incomplete: false,
            avoided: None,
        }
    }
}

impl<T> Partition<T> {
    /// The next job of the scrub, if one is due. There is one at a time, and none on a full disk: a file that is read
    /// keeps its space after it was removed.
    pub fn next_scrub(&mut self) -> Option<ScrubJob> {
        if self.is_full() {
            self.suspend_search();
        }
        if self.stopped || !self.may_scrub() {
            return None;
        }
        if !self.has_searched() {
            return None;
        }
        let work = self.next_bodies().or_else(|| self.next_file())?;
        self.scrub.is_out = true;
        Some(ScrubJob(work))
    }

    /// When the next pass begins, or the search of the one that goes on takes its next step. `None` if a job comes
    /// first, or a read.
    pub fn next_scrub_at(&self) -> Option<BootTime> {
        if !self.may_scrub() {
            return None;
        }
        match &self.scrub.search {
            Some(search) => {
                let is_served = self.loads.has_served(Asker::Scrub);
                is_served.then_some(search.not_before())
            }
            None => (self.scrub.cursor.is_none()).then_some(self.scrub.next_pass_at),
        }
    }

    fn may_scrub(&self) -> bool {
        let is_on = self.options.scrub_bytes_per_second > 0;
        is_on && !self.scrub.is_out && !self.is_full()
    }

    fn next_bodies(&mut self) -> Option<Work> {
        if self.scrub.suspects.is_empty() {
            return None;
        }
        let count = self.scrub.suspects.len().min(BODIES_AT_ONCE);
        let suspects: Vec<_> = self.scrub.suspects.drain(..count).collect();
        let in_files = suspects.into_iter().filter_map(|holders| {
            // Without its segment, nothing needs it any more.
            let body = (self.log.files()?).body_in_file(to_log(holders.first()?.body))?;
            Some((holders, body))
        });
        let left: VecDeque<_> = in_files.collect();
        let damaged = Vec::new();
        (!left.is_empty()).then_some(Work::Bodies { left, damaged })
    }

    fn next_file(&mut self) -> Option<Work> {
        let cursor = match self.scrub.cursor {
            Some(cursor) => cursor,
            None if self.scrub.next_pass_at.has_passed(self.now.boot) => {
                self.scrub.next_pass_at = self.now.boot.plus_ms(self.options.scrub_interval_ms);
                ScrubCursor::default()
            }
            None => return None,
        };
        self.scrub.cursor = Some(cursor);
        let files = self.log.files();
        if let Some(file) = files.and_then(|files| files.next_scrub(cursor)) {
            return Some(Work::File(Box::new(file)));
        }
        let scrub = &mut self.scrub;
        scrub.cursor = None;
        if std::mem::take(&mut scrub.is_incomplete) {
            // What earlier passes have found still counts.
            return None;
        }
        scrub.passes += 1;
        scrub.ended_at = Some(self.now.time);
        scrub.before = std::mem::take(&mut scrub.found);
        None
    }

    /// Takes the outcome of a job.
    pub fn scrubbed(&mut self, outcome: ScrubOutcome) {
        self.scrub.is_out = false;
        match outcome.0 {
            Done::File(scrubbed) => {
                self.scrub.read_bytes += scrubbed.read_bytes;
                let mut places = scrubbed.damage;
                let header = scrubbed.header;
                if header.is_some_and(|file| !self.write_header(&file, &mut places)) {
                    // No commit writes to it any more. It is read again, and then the scrub can write its header.
                    return;
                }
                self.scrub.cursor = Some(scrubbed.next);
                self.scrub.is_incomplete |= scrubbed.is_skipped;
                self.note_damage(places);
            }
            Done::Bodies(damaged) => {
                for body in damaged {
                    self.scrub.found.bodies.push(body);
                }
            }
        }
    }

    /// Has the next commit write a header that the scrub may not write. Returns whether it does.
    fn write_header(&mut self, file: &str, places: &mut [ScrubDamage]) -> bool {
        let files = self.log.files_mut();
        let is_written = files.is_some_and(|files| files.write_header(file));
        for place in places.iter_mut().filter(|it| is_written && it.offset == 0) {
            let what = &place.what;
            tracing::warn!(
                "the scrub found damage, and the next commit repairs it: {file} at byte 0: {what}"
            );
            place.is_repaired = true;
        }
        is_written
    }

    /// Notes the damage in one file.
    fn note_damage(&mut self, places: Vec<ScrubDamage>) {
        let damaged = places.iter().filter_map(|place| place.positions.clone());
        debug_assert!(
            self.scrub.search.is_none(),
            "no file is read during a search"
        );
        self.scrub.search = HolderSearch::of(damaged);
        let lasting = |place: &ScrubDamage| place.is_certain && !place.is_repaired;
        for place in places.into_iter().filter(lasting) {
            match &place.positions {
                Some(positions) => self.avoid_before(positions.end),
                None => self.avoid_file(&place.file),
            }
            self.scrub.found.places.push(place);
        }
    }

    /// Notes damage in a snapshot or a file of pages. A scrub has found it, or the start, which did not need what is
    /// damaged.
    pub(super) fn avoid_file(&mut self, file: &str) {
        if let Some(files) = self.log.files_mut() {
            let avoided = files.note_damaged_file(file);
            self.avoid_before(avoided);
        }
    }

    /// Notes the damage of pages that a load has found. Where the other copy was read, it is the only one. Each place
    /// counts once: a page of which nothing can be read is asked for again and again.
    pub(super) fn avoid_pages(&mut self, read: &PagesRead) {
        for damage in read.damage().iter().chain(read.lost()) {
            let PageDamage { file, offset, what } = damage.clone();
            if !self.scrub.loaded_places.insert((file.clone(), offset)) {
                continue;
            }
            tracing::warn!(file, offset, what, "a copy of a page is damaged");
            self.avoid_file(&file);
            self.scrub.loaded.push(ScrubDamage {
                file,
                offset,
                what,
                positions: None,
                is_certain: true,
                is_repaired: false,
            });
        }
    }

    /// No start is to need what lies before this position.
    pub(super) fn avoid_before(&mut self, position: LogPosition) {
        self.scrub.avoided = self.scrub.avoided.max(Some(position));
    }

    /// Writes snapshots until no start needs what is damaged: two that are whole, behind it. On a full disk only those
    /// are written that make space, and they count too: others would take the ballast, and the space of the older
    /// snapshot.
    ///
    /// Two cannot help if a page is named that cannot be read. Then it ends all the same, and the report says so.
    pub(super) fn avoid_damage(&mut self) {
        let Some(avoided) = self.scrub.avoided else {
            return;
        };
        let files = self.log.files();
        if files.and_then(LogFiles::replays_from) >= Some(avoided) {
            self.scrub.avoided = None;
            return;
        }
        let snapshots = self.log.snapshots();
        let is_resting = self.is_full() || !snapshots.retry_at.has_passed(self.now.boot);
        if self.stopped || snapshots.is_under_way || is_resting {
            return;
        }
        if self.log.snapshots().last == Some(self.log.end()) {
            // The second one must be another one. What the beat needs is room in the segment.
            self.beat();
        } else {
            self.begin_snapshot();
        }
    }

    /// The first thousand runs with messages that are set aside. Walks over all runs, if there are such messages.
    pub fn quarantined_runs(&self) -> Vec<QuarantinedRun> {
        if self.quarantined_count() == 0 {
            return Vec::new();
        }
        let runs = self.state.quarantined().take(LISTED_MAX);
        runs.map(|(queue, first, count)| QuarantinedRun {
            queue: queue.clone(),
            first,
            count,
        })
        .collect()
    }

    /// What is known to be damaged.
    pub fn scrub_report(&self) -> ScrubReport {
        let (scrub, files) = (&self.scrub, self.log.files());
        let found_count = scrub.before.places.count.max(scrub.found.places.count);
        let mut report = ScrubReport {
            is_on: self.options.scrub_bytes_per_second > 0,
            passes: scrub.passes,
            ended_at: scrub.ended_at,
            read_bytes: scrub.read_bytes,
            places_count: found_count.max(scrub.loaded.count),
            bodies_count: scrub.before.bodies.count.max(scrub.found.bodies.count),
            unreadable_pages: files.map_or(0, LogFiles::unreadable_pages) as u64,
            quarantined_count: self.quarantined_count(),
            ..ScrubReport::default()
        };
        let (mut places, mut bodies) = (BTreeSet::new(), BTreeSet::new());
        for found in [&scrub.before.places, &scrub.found.places, &scrub.loaded] {
            for place in &found.first {
                let is_new = places.insert((&place.file, place.offset));
                if is_new && files.is_some_and(|files| files.has_file(&place.file)) {
                    report.places.push(place.clone());
                }
            }
        }
        for findings in [&scrub.before, &scrub.found] {
            for body in &findings.bodies.first {
                let is_new = bodies.insert((&body.file, body.offset, holder(&body.needed)));
                let in_file = |at| files.and_then(|files| files.body_in_file(at));
                let is_there = || in_file(to_log(body.needed.body)).is_some();
                if is_new && self.state.needs(&body.needed) && is_there() {
                    report.bodies.push(body.clone());
                }
            }
        }
        // What is not listed cannot be looked up, and is counted as it was found.
        let is_complete = |count: u64| count <= LISTED_MAX as u64;
        if is_complete(report.places_count) {
            report.places_count = report.places.len() as u64;
        }
        if is_complete(report.bodies_count) {
            report.bodies_count = report.bodies.len() as u64;
        }
        report
    }
}

/// What needs a body, to tell it from the others.
fn holder(needed: &NeededBody) -> (&EntityName, Option<u64>, Option<&str>) {
    match &needed.of {
        BodyOwner::Message(number) => (&needed.queue, Some(number.as_u64()), None),
        BodyOwner::Session(id) => (&needed.queue, None, Some(id)),
    }
}
