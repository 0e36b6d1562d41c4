//! The five savings, each against a Kew that does nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
use crate::place::{ITEMS, Place, RESULTS, Settings, TOPIC};
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
        let listener = Listener::builder(self.source(queue), codec)
            .subscribe(handler_fn(move |delivery: Delivery<T, QueueLease>| {
                counted.fetch_add(count_of(delivery.message()), Ordering::Relaxed);
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
            latency: None,
        };
        listener.stop(Stop::default()).await;
        Ok(row)
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

    /// A listener whose queue stays empty; then one message.
    async fn idle(
        &self,
        name: &str,
        tasks: u32,
        idle: Duration,
        change: impl FnOnce(Jobs) -> Jobs,
    ) -> Result<Row> {
        let queue = "measured-idle";
        self.fresh(queue).await?;
        let (listener, mut begins) = self.waiting(queue, change);
        listener.start(tasks)?;
        let row = self.wait(name, idle).await?;
        let latency = self.latency(queue, &mut begins, false).await?;
        listener.stop(Stop::default()).await;
        Ok(Row {
            latency: Some(latency),
            ..row
        })
    }

    async fn pushed(&self, idle: Duration) -> Result<Row> {
        let queue = "measured-idle";
        let bus = self.place.bus.as_ref().context("push needs Service Bus")?;
        let (client, admin) = (bus.client.clone(), Some(bus.admin.clone()));
        let source = self.source(queue);
        let push = TopicAnnouncements::new(client, admin, TOPIC, "measured", source.name());
        self.fresh(queue).await?;
        let (listener, mut begins) = self.waiting(queue, |it| it.push(push));
        listener.start(MANY)?;
        let row = self.wait("4. with push none is left", idle).await?;
        let latency = self.latency(queue, &mut begins, true).await?;
        listener.stop(Stop::default()).await;
        Ok(Row {
            latency: Some(latency),
            ..row
        })
    }

    /// A listener, and what tells when it got a message.
    fn waiting(
        &self,
        queue: &str,
        change: impl FnOnce(Jobs) -> Jobs,
    ) -> (
        Listener<Transaction, QueueSource>,
        mpsc::UnboundedReceiver<Instant>,
    ) {
        let (begun, begins) = mpsc::unbounded_channel();
        let codec = Json::<Transaction>::new();
        let builder = Listener::builder(self.source(queue), codec)
            .subscribe(handler_fn(move |_: Delivery<Transaction, QueueLease>| {
                let _ = begun.send(Instant::now());
                async { Ok(()) }
            }))
            .tasks_max(MANY);
        (change(builder).build(), begins)
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
            transactions: 0,
            latency: None,
        })
    }

    async fn latency(
        &self,
        queue: &str,
        begins: &mut mpsc::UnboundedReceiver<Instant>,
        announces: bool,
    ) -> Result<Duration> {
        let sender = Sender::new(Json::<Transaction>::new(), self.target(queue), "measure");
        let [message] = package(1, 1, 1)[..] else {
            return Ok(Duration::ZERO);
        };
        let began = Instant::now();
        sender.send(&message).await?;
        if announces {
            let announcement = Announcement::new(sender.target().name(), "measure");
            self.place.announcer().announce(&announcement).await?;
        }
        let begun = timeout(PATIENCE, begins.recv()).await?;
        Ok(begun.context("the listener ended")? - began)
    }

    /// Instances that stay, each with the one task that is left.
    async fn instances(&self, idle: Duration) -> Result<Row> {
        let queue = "measured-idle";
        let mut listeners = Vec::new();
        self.fresh(queue).await?;
        for _ in 0..INSTANCES {
            // No message comes.
            let (listener, _) = self.waiting(queue, |it| it);
            listener.start(1)?;
            listeners.push(listener);
        }
        let name = "baseline: 5 instances with 1 task each";
        let row = self.wait(name, idle).await?;
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
    let item = Package {
        number: 1,
        part_size: 10,
        transactions: package(1, 1, 10),
    };
    let items = item.split();
    let began = Instant::now();
    let sender = bench.place.sender::<Item>(ITEMS, "measure")?;
    for item in &items {
        sender.send(item).await?;
    }
    let queues = &bench.place.queues;
    let result = async {
        while queues
            .queue_properties(RESULTS)
            .await?
            .approximate_message_count
            == 0
        {
            sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    let result = timeout(PATIENCE, result).await;
    let latency = began.elapsed();
    agent.stop().await?;
    plan.stop_workers(services).await?;
    result.context("no worker was started")??;
    Ok(Row {
        latency: Some(latency),
        ..row
    })
}
