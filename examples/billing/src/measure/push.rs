//! What push over a topic costs in connections and traffic.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, QueueAccount, QueueClient,
    QueueOptions,
};
use kew_worker::{
    Announce as _, Announcement, Listener, QueueSource, Source as _, SourceName, Stop, Text,
    TopicAnnouncements, TopicAnnouncer, create_push_topic, handler_fn,
};
use tokio::time::{sleep, timeout};

use super::Options;
use super::counting::Counting;
use crate::program::print_line;
use crate::start::Services;

const TOPIC: &str = "measured";
const ACCOUNT: &str = "billing";
const QUEUE: &str = "measured-push";
const ANNOUNCEMENTS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of its own, as far as the service sees.
struct Party {
    traffic: Counting,
    client: BusClient,
    admin: BusAdmin,
}

impl Party {
    fn new(bus: &str) -> Result<Self> {
        let traffic = Counting::default();
        let dial = Some(std::sync::Arc::new(traffic.clone()) as _);
        let namespace = BusNamespace::parse(bus)?;
        let options = BusOptions {
            dial: dial.clone(),
            ..BusOptions::default()
        };
        let client = BusClient::new(namespace.clone(), options)?;
        let options = AdminOptions {
            dial,
            ..AdminOptions::default()
        };
        Ok(Self {
            admin: BusAdmin::new(namespace, options)?,
            client,
            traffic,
        })
    }

    fn since(&self, before: [u64; 3]) -> [u64; 3] {
        let now = self.traffic.0.now();
        std::array::from_fn(|at| now.get(at).zip(before.get(at)).map_or(0, |(a, b)| a - b))
    }
}

pub(super) async fn measure(services: &Services, options: Options) -> Result<()> {
    let account = QueueAccount::parse(&services.storage)?;
    let queues = QueueClient::new(account, QueueOptions::default())?;
    queues.create_queue(QUEUE, &[]).await?;
    print_line("| push over a topic | connections | bytes sent | bytes received |");
    print_line("| --- | --- | --- | --- |");
    for count in [1, 10] {
        with(count, &queues, &services.bus, options.idle).await?;
    }
    Ok(())
}

fn line(what: &str, [connections, sent, received]: [u64; 3]) {
    print_line(&format!("| {what} | {connections} | {sent} | {received} |"));
}

/// Listeners in one program, and an announcer in another.
async fn with(count: u64, queues: &QueueClient, bus: &str, idle: Duration) -> Result<()> {
    let (hearer, teller) = (Party::new(bus)?, Party::new(bus)?);
    create_push_topic(&teller.admin, TOPIC).await?;
    let begun = hearer.traffic.0.now();
    let mut listeners = Vec::new();
    for number in 0..count {
        let source = QueueSource::new(queues.clone(), ACCOUNT, QUEUE);
        let (client, admin) = (hearer.client.clone(), Some(hearer.admin.clone()));
        let own = format!("measured-{number}");
        let push = TopicAnnouncements::new(client, admin, TOPIC, &own, source.name());
        let listener = Listener::builder(source, Text)
            .subscribe(handler_fn(|_| async { Ok(()) }))
            .push(push)
            .recheck(None)
            .build();
        listener.start(1)?;
        listeners.push(listener);
    }
    let all = |holds: fn(&Listener<String, QueueSource>, u64) -> bool, value| {
        let listeners = &listeners;
        let wait = async move {
            while !listeners.iter().all(|it| holds(it, value)) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        async move { timeout(PATIENCE, wait).await.context("listeners are late") }
    };
    all(|it, _| it.state().active_tasks == 0, 0).await?;
    line(
        &format!("{count} listeners of one program start"),
        hearer.since(begun),
    );
    // Connections of management close, and are not idle traffic.
    sleep(Duration::from_secs(1)).await;
    let before = hearer.traffic.0.now();
    sleep(idle).await;
    line(
        &format!("{count} listeners wait for {} s", idle.as_secs()),
        hearer.since(before),
    );
    let announcer = TopicAnnouncer::new(teller.client.clone(), TOPIC);
    let announcement = Announcement::new(&SourceName::new(ACCOUNT, QUEUE), "measure");
    announcer.announce(&announcement).await?;
    all(|it, count| it.state().announcements == count, 1).await?;
    let (told, heard) = (teller.traffic.0.now(), hearer.traffic.0.now());
    for number in 2..=ANNOUNCEMENTS + 1 {
        announcer.announce(&announcement).await?;
        all(|it, count| it.state().announcements == count, number).await?;
    }
    let many = format!("{ANNOUNCEMENTS} announcements");
    line(&format!("{many}, at the announcer"), teller.since(told));
    line(
        &format!("{many}, at {count} listeners"),
        hearer.since(heard),
    );
    let before = hearer.traffic.0.now();
    for listener in listeners {
        listener.stop(Stop::default()).await;
    }
    line(&format!("{count} listeners stop"), hearer.since(before));
    Ok(())
}
