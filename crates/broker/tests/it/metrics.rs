//! The broker's metrics.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kew_broker::{
    AdmissionLimits, Broker, BrokerOptions, PartitionOptions, Rejection, ResidentLimit,
};
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions, ReceiveMode};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, EntityName, Service, Timestamp};
use kew_log::{Fault, FaultyStorage, MemoryStorage, Repeat, Storage, StorageFile};
use kew_metrics::{Read, page, read};

use crate::support::{create, delete, receive, send};

const PATIENCE: Duration = Duration::from_secs(5);

type Page = std::collections::BTreeMap<String, Read>;

pub(crate) async fn metrics(broker: &Broker, queues_max: usize) -> Page {
    read(&page(broker.metrics(queues_max, PATIENCE).await)).unwrap()
}

/// The value of the only sample with this name and these labels; `None` if there is none.
pub(crate) fn value(page: &Page, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let mut samples = page.values().flat_map(|family| &family.samples);
    let labels = labels.iter();
    let labels = labels.map(|(name, value)| (name.to_string(), value.to_string()));
    let labels = labels.collect();
    let (_, _, value) = samples.find(|(other, has, _)| other == name && *has == labels)?;
    Some(*value)
}

fn create_named(name: String) -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: EntityName::storage_queue("acct", name),
        metadata: Default::default(),
    })
}

#[tokio::test]
async fn counters_match_the_operations() {
    let (broker, _) =
        Broker::start(Arc::new(MemoryStorage::new()), BrokerOptions::default()).unwrap();
    broker.submit(create()).await.unwrap();
    for body in ["a", "b", "c"] {
        broker.submit(send(body)).await.unwrap();
    }
    let received = broker.submit(receive(2)).await.unwrap();
    let kew_engine::Outcome::Storage(StorageOutcome::Received(messages)) = received.outcome else {
        panic!("a receive receives");
    };
    broker.submit(delete(&messages[0])).await.unwrap();
    let page = metrics(&broker, 10).await;
    let jobs = |state| {
        let labels = [("account", "acct"), ("queue", "jobs"), ("state", state)];
        value(&page, "kew_queue_messages", &labels)
    };
    assert_eq!((jobs("visible"), jobs("invisible")), (Some(1.0), Some(1.0)));
    let all = |state| value(&page, "kew_messages", &[("state", state)]);
    assert_eq!((all("visible"), all("invisible")), (Some(1.0), Some(1.0)));
    let count = |name| value(&page, name, &[("account", "acct"), ("queue", "jobs")]);
    assert_eq!(count("kew_queue_messages_arrived_total"), Some(3.0));
    assert_eq!(count("kew_queue_messages_completed_total"), Some(1.0));
    assert_eq!(value(&page, "kew_queues", &[]), Some(1.0));
    assert_eq!(
        value(&page, "kew_partition_state", &[("state", "ready")]),
        Some(1.0)
    );
    assert_eq!(value(&page, "kew_partition_commands", &[]), Some(0.0));
    assert_eq!(value(&page, "kew_log_batch_commands_count", &[]), Some(6.0));
    let commits = value(&page, "kew_log_commit_seconds_count", &[]).unwrap();
    assert!(commits >= 6.0);
    assert_eq!(
        value(&page, "kew_log_batch_bytes_count", &[]),
        Some(commits)
    );
    let appended = value(&page, "kew_log_appended_bytes_total", &[]);
    assert_eq!(value(&page, "kew_log_batch_bytes_sum", &[]), appended);
    let end = value(&page, "kew_log_end_position", &[]);
    assert_eq!(value(&page, "kew_log_durable_position", &[]), end);
    broker.stop();
}

/// A directory in memory whose syncs take a while.
struct SlowStorage(MemoryStorage);

struct SlowFile(Arc<dyn StorageFile>);

const SYNC: Duration = Duration::from_millis(10);

impl Storage for SlowStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(SlowFile(self.0.create(name)?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(SlowFile(self.0.open(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.free_bytes()
    }
}

impl StorageFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(SYNC);
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[tokio::test]
async fn a_turn_is_timed_without_its_commit() {
    const SENDS: u32 = 50;
    let began = Instant::now();
    let storage = Arc::new(SlowStorage(MemoryStorage::new()));
    let (broker, _) = Broker::start(storage, BrokerOptions::default()).unwrap();
    broker.submit(create()).await.unwrap();
    for _ in 0..SENDS {
        broker.submit(send("a")).await.unwrap();
    }
    let page = metrics(&broker, 10).await;
    let elapsed = began.elapsed().as_secs_f64();
    let get = |name| value(&page, name, &[]).unwrap();
    let turns = get("kew_partition_turn_seconds_sum");
    let commits = get("kew_log_commit_seconds_sum");
    assert!(commits >= f64::from(SENDS) * SYNC.as_secs_f64());
    // One thread does both, one after the other. With a commit in it, a turn would be counted twice.
    let rounding = 1e-6 * (get("kew_partition_turn_seconds_count") + 1.0);
    assert!(
        turns + commits <= elapsed + 2.0 * rounding,
        "{turns} s of turns and {commits} s of commits in {elapsed} s"
    );
    let longest = get("kew_partition_turn_max_seconds");
    assert!(longest > 0.0 && longest <= turns, "{longest} of {turns}");
    // While the disk is slow, the thread does not run.
    let on_processor = get("kew_partition_turn_cpu_seconds_sum");
    assert!(
        on_processor < commits / 2.0,
        "{on_processor} s on a processor, and {commits} s of commits"
    );
    let most = get("kew_partition_turn_cpu_max_seconds");
    assert!(
        most > 0.0 && most <= on_processor,
        "{most} of {on_processor}"
    );
    let count = get("kew_partition_turn_cpu_seconds_count");
    assert!(count >= f64::from(SENDS), "{count}");
    broker.stop();
}

/// A snapshot is written by another thread. Its steps are what the partition's thread does for it: here one for each
/// queue, of which the first is also the beginning, and one at the end.
#[tokio::test]
async fn steps_of_a_snapshot_are_timed_without_its_writing() {
    const QUEUES: u32 = 5;
    let storage = Arc::new(SlowStorage(MemoryStorage::new()));
    let options = BrokerOptions {
        partition: PartitionOptions {
            snapshot_after_bytes: 16 * 1024,
            gather_steps: 1,
            ..PartitionOptions::default()
        },
        ..BrokerOptions::default()
    };
    let began = Instant::now();
    let (broker, _) = Broker::start(storage, options).unwrap();
    broker.submit(create()).await.unwrap();
    for number in 1..QUEUES {
        let queue = create_named(format!("queue{number}"));
        broker.submit(queue).await.unwrap();
    }
    let before = metrics(&broker, 10).await;
    for clock in ["", "_cpu"] {
        let name = format!("kew_partition_snapshot_step{clock}_seconds_count");
        assert_eq!(value(&before, &name, &[]), Some(0.0), "{name}");
        let name = format!("kew_partition_snapshot_step{clock}_max_seconds");
        assert_eq!(value(&before, &name, &[]), Some(0.0), "{name}");
    }
    // It makes one snapshot due, and nothing comes after it.
    broker.submit(send("a".repeat(20_000))).await.unwrap();
    // The partition tells it once the snapshot has ended, so all steps are counted.
    let is_written = |page: &Page| value(page, "kew_log_snapshot_size_bytes", &[]).is_some();
    let mut page = before;
    while !is_written(&page) && began.elapsed() < PATIENCE {
        page = metrics(&broker, 10).await;
    }
    assert!(is_written(&page), "no snapshot was written");
    let get = |name: &str| value(&page, name, &[]).unwrap();
    let written = get("kew_log_snapshot_seconds_sum");
    assert!(written >= SYNC.as_secs_f64(), "{written} s");
    for clock in ["", "_cpu"] {
        let of = |what: &str| get(&format!("kew_partition_snapshot_step{clock}_{what}"));
        let (count, sum) = (of("seconds_count"), of("seconds_sum"));
        assert_eq!(count, f64::from(QUEUES + 1));
        let longest = of("max_seconds");
        assert!(longest > 0.0 && longest <= sum, "{longest} of {sum}");
        // The target for a step can be read exactly.
        let name = format!("kew_partition_snapshot_step{clock}_seconds_bucket");
        let short = value(&page, &name, &[("le", "0.001")]).unwrap();
        assert_eq!(
            short == count,
            longest <= 0.001,
            "{short} of {count}, {longest} s"
        );
    }
    // Steps are parts of turns. With the writing among them they would take longer.
    let steps = get("kew_partition_snapshot_step_seconds_sum");
    let turns = get("kew_partition_turn_seconds_sum");
    let rounding = 1e-6 * get("kew_partition_snapshot_step_seconds_count");
    assert!(
        steps <= turns + rounding,
        "{steps} s of steps in {turns} s of turns"
    );
    let on_processor = get("kew_partition_snapshot_step_cpu_seconds_sum");
    assert!(
        on_processor < written / 2.0,
        "{on_processor} s on a processor, and {written} s of writing"
    );
    broker.stop();
}

/// Nothing may stay in memory, and each snapshot takes long.
#[tokio::test]
async fn the_time_in_which_commands_wait_for_memory_is_counted() {
    let storage = Arc::new(SlowStorage(MemoryStorage::new()));
    let options = BrokerOptions {
        partition: PartitionOptions {
            resident_limit: ResidentLimit::Bytes(0),
            memory_slack_bytes: 0,
            ..PartitionOptions::default()
        },
        ..BrokerOptions::default()
    };
    let began = Instant::now();
    let (broker, _) = Broker::start(storage, options).unwrap();
    broker.submit(create()).await.unwrap();
    let mut waited = 0.0;
    while waited == 0.0 && began.elapsed() < PATIENCE {
        broker.submit(send("a")).await.unwrap();
        let page = metrics(&broker, 10).await;
        waited = value(
            &page,
            "kew_partition_waited_seconds_total",
            &[("for", "memory")],
        )
        .unwrap();
    }
    assert!(
        waited > 0.0 && waited < began.elapsed().as_secs_f64(),
        "{waited} s"
    );
    broker.stop();
}

#[tokio::test]
async fn every_turn_is_in_a_bucket_and_the_targets_are_bounds() {
    let broker = Broker::start_in_memory().unwrap();
    broker.submit(create()).await.unwrap();
    let page = metrics(&broker, 10).await;
    let up_to = |bound| {
        let name = "kew_partition_turn_seconds_bucket";
        value(&page, name, &[("le", bound)]).unwrap()
    };
    let count = value(&page, "kew_partition_turn_seconds_count", &[]).unwrap();
    assert!(count >= 1.0);
    // A piece of a snapshot may take 1 ms, and a turn 25 ms: both can be read exactly.
    assert!(up_to("0.001") <= up_to("0.025") && up_to("0.025") <= count);
    assert_eq!(up_to("+Inf"), count);
    broker.stop();
}

#[tokio::test]
async fn the_largest_queues_have_names_and_the_others_are_added_up() {
    let broker = Broker::start_in_memory().unwrap();
    broker.submit(create()).await.unwrap();
    broker.submit(send("a")).await.unwrap();
    // More than a slice has steps for.
    for number in 0..1500 {
        broker
            .submit(create_named(format!("queue{number:04}")))
            .await
            .unwrap();
    }
    let page = metrics(&broker, 3).await;
    assert_eq!(value(&page, "kew_queues", &[]), Some(1501.0));
    let names: Vec<&str> = page["kew_queue_messages"]
        .samples
        .iter()
        .filter(|(_, labels, _)| labels["state"] == "visible")
        .map(|(_, labels, _)| labels["queue"].as_str())
        .collect();
    assert_eq!(names, ["jobs", "queue0000", "queue0001", "(other)"]);
    let page = metrics(&broker, 0).await;
    let other = [("account", ""), ("queue", "(other)"), ("state", "visible")];
    assert_eq!(value(&page, "kew_queue_messages", &other), Some(1.0));
    broker.stop();
}

#[tokio::test]
async fn readers_at_once_see_the_same() {
    let broker = Broker::start_in_memory().unwrap();
    for number in 0..600 {
        broker
            .submit(create_named(format!("queue{number}")))
            .await
            .unwrap();
    }
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let broker = broker.clone();
        readers.spawn(async move { value(&metrics(&broker, 5).await, "kew_queues", &[]) });
    }
    while let Some(read) = readers.join_next().await {
        assert_eq!(read.unwrap(), Some(600.0));
    }
    broker.stop();
}

#[tokio::test]
async fn a_stopped_partition_leaves_out_its_own_metrics() {
    let storage = Arc::new(FaultyStorage::new());
    let (broker, _) = Broker::start(storage.clone(), BrokerOptions::default()).unwrap();
    broker.submit(create()).await.unwrap();
    storage.fail_after(0, Fault::Eio, Repeat::Sticky);
    assert_eq!(broker.submit(send("a")).await, Err(Rejection::Stopped));
    // The threads end in their own time.
    broker.failed().await;
    broker.stop();
    assert_eq!(broker.submit(send("a")).await, Err(Rejection::Stopped));
    let page = metrics(&broker, 5).await;
    assert_eq!(
        value(&page, "kew_partition_state", &[("state", "stopped")]),
        Some(1.0)
    );
    assert_eq!(value(&page, "kew_partition_answered", &[]), Some(0.0));
    assert_eq!(
        value(
            &page,
            "kew_partition_refusals_total",
            &[("reason", "stopped")]
        ),
        Some(1.0)
    );
    assert_eq!(page["kew_queues"].samples, []);
}

#[tokio::test]
async fn a_refusal_names_the_reason() {
    let options = BrokerOptions {
        admission: AdmissionLimits {
            commands_max: 8,
            body_bytes_max: 4,
        },
        ..BrokerOptions::default()
    };
    let (broker, _) = Broker::start(Arc::new(MemoryStorage::new()), options).unwrap();
    broker.submit(create()).await.unwrap();
    assert_eq!(broker.submit(send("12345")).await, Err(Rejection::Busy));
    let page = metrics(&broker, 5).await;
    let refused = |reason| value(&page, "kew_partition_refusals_total", &[("reason", reason)]);
    assert_eq!(
        [refused("busy"), refused("full"), refused("stopped")],
        [Some(1.0), Some(0.0), Some(0.0)]
    );
    broker.stop();
}

fn on_bus(name: &str, make: impl FnOnce(EntityName) -> BusCommand) -> Command {
    Command::Bus(make(EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }))
}

fn bus_queue(name: &str) -> Command {
    on_bus(name, |queue| BusCommand::CreateQueue {
        queue,
        options: BusQueueOptions::default(),
    })
}

fn bus_message() -> BusMessage {
    BusMessage {
        body: "x".into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn bus_send(name: &str, count: usize) -> Command {
    on_bus(name, |queue| BusCommand::Send {
        queue,
        messages: vec![bus_message(); count],
    })
}

#[tokio::test]
async fn topics_are_counted_and_their_subscriptions_are_queues() {
    let broker = Broker::start_in_memory().unwrap();
    for (name, subscriptions) in [("few", 0), ("many", 2)] {
        let create = on_bus(name, |topic| BusCommand::CreateTopic {
            topic,
            options: BusQueueOptions::default(),
        });
        broker.submit(create).await.unwrap();
        for number in 0..subscriptions {
            let subscription = format!("{name}/subscriptions/s{number}");
            let create = on_bus(name, |topic| BusCommand::CreateSubscription {
                subscription: EntityName {
                    name: subscription.into(),
                    ..topic.clone()
                },
                topic,
                options: BusQueueOptions::default(),
                rule: None,
            });
            broker.submit(create).await.unwrap();
        }
    }
    broker.submit(bus_send("few", 1)).await.unwrap();
    broker.submit(bus_send("many", 3)).await.unwrap();
    let page = metrics(&broker, 1).await;
    let of = |name, namespace, topic| {
        let labels = [("namespace", namespace), ("topic", topic)];
        value(&page, &format!("kew_bus_topic_{name}"), &labels)
    };
    assert_eq!(value(&page, "kew_bus_topics", &[]), Some(2.0));
    assert_eq!(of("published_total", "ns", "many"), Some(3.0));
    assert_eq!(of("copies_total", "ns", "many"), Some(6.0));
    assert_eq!(of("unmatched_total", "ns", "many"), Some(0.0));
    assert_eq!(of("filter_failures_total", "ns", "many"), Some(0.0));
    assert_eq!(of("pending", "ns", "many"), Some(0.0));
    assert_eq!(of("pending_age_seconds", "ns", "many"), None);
    assert_eq!(of("rules", "ns", "many"), Some(2.0));
    // Three messages of 128 bytes and more, in two subscriptions, which share the bodies.
    assert!(of("size_bytes", "ns", "many").is_some_and(|it| it > 3.0 * 2.0 * 128.0));
    // The limit of names holds, and counters have no sum of the others.
    assert_eq!(of("rules", "", "(other)"), Some(0.0));
    assert_eq!(page["kew_bus_topic_published"].samples.len(), 1);
    let page = metrics(&broker, 10).await;
    let arrived = |queue| {
        let labels = [("namespace", "ns"), ("queue", queue)];
        value(&page, "kew_bus_queue_messages_arrived_total", &labels)
    };
    assert_eq!(arrived("many/subscriptions/s1"), Some(3.0));
    assert_eq!(arrived("many"), None);
    broker.stop();
}

/// Nobody receives from a topic, but messages can be in it.
#[tokio::test]
async fn messages_of_topics_are_counted_with_those_of_queues() {
    let broker = Broker::start_in_memory().unwrap();
    let create = on_bus("t", |topic| BusCommand::CreateTopic {
        topic,
        options: BusQueueOptions::default(),
    });
    broker.submit(create).await.unwrap();
    let later = BusMessage {
        scheduled_at: Some(Timestamp::from_ms(253_000_000_000_000)),
        ..bus_message()
    };
    let send = on_bus("t", |queue| BusCommand::Send {
        queue,
        messages: vec![later; 2],
    });
    broker.submit(send).await.unwrap();
    let page = metrics(&broker, 10).await;
    for (state, expected) in [
        ("active", 0.0),
        ("scheduled", 2.0),
        ("failed_transfer", 0.0),
    ] {
        let labels = [("namespace", "ns"), ("topic", "t"), ("state", state)];
        let count = value(&page, "kew_bus_topic_messages", &labels);
        assert_eq!(count, Some(expected), "{state}");
        let all = value(&page, "kew_bus_messages", &[("state", state)]);
        assert_eq!(all, Some(expected), "{state}");
    }
    let labels = [("namespace", "ns"), ("topic", "t")];
    let size_bytes = value(&page, "kew_bus_topic_size_bytes", &labels);
    assert!(size_bytes.is_some_and(|it| it > 256.0), "{size_bytes:?}");
    broker.stop();
}

#[tokio::test]
async fn queues_of_service_bus_are_counted_by_themselves() {
    let broker = Broker::start_in_memory().unwrap();
    for (name, count) in [("few", 1), ("many", 5), ("some", 3)] {
        broker.submit(bus_queue(name)).await.unwrap();
        broker.submit(bus_send(name, count)).await.unwrap();
    }
    let receive = on_bus("many", |queue| BusCommand::Receive {
        queue,
        count: 2,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    broker.submit(receive).await.unwrap();
    let page = metrics(&broker, 1).await;
    assert_eq!(value(&page, "kew_queues", &[]), Some(0.0));
    assert_eq!(value(&page, "kew_bus_queues", &[]), Some(3.0));
    let all = |state| value(&page, "kew_bus_messages", &[("state", state)]);
    assert_eq!((all("active"), all("locked")), (Some(7.0), Some(2.0)));
    let of = |namespace, queue, state| {
        let labels = [("namespace", namespace), ("queue", queue), ("state", state)];
        value(&page, "kew_bus_queue_messages", &labels)
    };
    assert_eq!(of("ns", "many", "active"), Some(3.0));
    assert_eq!(of("ns", "many", "locked"), Some(2.0));
    assert_eq!(of("ns", "many", "dead_letter"), Some(0.0));
    assert_eq!(of("ns", "some", "active"), None);
    assert_eq!(of("", "(other)", "active"), Some(4.0));
    let other = [("namespace", ""), ("queue", "(other)")];
    let size = value(&page, "kew_bus_queue_size_bytes", &other);
    assert_eq!(size, Some(4.0 * 129.0));
    assert!(value(&page, "kew_bus_queue_oldest_message_age_seconds", &other).is_some());
    // Counters must not go back, and the sums of others would.
    let many = [("namespace", "ns"), ("queue", "many")];
    let arrived = "kew_bus_queue_messages_arrived_total";
    assert_eq!(value(&page, arrived, &many), Some(5.0));
    assert_eq!(page["kew_bus_queue_messages_arrived"].samples.len(), 1);
    assert_eq!(page["kew_bus_queue_messages_completed"].samples.len(), 1);
    broker.stop();
}
