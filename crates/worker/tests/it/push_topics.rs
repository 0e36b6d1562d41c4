//! Push over a topic, at Kew: each listener has a subscription of its own, which selects its account and queue.

use std::sync::Arc;
use std::time::Duration;

use kew_client::{ReceiverOptions, SubscriptionSettings};
use kew_worker::{
    Announce, Announcement, Listener, QueueSource, QueueTarget, Sender, Source as _, SourceName,
    Stop, Target as _, Text, TopicAnnouncements, TopicAnnouncer, create_push_topic, handler_fn,
};

use crate::kew::Kew;
use crate::suite::until;

const ACCOUNT: &str = "devstoreaccount1";
const TOPIC: &str = "wakeup";

type Jobs = Listener<String, QueueSource>;

/// A listener that hears over a subscription, with connections of its own as in another process. It waits until it
/// hears and does not poll.
async fn listener(kew: &Arc<Kew>, queue: &str, subscription: &str) -> Jobs {
    let source = QueueSource::new(kew.queue_client(), ACCOUNT, queue);
    let (client, admin) = (kew.bus_client(), Some(kew.admin()));
    let push = TopicAnnouncements::new(client, admin, TOPIC, subscription, source.name());
    let listener = Listener::builder(source, Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .push(push)
        .recheck(None)
        .build();
    listener.start(1).unwrap();
    until("it does not poll", async || {
        let state = listener.state();
        state.empty_polls > 0 && state.active_tasks == 0
    })
    .await;
    listener
}

fn work(queue: &str) -> Announcement {
    Announcement::new(&SourceName::new(ACCOUNT, queue), "web-1")
}

#[tokio::test]
async fn one_send_wakes_every_listener_of_the_queue_and_no_other() {
    let kew = Kew::start().await;
    let storage = kew.queue_client();
    storage.create_queue("other", &[]).await.unwrap();
    let first = listener(&kew, "jobs", "worker-1").await;
    let second = listener(&kew, "jobs", "worker-2").await;
    let other = listener(&kew, "other", "worker-3").await;
    let target = QueueTarget::new(storage, ACCOUNT, "jobs");
    let sender = Sender::new(Text, target, "web-1");
    let announcer = TopicAnnouncer::new(kew.bus_client(), TOPIC);
    let polls = |it: &Jobs| it.state().empty_polls;
    let before = polls(&other);
    for count in 1..=3 {
        sender.send(&"x".to_owned()).await.unwrap();
        let announcement = Announcement::new(sender.target().name(), "web-1");
        announcer.announce(&announcement).await.unwrap();
        until("both are offered it", async || {
            [&first, &second].map(|it| it.state().announcements) == [count; 2]
        })
        .await;
        until("one handled it", async || {
            first.state().completed + second.state().completed == count
        })
        .await;
    }
    // The service made no copy for it: this one is the first that its subscription gets.
    let counted = kew.admin().subscription(TOPIC, "worker-3").await.unwrap();
    assert_eq!(counted.state.active_count, Some(0));
    announcer.announce(&work("other")).await.unwrap();
    until("it is offered its own", async || {
        other.state().announcements == 1
    })
    .await;
    assert_eq!(first.state().announcements, 3);
    assert!(polls(&other) >= before);
}

#[tokio::test]
async fn a_subscription_lives_as_long_as_its_listener() {
    let kew = Kew::start().await;
    let admin = kew.admin();
    let stopped = listener(&kew, "jobs", "worker-1").await;
    let created = admin.subscription(TOPIC, "worker-1").await.unwrap();
    // If it crashed, the service deletes the subscription.
    let idle = created.settings.auto_delete_on_idle;
    assert_eq!(idle, Some(Duration::from_mins(5)));
    stopped.stop(Stop::default()).await;
    let exists = admin.subscription_exists(TOPIC, "worker-1").await.unwrap();
    assert!(!exists);
    // Nobody hears this, and it is no error.
    let announcer = TopicAnnouncer::new(kew.bus_client(), TOPIC);
    announcer.announce(&work("jobs")).await.unwrap();
}

#[tokio::test]
async fn a_listener_whose_subscription_is_deleted_creates_it_again() {
    let kew = Kew::start().await;
    let admin = kew.admin();
    let jobs = listener(&kew, "jobs", "worker-1").await;
    admin.delete_subscription(TOPIC, "worker-1").await.unwrap();
    until("it has a subscription", async || {
        admin.subscription_exists(TOPIC, "worker-1").await.unwrap()
    })
    .await;
    let announcer = TopicAnnouncer::new(kew.bus_client(), TOPIC);
    until("it is offered work", async || {
        announcer.announce(&work("jobs")).await.unwrap();
        jobs.state().announcements > 0
    })
    .await;
}

#[tokio::test]
async fn an_announcer_goes_on_when_the_topic_was_deleted() {
    let kew = Kew::start().await;
    let admin = kew.admin();
    let announcer = TopicAnnouncer::new(kew.bus_client(), TOPIC);
    assert!(announcer.announce(&work("jobs")).await.is_err());
    for _ in 0..2 {
        create_push_topic(&admin, TOPIC).await.unwrap();
        // It is there: nothing changes.
        create_push_topic(&admin, TOPIC).await.unwrap();
        until("it announces", async || {
            announcer.announce(&work("jobs")).await.is_ok()
        })
        .await;
        admin.delete_topic(TOPIC).await.unwrap();
    }
}

#[tokio::test]
async fn the_filter_of_a_former_listener_is_replaced() {
    let kew = Kew::start().await;
    let admin = kew.admin();
    create_push_topic(&admin, TOPIC).await.unwrap();
    let settings = SubscriptionSettings::default();
    let created = admin.create_subscription(TOPIC, "worker-1", &settings);
    created.await.unwrap();
    let jobs = listener(&kew, "jobs", "worker-1").await;
    let announcer = TopicAnnouncer::new(kew.bus_client(), TOPIC);
    announcer.announce(&work("other")).await.unwrap();
    announcer.announce(&work("jobs")).await.unwrap();
    until("it is offered its own", async || {
        jobs.state().announcements == 1
    })
    .await;
    let rules = admin.rules(TOPIC, "worker-1", 0).await.unwrap().items;
    assert_eq!(rules.len(), 1);
    let created_at = async || {
        let read = admin.subscription(TOPIC, "worker-1").await.unwrap();
        read.state.created_at
    };
    // The same filter is kept, and what waits in the subscription.
    let before = created_at().await;
    let again = listener(&kew, "jobs", "worker-1").await;
    assert_eq!(created_at().await, before);
    assert_eq!(again.state().announcements, 0);
}

#[tokio::test]
async fn an_announcement_carries_what_filters_compare() {
    let kew = Kew::start().await;
    let admin = kew.admin();
    create_push_topic(&admin, TOPIC).await.unwrap();
    let settings = SubscriptionSettings::default();
    let created = admin.create_subscription(TOPIC, "all", &settings);
    created.await.unwrap();
    let announcer = TopicAnnouncer::new(kew.bus_client(), TOPIC);
    announcer.announce(&work("jobs")).await.unwrap();
    let client = kew.bus_client();
    let entity = format!("{TOPIC}/Subscriptions/all");
    let options = ReceiverOptions::default();
    let mut receiver = client.deleting_receiver(&entity, options).await.unwrap();
    let message = receiver.receive().await.unwrap();
    assert_eq!(message.subject(), Some("work detected"));
    let expected = r#"{"account":"devstoreaccount1","queue":"jobs","sender":"web-1"}"#;
    assert_eq!(message.body(), expected);
    let property = |name: &str| {
        message
            .property(name)
            .and_then(|it| it.as_str().map(str::to_owned))
    };
    assert_eq!(property("account").as_deref(), Some(ACCOUNT));
    assert_eq!(property("queue").as_deref(), Some("jobs"));
}
