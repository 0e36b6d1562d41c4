//! The five savings, each against a Kew that does nothing else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kew_claim_check::Checked;
use kew_worker::{
    Announce as _, Announcement, Delivery, IdleBackOff, Json, Listener, ListenerBuilder,
    QueueLease, QueueSource, QueueTarget, Sender, Source as _, Steady, Stop, Target as _,
    TopicAnnouncements, handler_fn,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::requests::requests;
use super::{Options, Row, show};
use crate::message::{Item, Package};
use crate::place::{ITEMS, Place, RECHECK_S, RESULTS, Settings, TOPIC};
use crate::start::{Plan, Services};
use crate::transaction::{Transaction, package};

const PATIENCE: Duration = Duration::from_mins(10);

/// Sends that are under way at once.
const IN_FLIGHT: usize = 16;

/// The tasks of the document's most expensive listener.
const MANY: u32 = 200;

/// Instances of the last saving.
const INSTANCES: usize = 5;

/// The longest sleep of a listener that backs off further than by default.
const LONG_SLEEP: Duration = Duration::from_secs(30);

/// Messages that come at once after an idle time.
const AFTERWARDS: u32 = 1_000;

const IDLE_QUEUE: &str = "measured-idle";

struct Bench {
    place: Place,
    address: SocketAddr,
}

pub(super) async fn measure(
    plan: &Plan,
    services: &Services,
    address: SocketAddr,
    options: Options,
) -> Result<()> {
    let settings = Settings {
        data: plan.data.clone(),
        storage: services.storage.clone(),
        bus: Some(services.bus.clone()),
        timeout_s: plan.timeout_s,
        inline_bytes: plan.inline_bytes,
        recheck_s: RECHECK_S,
    };
    let place = settings.place()?;
    place.ensure().await?;
    let bench = Bench { place, address };
    let transactions = package(1, 1, options.transactions);

    let single = bench.single("baseline: a message each, gets of 1", &transactions, 1);
    show(&single.await?);
    show(&bench.grouped(&transactions).await?);
    let batched = bench.single("2. gets of 32 messages", &transactions, 32);
    show(&batched.await?);

    let one_a_second = "baseline: 1 task polls each second";
    show(&bench.idle(one_a_second, 1, options.idle, steady).await?);
    let long = |it: Jobs| {
        it.idle(IdleBackOff {
            minimum: Duration::from_millis(100),
            maximum: LONG_SLEEP,
        })
    };
    let name = "3. back-off up to 30 s";
    show(&bench.idle(name, 1, options.idle, long).await?);

    let many = "baseline: 200 tasks poll each second";
    show(&bench.idle(many, MANY, options.idle, steady).await?);
    let name = "4. 200 tasks end until 1 is left (default)";
    show(&bench.idle(name, MANY, options.idle, |it| it).await?);
    show(&bench.pushed(options.idle).await?);

    show(&bench.instances(options.idle).await?);
    show(
        &scaled(plan, services, &bench, options.idle)
            .await
            .context("the scaling agent")?,
    );
    Ok(())
}

type Jobs = ListenerBuilder<Transaction, QueueSource>;

fn steady(builder: Jobs) -> Jobs {
    builder.idle(Steady::default())
}

impl Bench {
    async fn fresh(&self, queue: &str) -> Result<()> {
        let queues = &self.place.queues;
        // It may not exist.
        let _ = queues.delete_queue(queue).await;
        queues.create_queue(queue, &[]).await?;
        Ok(())
    }

    fn source(&self, queue: &str) -> QueueSource {
        QueueSource::new(self.place.queues.clone(), self.place.account(), queue)
    }

    fn target(&self, queue: &str) -> QueueTarget {
        QueueTarget::new(self.place.queues.clone(), self.place.account(), queue)
    }

    /// Sends all, then handles all.
    async fn load<T, C>(
        &self,
        name: &str,
        messages: Vec<T>,
        codec: C,
        batch_size: u32,
        count_of: fn(&T) -> u64,
    ) -> Result<Row>
    where
        T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        C: kew_worker::Codec<T> + Clone,
    {
        let queue = "measured-load";
        self.fresh(queue).await?;
        let (before, began) = (requests(self.address).await?, Instant::now());
        let sender = Sender::new(codec.clone(), self.target(queue), "measure");
        let sends = stream::iter(&messages).map(|it| sender.send(it));
        let sent = sends
            .buffer_unordered(IN_FLIGHT)
            .try_for_each(|_| async { Ok(()) });
        sent.await?;
        let handled = Arc::new(AtomicU64::new(0));
        let counted = handled.clone();
        let half = messages.iter().map(count_of).sum::<u64>().div_ceil(2);
        let latency = Arc::new(OnceLock::new());
        let reached = latency.clone();
        let listener = Listener::builder(self.source(queue), codec)
            .subscribe(handler_fn(move |delivery: Delivery<T, QueueLease>| {
                let more = count_of(delivery.message());
                if counted.fetch_add(more, Ordering::Relaxed) + more >= half {
                    reached.get_or_init(|| began.elapsed());
                }
                async { Ok(()) }
            }))
            .batch_size(batch_size)
            .build();
        listener.start(10)?;
        let all = u64::try_from(messages.len())?;
        let done = async {
            while listener.state().completed < all {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, done)
            .await
            .context("not all were handled in time")?;
        let took = began.elapsed();
        let row = Row {
            name: name.to_owned(),
            requests: requests(self.address).await? - before,
            took,
            transactions: handled.load(Ordering::Relaxed),
            latency: latency.get().copied().unwrap_or(took),
            afterwards: 0.0,
        };
        listener.stop(Stop::default()).await;
        Ok(row)
    }

    /// Waits until there are so many results.
    async fn results(&self, count: u32) -> Result<()> {
        let queues = &self.place.queues;
        let all = async {
            loop {
                let found = queues.queue_properties(RESULTS).await?;
                if found.approximate_message_count >= u64::from(count) {
                    return anyhow::Ok(());
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, all).await?
    }

    async fn single(&self, name: &str, all: &[Transaction], batch_size: u32) -> Result<Row> {
        let codec = Json::<Transaction>::new();
        self.load(name, all.to_vec(), codec, batch_size, |_| 1)
            .await
    }

    async fn grouped(&self, all: &[Transaction]) -> Result<Row> {
        let package = Package {
            number: 1,
            part_size: 1_000,
            transactions: all.to_vec(),
        };
        let codec = Checked::new(self.place.claims(ITEMS)?, Json::<Item>::new());
        let name = "1. groups of 1,000, compressed, gets of 1";
        let count = |it: &Item| u64::try_from(it.transactions.len()).unwrap_or(u64::MAX);
        self.load(name, package.split(), codec, 1, count).await
    }

    /// A listener whose queue stays empty; then one message, and then many.
    async fn idle(
        &self,
        name: &str,
        tasks: u32,
        idle: Duration,
        change: impl FnOnce(Jobs) -> Jobs,
    ) -> Result<Row> {
        self.fresh(IDLE_QUEUE).await?;
        let (begun, begins) = mpsc::unbounded_channel();
        let listener = self.waiting(begun, change);
        listener.start(tasks)?;
        let row = self.wait(name, idle).await?;
        let row = self.work_again(row, begins, false).await?;
        listener.stop(Stop::default()).await;
        Ok(row)
    }

    async fn pushed(&self, idle: Duration) -> Result<Row> {
        let bus = self.place.bus.as_ref().context("push needs Service Bus")?;
        let (client, admin) = (bus.client.clone(), Some(bus.admin.clone()));
        let source = self.source(IDLE_QUEUE);
        let push = TopicAnnouncements::new(client, admin, TOPIC, "measured", source.name());
        self.fresh(IDLE_QUEUE).await?;
        let (begun, begins) = mpsc::unbounded_channel();
        let listener = self.waiting(begun, |it| it.push(push));
        listener.start(MANY)?;
        let row = self.wait("4. with push none is left", idle).await?;
        let row = self.work_again(row, begins, true).await?;
        listener.stop(Stop::default()).await;
        Ok(row)
    }

    /// A listener that tells when it got a message.
    fn waiting(
        &self,
        begun: mpsc::UnboundedSender<Instant>,
        change: impl FnOnce(Jobs) -> Jobs,
    ) -> Listener<Transaction, QueueSource> {
        let codec = Json::<Transaction>::new();
        let builder = Listener::builder(self.source(IDLE_QUEUE), codec)
            .subscribe(handler_fn(move |_: Delivery<Transaction, QueueLease>| {
                let _ = begun.send(Instant::now());
                async { Ok(()) }
            }))
            .tasks_max(MANY);
        change(builder).build()
    }

    /// Counts while nothing happens, after the listeners have settled.
    async fn wait(&self, name: &str, idle: Duration) -> Result<Row> {
        sleep(Duration::from_secs(5)).await;
        let (before, began) = (requests(self.address).await?, Instant::now());
        sleep(idle).await;
        Ok(Row {
            name: name.to_owned(),
            requests: requests(self.address).await? - before,
            took: began.elapsed(),
            ..Row::default()
        })
    }

    /// The latency of one message after the idle time, and then the throughput of many. Their requests do not count.
    async fn work_again(
        &self,
        row: Row,
        mut begins: mpsc::UnboundedReceiver<Instant>,
        announces: bool,
    ) -> Result<Row> {
        let began = Instant::now();
        self.put(1, announces).await?;
        let ended = "the listener ended";
        let begun = timeout(PATIENCE, begins.recv()).await?.context(ended)?;
        let many = Instant::now();
        self.put(AFTERWARDS, announces).await?;
        let mut last = many;
        for _ in 0..AFTERWARDS {
            last = timeout(PATIENCE, begins.recv()).await?.context(ended)?;
        }
        Ok(Row {
            latency: begun - began,
            afterwards: f64::from(AFTERWARDS) / (last - many).as_secs_f64(),
            ..row
        })
    }

    /// Puts messages, and announces them after the last one.
    async fn put(&self, count: u32, announces: bool) -> Result<()> {
        let sender = Sender::new(
            Json::<Transaction>::new(),
            self.target(IDLE_QUEUE),
            "measure",
        );
        let messages = package(1, 1, count);
        let sends = stream::iter(&messages).map(|it| sender.send(it));
        let sent = sends
            .buffer_unordered(IN_FLIGHT)
            .try_for_each(|_| async { Ok(()) });
        sent.await?;
        if announces {
            let announcement = Announcement::new(sender.target().name(), "measure");
            self.place.announcer().announce(&announcement).await?;
        }
        Ok(())
    }

    /// Instances that stay, each with the one task that is left.
    async fn instances(&self, idle: Duration) -> Result<Row> {
        self.fresh(IDLE_QUEUE).await?;
        let (begun, begins) = mpsc::unbounded_channel();
        let listeners: Vec<_> = (0..INSTANCES)
            .map(|_| self.waiting(begun.clone(), |it| it))
            .collect();
        for listener in &listeners {
            listener.start(1)?;
        }
        let name = "baseline: 5 instances with 1 task each";
        let row = self.wait(name, idle).await?;
        let row = self.work_again(row, begins, false).await?;
        for listener in listeners {
            listener.stop(Stop::default()).await;
        }
        Ok(row)
    }
}

/// No instance, and an agent that looks at the depth. The latency is until a worker that it started has a result.
async fn scaled(plan: &Plan, services: &Services, bench: &Bench, idle: Duration) -> Result<Row> {
    bench.fresh(ITEMS).await?;
    bench.fresh(RESULTS).await?;
    let agent = plan.agent(services, 5, 8).await?;
    let row = bench
        .wait("5. no instance; the agent looks each 2 s", idle)
        .await?;
    let worked = scaled_up(bench).await;
    agent.stop().await?;
    plan.stop_workers(services).await?;
    let (latency, afterwards) = worked.context("no worker was started")?;
    Ok(Row {
        latency,
        afterwards,
        ..row
    })
}

/// One item, and then many of one transaction each. Returns how long the first one took, and how many came in a second.
async fn scaled_up(bench: &Bench) -> Result<(Duration, f64)> {
    let items = Package {
        number: 1,
        part_size: 1,
        transactions: package(1, 1, AFTERWARDS + 1),
    };
    let items = items.split();
    let (first, others) = items.split_first().context("there are items")?;
    let sender = bench.place.sender::<Item>(ITEMS, "measure")?;
    let began = Instant::now();
    sender.send(first).await?;
    bench.results(1).await?;
    let latency = began.elapsed();
    let began = Instant::now();
    let sends = stream::iter(others).map(|it| sender.send(it));
    let sent = sends
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(|_| async { Ok(()) });
    sent.await?;
    bench.results(AFTERWARDS + 1).await?;
    let afterwards = f64::from(AFTERWARDS) / began.elapsed().as_secs_f64();
    Ok((latency, afterwards))
}
