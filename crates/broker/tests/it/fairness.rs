//! A busy source of commands beside a quiet one.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kew_broker::{
    Answers, Broker, BrokerOptions, Excess, Partition, PartitionOptions, Rejection, Rotation,
    Source,
};
use kew_engine::bus::{
    BusCommand, BusMessage, BusQueueOptions, NewRule, TransactionPart, TransactionWork,
};
use kew_engine::storage::{Metadata, StorageCommand};
use kew_engine::{Command, EntityName, Service, Timestamp};
use kew_filter::{Definition, FilterDefinition, SqlDefinition};
use kew_log::{FaultyStorage, MemoryStorage, Storage, StorageFile};

use crate::bus::named;
use crate::forwards::Words;
use crate::support::{create, queue, send};

const BUSY: Source = Source::numbered(1);
const QUIET: Source = Source::numbered(2);

/// A partition of the usual size, and the tickets of each turn.
struct Bench {
    partition: Partition<(Source, u32)>,
    waiting: Rotation<(Source, u32)>,
}

impl Bench {
    fn new() -> Self {
        Self::with(PartitionOptions::default())
    }

    fn with(options: PartitionOptions) -> Self {
        let storage = Arc::new(FaultyStorage::new());
        let now = Timestamp::from_ms(1_000_000);
        let (partition, _) = Partition::open(storage, options, 1, [1; 16], now).unwrap();
        let mut bench = Self {
            partition,
            waiting: Rotation::default(),
        };
        bench.push(Source::ALONE, 0, create());
        bench.turn();
        bench
    }

    fn push(&mut self, source: Source, number: u32, command: Command) {
        self.waiting.push(source, (source, number), command);
    }

    /// The commands that a turn decides, when they are durable. The first segments are prepared meanwhile.
    fn turn(&mut self) -> Vec<(Source, u32)> {
        loop {
            let decided = self.single_turn();
            if !decided.is_empty() {
                return decided;
            }
        }
    }

    /// The commands that one turn decides, which may be none.
    fn single_turn(&mut self) -> Vec<(Source, u32)> {
        let mut replies = Vec::new();
        let now = self.partition.now();
        self.partition.turn(now, &mut self.waiting, &mut replies);
        while let Some(job) = self.partition.next_job() {
            let outcome = job.run();
            self.partition.complete(outcome, &mut replies).unwrap();
        }
        replies.into_iter().map(|(ticket, _)| ticket).collect()
    }

    fn ask(&mut self, command: BusCommand) {
        self.push(Source::ALONE, 0, Command::Bus(command));
        self.turn();
    }

    /// A topic with rules that take two ticks for each message, and that select nothing.
    fn with_expensive_rules() -> Self {
        let mut bench = Self::with(PartitionOptions {
            format: Arc::new(Words),
            ..PartitionOptions::default()
        });
        let topic = named("t");
        let options = BusQueueOptions::default();
        bench.ask(BusCommand::CreateTopic {
            topic,
            options: options.clone(),
        });
        bench.ask(BusCommand::CreateSubscription {
            topic: named("t"),
            subscription: named("t/subscriptions/s"),
            options,
            rule: Some(Box::new(expensive(0))),
        });
        for number in 1..500 {
            bench.ask(BusCommand::AddRule {
                topic: named("t"),
                subscription: named("t/subscriptions/s"),
                rule: Box::new(expensive(number)),
            });
        }
        bench
    }

    /// Sends messages to the topic, of which all but a few wait for their copies.
    fn publish(&mut self, count: usize) {
        self.push(Source::ALONE, 0, publishes(count));
        self.turn();
    }

    /// How many messages of the topic wait.
    fn pending(&mut self) -> u64 {
        let now = self.partition.now().time;
        let overview = self.partition.overview(None, now, 1_000);
        overview.topics.iter().map(|topic| topic.pending).sum()
    }
}

fn expensive(number: u32) -> NewRule {
    let filter = SqlDefinition {
        text: format!("{}1 = 0", "1 = 0 OR ".repeat(110)).into(),
        ..SqlDefinition::default()
    };
    NewRule {
        name: format!("rule-{number}").into(),
        definition: Definition::new(FilterDefinition::Sql(filter), None).unwrap(),
    }
}

fn read() -> Command {
    Command::Storage(StorageCommand::ReadQueue { queue: queue() })
}

#[test]
fn a_turn_decides_a_bounded_number_of_commands() {
    let mut bench = Bench::new();
    for number in 0..10_000 {
        bench.push(Source::numbered(u64::from(number % 3)), number, read());
    }
    let turns = [(); 3].map(|()| bench.turn().len());
    assert_eq!(turns, [4096, 4096, 10_000 - 2 * 4096]);
}

#[test]
fn a_quiet_source_is_served_in_the_next_turn() {
    for size in [10, 1000, 60_000] {
        let mut bench = Bench::new();
        let body = "a".repeat(size);
        for number in 0..6000 {
            bench.push(BUSY, number, send(body.clone()));
        }
        for number in 0..5 {
            bench.push(QUIET, number, send("quiet"));
            let decided = bench.turn();
            assert!(decided.contains(&(QUIET, number)), "{size}, {number}");
            // The busy source has the rest of the turn.
            assert!(decided.len() > 1 || bench.waiting.is_empty());
        }
    }
}

/// Requests over HTTP are sources of their own: only their queue tells how many there are.
#[test]
fn a_quiet_queue_is_served_in_the_next_turn() {
    let mut bench = Bench::new();
    let other = EntityName::storage_queue("acct", "other");
    let metadata = Metadata::default();
    let queue = other.clone();
    let created = Command::Storage(StorageCommand::CreateQueue { queue, metadata });
    bench.push(Source::ALONE, 0, created);
    bench.turn();
    for number in 0..6000 {
        bench.push(Source::ALONE, number, send("a".repeat(1000)));
    }
    for number in 6000..6005 {
        let queue = other.clone();
        let read = Command::Storage(StorageCommand::ReadQueue { queue });
        bench.push(Source::ALONE, number, read);
        let decided = bench.turn();
        assert!(decided.contains(&(Source::ALONE, number)), "{number}");
        assert!(decided.len() > 64);
    }
}

/// What ticks do for one client, others do not wait for.
#[test]
fn expensive_rules_leave_half_of_each_turn_to_commands() {
    let mut bench = Bench::with_expensive_rules();
    bench.publish(100);
    for number in 0..50 {
        for nth in 0..100 {
            bench.push(QUIET, number * 100 + nth, read());
        }
        let decided = bench.single_turn();
        assert!(decided.len() >= 100, "turn {number}: {}", decided.len());
        assert!(bench.pending() > 0, "the rules were too cheap");
    }
}

/// A command that looks at more than a turn has left comes first in the next one, however long ticks have work.
#[test]
fn expensive_rules_do_not_hold_up_expensive_commands() {
    let mut bench = Bench::with_expensive_rules();
    bench.publish(100);
    for number in 0..20 {
        let list = StorageCommand::ListQueues {
            service: Service::QueueStorage,
            account: "acct".into(),
            prefix: "".into(),
            from: "".into(),
            limit: 60_000,
            metadata_size_bytes_max: None,
        };
        bench.push(QUIET, number, Command::Storage(list));
        let decided = bench.single_turn();
        assert_eq!(decided, [(QUIET, number)]);
        assert!(bench.pending() > 0, "the rules were too cheap");
    }
}

/// Nor do ticks wait for commands.
#[test]
fn a_flood_of_commands_does_not_hold_up_copies() {
    let mut bench = Bench::with_expensive_rules();
    bench.publish(20);
    let before = bench.pending();
    for number in 0..200_000 {
        bench.push(BUSY, number, read());
    }
    for _ in 0..20 {
        assert!(bench.single_turn().len() > 1_000);
    }
    let after = bench.pending();
    assert!(after + 5 <= before, "{before} messages, then {after}");
}

/// A topic whose copies are made by ticks, because a command makes none at once.
fn with_slow_topic(copies_owed_max: u64) -> Bench {
    let mut bench = Bench::with(PartitionOptions {
        copies_at_once: 0,
        copies_owed_max,
        ..PartitionOptions::default()
    });
    let options = BusQueueOptions::default();
    bench.ask(BusCommand::CreateTopic {
        topic: named("t"),
        options: options.clone(),
    });
    for number in 0..10 {
        bench.ask(BusCommand::CreateSubscription {
            topic: named("t"),
            subscription: named(&format!("t/subscriptions/s-{number}")),
            options: options.clone(),
            rule: None,
        });
    }
    bench
}

fn publishes(count: usize) -> Command {
    let message = BusMessage {
        body: Bytes::from_static(b"id-1 body"),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    Command::Bus(BusCommand::Send {
        queue: named("t"),
        messages: vec![message; count],
    })
}

/// A topic takes no more than it passes on. Those who send to it wait, in their order, and nobody else does.
#[test]
fn who_sends_to_a_topic_waits_for_the_copies_that_it_owes() {
    const OWED_MAX: u64 = 5_000;
    let mut bench = with_slow_topic(OWED_MAX);
    for number in 0..400 {
        bench.push(BUSY, number, publishes(100));
    }
    let (mut sent, mut turns) = (Vec::new(), 0);
    while sent.len() < 400 {
        bench.push(QUIET, turns, read());
        let asked = BusCommand::ReadQueue { queue: named("t") };
        bench.push(QUIET, 1_000 + turns, Command::Bus(asked));
        let decided = bench.single_turn();
        assert!(decided.contains(&(QUIET, turns)), "turn {turns}");
        assert!(decided.contains(&(QUIET, 1_000 + turns)), "turn {turns}");
        sent.extend(decided.into_iter().filter(|(source, _)| *source == BUSY));
        // One command more than there was room for.
        let owed = bench.pending() * 10;
        assert!(owed <= OWED_MAX + 1_000, "turn {turns}: {owed}");
        turns += 1;
    }
    assert_eq!(
        sent,
        (0..400).map(|number| (BUSY, number)).collect::<Vec<_>>()
    );
    // A turn copies 85 messages of 40,000.
    assert!((400..500).contains(&turns), "{turns}");
}

/// A transaction waits among the commands of the entity that it touches first.
#[test]
fn a_transaction_with_a_topic_that_is_behind_holds_no_other_entity_up() {
    let mut bench = with_slow_topic(5_000);
    let queue = named("a");
    let options = BusQueueOptions::default();
    bench.ask(BusCommand::CreateQueue { queue, options });
    for number in 0..20 {
        bench.push(BUSY, number, publishes(100));
    }
    bench.single_turn();
    let message = || BusMessage {
        body: Bytes::from_static(b"id-1 body"),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let part = |name: &str| TransactionPart {
        queue: named(name),
        incarnation: None,
        work: TransactionWork::Send(vec![message()]),
    };
    let parts = vec![part("a"), part("t")];
    bench.push(
        Source::numbered(3),
        0,
        Command::Bus(BusCommand::Transact { parts }),
    );
    let (queue, messages) = (named("a"), vec![message()]);
    bench.push(QUIET, 0, Command::Bus(BusCommand::Send { queue, messages }));
    let decided = bench.single_turn();
    assert!(decided.contains(&(QUIET, 0)), "{decided:?}");
    assert!(bench.pending() > 400, "the topic was not behind");
}

/// What waits takes room that others need.
#[test]
fn who_sends_to_a_topic_is_told_to_come_again_if_too_much_waits() {
    let mut bench = with_slow_topic(5_000);
    for number in 0..20 {
        bench.push(BUSY, number, publishes(100));
    }
    let mut replies = Vec::new();
    let now = bench.partition.now();
    bench.waiting.set_excess(Excess {
        commands: 3,
        body_bytes: 0,
    });
    bench.partition.turn(now, &mut bench.waiting, &mut replies);
    let busy = replies
        .iter()
        .filter(|(_, it)| matches!(it, Err(Rejection::Busy)));
    let busy: Vec<_> = busy.map(|((_, number), _)| *number).collect();
    assert_eq!(busy, [6, 7, 8]);
    assert_eq!(bench.waiting.len(), 11);
}

/// A storage on which each sync of the runner needs a permit.
#[derive(Clone)]
struct Gated {
    storage: Arc<MemoryStorage>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// How many syncs the runner has begun, and how many it may finish.
    syncs: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Gate {
    fn wait_until(&self, holds: impl Fn(&(u64, u64)) -> bool) {
        let limit = Duration::from_secs(60);
        let syncs = self.syncs.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(syncs, limit, |it| !holds(it));
        assert!(!waited.unwrap().1.timed_out(), "waited for {limit:?}");
    }

    fn sync(&self) {
        if thread::current().name() == Some("kew-runner") {
            let number = {
                let mut syncs = self.syncs.lock().unwrap();
                syncs.0 += 1;
                syncs.0
            };
            self.changed.notify_all();
            self.wait_until(|(_, permits)| number <= *permits);
        }
    }

    /// Waits for a sync, and for all before it.
    fn until_sync(&self, number: u64) {
        self.wait_until(|(begun, _)| *begun >= number);
    }

    fn permit(&self, number: u64) {
        self.syncs.lock().unwrap().1 = number;
        self.changed.notify_all();
    }

    fn begun(&self) -> u64 {
        self.syncs.lock().unwrap().0
    }
}

impl Storage for Gated {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.storage.create(name)?;
        Ok(Arc::new(GatedFile(file, Arc::clone(&self.gate))))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.storage.open(name)?;
        Ok(Arc::new(GatedFile(file, Arc::clone(&self.gate))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.storage.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.storage.free_bytes()
    }
}

struct GatedFile(Arc<dyn StorageFile>, Arc<Gate>);

impl StorageFile for GatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.sync();
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

fn submit(broker: &Broker, answers: &Arc<Answers>, bodies: impl Iterator<Item = String>) {
    let commands = (0..).zip(bodies.map(send));
    broker.submit_among(commands, answers, |key, rejection| {
        panic!("{key}: {rejection}")
    });
}

fn answered(answers: &Answers) -> usize {
    let mut came = Vec::new();
    answers.take(&mut came);
    came.len()
}

/// The runner looks into its mailbox before each turn, however much is left to decide.
#[tokio::test]
async fn a_command_that_comes_late_waits_for_one_turn() {
    let gate = Arc::new(Gate::default());
    gate.permit(u64::MAX);
    let storage = Gated {
        storage: Arc::new(MemoryStorage::new()),
        gate: Arc::clone(&gate),
    };
    let options = BrokerOptions::default();
    let (broker, _) = Broker::start(Arc::new(storage), options).unwrap();
    broker.submit(create()).await.unwrap();
    let [busy, quiet] = [(); 2].map(|()| (broker.for_source(), Arc::<Answers>::default()));

    // The next sync stands still: the turn of the first command.
    let first = gate.begun() + 1;
    gate.permit(first - 1);
    submit(&busy.0, &busy.1, std::iter::once("first".into()));
    gate.until_sync(first);
    submit(&busy.0, &busy.1, (0..6000).map(|_| "a".repeat(8000)));
    gate.permit(first);
    gate.until_sync(first + 1);
    // A turn has begun with commands of the busy source, and more of them wait.
    submit(&quiet.0, &quiet.1, std::iter::once("quiet".into()));
    // The rest of this turn, the next one, and the beginning of a new segment.
    let mut syncs = first + 1..first + 5;
    while answered(&quiet.1) == 0 {
        let sync = syncs.next().expect("it is answered after a few syncs");
        gate.permit(sync);
        gate.until_sync(sync + 1);
    }
    let busy_count = answered(&busy.1);
    assert!((2..1000).contains(&busy_count), "{busy_count}");
    gate.permit(u64::MAX);
    broker.stop();
    assert_eq!(busy_count + answered(&busy.1), 6001);
}
