//! `Sharded` with the real client, at queues of Kew that become busy as queues of the cloud service do.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use kew_client::{Dial, DialFuture, QueueAccount, QueueClient, QueueOptions, Retry, Stream};
use kew_worker::{
    Delivery, ErrorKind, Listener, QueueSource, QueueTarget, SendError, Sender, Sharded, Text,
    handler_fn,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, split};

use crate::kew::Kew;
use crate::suite::until;

const ACCOUNT: &str = "devstoreaccount1";
const QUEUES: [&str; 3] = ["part-0", "part-1", "part-2"];

const BUSY: &str =
    "HTTP/1.1 503 The server is busy.\r\nContent-Length: 0\r\nx-ms-error-code: ServerBusy\r\n\r\n";

/// What becomes of puts to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The queue has reached its rate, and has none of it.
    Busy,
    /// Kew carries it out, and its answer is lost.
    NoAnswer,
}

/// The way to Kew, with rules for some queues.
struct Gate {
    kew: Arc<Kew>,
    rules: Mutex<BTreeMap<&'static str, Rule>>,
    /// Puts that were refused, by queue.
    refused: Mutex<BTreeMap<&'static str, u32>>,
}

impl Gate {
    fn set(&self, queue: &'static str, rule: Option<Rule>) {
        let mut rules = self.rules.lock().unwrap();
        match rule {
            Some(rule) => rules.insert(queue, rule),
            None => rules.remove(queue),
        };
    }

    fn refused(&self, queue: &str) -> u32 {
        self.refused
            .lock()
            .unwrap()
            .get(queue)
            .copied()
            .unwrap_or(0)
    }

    fn rule_of(&self, request: &[u8]) -> Option<(&'static str, Rule)> {
        let head = String::from_utf8_lossy(request);
        let queue = QUEUES.into_iter().find(|queue| {
            let put = format!("POST /{ACCOUNT}/{queue}/messages");
            head.starts_with(&put)
        })?;
        let rule = self.rules.lock().unwrap().get(queue).copied()?;
        Some((queue, rule))
    }

    /// Requests one after the other, as the client sends them.
    async fn relay(&self, client: DuplexStream, kew: Box<dyn Stream>) -> io::Result<()> {
        let (mut from_client, mut to_client) = split(client);
        let (mut from_kew, mut to_kew) = split(kew);
        loop {
            let request = message(&mut from_client).await?;
            let rule = self.rule_of(&request);
            if let Some((queue, Rule::Busy)) = rule {
                *self.refused.lock().unwrap().entry(queue).or_default() += 1;
                to_client.write_all(BUSY.as_bytes()).await?;
                continue;
            }
            to_kew.write_all(&request).await?;
            let answer = message(&mut from_kew).await?;
            if rule.is_some() {
                return Ok(());
            }
            to_client.write_all(&answer).await?;
        }
    }
}

/// A request or an answer, with its body.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(from.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&read).to_lowercase();
    if head.contains("transfer-encoding: chunked") {
        while !read.ends_with(b"\r\n0\r\n\r\n") {
            read.push(from.read_u8().await?);
        }
        return Ok(read);
    }
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|it| it.split("\r\n").next());
    let length: usize = length.map_or(0, |it| it.parse().unwrap());
    let begin = read.len();
    read.resize(begin + length, 0);
    from.read_exact(&mut read[begin..]).await?;
    Ok(read)
}

/// The client dials through the gate.
struct Door(Arc<Gate>);

impl Dial for Door {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let kew = self.0.kew.dial(host, port).await?;
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let gate = self.0.clone();
            tokio::spawn(async move { gate.relay(theirs, kew).await });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

struct Bench {
    gate: Arc<Gate>,
    sender: Sender<String, Text, Sharded<QueueTarget>>,
    client: QueueClient,
    sent: u32,
}

impl Bench {
    async fn new() -> Self {
        let kew = Kew::start().await;
        let client = kew.queue_client();
        for queue in QUEUES {
            client.create_queue(queue, &[]).await.unwrap();
        }
        let gate = Arc::new(Gate {
            kew,
            rules: Mutex::default(),
            refused: Mutex::default(),
        });
        let options = QueueOptions {
            // As the documentation of `Sharded` says.
            retry: Retry {
                retries: 0,
                ..Retry::default()
            },
            dial: Some(Arc::new(Door(gate.clone()))),
            ..QueueOptions::default()
        };
        let own = QueueClient::new(QueueAccount::development(), options).unwrap();
        let target = |queue| QueueTarget::new(own.clone(), ACCOUNT, queue);
        Self {
            sender: Sender::new(Text, Sharded::new(QUEUES.map(target).into()), "test"),
            gate,
            client,
            sent: 0,
        }
    }

    /// Sends messages, ten at a time. Each has a text of its own.
    async fn send(&mut self, count: u32) {
        let first = self.sent;
        self.sent += count;
        let sender = &self.sender;
        let sends =
            (first..self.sent).map(|number| async move { sender.send(&number.to_string()).await });
        let results: Vec<_> = iter(sends).buffer_unordered(10).collect().await;
        for result in results {
            result.unwrap();
        }
    }

    /// How many messages each queue holds.
    async fn depths(&self) -> [u64; 3] {
        let mut depths = [0; 3];
        for (depth, queue) in depths.iter_mut().zip(QUEUES) {
            let read = self.client.queue_properties(queue).await.unwrap();
            *depth = read.approximate_message_count;
        }
        depths
    }

    fn used(&self) -> usize {
        self.sender.target().used()
    }

    /// Receives everything, from a listener of each queue. Each message has come once.
    async fn each_came_once(self) {
        let seen = Arc::new(Mutex::new(BTreeMap::<u32, u32>::new()));
        let listeners = QUEUES.map(|queue| {
            let seen = seen.clone();
            let source = QueueSource::new(self.client.clone(), ACCOUNT, queue);
            let listener = Listener::builder(source, Text)
                .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
                    let number = delivery.message().parse().unwrap();
                    *seen.lock().unwrap().entry(number).or_default() += 1;
                    async { Ok(()) }
                }))
                .build();
            listener.start(1).unwrap();
            listener
        });
        until("all are received", async || {
            let completed = listeners.iter().map(|it| it.state().completed);
            completed.sum::<u64>() >= u64::from(self.sent)
        })
        .await;
        assert_eq!(self.depths().await, [0; 3]);
        let seen = seen.lock().unwrap();
        assert!(seen.keys().copied().eq(0..self.sent), "{seen:?}");
        assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    }
}

/// Lets time pass for this process, at once. Nothing is under way meanwhile.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn work_spreads_over_queues_of_kew_after_503_and_comes_together_again() {
    let mut bench = Bench::new().await;
    bench.send(30).await;
    assert_eq!((bench.depths().await, bench.used()), ([30, 0, 0], 1));

    // The first queue has reached its rate: all goes to another one at once, and nothing fails.
    bench.gate.set("part-0", Some(Rule::Busy));
    bench.send(30).await;
    assert_eq!((bench.depths().await, bench.used()), ([30, 30, 0], 2));
    let refused = bench.gate.refused("part-0");
    assert!(
        (1..=10).contains(&refused),
        "{refused}: only what was under way together"
    );

    // So has the second one.
    bench.gate.set("part-1", Some(Rule::Busy));
    bench.send(30).await;
    assert_eq!((bench.depths().await, bench.used()), ([30, 30, 30], 3));

    // After the pause all of them are used again.
    bench.gate.set("part-0", None);
    bench.gate.set("part-1", None);
    pass(Duration::from_secs(10)).await;
    bench.send(30).await;
    assert_eq!((bench.depths().await, bench.used()), ([40, 40, 40], 3));

    // One queue less after each ten calm minutes.
    pass(Duration::from_mins(10)).await;
    bench.send(30).await;
    assert_eq!((bench.depths().await, bench.used()), ([55, 55, 40], 2));
    pass(Duration::from_mins(10)).await;
    bench.send(30).await;
    assert_eq!((bench.depths().await, bench.used()), ([85, 55, 40], 1));
    bench.each_came_once().await;
}

#[tokio::test]
async fn a_put_without_an_answer_is_not_sent_to_another_queue() {
    let mut bench = Bench::new().await;
    bench.gate.set("part-0", Some(Rule::NoAnswer));
    bench.sent += 1;
    let sent = bench.sender.send(&"0".to_owned()).await;
    let Err(SendError::Target(error)) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!((bench.depths().await, bench.used()), ([1, 0, 0], 1));

    // If all are busy, the sender knows, and nothing was sent.
    for queue in QUEUES {
        bench.gate.set(queue, Some(Rule::Busy));
    }
    let sent = bench.sender.send(&"1".to_owned()).await;
    let Err(SendError::Target(error)) = sent else {
        panic!("{sent:?}");
    };
    assert!(error.is_busy(), "{error}");
    assert_eq!(error.kind(), ErrorKind::TryAgainLater);
    assert_eq!(bench.depths().await, [1, 0, 0]);
    for queue in QUEUES {
        bench.gate.set(queue, None);
    }
    pass(Duration::from_secs(10)).await;
    bench.send(20).await;
    bench.each_came_once().await;
}
