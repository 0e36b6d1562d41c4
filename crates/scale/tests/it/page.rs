//! The metrics page of a Kew server as a source: of a page with each line missing once, and of a broker with a load.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{Dial, DialFuture, Stream};
use kew_metrics::page;
use kew_scale::{ClientSources, Seen, Sources as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kew::Kew;
use crate::support::{open, source};

/// The port of metrics pages. Others are those of Kew in memory.
const PORT: u16 = 9464;

const PAGE: &str = r#"# HELP kew_partition_answered Answered.
# TYPE kew_partition_answered gauge
kew_partition_answered 1.0
# HELP kew_queue_messages Messages.
# TYPE kew_queue_messages gauge
kew_queue_messages{account="other",queue="jobs",state="visible"} 1000.0
kew_queue_messages{account="devstoreaccount1",queue="jobs",state="visible"} 5.0
kew_queue_messages{account="devstoreaccount1",queue="jobs",state="invisible"} 2.0
# HELP kew_queue_oldest_message_age_seconds Age.
# TYPE kew_queue_oldest_message_age_seconds gauge
# UNIT kew_queue_oldest_message_age_seconds seconds
kew_queue_oldest_message_age_seconds{account="devstoreaccount1",queue="jobs"} 3.5
# HELP kew_queue_messages_arrived Arrived.
# TYPE kew_queue_messages_arrived counter
kew_queue_messages_arrived_total{account="devstoreaccount1",queue="jobs"} 107
# HELP kew_queue_messages_completed Completed.
# TYPE kew_queue_messages_completed counter
kew_queue_messages_completed_total{account="devstoreaccount1",queue="jobs"} 100
# HELP kew_bus_queue_messages Messages.
# TYPE kew_bus_queue_messages gauge
kew_bus_queue_messages{namespace="sbemulatorns",queue="t/subscriptions/s",state="active"} 4.0
kew_bus_queue_messages{namespace="sbemulatorns",queue="t/subscriptions/s",state="locked"} 3.0
kew_bus_queue_messages{namespace="sbemulatorns",queue="t/subscriptions/s",state="deferred"} 2.0
kew_bus_queue_messages{namespace="sbemulatorns",queue="t/subscriptions/s",state="scheduled"} 900.0
# HELP kew_bus_queue_oldest_message_age_seconds Age.
# TYPE kew_bus_queue_oldest_message_age_seconds gauge
# UNIT kew_bus_queue_oldest_message_age_seconds seconds
kew_bus_queue_oldest_message_age_seconds{namespace="sbemulatorns",queue="t/subscriptions/s"} 60.0
# HELP kew_bus_queue_messages_arrived Arrived.
# TYPE kew_bus_queue_messages_arrived counter
kew_bus_queue_messages_arrived_total{namespace="sbemulatorns",queue="t/subscriptions/s"} 20
# HELP kew_bus_queue_messages_completed Completed.
# TYPE kew_bus_queue_messages_completed counter
kew_bus_queue_messages_completed_total{namespace="sbemulatorns",queue="t/subscriptions/s"} 11
# EOF
"#;

/// Kew in memory, and a page that the test sets.
struct World {
    kew: Arc<Kew>,
    /// The answer to each request, with its head.
    answer: Mutex<String>,
    /// How many pages were asked for.
    requests: Mutex<u32>,
}

impl Dial for World {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        if port != PORT {
            return self.kew.dial(host, port);
        }
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            let mut head = vec![0; 4096];
            *self.requests.lock().unwrap() += 1;
            tokio::spawn(async move {
                let length = theirs.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..length]);
                assert!(head.starts_with("GET /metrics HTTP/1.1\r\n"), "{head}");
                assert!(
                    head.to_lowercase().contains("\r\nhost: localhost:9464\r\n"),
                    "{head}"
                );
                // The agent may have given up.
                let _ = theirs.write_all(answer.as_bytes()).await;
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

fn answered(page: &str) -> String {
    let length = page.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}")
}

impl World {
    async fn with(page: &str) -> Arc<Self> {
        Arc::new(Self {
            kew: Kew::start().await,
            answer: Mutex::new(answered(page)),
            requests: Mutex::default(),
        })
    }

    fn set(&self, answer: String) {
        *self.answer.lock().unwrap() = answer;
    }
}

/// These queues with this page as their source.
fn sources(world: &Arc<World>, queues: &[(&str, &str)]) -> ClientSources {
    let page = format!("metrics = 'http://localhost:{PORT}/metrics'");
    let sources = queues.iter().map(|(queue, at)| source(queue, at, &page));
    open("", &sources.collect::<String>(), world.clone())
}

const BOTH: [(&str, &str); 2] = [("jobs", "STORAGE"), ("T/Subscriptions/S", "BUS")];

/// Backlog, age, arrivals and completions, if it can be read.
type Numbers = Option<(u64, Option<Duration>, Option<u64>, Option<u64>)>;

fn numbers(seen: &Seen) -> Numbers {
    let reading = seen.reading.as_ref().ok()?;
    let (arrived, completed) = (reading.arrived, reading.completed);
    Some((reading.backlog, reading.oldest, arrived, completed))
}

#[tokio::test]
async fn one_request_reads_all_queues_with_their_counters() {
    let world = World::with(PAGE).await;
    let seen = sources(&world, &BOTH).read().await;
    let millis = Duration::from_millis;
    let storage = (7, Some(millis(3500)), Some(107), Some(100));
    let bus = (9, Some(millis(60_000)), Some(20), Some(11));
    assert_eq!(numbers(&seen[0]), Some(storage), "{:?}", seen[0]);
    assert_eq!(numbers(&seen[1]), Some(bus), "{:?}", seen[1]);
    assert_eq!(*world.requests.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_missing_line_is_never_a_smaller_number() {
    let world = World::with(PAGE).await;
    let mut sources = sources(&world, &BOTH);
    let whole: Vec<Numbers> = sources.read().await.iter().map(numbers).collect();
    let lines: Vec<&str> = PAGE.lines().collect();
    let mut unreadable = 0;
    for left_out in 0..lines.len() {
        let mut lines = lines.clone();
        let missing = lines.remove(left_out);
        world.set(answered(&(lines.join("\n") + "\n")));
        for (seen, whole) in sources.read().await.iter().zip(&whole) {
            let Some((backlog, oldest, arrived, completed)) = numbers(seen) else {
                unreadable += 1;
                continue;
            };
            let whole = whole.unwrap();
            assert_eq!((backlog, oldest), (whole.0, whole.1), "without {missing}");
            // A counter may be unknown, but not another one.
            assert!(arrived.is_none_or(|it| Some(it) == whole.2), "{missing}");
            assert!(completed.is_none_or(|it| Some(it) == whole.3), "{missing}");
        }
    }
    // The lines of messages and ages at least: three of one queue, four of the other, and that of the partition for both.
    assert!(unreadable >= 9, "{unreadable}");
}

#[tokio::test]
async fn what_is_no_whole_page_is_an_error_that_names_it() {
    let world = World::with(PAGE).await;
    let mut sources = sources(&world, &BOTH[..1]);
    let not_counted = PAGE.replace("kew_partition_answered 1.0", "kew_partition_answered 0.0");
    let (half, _) = PAGE.split_once("# HELP kew_bus").unwrap();
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{PAGE}");
    for (answer, expected) in [
        (
            answered(&not_counted),
            "Kew has not counted its queues in time",
        ),
        (answered("# EOF\n"), "it is no metrics page of Kew"),
        (answered("<html></html>\n"), "it is no metrics page: "),
        (answered(half), "it is no metrics page: "),
        (long, "the metrics page http://localhost:9464/metrics: "),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".into(),
            "the answer is 403 Forbidden",
        ),
        (
            "no HTTP\r\n\r\n".into(),
            "the metrics page http://localhost:9464/metrics: ",
        ),
    ] {
        world.set(answer);
        let seen = sources.read().await;
        let error = seen[0].reading.as_ref().expect_err(expected);
        assert!(error.text.contains(expected), "{error:?}");
        assert!(
            error.text.contains("http://localhost:9464/metrics"),
            "{error:?}"
        );
    }
    // It can be read again.
    world.set(answered(PAGE));
    assert_eq!(numbers(&sources.read().await[0]).unwrap().0, 7);
}

#[tokio::test]
async fn a_queue_that_the_page_does_not_name_is_read_at_its_service() {
    let page = PAGE.replace("queue=\"jobs\"", "queue=\"others\"");
    let world = World::with(&page).await;
    let client = world.kew.queue_client();
    client.put("jobs", "x", Default::default()).await.unwrap();
    let seen = sources(&world, &BOTH[..1]).read().await;
    let (backlog, _, arrived, completed) = numbers(&seen[0]).unwrap();
    assert_eq!((backlog, arrived, completed), (1, None, None));
}

#[tokio::test]
async fn the_page_of_a_broker_is_the_ledger_of_a_load() {
    let world = World::with(PAGE).await;
    let broker = &world.kew.broker;
    let families = async || page(broker.metrics(100, Duration::from_secs(5)).await);
    let client = world.kew.queue_client();
    for _ in 0..5 {
        client.put("jobs", "x", Default::default()).await.unwrap();
    }
    for message in client.get("jobs", 2, Some(60)).await.unwrap() {
        let receipt = message.receipt.unwrap().value;
        let deleted = client.delete_message("jobs", &message.id, &receipt);
        deleted.await.unwrap();
    }
    let mut sources = sources(&world, &[("jobs", "STORAGE"), ("steps", "BUS")]);
    world.set(answered(&families().await));
    let seen = sources.read().await;
    let (backlog, oldest, arrived, completed) = numbers(&seen[0]).unwrap();
    assert_eq!((backlog, arrived, completed), (3, Some(5), Some(2)));
    assert!(oldest.is_some());
    assert_eq!(numbers(&seen[1]), Some((0, None, Some(0), Some(0))));
}
