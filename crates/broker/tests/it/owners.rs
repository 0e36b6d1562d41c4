//! A log that changes hands: what its owner answers when another one begins, and how it becomes the owner again.

mod epochs;
mod model;
mod on_disk;
mod others;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kew_broker::{
    BackupRefused, Broker, BrokerOptions, Partition, PartitionOptions, Rejection, Reply, Standing,
};
use kew_engine::bus::Awaited;
use kew_engine::storage::StorageOutcome;
use kew_engine::{Command, Incarnation, Outcome, Timestamp};
use kew_log::{BeginBackupError, Epoch, Job, JobKind, LogEnd};
use kew_log_contract::{MemoryOptions, MemorySource};
use tokio::sync::Notify;

use crate::metrics::{metrics, value};
use crate::partition::options;
use crate::support::{create, delete, moment, peek, receive, send};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(30);

const NOW: Timestamp = Timestamp::from_ms(1_000_000);

/// A log in memory that is owned. Its commits and reads are for the test to run.
struct Owned {
    source: MemorySource,
    partition: Partition<u32>,
    commits: Vec<Job>,
    reads: Vec<Job>,
    replies: Vec<(u32, Reply)>,
}

fn open(source: &MemorySource) -> Partition<u32> {
    let (partition, _) = Partition::open_from(source, options(), [1; 16], NOW).unwrap();
    partition
}

impl Owned {
    fn on(options: MemoryOptions) -> Self {
        let source = MemorySource::new(options);
        let partition = open(&source);
        let mut owned = Self {
            source,
            partition,
            commits: Vec::new(),
            reads: Vec::new(),
            replies: Vec::new(),
        };
        let sends = ["a", "b", "c", "d", "e"].map(send);
        for command in [create()].into_iter().chain(sends) {
            owned.turn(0, command);
            owned.commit().unwrap();
        }
        owned.replies.clear();
        owned
    }

    /// Another process becomes the owner.
    fn fence(&self) {
        drop(open(&self.source));
    }

    fn turn(&mut self, ticket: u32, command: Command) {
        let mut commands = VecDeque::from([(ticket, command)]);
        while !commands.is_empty() {
            let now = moment(NOW);
            (self.partition).turn(now, &mut commands, &mut self.replies);
            self.jobs();
        }
    }

    fn jobs(&mut self) {
        while let Some(job) = self.partition.next_job() {
            match job.kind() {
                JobKind::Commit => self.commits.push(job),
                JobKind::Load => self.reads.push(job),
                _ => {
                    let completed = self.partition.complete(job.run(), &mut self.replies);
                    completed.unwrap();
                }
            }
        }
    }

    fn commit(&mut self) -> Result<(), LogEnd> {
        while let Some(commit) = self.commits.pop() {
            self.partition.complete(commit.run(), &mut self.replies)?;
            self.jobs();
        }
        Ok(())
    }

    /// Takes records out of memory.
    fn evict(&mut self) {
        self.partition.snapshot();
        self.jobs();
        self.commit().unwrap();
        self.partition.evict_if(|_, may| may);
    }

    /// Why each command failed.
    fn rejections(&mut self) -> Vec<(u32, Rejection)> {
        let replies = self.replies.drain(..);
        let rejections = replies.map(|(ticket, reply)| {
            let rejection = reply.expect_err("nothing succeeds at a fence");
            (ticket, rejection)
        });
        rejections.collect()
    }
}

/// What had perhaps changed something, and what had certainly changed nothing. Each has one answer.
#[test]
fn a_commit_that_is_fenced_answers_what_is_known() {
    let mut owned = Owned::on(MemoryOptions::default());
    owned.evict();
    owned.turn(1, receive(1));
    assert_eq!(owned.partition.waiting().count(), 1, "it waits for a read");
    owned.turn(2, create());
    assert!(owned.replies.is_empty(), "it comes behind");
    let other = Command::Storage(kew_engine::storage::StorageCommand::CreateQueue {
        queue: kew_engine::EntityName::storage_queue("acct", "other"),
        metadata: Default::default(),
    });
    owned.turn(3, other.clone());
    // It rests on the record of the turn before, and brings nothing itself.
    owned.turn(4, other);
    assert!(owned.replies.is_empty());
    owned.fence();
    let end = owned.commit().unwrap_err();
    assert!(matches!(end, LogEnd::Fenced(_)), "{end}");
    assert_eq!(
        owned.rejections(),
        [
            (3, Rejection::Unknown),
            (4, Rejection::NotOwner),
            (1, Rejection::NotOwner),
            (2, Rejection::NotOwner),
        ]
    );
    assert!(owned.partition.is_stopped());
    assert!(matches!(owned.partition.ended(), Some(LogEnd::Fenced(_))));
    assert!(owned.partition.next_job().is_none());
    owned.turn(5, send("late"));
    assert_eq!(owned.rejections(), [(5, Rejection::NotOwner)]);
}

/// A process that has taken the log over may have changed anything. So what is read is shown once a commit proves that nobody has.
#[test]
fn what_is_read_waits_for_a_commit_that_begins_later() {
    let mut owned = Owned::on(MemoryOptions::default());
    owned.turn(1, peek());
    assert!(owned.replies.is_empty());
    owned.commit().unwrap();
    assert!(matches!(owned.replies.pop(), Some((1, Ok(_)))));

    // A commit that is under way proves nothing.
    owned.turn(2, send("f"));
    let under_way = owned.commits.pop().unwrap();
    owned.turn(3, peek());
    assert!(owned.commits.is_empty(), "one commit is out");
    let completed = owned
        .partition
        .complete(under_way.run(), &mut owned.replies);
    completed.unwrap();
    assert!(matches!(owned.replies.pop(), Some((2, Ok(_)))));
    assert!(owned.replies.is_empty());
    owned.jobs();
    owned.commit().unwrap();
    assert!(matches!(owned.replies.pop(), Some((3, Ok(_)))));

    owned.turn(4, peek());
    owned.fence();
    owned.commit().unwrap_err();
    assert_eq!(owned.rejections(), [(4, Rejection::NotOwner)]);
}

/// The end is told before the commit comes back: what waits for that is answered all the same.
#[test]
fn an_end_that_a_reservation_tells_answers_all_that_wait() {
    let mut owned = Owned::on(MemoryOptions {
        looks_when_reserving: true,
        ..MemoryOptions::default()
    });
    owned.turn(1, send("b"));
    owned.fence();
    owned.turn(2, send("c"));
    assert_eq!(
        owned.rejections(),
        [(1, Rejection::Unknown), (2, Rejection::NotOwner)]
    );
    assert!(matches!(owned.partition.ended(), Some(LogEnd::Fenced(_))));
}

fn broker_options() -> BrokerOptions {
    BrokerOptions {
        partition: PartitionOptions {
            // So that a new owner finds snapshots, and pages that it passes over.
            snapshot_after_bytes: 16 * 1024,
            ..PartitionOptions::default()
        },
        ..BrokerOptions::default()
    }
}

fn start(source: &MemorySource) -> Broker {
    let started = Broker::start_on(Arc::new(source.clone()), broker_options());
    started.unwrap().0
}

async fn until(broker: &Broker, standing: Standing) {
    for _ in 0..10_000 {
        if broker.standing() == standing {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is {:?}, and not {standing:?}", broker.standing());
}

/// Lets a broker find out that another one owns the log: a commit tells.
async fn fall(broker: &Broker) {
    let sent = broker.submit(send("fenced")).await;
    assert_eq!(sent, Err(Rejection::Unknown));
    until(broker, Standing::Following).await;
}

async fn receive_all(broker: &Broker) -> BTreeMap<Vec<u8>, usize> {
    let mut found = BTreeMap::new();
    loop {
        let answer = broker.submit(receive(32)).await.unwrap();
        let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
            panic!("a receive receives");
        };
        if messages.is_empty() {
            return found;
        }
        for (message, body) in messages.iter().zip(&answer.bodies) {
            *found.entry(body.to_vec()).or_default() += 1;
            broker.submit(delete(message)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_owner_that_is_fenced_follows_and_owns_again_when_it_is_told_to() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source);
    first.submit(create()).await.unwrap();
    first.submit(send("of the first")).await.unwrap();
    let second = start(&source);
    second.submit(send("of the second")).await.unwrap();
    // It does not know yet that there is another owner. What it would show is old.
    assert_eq!(first.submit(peek()).await, Err(Rejection::NotOwner));
    until(&first, Standing::Following).await;
    assert_eq!(first.submit(peek()).await, Err(Rejection::NotOwner));
    // It does not promote itself, and not with an epoch that has begun.
    first.promote(Epoch::default());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(first.standing(), Standing::Following);
    assert!(!first.is_ready());
    second.submit(send("of the second, too")).await.unwrap();

    first.promote(Epoch::new(100));
    until(&first, Standing::Ready).await;
    fall(&second).await;
    let found = receive_all(&first).await;
    let bodies: Vec<&[u8]> = found.keys().map(Vec::as_slice).collect();
    assert_eq!(
        bodies,
        [
            &b"of the first"[..],
            b"of the second",
            b"of the second, too"
        ]
    );

    // A stop does not wait for a promotion, and the last owner writes its snapshot.
    second.stop();
    assert_eq!(second.submit(peek()).await, Err(Rejection::Stopped));
    first.stop();
    let again = start(&source);
    assert!(receive_all(&again).await.is_empty());
    again.stop();
}

/// An idle owner that is told before it knows that it is fenced finds that out, and owns the log again.
#[tokio::test]
async fn an_idle_owner_is_promoted() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source);
    first.submit(create()).await.unwrap();
    let second = start(&source);
    first.promote(Epoch::new(100));
    let mut tries = 0;
    while second.submit(send("a")).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        tries += 1;
        assert!(tries < 10_000, "the second one still owns the log");
    }
    until(&first, Standing::Ready).await;
    first.submit(send("b")).await.unwrap();
    // Repeated, it changes nothing: the next owner is not fenced.
    first.promote(Epoch::new(100));
    second.promote(Epoch::new(101));
    until(&second, Standing::Ready).await;
    // The repeated promotion has perhaps made it look.
    let told = first.submit(send("c")).await;
    let allowed = [Err(Rejection::Unknown), Err(Rejection::NotOwner)];
    assert!(allowed.contains(&told), "{told:?}");
    until(&first, Standing::Following).await;
    second.submit(send("d")).await.unwrap();
    second.stop();
    first.stop();
}

#[tokio::test]
async fn receivers_look_again_when_the_owner_changes() {
    let source = MemorySource::new(MemoryOptions::default());
    let broker = start(&source);
    broker.submit(create()).await.unwrap();
    let mut watch = broker.watch(Incarnation::default(), Awaited::Message);
    let notify = Arc::<Notify>::default();
    let changes = broker.watch_changes(Incarnation::default(), &notify);
    let other = start(&source);
    fall(&broker).await;
    watch.woken().await;
    notify.notified().await;
    assert!(changes.take());
    broker.promote(Epoch::new(100));
    watch.woken().await;
    notify.notified().await;
    until(&broker, Standing::Ready).await;
    other.stop();
    broker.stop();
}

#[tokio::test]
async fn a_follower_says_so_to_operators() {
    let source = MemorySource::new(MemoryOptions::default());
    let broker = start(&source);
    broker.submit(create()).await.unwrap();
    let refused = broker.begin_backup().await.err();
    let no_files = BackupRefused::Log(BeginBackupError::NoFiles);
    assert_eq!(format!("{refused:?}"), format!("{:?}", Some(no_files)));
    let other = start(&source);
    fall(&broker).await;
    let refused = broker.begin_backup().await.err();
    assert!(
        matches!(refused, Some(BackupRefused::NotOwner)),
        "{refused:?}"
    );
    assert!(broker.scrub_report().await.is_none());
    assert_eq!(broker.submit(peek()).await, Err(Rejection::NotOwner));
    let page = metrics(&broker, 5).await;
    let state = |state| value(&page, "kew_partition_state", &[("state", state)]);
    assert_eq!((state("following"), state("ready")), (Some(1.0), Some(0.0)));
    assert_eq!(value(&page, "kew_partition_answered", &[]), Some(0.0));
    assert_eq!(value(&page, "kew_partition_commands", &[]), Some(0.0));
    let reason = [("reason", "not_owner")];
    let refusals = value(&page, "kew_partition_refusals_total", &reason);
    assert_eq!(refusals, Some(1.0));
    assert_eq!(value(&page, "kew_partition_unknown_total", &[]), Some(1.0));
    broker.stop();
    other.stop();
}

/// Two processes own a log in turn, each several times, while others send to both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_once_whoever_owns_the_log() {
    let source = MemorySource::new(MemoryOptions::default());
    hand_over_in_turn(|_| start(&source)).await;
}

/// Starts two brokers on one log, and lets each own it several times.
async fn hand_over_in_turn(start: impl Fn(usize) -> Broker) {
    const CHANGES: u64 = 12;
    let first = start(0);
    first.submit(create()).await.unwrap();
    let mut owners = [start(1), first];
    let is_over = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU32::new(0));
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..8 {
        let broker = owners[sender % 2].for_source();
        let (is_over, next) = (Arc::clone(&is_over), Arc::clone(&next));
        senders.spawn(async move {
            let mut sent = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let body = number.to_string();
                sent.push((body.clone(), broker.submit(send(body)).await));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            sent
        });
    }
    for change in 0..CHANGES {
        until(&owners[1], Standing::Following).await;
        owners[1].promote(Epoch::new(100 + change));
        until(&owners[1], Standing::Ready).await;
        owners.reverse();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let sent: Vec<_> = senders.join_all().await.into_iter().flatten().collect();
    until(&owners[0], Standing::Ready).await;
    let found = receive_all(&owners[0]).await;
    let mut seen = BTreeMap::new();
    for (body, reply) in &sent {
        let count = found.get(body.as_bytes()).copied().unwrap_or_default();
        let (kind, allowed) = match reply {
            Ok(_) => ("acknowledged", 1..=1),
            Err(Rejection::Unknown) => ("unknown", 0..=1),
            Err(Rejection::NotOwner) => ("not owner", 0..=0),
            Err(other) => panic!("{other}"),
        };
        assert!(
            allowed.contains(&count),
            "{body} is {kind}, and there {count} times"
        );
        *seen.entry(kind).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 3, "each kind came: {seen:?}");
    for owner in owners {
        owner.stop();
    }
}
