//! Rebuilds a state from what a log holds.
//!
//! A start has two halves of about the same length: to read, check and decode what lies on the disk, and to restore and
//! apply it. [`beside`] does them on two threads. Both ways come to the same state, because everything is applied in the
//! order of the log.
//!
//! If there is a limit for records in memory, a start passes over the pages of runs, as far as their directories say all
//! that the state needs of them. Then what it takes and needs does not grow with the backlog.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use kew_engine::{CountUnit, DecodedPage, Event, RestoringPages, State};
use kew_log::{BoxError, LateError, LogPosition, PageContent, PageNumber, Replay};
use kew_planted::{Seam, pass};
use thiserror::Error;

/// How many events are passed on at once at most, and about how many bytes of the log.
const STEP_EVENTS: usize = 1024;
const STEP_SIZE_BYTES: usize = 128 * 1024;

/// How many steps are read ahead: 16 MiB with events of small messages, which take half a kilobyte each when they are
/// decoded. A part or a page of a snapshot is a step, and so is an event that is longer than a step.
const STEPS_AHEAD: usize = 32;

/// How a state is rebuilt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rebuild {
    /// The unit of live bytes.
    pub(crate) unit: CountUnit,
    /// The limit for records in memory.
    pub(crate) resident_bytes: Option<u64>,
    /// Which pages of runs are passed over.
    pub(crate) reads: Reads,
}

/// Which pages of runs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Those whose directories do not say enough. Without a limit, all but those that may be damaged.
    WhatIsNeeded,
    /// All of them: every record is changed then.
    All,
}

impl Rebuild {
    /// Everything is read.
    pub(crate) fn whole(unit: CountUnit) -> Self {
        Self {
            unit,
            resident_bytes: None,
            reads: Reads::All,
        }
    }

    /// Half of the limit is left for what the log brings.
    fn restoring(self) -> RestoringPages {
        let limit = self.resident_bytes;
        limit.map_or_else(RestoringPages::default, |bytes| {
            RestoringPages::within(bytes / 2)
        })
    }
}

/// Which pages of runs are passed over, as the directory before them says. Both halves of a start know it.
struct PassesOver {
    how: Rebuild,
    /// For the next pages.
    next: VecDeque<bool>,
}

impl PassesOver {
    fn new(how: Rebuild) -> Self {
        let next = VecDeque::new();
        Self { how, next }
    }

    /// Notes a page that was read. Must be called for each of them.
    fn note(&mut self, page: &DecodedPage) {
        let unit = self.how.unit;
        match (self.how.reads, self.how.resident_bytes) {
            (Reads::All, _) => {}
            (Reads::WhatIsNeeded, Some(_)) => self.next.extend(page.pages_to_pass_over(unit)),
            (Reads::WhatIsNeeded, None) => self.next.extend(page.damaged_pages_to_pass_over(unit)),
        }
    }

    fn next(&mut self) -> bool {
        self.next.pop_front().unwrap_or_default()
    }
}

/// Rebuilds a state, on the thread that reads.
pub(crate) struct Replayed {
    pub(crate) state: State,
    how: Rebuild,
    passes_over: PassesOver,
    restoring: RestoringPages,
    /// How many effects came after the snapshot.
    pub(crate) effect_count: u64,
    /// By how much pages have grown at most because of the events that came after it.
    pub(crate) growth_bytes: u64,
}

impl Replayed {
    pub(crate) fn new(how: Rebuild) -> Self {
        Self {
            state: State::counting_in(how.unit),
            how,
            passes_over: PassesOver::new(how),
            restoring: how.restoring(),
            effect_count: 0,
            growth_bytes: 0,
        }
    }

    fn restore(&mut self, part: &[u8]) -> Result<(), BoxError> {
        Ok(self.state.restore(part)?)
    }

    fn restore_page(&mut self, page: PageNumber, decoded: DecodedPage) -> Result<(), BoxError> {
        let page = to_engine(page);
        let restored = (self.state).restore_decoded(&mut self.restoring, page, decoded);
        Ok(restored?)
    }

    fn pass_over(&mut self, page: PageNumber) -> Result<(), BoxError> {
        let page = to_engine(page);
        Ok((self.state).restore_passed_over(&mut self.restoring, page)?)
    }

    fn end_pages(&mut self) -> Result<(), BoxError> {
        Ok(self.state.finish_pages(mem::take(&mut self.restoring))?)
    }

    /// A log of the format before can hold events of earlier versions. They are read with what messages were before them:
    /// such a log has no pages, so nothing was passed over.
    fn read_event(&self, bytes: &[u8]) -> Result<Event, BoxError> {
        if Event::needs_state(bytes) && self.state.may_be_cold() {
            return Err("an event of an earlier version comes after pages".into());
        }
        Ok(self.state.read_event(bytes)?)
    }

    /// Applies an event that takes so many bytes.
    fn apply(&mut self, record: LogPosition, event: Event, size_bytes: usize) {
        self.effect_count += event.effect_count() as u64;
        self.growth_bytes += event.growth_bytes(size_bytes as u64);
        pass(Seam::Replayed, (record, event), |(_, event)| {
            self.state.apply(event);
        });
        // Nobody waits for a replay: what was cleared must not stay until its end.
        drop(self.state.take_waste());
    }
}

impl Replay for Replayed {
    fn begin(&mut self) {
        *self = Self::new(self.how);
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.restore(part)
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        if !self.passes_over.next() {
            return Ok(false);
        }
        self.pass_over(page)?;
        Ok(true)
    }

    /// Nothing leaves memory whose page lies in a file with damage.
    fn page_is_at_risk(&mut self) {
        self.restoring.keep_next();
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let decoded = decode(content)?;
        self.passes_over.note(&decoded);
        self.restore_page(page, decoded)
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        self.end_pages()
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let size_bytes = event.len();
        let event = self.read_event(event)?;
        self.apply(record, event, size_bytes);
        Ok(())
    }
}

/// The number of a page, as the engine knows it.
pub(crate) fn to_engine(page: PageNumber) -> kew_engine::PageNumber {
    kew_engine::PageNumber::new(page.as_u64())
}

/// Decodes a page of a snapshot.
pub(crate) fn decode(page: &PageContent) -> Result<DecodedPage, BoxError> {
    let groups: Vec<&[u8]> = page.groups().collect();
    Ok(DecodedPage::decode(page.kind, &groups)?)
}

/// What the thread that reads has read.
enum Step {
    Begin,
    Part(Vec<u8>),
    /// The next page lies in a file with damage.
    PageAtRisk,
    Page(PageNumber, DecodedPage),
    PassedOver(PageNumber),
    PagesEnd,
    Events(Vec<(LogPosition, Told)>),
    /// Asks how it went so far.
    End(mpsc::SyncSender<Result<(), LateError>>),
}

enum Told {
    /// With how many bytes it takes.
    Event(Event, usize),
    /// Of an earlier version.
    Bytes(Vec<u8>),
}

/// Carries out `read`, and rebuilds the state that it reads.
pub(crate) fn alone<R>(how: Rebuild, read: impl FnOnce(&mut dyn Replay) -> R) -> (R, Replayed) {
    let mut replayed = Replayed::new(how);
    let result = read(&mut replayed);
    (result, replayed)
}

/// The same, but `read` is carried out on another thread.
pub(crate) fn beside<R: Send>(
    how: Rebuild,
    read: impl FnOnce(&mut dyn Replay) -> R + Send,
) -> io::Result<(R, Replayed)> {
    let mut replayed = Replayed::new(how);
    let (to, steps) = mpsc::sync_channel(STEPS_AHEAD);
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("kew-opening".into());
        let reader = thread.spawn_scoped(scope, move || read(&mut Ahead::new(how, to)))?;
        rebuild(&mut replayed, steps);
        let result = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((result, replayed))
    })
}

/// Takes all steps, also after one that failed: the thread that reads hears of it at the end.
fn rebuild(replayed: &mut Replayed, steps: mpsc::Receiver<Step>) {
    let mut failed = None;
    for step in steps {
        match step {
            Step::Begin => {
                replayed.begin();
                failed = None;
            }
            Step::Part(_)
            | Step::PageAtRisk
            | Step::Page(..)
            | Step::PassedOver(_)
            | Step::PagesEnd
            | Step::Events(_)
                if failed.is_some() => {}
            Step::Part(part) => failed = replayed.restore(&part).err().map(late),
            Step::PageAtRisk => replayed.page_is_at_risk(),
            Step::Page(page, decoded) => {
                failed = replayed.restore_page(page, decoded).err().map(late);
            }
            Step::PassedOver(page) => failed = replayed.pass_over(page).err().map(late),
            Step::PagesEnd => failed = replayed.end_pages().err().map(late),
            Step::Events(events) => failed = replayed.take(events).err(),
            Step::End(answer) => {
                // If nobody waits for it, the thread that reads is gone.
                let _ = answer.send(failed.take().map_or(Ok(()), Err));
            }
        }
    }
}

/// What is wrong with a part or a page of the snapshot.
fn late(source: BoxError) -> LateError {
    LateError {
        record: None,
        source,
    }
}

impl Replayed {
    fn take(&mut self, events: Vec<(LogPosition, Told)>) -> Result<(), LateError> {
        for (record, told) in events {
            let (event, size_bytes) = match told {
                Told::Event(event, size_bytes) => (event, size_bytes),
                Told::Bytes(bytes) => {
                    let read = self.read_event(&bytes);
                    let event = read.map_err(|source| LateError {
                        record: Some(record),
                        source,
                    })?;
                    (event, bytes.len())
                }
            };
            self.apply(record, event, size_bytes);
        }
        Ok(())
    }
}

/// What the thread that reads passes on.
struct Ahead {
    to: mpsc::SyncSender<Step>,
    passes_over: PassesOver,
    events: Vec<(LogPosition, Told)>,
    /// How long these events are in the log.
    size_bytes: usize,
}

/// The other thread has ended before this one: it has panicked.
#[derive(Debug, Error)]
#[error("the state is not rebuilt any more")]
struct NobodyTakesIt;

impl Ahead {
    fn new(how: Rebuild, to: mpsc::SyncSender<Step>) -> Self {
        Self {
            to,
            passes_over: PassesOver::new(how),
            events: Vec::new(),
            size_bytes: 0,
        }
    }

    fn send(&self, step: Step) -> Result<(), BoxError> {
        Ok(self.to.send(step).map_err(|_| NobodyTakesIt)?)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        if self.events.is_empty() {
            return Ok(());
        }
        self.size_bytes = 0;
        let events = mem::take(&mut self.events);
        self.send(Step::Events(events))
    }
}

impl Replay for Ahead {
    fn begin(&mut self) {
        self.events.clear();
        self.size_bytes = 0;
        self.passes_over.next.clear();
        // If nobody takes it, the next one says so.
        let _ = self.send(Step::Begin);
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.send(Step::Part(part.to_vec()))
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        if !self.passes_over.next() {
            return Ok(false);
        }
        self.send(Step::PassedOver(page))?;
        Ok(true)
    }

    fn page_is_at_risk(&mut self) {
        // If nobody takes it, the page says so.
        let _ = self.send(Step::PageAtRisk);
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let decoded = decode(content)?;
        self.passes_over.note(&decoded);
        self.send(Step::Page(page, decoded))
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        self.send(Step::PagesEnd)
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let told = match Event::needs_state(event) {
            true => Told::Bytes(event.to_vec()),
            false => Told::Event(Event::decode(event)?, event.len()),
        };
        self.events.push((record, told));
        self.size_bytes += event.len();
        let is_enough = self.size_bytes >= STEP_SIZE_BYTES || self.events.len() == STEP_EVENTS;
        if is_enough { self.flush() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(), LateError> {
        let asked = self.flush().and_then(|()| {
            let (answer, result) = mpsc::sync_channel(1);
            self.send(Step::End(answer))?;
            Ok(result.recv()?)
        });
        asked.map_err(late)?
    }
}
