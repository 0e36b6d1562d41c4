//! Subscriptions of topics as sources, at Kew.

use std::sync::{Arc, Mutex};

use kew_client::{Message, SubscriptionSettings, TopicSettings};
use kew_worker::{
    BusSource, Delivery, Failure, Listener, SessionSource, Source as _, Text, handler_fn,
};

use crate::kew::Kew;
use crate::suite::until;

const SOURCE: &str = "news/Subscriptions/work";

/// A topic with a subscription `work`, and another one.
async fn start(requires_session: bool) -> Arc<Kew> {
    let kew = Kew::start().await;
    let admin = kew.admin();
    let topic = TopicSettings::default();
    admin.create_topic("news", &topic).await.unwrap();
    for (name, requires_session) in [("work", requires_session), ("other", false)] {
        let settings = SubscriptionSettings {
            requires_session: Some(requires_session),
            ..SubscriptionSettings::default()
        };
        let created = admin.create_subscription("news", name, &settings).await;
        created.unwrap();
    }
    kew
}

async fn publish(kew: &Arc<Kew>, session: Option<&str>, bodies: &[&str]) {
    let sender = kew.bus_client().sender("news").await.unwrap();
    for body in bodies {
        let message = Message {
            session_id: session.map(str::to_owned),
            ..Message::new((*body).to_owned())
        };
        sender.send(&message).await.unwrap();
    }
}

#[tokio::test]
async fn a_listener_handles_the_messages_of_a_subscription() {
    let kew = start(false).await;
    publish(&kew, None, &["good", "bad"]).await;
    let source = BusSource::new(kew.bus_client(), "ns", SOURCE).admin(kew.admin());
    assert_eq!(source.depth().await.unwrap(), Some(2));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let listener = Listener::builder(source, Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let text = delivery.message().clone();
            let result = match text.as_str() {
                "bad" => Err(Failure::new("it is bad").permanent("bad")),
                _ => Ok(()),
            };
            noted.lock().unwrap().push(text);
            async { result }
        }))
        .build();
    listener.start(1).unwrap();
    until("both are settled", async || {
        let state = listener.state();
        state.completed == 1 && state.buried == 1
    })
    .await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, ["bad", "good"]);
    let state = |name: &'static str| {
        let admin = kew.admin();
        async move { admin.subscription("news", name).await.unwrap().state }
    };
    let work = state("work").await;
    assert_eq!(
        (work.active_count, work.dead_letter_count),
        (Some(0), Some(1))
    );
    assert_eq!(state("other").await.active_count, Some(2));
    let dead = format!("{SOURCE}/$DeadLetterQueue");
    let dead = BusSource::new(kew.bus_client(), "ns", dead.as_str()).admin(kew.admin());
    assert_eq!(dead.depth().await.unwrap(), Some(1));
}

#[tokio::test]
async fn sessions_of_a_subscription_are_handled_in_order() {
    let kew = start(true).await;
    publish(&kew, Some("s"), &["1", "2", "3"]).await;
    let source = SessionSource::new(kew.bus_client(), "ns", SOURCE).admin(kew.admin());
    assert_eq!(source.depth().await.unwrap(), Some(3));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let listener = Listener::builder(source, Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            noted.lock().unwrap().push(delivery.message().clone());
            async { Ok(()) }
        }))
        .build();
    listener.start(1).unwrap();
    until("all are handled", async || listener.state().completed == 3).await;
    assert_eq!(*seen.lock().unwrap(), ["1", "2", "3"]);
}
