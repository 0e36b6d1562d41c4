//! An owner as the checks have it: it sends numbered events, and knows what it has sent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use kew_log::{
    BatchBuilder, BodyLocation, Job, LiveBytes, LogPosition, LogSource, Need, OwnedLog,
    PageContent, PageNumber, PlannedSnapshot, Recovery, Reservation, ReserveError, SnapshotContent,
};

use crate::broken::{Broken, Checked, hold};
use crate::followed::{Content, Follower, follow};

/// No log needs more jobs than that to make room for a batch.
const JOBS_MAX: usize = 1000;

/// A batch that was appended.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) record: LogPosition,
    pub(crate) end: LogPosition,
    /// It was sent with this time. The batches before can have a later one.
    pub(crate) time_ms: u64,
    pub(crate) events: Vec<Vec<u8>>,
}

/// Which bodies are live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(pub(crate) Vec<BodyLocation>);

impl LiveBytes for Live {
    fn bytes_in(&self, positions: Range<LogPosition>) -> u64 {
        let live = self
            .0
            .iter()
            .filter(|body| positions.contains(&body.record));
        live.map(|body| u64::from(body.length)).sum()
    }
}

/// An owner of a log.
pub(crate) struct Owner {
    pub(crate) log: Box<dyn OwnedLog>,
    pub(crate) recovery: Recovery,
    /// What the log had before.
    pub(crate) found: Content,
    /// What was sent, in order.
    pub(crate) sent: Vec<Sent>,
    /// The time of the next batches.
    pub(crate) time_ms: u64,
    /// Jobs that are out.
    pub(crate) held: Vec<Job>,
    pages: Pages,
}

/// The pages that have an event, by its index.
type Pages = Arc<Mutex<BTreeMap<usize, PageNumber>>>;

impl Owner {
    /// Follows a log and owns it.
    pub(crate) fn open(source: &dyn LogSource) -> Checked<Self> {
        let mut follower = follow(source)?;
        let epoch = follower.log.seen().epoch.next();
        follower.promote(epoch)??;
        let owner = Self::of(follower);
        let (used, given) = (owner.recovery.snapshot, owner.found.snapshot);
        hold!(
            used == given,
            "the snapshot at {used:?} is followed as one at {given:?}"
        );
        Ok(owner)
    }

    /// The owner that a follower has become.
    pub(crate) fn of(follower: Follower) -> Self {
        let (log, recovery) = follower.log.own();
        Self {
            log,
            recovery,
            found: follower.content,
            sent: Vec::new(),
            time_ms: 0,
            held: Vec::new(),
            pages: Pages::default(),
        }
    }

    /// Takes all jobs that can be out together.
    pub(crate) fn take_jobs(&mut self) {
        self.held.extend(std::iter::from_fn(|| self.log.next_job()));
    }

    /// Runs one of the jobs that are out.
    pub(crate) fn run(&mut self, index: usize) -> Checked {
        let job = self.held.remove(index);
        self.log.complete(job.run())?;
        Ok(())
    }

    /// Runs one job other than a commit. Returns whether there was one.
    fn run_other(&mut self) -> Checked<bool> {
        self.take_jobs();
        let is_other = |job: &Job| !job.kind().is_commit();
        let index = self.held.iter().position(is_other);
        index.map_or(Ok(false), |index| self.run(index).map(|()| true))
    }

    /// Runs all jobs but commits, which are held.
    pub(crate) fn run_others(&mut self) -> Checked {
        while self.run_other()? {}
        Ok(())
    }

    /// Runs one job. Returns whether there was one.
    pub(crate) fn step(&mut self) -> Checked<bool> {
        self.take_jobs();
        if self.held.is_empty() {
            return Ok(false);
        }
        self.run(0)?;
        Ok(true)
    }

    /// Runs all jobs.
    pub(crate) fn settle(&mut self) -> Checked {
        for _ in 0..JOBS_MAX {
            if !self.step()? {
                return Ok(());
            }
        }
        Err(Broken::new("jobs do not end"))
    }

    /// Reserves room. Other jobs than commits make it.
    pub(crate) fn room(&mut self, need: Need) -> Checked<Reservation> {
        for _ in 0..JOBS_MAX {
            match self.log.reserve(need) {
                Ok(reservation) => return Ok(reservation),
                Err(ReserveError::NotPrepared) => {
                    hold!(self.run_other()?, "no job leads to room");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Broken::new("jobs do not lead to room"))
    }

    /// A batch with an event.
    pub(crate) fn batch(&self, at: LogPosition, event: &[u8]) -> BatchBuilder {
        let mut batch = BatchBuilder::at(at);
        batch.set_time_ms(self.time_ms);
        batch.push_event(event);
        batch
    }

    /// Appends a batch with some events.
    pub(crate) fn send(&mut self, count: usize) -> Checked {
        self.send_with(count, 16, None).map(|_| ())
    }

    /// Appends a batch with a body. Returns where it lies.
    pub(crate) fn send_body(&mut self, body: &[u8]) -> Checked<BodyLocation> {
        let location = self.send_with(1, 16, Some(body))?;
        location.ok_or_else(|| Broken::new("a body has no location"))
    }

    /// Appends a batch with events of a size.
    pub(crate) fn send_with(
        &mut self,
        count: usize,
        size: usize,
        body: Option<&[u8]>,
    ) -> Checked<Option<BodyLocation>> {
        let needed = count * BatchBuilder::event_size_bytes_max(size.max(32))
            + BatchBuilder::body_size_bytes_max(body.map_or(0, <[u8]>::len));
        let at = self.room(Need::grow(needed as u64))?;
        let mut batch = BatchBuilder::at(at.position);
        batch.set_time_ms(self.time_ms);
        let location = body.map(|body| batch.push_body(body));
        let first = self
            .sent
            .iter()
            .map(|sent| sent.events.len())
            .sum::<usize>();
        let epoch = self.recovery.epoch;
        let events = (first..first + count).map(|number| {
            let mut event = format!("{number} of {epoch}").into_bytes();
            event.resize(size.max(event.len()), b'.');
            event
        });
        let events: Vec<_> = events.collect();
        for event in &events {
            batch.push_event(event);
        }
        let end = self.log.append(at, batch)?;
        self.sent.push(Sent {
            record: at.position,
            end,
            time_ms: self.time_ms,
            events,
        });
        Ok(location)
    }

    /// Begins a snapshot of everything, and gives its content. Returns whether there is one.
    pub(crate) fn begin_snapshot(&mut self, live: &Live) -> Checked<bool> {
        let is_begun = self.log.begin_snapshot(live)?;
        if is_begun {
            self.log.write_snapshot(Box::new(State {
                events: self.history(),
                pages: Arc::clone(&self.pages),
            }));
        }
        Ok(is_begun)
    }

    /// Writes a snapshot.
    pub(crate) fn snapshot(&mut self, live: &Live) -> Checked {
        self.begin_snapshot(live)?;
        self.settle()
    }

    /// All events: those that were found, and those that were sent.
    pub(crate) fn history(&self) -> Vec<Vec<u8>> {
        let sent = self.sent.iter().flat_map(|sent| &sent.events);
        let found = self.found.history();
        found.into_iter().chain(sent.cloned()).collect()
    }

    /// Checks that a log has whole batches of what was sent, from the first one on, and all before a position.
    pub(crate) fn check_followed(&self, content: &Content, durable: LogPosition) -> Checked {
        let followed = content.history();
        let mut whole = self.found.history();
        let mut is_whole = followed == whole;
        let mut until = self.recovery.end;
        for sent in &self.sent {
            if is_whole {
                break;
            }
            whole.extend(sent.events.iter().cloned());
            until = sent.end;
            is_whole = followed == whole;
        }
        hold!(
            is_whole,
            "{} events are followed, and no batch ends there",
            followed.len()
        );
        let lost = self
            .sent
            .iter()
            .find(|sent| sent.record >= until && sent.end <= durable);
        hold!(lost.is_none(), "{lost:?} is lost, and durable is {durable}");
        for batch in content
            .batches
            .iter()
            .filter(|batch| !batch.events.is_empty())
        {
            let sent = self.sent.iter().find(|sent| sent.events == batch.events);
            let record = sent.map(|sent| sent.record);
            let is_found = self.found.batches.contains(batch);
            hold!(
                is_found || record == Some(batch.record),
                "what was appended at {record:?} is followed at {}",
                batch.record
            );
        }
        Ok(())
    }
}

/// The state is all events: the first one is a part of a snapshot, and each other one a page.
struct State {
    events: Vec<Vec<u8>>,
    pages: Pages,
}

impl SnapshotContent for State {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: self.events.len().min(1),
            pages: self.events.len().saturating_sub(1),
        }
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.events[index]);
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(&index).copied()
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        page.begin(0);
        let index = index + 1;
        page.add_group(|out| out.extend(index.to_le_bytes()));
        page.add_group(|out| out.extend_from_slice(&self.events[index]));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.insert(index, page);
    }
}
