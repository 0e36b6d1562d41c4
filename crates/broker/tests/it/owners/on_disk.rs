//! The same on segments, whose owner is told that another one has begun. Really there is none, since the directory is locked:
//! the files are those of a log that another machine has continued with nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kew_broker::{Answered, Answers, Broker, BrokerOptions, Partition, Rejection, Reply, Standing};
use kew_engine::Command;
use kew_log::{
    AppendError, BatchBuilder, BeginSnapshotError, Body, BodyLocation, BootTime, Epoch,
    FollowError, FollowedLog, Job, JobOutcome, LiveBytes, LocalLog, LogEnd, LogFiles, LogHealth,
    LogLimits, LogPosition, LogSource, MemoryStorage, Need, OwnedLog, PageChoice, PageNumber,
    PagesRead, PagesToRead, Progress, Recovery, Reservation, ReserveError, Seen, SegmentSource,
    SnapshotContent, SnapshotStatus, Tidied, ToDrain, VictimEnd,
};

use super::{NOW, until};
use crate::partition::options;
use crate::support::{create, moment, peek, receive, send};

/// A log of segments that ends for its owner when a test says so.
struct Fencing {
    segments: SegmentSource,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    /// The epoch of another owner.
    other: AtomicU64,
    /// The copy differs instead.
    is_diverged: AtomicBool,
    /// In microseconds since the machine was booted.
    owned_until_us: AtomicU64,
}

impl Fencing {
    fn new() -> Self {
        let storage = Arc::new(MemoryStorage::new());
        Self {
            segments: SegmentSource::new(storage, options().log, || 1),
            told: Arc::default(),
        }
    }
}

impl LogSource for Fencing {
    fn follow(&self, after: Option<&LogEnd>, pages: Box<dyn PageChoice>) -> Box<dyn FollowedLog> {
        Box::new(Followed {
            log: self.segments.follow(after, pages),
            told: Arc::clone(&self.told),
        })
    }

    fn unit_bytes(&self) -> u64 {
        self.segments.unit_bytes()
    }
}

struct Followed {
    log: Box<dyn FollowedLog>,
    told: Arc<Told>,
}

impl FollowedLog for Followed {
    fn next_job(&mut self) -> Option<Job> {
        self.log.next_job()
    }

    fn complete(&mut self, outcome: JobOutcome) -> Result<Progress, FollowError> {
        self.log.complete(outcome)
    }

    fn seen(&self) -> Seen {
        self.log.seen()
    }

    fn promote(&mut self, epoch: Epoch) {
        self.log.promote(epoch);
    }

    fn own(self: Box<Self>) -> (Box<dyn OwnedLog>, Recovery) {
        let (log, recovery) = self.log.own();
        let owned = Owned {
            log,
            epoch: recovery.epoch,
            told: self.told,
            ended: None,
        };
        (Box::new(owned), recovery)
    }

    fn stop(&mut self) {
        self.log.stop();
    }
}

/// A log whose commits tell that another owner has begun. What they have written is agreed.
struct Owned {
    log: Box<dyn OwnedLog>,
    epoch: Epoch,
    told: Arc<Told>,
    ended: Option<LogEnd>,
}

impl LocalLog for Owned {
    fn complete(&mut self, outcome: JobOutcome) -> Result<(), LogEnd> {
        if let Some(end) = &self.ended {
            return Err(end.clone());
        }
        let durable = self.log.durable();
        self.log.complete(outcome)?;
        let other = Epoch::new(self.told.other.load(Ordering::Relaxed));
        if other > self.epoch && self.log.durable() > durable {
            let end = match self.told.is_diverged.load(Ordering::Relaxed) {
                true => LogEnd::Diverged(durable),
                false => LogEnd::Fenced(other),
            };
            self.ended = Some(end.clone());
            return Err(end);
        }
        Ok(())
    }

    fn durable(&self) -> LogPosition {
        self.log.durable()
    }

    fn body(&self, at: BodyLocation) -> Option<Body> {
        self.log.body(at)
    }

    fn next_job(&mut self) -> Option<Job> {
        self.log.next_job()
    }

    fn begin_snapshot(&mut self, live: &dyn LiveBytes) -> Result<bool, BeginSnapshotError> {
        self.log.begin_snapshot(live)
    }

    fn write_snapshot(&mut self, content: Box<dyn SnapshotContent>) {
        self.log.write_snapshot(content);
    }

    fn snapshots(&self) -> SnapshotStatus<'_> {
        self.log.snapshots()
    }

    fn tidy(&mut self, now: BootTime, live: &dyn LiveBytes, is_idle: bool) -> Tidied {
        self.log.tidy(now, live, is_idle)
    }

    fn end_victim(&mut self, end: VictimEnd) {
        self.log.end_victim(end);
    }

    fn next_wake(&self) -> Option<BootTime> {
        self.log.next_wake()
    }

    fn keep_for_draining(&mut self, state: ToDrain) {
        self.log.keep_for_draining(state);
    }

    fn names_page(&self, number: PageNumber) -> bool {
        self.log.names_page(number)
    }

    fn has_whole(&self, number: PageNumber) -> bool {
        self.log.has_whole(number)
    }

    fn page_size_bytes(&self, number: PageNumber) -> Option<u64> {
        self.log.page_size_bytes(number)
    }

    fn read_pages(&mut self, numbers: &mut dyn Iterator<Item = PageNumber>) -> PagesToRead {
        self.log.read_pages(numbers)
    }

    fn end_read(&mut self, read: PagesRead) {
        self.log.end_read(read);
    }

    fn files(&self) -> Option<&dyn LogFiles> {
        self.log.files()
    }

    fn files_mut(&mut self) -> Option<&mut dyn LogFiles> {
        self.log.files_mut()
    }
}

impl OwnedLog for Owned {
    fn limits(&self) -> LogLimits {
        self.log.limits()
    }

    fn reserve(&mut self, need: Need) -> Result<Reservation, ReserveError> {
        self.log.reserve(need)
    }

    fn append(&mut self, at: Reservation, batch: BatchBuilder) -> Result<LogPosition, AppendError> {
        self.log.append(at, batch)
    }

    fn beat(&mut self, time_ms: u64) -> bool {
        self.log.beat(time_ms)
    }

    fn mark(&mut self) -> bool {
        self.log.mark()
    }

    fn end(&self) -> LogPosition {
        self.log.end()
    }

    fn owned_until(&self) -> BootTime {
        BootTime::from_us(self.told.owned_until_us.load(Ordering::Relaxed))
    }

    fn health(&self) -> LogHealth {
        self.log.health()
    }

    fn stop(&mut self) {
        self.log.stop();
    }
}

fn turn(
    partition: &mut Partition<u32>,
    ticket: u32,
    command: Command,
    replies: &mut Vec<(u32, Reply)>,
) {
    let mut commands = VecDeque::from([(ticket, command)]);
    partition.turn(moment(NOW), &mut commands, replies);
}

/// A partition with a queue.
fn open(source: &Fencing) -> Partition<u32> {
    let (mut partition, _) = Partition::open_from(source, options(), [1; 16], NOW).unwrap();
    let mut replies = Vec::new();
    let mut commands = VecDeque::from([(0, create())]);
    while replies.is_empty() {
        partition.turn(moment(NOW), &mut commands, &mut replies);
        while let Some(job) = partition.next_job() {
            partition.complete(job.run(), &mut replies).unwrap();
        }
    }
    assert!(matches!(replies.remove(0), (0, Ok(_))));
    partition
}

/// What a send and a look after it are answered if their commit brings the end of the log.
fn answers_at_the_end(source: &Fencing) -> Vec<(u32, Result<(), Rejection>)> {
    let mut partition = open(source);
    let mut replies = Vec::new();
    turn(&mut partition, 1, send("a"), &mut replies);
    turn(&mut partition, 2, peek(), &mut replies);
    assert!(replies.is_empty());
    source.told.other.store(100, Ordering::Relaxed);
    let mut ended = None;
    while let Some(job) = partition.next_job() {
        let completed = partition.complete(job.run(), &mut replies);
        ended = completed.err().or(ended);
    }
    assert!(ended.is_some(), "the log goes on");
    let replies = replies.into_iter();
    let mut replies: Vec<_> = replies.map(|(ticket, it)| (ticket, it.map(drop))).collect();
    replies.sort_by_key(|(ticket, _)| *ticket);
    replies
}

/// The commit of an answer's own record proves that there was no other owner then. It proves nothing for what was only read
/// later, and nothing if the copy differs.
#[test]
fn a_commit_that_comes_back_with_the_fence_is_acknowledged() {
    let source = Fencing::new();
    let answers = answers_at_the_end(&source);
    assert_eq!(answers, [(1, Ok(())), (2, Err(Rejection::NotOwner))]);
    let source = Fencing::new();
    source.told.is_diverged.store(true, Ordering::Relaxed);
    let answers = answers_at_the_end(&source);
    let unknown = Err(Rejection::Unknown);
    assert_eq!(answers, [(1, unknown), (2, Err(Rejection::NotOwner))]);
}

/// With a lease, what is read costs no commit. The lease counts when the answer leaves, and not when it is decided.
#[test]
fn a_lease_proves_what_is_read() {
    let source = Fencing::new();
    let mut partition = open(&source);
    let mut replies = Vec::new();
    turn(&mut partition, 1, peek(), &mut replies);
    assert!(!partition.is_any_to_confirm(), "there is no lease");
    let until = BootTime::from_us(1000);
    (source.told.owned_until_us).store(until.as_us(), Ordering::Relaxed);
    assert!(partition.is_any_to_confirm());
    partition.confirm(until, &mut replies);
    assert!(replies.is_empty(), "the lease is over");
    partition.confirm(BootTime::from_us(999), &mut replies);
    assert!(matches!(replies[..], [(1, Ok(_))]), "{replies:?}");
    assert!(!partition.is_any_to_confirm());
}

/// What was handed out stays readable, and nothing of the former opening reaches the next one.
#[tokio::test]
async fn files_of_the_former_opening_are_read_and_its_backup_and_scrub_end() {
    let source = Fencing::new();
    let told = Arc::clone(&source.told);
    let options = BrokerOptions {
        partition: options(),
        ..BrokerOptions::default()
    };
    let (broker, _) = Broker::start_on(Arc::new(source), options).unwrap();
    broker.submit(create()).await.unwrap();
    for number in 0..20 {
        let body = format!("{number:04}").repeat(500);
        broker.submit(send(body)).await.unwrap();
    }
    let held = held_answer(&broker).await;
    let pin = broker.begin_backup().await.unwrap();
    assert!(pin.held_bytes().await.is_some());
    told.other.store(100, Ordering::Relaxed);
    let fenced = broker.submit(send("fenced")).await;
    assert!(
        fenced.is_ok(),
        "its commit came back with the fence: {fenced:?}"
    );
    until(&broker, Standing::Following).await;
    assert_eq!(pin.held_bytes().await, None);
    assert!(pin.is_left());

    broker.promote(Epoch::new(200));
    until(&broker, Standing::Ready).await;
    assert_eq!(pin.held_bytes().await, None);
    let next = broker.begin_backup().await.unwrap();
    drop(pin);
    assert!(next.held_bytes().await.is_some(), "the other one has ended");
    assert!(!next.is_left());
    drop(next);
    let mut count = 0;
    loop {
        let bodies = broker.submit(receive(32)).await.unwrap().bodies;
        if bodies.is_empty() {
            break;
        }
        count += bodies.len();
    }
    assert_eq!(count, 21);
    let read = broker.read(held).await.unwrap().bodies;
    assert_eq!(read[0], "0000".repeat(500));
    broker.stop();
}

/// An answer whose bodies are not read yet.
async fn held_answer(broker: &Broker) -> Answered {
    let answers = Arc::<Answers>::default();
    broker.submit_among([(1, peek())].into_iter(), &answers, |_, rejection| {
        panic!("{rejection}")
    });
    answers.ready().await;
    let mut came = Vec::new();
    answers.take(&mut came);
    let (_, reply) = came.remove(0);
    let answered = reply.unwrap();
    assert!(answered.bodies.size_in_files_bytes() > 0, "in memory");
    answered
}
