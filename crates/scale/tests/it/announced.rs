//! Announcements over the Service Bus of Kew in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kew_scale::{ActError, Happened};
use kew_scale::{Agent, ClientSources, Config, Connecting, Group, Sources as _, Target};
use kew_scaling::{Day, Instances, TimeOfWeek};
use kew_worker::{Announce as _, Announcement, BusAnnouncer};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::kew::Kew;

const STORAGE: &str = "UseDevelopmentStorage=true";
const BUS: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";
const PATIENCE: Duration = Duration::from_secs(60);

fn group(connection: &str) -> Group {
    let text = format!(
        "[[group]]\nname = 'jobs'\nevery = '1h'\n\
         announcements = {{ connection_env = '{connection}', prefix = 'wakeup-' }}\n\
         [[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
         [group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n"
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    config.groups.into_iter().next().unwrap()
}

fn sources(kew: &Arc<Kew>) -> ClientSources {
    let group = group("BUS");
    let connecting = Connecting {
        dial: Some(kew.clone()),
    };
    let mut sources = ClientSources::open(&group, &variable, &connecting).unwrap();
    sources.hear(&group, &variable, &connecting).unwrap();
    sources
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    match name {
        "STORAGE" => Some(STORAGE.into()),
        "BUS" => Some(BUS.into()),
        _ => None,
    }
}

async fn announce(kew: &Arc<Kew>, queue: &str) {
    let announcer = BusAnnouncer::new(kew.bus_client(), kew.admin(), "wakeup-");
    let announcement = Announcement {
        account: "any".into(),
        queue: queue.into(),
        size_bytes: None,
        sender: "test".into(),
    };
    announcer.announce(&announcement).await.unwrap();
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
    let mut sources = sources(&kew);
    let all = async {
        listens(&kew).await;
        announce(&kew, "other").await;
        announce(&kew, "jobs").await;
        announce(&kew, "jobs").await;
    };
    let heard = timeout(PATIENCE, async { tokio::join!(sources.announced(), all) });
    heard.await.unwrap();
    // One that has only to do with others is not heard. What is heard was all taken, or comes now.
    announce(&kew, "other").await;
    while timeout(Duration::from_millis(50), sources.announced())
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

#[test]
fn announcements_need_a_service_bus() {
    let group = group("STORAGE");
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
    let agent = Agent::new(&group("BUS"), sources(&kew), Counting(started, 0));
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
