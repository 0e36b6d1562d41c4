//! Announcements over the Service Bus of Kew in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use kew_client::SubscriptionSettings;
use kew_scale::{ActError, Happened};
use kew_scale::{Agent, ClientSources, Config, Connecting, Group, Sources as _, Target, Woken};
use kew_scaling::{Day, Instances, TimeOfWeek};
use kew_worker::{Announce as _, Announcement, BusAnnouncer, TopicAnnouncer, create_push_topic};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::kew::Kew;
use crate::support::variable;

const QUEUES: &str = "prefix = 'wakeup-'";
const TOPIC: &str = "topic = 'wakeup'";
const PATIENCE: Duration = Duration::from_secs(60);

/// A group that hears over queues, or over a topic.
fn group(connection: &str, over: &str) -> Group {
    let text = format!(
        "[[group]]\nname = 'jobs'\nevery = '1h'\n\
         announcements = {{ connection_env = '{connection}', {over} }}\n\
         [[group.source]]\nqueue = 'more'\nconnection_env = 'STORAGE'\n\
         [[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
         [group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n"
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    config.groups.into_iter().next().unwrap()
}

fn sources(kew: &Arc<Kew>, over: &str) -> ClientSources {
    let group = group("BUS", over);
    let connecting = Connecting {
        dial: Some(kew.clone()),
        resolve: None,
    };
    let mut sources = ClientSources::open(&group, &variable, &connecting).unwrap();
    sources.hear(&group, &variable, &connecting).unwrap();
    sources
}

fn work(queue: &str) -> Announcement {
    Announcement {
        account: "any".into(),
        queue: queue.into(),
        size_bytes: None,
        sender: "test".into(),
    }
}

/// Waits until work is announced.
async fn announced(sources: &mut ClientSources) {
    while sources.woken().await != Woken::Announced {}
}

async fn announce(kew: &Arc<Kew>, queue: &str) {
    let announcer = BusAnnouncer::new(kew.bus_client(), kew.admin(), "wakeup-");
    announcer.announce(&work(queue)).await.unwrap();
}

/// Waits until the agent listens.
async fn listens(kew: &Arc<Kew>) {
    while !kew.admin().queue_exists("wakeup-scale-jobs").await.unwrap() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn announcements_for_a_source_are_heard_and_others_are_not() {
    let kew = Kew::start().await;
    let mut sources = sources(&kew, QUEUES);
    let all = async {
        listens(&kew).await;
        announce(&kew, "other").await;
        announce(&kew, "jobs").await;
        announce(&kew, "jobs").await;
    };
    let heard = timeout(PATIENCE, async {
        tokio::join!(announced(&mut sources), all)
    });
    heard.await.unwrap();
    // One that has only to do with others is not heard. What is heard was all taken, or comes now.
    announce(&kew, "other").await;
    while timeout(Duration::from_millis(50), announced(&mut sources))
        .await
        .is_ok()
    {}
    assert_eq!(
        kew.admin()
            .queue("wakeup-scale-jobs")
            .await
            .unwrap()
            .state
            .active_count,
        Some(0)
    );
}

#[tokio::test]
async fn announcements_over_a_topic_are_heard_for_each_source() {
    let kew = Kew::start().await;
    let (admin, announcer) = (kew.admin(), TopicAnnouncer::new(kew.bus_client(), "wakeup"));
    // One of another group was here before: it is replaced.
    create_push_topic(&admin, "wakeup").await.unwrap();
    let settings = SubscriptionSettings::default();
    let created = admin.create_subscription("wakeup", "scale-jobs", &settings);
    created.await.unwrap();
    let mut sources = sources(&kew, TOPIC);
    let rules = async || admin.rules("wakeup", "scale-jobs", 0).await;
    for queue in ["jobs", "more"] {
        let all = async {
            while rules().await.map_or(0, |it| it.items.len()) < 2 {
                tokio::task::yield_now().await;
            }
            announcer.announce(&work("other")).await.unwrap();
            announcer.announce(&work(queue)).await.unwrap();
        };
        let heard = timeout(PATIENCE, async {
            tokio::join!(announced(&mut sources), all)
        });
        heard.await.unwrap();
    }
    // The service offers nothing of other queues.
    announcer.announce(&work("other")).await.unwrap();
    let counted = admin.subscription("wakeup", "scale-jobs").await.unwrap();
    assert_eq!(counted.state.active_count, Some(0));
}

/// An attempt that a look interrupts goes on after it: looks can be more frequent than the answers of a slow service.
#[tokio::test]
async fn looks_do_not_keep_it_from_listening() {
    let kew = Kew::start().await;
    let mut sources = sources(&kew, QUEUES);
    for _ in 0..100_000 {
        assert!(sources.woken().now_or_never().is_none());
        if kew.admin().queue_exists("wakeup-scale-jobs").await.unwrap() {
            return;
        }
    }
    panic!("it never listens");
}

#[test]
fn announcements_need_a_service_bus() {
    let group = group("STORAGE", QUEUES);
    let connecting = Connecting::default();
    let mut sources = ClientSources::open(&group, &variable, &connecting).unwrap();
    let error = sources.hear(&group, &variable, &connecting).unwrap_err();
    let expected = "has no connection string of Service Bus, which announcements need";
    assert!(error.to_string().ends_with(expected), "{error}");
}

/// Instances that are only counted.
struct Counting(mpsc::Sender<u32>, u32);

#[async_trait]
impl Target for Counting {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        Ok(Instances {
            ready: self.1,
            ..Instances::default()
        })
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        self.1 = count;
        self.0.try_send(count).unwrap();
        Vec::new()
    }

    async fn changed(&mut self) -> Vec<Happened> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_announcement_wakes_the_agent_from_zero_between_two_looks() {
    let kew = Kew::start().await;
    let (started, mut starts) = mpsc::channel(16);
    // It looks once in an hour.
    let agent = Agent::new(
        &group("BUS", QUEUES),
        sources(&kew, QUEUES),
        Counting(started, 0),
    );
    let mut agent = agent.unwrap();
    let week = || TimeOfWeek::new(Day::Monday, 12, 0);
    let run = agent.run(week, |_| {}, std::future::pending());
    let woken = async {
        listens(&kew).await;
        let client = kew.queue_client();
        client.put("jobs", "x", Default::default()).await.unwrap();
        announce(&kew, "jobs").await;
        starts.recv().await
    };
    tokio::select! {
        () = run => unreachable!("it runs for ever"),
        started = timeout(PATIENCE, woken) => assert_eq!(started.unwrap(), Some(1)),
    }
}
