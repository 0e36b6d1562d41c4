//! A small owner of a log: it sends numbered messages, forgets all but the newest, and can detect
//! after any replay whether something is missing, incomplete or changed.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use kew_log::{
    BatchBuilder, Body, BodyLocation, BoxError, FaultyStorage, Job, LiveBytes, LogEnd, LogOptions,
    LogPosition, Need, OpenError, PageContent, PageNumber, Recovery, Replay, Reservation,
    ReserveError, SegmentLog, ToDrain, verify,
};

use crate::paged::{Content, Marks, PAGES};

/// Number and location of a message.
const EVENT_SIZE: usize = 24;

/// How many of the newest messages are live.
pub(crate) const LIVE: usize = 5;

/// Sizes at which a handful of messages fills a segment.
pub(crate) fn small() -> LogOptions {
    LogOptions {
        segment_size_first_bytes: 8 << 10,
        segment_size_max_bytes: 16 << 10,
        batch_size_max_bytes: 4 << 10,
        turn_space_min_bytes: 1 << 10,
        settlement_reserve_bytes: 1 << 10,
        recycled_segments_max: 2,
        ballast_size_bytes: 8 << 10,
        recent_bytes_max: 4 << 10,
        pages: PAGES,
    }
}

/// A state of which a snapshot takes about so many bytes on a full disk.
pub(crate) fn of_size(size_bytes: u64) -> ToDrain {
    ToDrain {
        pages_bytes_max: size_bytes / 2,
        grown_bytes_max: size_bytes / 2,
        ..ToDrain::default()
    }
}

/// Positions that stand for live bodies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(pub(crate) BTreeSet<LogPosition>);

impl LiveBytes for Live {
    fn bytes_in(&self, positions: Range<LogPosition>) -> u64 {
        self.0.range(positions).count() as u64
    }
}

/// The state: how many messages there were, and where the newest are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) count: u64,
    pub(crate) live: VecDeque<(u64, BodyLocation)>,
    marks: Marks,
}

impl Messages {
    fn sent(&mut self, id: u64, location: BodyLocation) {
        assert_eq!(id, self.count, "messages are replayed in order, each once");
        self.count += 1;
        self.live.push_back((id, location));
        if self.live.len() > LIVE {
            self.live.pop_front();
        }
    }

    pub(crate) fn content(&self) -> Content {
        Content {
            count: self.count,
            live: self.live.iter().copied().collect(),
            marks: self.marks.clone(),
        }
    }
}

impl Replay for Messages {
    fn begin(&mut self) {
        *self = Self::default();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        if let Ok(count) = part.try_into() {
            self.count = u64::from_le_bytes(count);
        } else {
            self.live.push_back(decode(part));
        }
        Ok(())
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let (id, location) = decode(content.group(0).unwrap());
        self.live.push_back((id, location));
        self.marks.set(id, page);
        Ok(())
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let (id, location) = decode(event);
        assert_eq!(record, location.record, "a body lies with its event");
        self.sent(id, location);
        Ok(())
    }
}

pub(crate) fn encode(id: u64, at: BodyLocation) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend(at.record.as_u64().to_le_bytes());
    bytes.extend(at.offset.to_le_bytes());
    bytes.extend(at.length.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> (u64, BodyLocation) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let location = BodyLocation {
        record: LogPosition::new(number(8)),
        offset: short(16),
        length: short(20),
    };
    (number(0), location)
}

/// The body of a message: its length differs, and it has no zeros.
pub(crate) fn body_of(id: u64) -> Vec<u8> {
    let length = id * 229 % 701;
    (0..length)
        .map(|at| u8::try_from((id * 31 + at) % 251).unwrap() + 1)
        .collect()
}

/// What the test's client learned, over all runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Which of the many runs of a test this is, for its failure message.
    pub(crate) story: String,
    /// The first `acknowledged` messages must always be there.
    pub(crate) acknowledged: u64,
    /// Counts at the ends of batches: any of them from `acknowledged` on may be the state.
    pub(crate) batch_ends: BTreeSet<u64>,
}

impl Told {
    pub(crate) fn check(&self, messages: &Messages) {
        assert!(
            messages.count >= self.acknowledged,
            "{}: acknowledged messages are lost: {} of {}",
            self.story,
            messages.count,
            self.acknowledged
        );
        assert!(
            messages.count == 0 || self.batch_ends.contains(&messages.count),
            "{}: half a batch is shown: {} messages, batches end at {:?}",
            self.story,
            messages.count,
            self.batch_ends
        );
    }

    /// State that was shown after a start must stay.
    pub(crate) fn seen(&mut self, messages: &Messages) {
        self.acknowledged = self.acknowledged.max(messages.count);
        self.batch_ends.retain(|end| *end <= messages.count);
    }
}

/// Why a run ended early.
#[derive(Debug)]
#[expect(dead_code, reason = "shown when a test fails")]
pub(crate) enum Stop {
    Ended(LogEnd),
    Open(OpenError),
    NoSpace,
}

impl From<LogEnd> for Stop {
    fn from(end: LogEnd) -> Self {
        Self::Ended(end)
    }
}

pub(crate) struct Node {
    pub(crate) storage: FaultyStorage,
    pub(crate) log: SegmentLog,
    pub(crate) messages: Messages,
    pub(crate) recovery: Recovery,
}

impl Node {
    pub(crate) fn open(storage: &FaultyStorage) -> Result<Self, OpenError> {
        Self::open_with(storage, small(), 7)
    }

    pub(crate) fn open_with(
        storage: &FaultyStorage,
        options: LogOptions,
        entropy: u64,
    ) -> Result<Self, OpenError> {
        let mut messages = Messages::default();
        let (log, recovery) =
            SegmentLog::open(Arc::new(storage.clone()), options, entropy, &mut messages)?;
        assert_eq!(recovery.void, 0, "no history here is cut");
        Ok(Self {
            storage: storage.clone(),
            log,
            messages,
            recovery,
        })
    }

    /// Opens, and compares the result with what was acknowledged.
    pub(crate) fn open_checked(storage: &FaultyStorage, told: &mut Told) -> Self {
        let node = Self::open(storage).unwrap();
        told.check(&node.messages);
        told.seen(&node.messages);
        node.check_bodies();
        node
    }

    /// Sends in one batch, or in as many as the room requires.
    pub(crate) fn send(&mut self, count: u64, told: &mut Told) -> Result<(), Stop> {
        let end = self.messages.count + count;
        while self.messages.count < end {
            let reservation = self.reserve()?;
            self.send_in(reservation, end, told);
        }
        Ok(())
    }

    /// Sends in one batch.
    pub(crate) fn send_together(&mut self, count: u64, told: &mut Told) -> Result<(), Stop> {
        let end = self.messages.count + count;
        let message_bytes =
            BatchBuilder::body_size_bytes_max(701) + BatchBuilder::event_size_bytes_max(EVENT_SIZE);
        let least = count * message_bytes as u64;
        let reservation = loop {
            match self.log.reserve(Need::grow(least)) {
                Ok(reservation) => break reservation,
                Err(ReserveError::NotPrepared) => self.background()?,
                Err(ReserveError::NoSpace) => return Err(Stop::NoSpace),
                Err(ReserveError::Ended(end)) => return Err(end.into()),
            }
        };
        self.send_in(reservation, end, told);
        assert_eq!(self.messages.count, end);
        Ok(())
    }

    /// Sends messages up to number `end`, as far as there is room.
    pub(crate) fn send_in(&mut self, reservation: Reservation, end: u64, told: &mut Told) {
        let mut batch = BatchBuilder::at(reservation.position);
        while self.messages.count < end {
            let id = self.messages.count;
            let body = body_of(id);
            let size_bytes = BatchBuilder::body_size_bytes_max(body.len())
                + BatchBuilder::event_size_bytes_max(EVENT_SIZE);
            if (batch.len_bytes() + size_bytes) as u64 > reservation.room_bytes {
                assert!(!batch.is_empty(), "a turn has room for a message");
                break;
            }
            let location = batch.push_body(&body);
            batch.push_event(&encode(id, location));
            self.messages.sent(id, location);
        }
        self.log.append(reservation, batch).unwrap();
        told.batch_ends.insert(self.messages.count);
    }

    fn reserve(&mut self) -> Result<Reservation, Stop> {
        loop {
            match self.log.reserve(Need::grow(0)) {
                Ok(reservation) => return Ok(reservation),
                Err(ReserveError::NotPrepared) => self.background()?,
                Err(ReserveError::NoSpace) => return Err(Stop::NoSpace),
                Err(ReserveError::Ended(end)) => return Err(end.into()),
            }
        }
    }

    pub(crate) fn commit(&mut self, told: &mut Told) -> Result<(), Stop> {
        self.log.run_commit()?;
        assert_eq!(self.log.durable(), self.log.end());
        told.acknowledged = self.messages.count;
        Ok(())
    }

    /// Sends while a commit is on its way.
    pub(crate) fn overlap(&mut self, count: u64, told: &mut Told) -> Result<(), Stop> {
        let committed = self.messages.count;
        let job = self.log.next_commit_job();
        self.send(count, told)?;
        if let Some(job) = job {
            self.run(job)?;
            told.acknowledged = committed;
        }
        Ok(())
    }

    pub(crate) fn background(&mut self) -> Result<(), Stop> {
        while let Some(job) = self.log.next_background_job() {
            self.run(job)?;
        }
        Ok(())
    }

    fn run(&mut self, job: Job) -> Result<(), Stop> {
        let outcome = job.run();
        Ok(self.log.complete(outcome)?)
    }

    pub(crate) fn snapshot(&mut self, told: &mut Told) -> Result<(), Stop> {
        self.commit(told)?;
        while self.log.snapshots().is_under_way {
            self.background()?;
        }
        let live = self.live();
        self.log.snapshot(self.messages.content(), &live).unwrap();
        Ok(())
    }

    pub(crate) fn live(&self) -> Live {
        let live = self.messages.live.iter();
        Live(live.map(|(_, at)| at.record).collect())
    }

    /// Every live body must be readable and unchanged.
    pub(crate) fn check_bodies(&self) {
        let live = self.messages.live.iter();
        let bodies = live.map(|(_, location)| {
            let body = self.log.body(*location);
            body.expect("a live body has a segment")
        });
        let bodies: Vec<_> = bodies.collect();
        let together = Body::read_all(&bodies);
        for ((body, of_all), (id, _)) in bodies.iter().zip(together).zip(&self.messages.live) {
            assert_eq!(body.read().unwrap(), body_of(*id), "body of message {id}");
            assert_eq!(of_all.unwrap(), body_of(*id), "body of message {id}");
        }
    }

    pub(crate) fn close(mut self, told: &mut Told) -> Result<FaultyStorage, Stop> {
        self.commit(told)?;
        self.log.mark();
        self.commit(told)?;
        Ok(self.storage)
    }
}

/// One act of an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Send(u64),
    /// Sends in one batch, which may need a segment of its own.
    SendTogether(u64),
    Commit,
    Overlap(u64),
    Mark,
    Snapshot,
    Background,
    /// Ends and starts again, with or without a word.
    Reopen,
    Close,
}

/// Carries out the steps until one fails.
pub(crate) fn run(storage: &FaultyStorage, steps: &[Step], told: &mut Told) -> Result<(), Stop> {
    let mut node = Node::open(storage).map_err(Stop::Open)?;
    told.check(&node.messages);
    told.seen(&node.messages);
    for step in steps {
        match step {
            Step::Send(count) => node.send(*count, told)?,
            Step::SendTogether(count) => node.send_together(*count, told)?,
            Step::Commit => node.commit(told)?,
            Step::Overlap(count) => node.overlap(*count, told)?,
            Step::Mark => {
                node.log.mark();
            }
            Step::Snapshot => node.snapshot(told)?,
            Step::Background => node.background()?,
            Step::Reopen | Step::Close => {
                if matches!(step, Step::Close) {
                    node.log.mark();
                    node.commit(told)?;
                }
                drop(node);
                node = Node::open(storage).map_err(Stop::Open)?;
                told.check(&node.messages);
                told.seen(&node.messages);
            }
        }
    }
    Ok(())
}

/// A disk in a legal state has nothing to report.
pub(crate) fn check_whole(storage: &FaultyStorage) {
    let report = verify(storage).unwrap();
    assert_eq!(report.damage, []);
}
