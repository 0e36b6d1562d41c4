//! The half of a follower that reads: it chooses the pages to read, and decodes.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kew_engine::{CountUnit, DecodedPage, Event};
use kew_log::{
    Batches, BoxError, Epoch, FollowError, FollowedLog, Job, JobOutcome, LogEnd, LogPosition,
    LogSource, OwnedLog, PageChoice, PageContent, PageLeft, PageNumber, Piece, Progress, Recovery,
    Replay,
};

use super::{Rebuild, decode, refused};
use crate::broker::lock;

/// How many events a step has at most, and about how many bytes of the log. A batch can have many more, and a decoded
/// event takes much more than it has in the log.
const STEP_EVENTS: usize = 1024;
const STEP_SIZE_BYTES: usize = 128 * 1024;

/// A log that is read.
pub(super) struct Reading {
    log: Box<dyn FollowedLog>,
    progress: Progress,
    /// The pages that were decoded, because which ones are read depends on what is on them.
    decoded: Pages,
}

type Pages = Arc<Mutex<VecDeque<DecodedPage>>>;

/// What a state takes.
pub(super) enum Step {
    Begin,
    SnapshotBegin(LogPosition),
    Part(Bytes),
    Page {
        number: PageNumber,
        decoded: DecodedPage,
        is_at_risk: bool,
    },
    /// A page of which both copies are damaged, without what is lost.
    Damaged(PageNumber, DecodedPage),
    PassedOver(PageNumber),
    SnapshotEnd,
    Events(Vec<(LogPosition, Told)>),
}

pub(super) enum Told {
    /// With how many bytes it takes.
    Event(Event, usize),
    /// Of an earlier version.
    Bytes(Bytes),
}

impl Reading {
    pub(super) fn begin(source: &dyn LogSource, after: Option<&LogEnd>, how: Rebuild) -> Self {
        let decoded = Pages::default();
        let has_limit = how.resident_bytes.is_some();
        let choosing = Choosing::new((Some(how.unit), has_limit), Arc::clone(&decoded));
        Self {
            log: source.follow(after, Box::new(choosing)),
            progress: Progress::Behind,
            decoded,
        }
    }

    /// How far the log was read.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Carries out the next job, and lets `take` take what it has read, also if something is wrong behind it.
    ///
    /// # Panics
    ///
    /// If there is none: the log is owned, has failed, or was read and is not promoted.
    pub(super) fn step<E: From<FollowError>>(
        &mut self,
        take: impl FnMut(Step) -> Result<(), E>,
    ) -> Result<(), E> {
        let job = self.log.next_job();
        let job = job.expect("a log has a job until it is owned");
        let (outcome, taken) = read(job, &self.decoded, take);
        let completed = self.log.complete(outcome);
        taken?;
        self.progress = completed?;
        Ok(())
    }

    /// The next job, for another thread. It decodes, too. `None` while there is nothing new, and once the log is owned.
    pub(super) fn next_job(&mut self) -> Option<Job> {
        let job = self.log.next_job()?;
        let decoded = Arc::clone(&self.decoded);
        Some(Job::load(move || {
            let mut steps = Vec::new();
            let (outcome, decoded) = read(job, &decoded, |step| {
                steps.push(step);
                Ok(())
            });
            Read {
                outcome,
                steps,
                decoded,
            }
        }))
    }

    /// Takes the outcome of such a job, and lets `take` take what it has read, also if something is wrong behind it.
    ///
    /// # Panics
    ///
    /// If it is that of another job.
    pub(super) fn complete(
        &mut self,
        mut outcome: JobOutcome,
        take: impl FnMut(Step) -> Result<(), FollowError>,
    ) -> Result<(), FollowError> {
        let read = outcome.take_loaded::<Read>();
        let read = read.expect("no other job is out while a log is followed");
        let taken = read.steps.into_iter().try_for_each(take);
        let completed = self.log.complete(read.outcome);
        if let Err(ended @ FollowError::Ended(_)) = completed {
            // It may be followed anew, and then what was read comes again. A copy that differs may even be unreadable.
            return Err(ended);
        }
        taken.and(read.decoded)?;
        self.progress = completed?;
        Ok(())
    }

    /// The highest epoch that has begun, as far as is known.
    pub(super) fn epoch(&self) -> Epoch {
        self.log.seen().epoch
    }

    /// Makes this process the owner of the log, all of which was read.
    pub(super) fn promote(&mut self, epoch: Epoch) {
        self.log.promote(epoch);
    }

    pub(super) fn stop(&mut self) {
        self.log.stop();
    }

    pub(super) fn own(self) -> (Box<dyn OwnedLog>, Recovery) {
        self.log.own()
    }
}

/// What a job for another thread has read.
struct Read {
    outcome: JobOutcome,
    steps: Vec<Step>,
    /// What could not be decoded lies behind the steps.
    decoded: Result<(), FollowError>,
}

/// Runs a job, decodes what it has read, and lets `take` take that.
fn read<E: From<FollowError>>(
    job: Job,
    decoded: &Pages,
    take: impl FnMut(Step) -> Result<(), E>,
) -> (JobOutcome, Result<(), E>) {
    let mut outcome = job.run();
    let pieces = outcome.take_followed();
    let pages = mem::take(&mut *lock(decoded));
    let taken = decode_pieces(pieces, pages, take);
    (outcome, taken)
}

fn decode_pieces<E: From<FollowError>>(
    pieces: Vec<Piece>,
    mut pages: VecDeque<DecodedPage>,
    mut take: impl FnMut(Step) -> Result<(), E>,
) -> Result<(), E> {
    for piece in pieces {
        take(match piece {
            Piece::Begin => Step::Begin,
            Piece::SnapshotBegin(position) => Step::SnapshotBegin(position),
            Piece::Part(part) => Step::Part(part),
            Piece::Page {
                number,
                content: _,
                is_at_risk,
            } => Step::Page {
                number,
                decoded: pages.pop_front().expect("each page was noted"),
                is_at_risk,
            },
            Piece::PageLeft { number, left: _ } => {
                let decoded = pages.pop_front().expect("each page was noted");
                Step::Damaged(number, decoded)
            }
            Piece::PassedOver(page) => Step::PassedOver(page),
            Piece::SnapshotEnd => Step::SnapshotEnd,
            Piece::Batches(batches) => {
                decode_batches(&batches, &mut take)?;
                continue;
            }
        })?;
    }
    Ok(())
}

/// What lies before an event that cannot be decoded is taken.
fn decode_batches<E: From<FollowError>>(
    batches: &Batches,
    take: &mut impl FnMut(Step) -> Result<(), E>,
) -> Result<(), E> {
    let (mut events, mut size_bytes) = (Vec::new(), 0);
    for batch in batches.iter() {
        for event in batch.events() {
            let told = match tell(event) {
                Ok(told) => told,
                Err(source) => {
                    take(Step::Events(events))?;
                    return Err(refused(batch.record, source).into());
                }
            };
            events.push((batch.record, told));
            size_bytes += event.len();
            if events.len() == STEP_EVENTS || size_bytes >= STEP_SIZE_BYTES {
                take(Step::Events(mem::take(&mut events)))?;
                size_bytes = 0;
            }
        }
    }
    take(Step::Events(events))
}

fn tell(event: &[u8]) -> Result<Told, BoxError> {
    Ok(match Event::needs_state(event) {
        true => Told::Bytes(Bytes::copy_from_slice(event)),
        false => Told::Event(Event::decode(event)?, event.len()),
    })
}

/// Reads what a start would read, and takes nothing: for a repair, which has to know whether the start is refused.
pub(crate) struct Rehearsal {
    choosing: Choosing,
    /// Whether it would set messages aside.
    sets_aside: bool,
}

impl Rehearsal {
    /// Of a start that reads all, and counts as the pages do.
    pub(crate) fn new() -> Self {
        Self {
            choosing: Choosing::new((None, false), Pages::default()),
            sets_aside: false,
        }
    }

    /// Whether it would set messages aside.
    pub(crate) fn sets_aside(&self) -> bool {
        self.sets_aside
    }

    /// What cannot be decoded is no damage of the log.
    fn forget<T>(&self, noted: Result<T, BoxError>) -> Option<T> {
        lock(&self.choosing.decoded).clear();
        noted.ok()
    }
}

impl Replay for Rehearsal {
    fn begin(&mut self) {
        self.choosing.begin();
        self.sets_aside = false;
    }

    fn snapshot_part(&mut self, _: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        Ok(self.choosing.passes_over(page))
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let noted = self.choosing.note(page, content);
        self.forget(noted);
        Ok(())
    }

    fn snapshot_page_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        let noted = self.choosing.note_left(page, left);
        let is_enough = self.forget(noted).unwrap_or_default();
        self.sets_aside |= is_enough;
        Ok(is_enough)
    }

    fn event(&mut self, _: LogPosition, _: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Passes over the pages of runs whose directories say enough, and takes what is left of damaged ones.
struct Choosing {
    /// The unit in which the state counts. `None` if that is the one of each directory.
    unit: Option<CountUnit>,
    has_limit: bool,
    decoded: Pages,
    /// Whether each of the next pages is passed over, and whether it can be damaged.
    next: VecDeque<(bool, bool)>,
    /// Whether the page that is being read can be damaged.
    can_be_damaged: bool,
}

impl Choosing {
    fn new((unit, has_limit): (Option<CountUnit>, bool), decoded: Pages) -> Self {
        Self {
            unit,
            has_limit,
            decoded,
            next: VecDeque::new(),
            can_be_damaged: false,
        }
    }
}

impl PageChoice for Choosing {
    fn begin(&mut self) {
        self.next.clear();
        lock(&self.decoded).clear();
    }

    fn note(&mut self, _: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let page = decode(content)?;
        if let Some(unit) = self.unit.or(page.count_unit()) {
            let can_be_damaged = page.pages_that_can_be_damaged(unit);
            match self.has_limit {
                true => (self.next).extend(page.pages_to_pass_over(unit).zip(can_be_damaged)),
                false => {
                    (self.next).extend(page.damaged_pages_to_pass_over(unit).zip(can_be_damaged))
                }
            }
        }
        lock(&self.decoded).push_back(page);
        Ok(())
    }

    fn passes_over(&mut self, _: PageNumber) -> bool {
        let (passes_over, can_be_damaged) = self.next.pop_front().unwrap_or_default();
        self.can_be_damaged = can_be_damaged;
        passes_over
    }

    fn note_left(&mut self, _: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        if self.can_be_damaged {
            let groups: Vec<_> = left.groups().collect();
            let page = DecodedPage::decode_damaged(left.kind, &groups)?;
            lock(&self.decoded).push_back(page);
        }
        Ok(self.can_be_damaged)
    }
}
