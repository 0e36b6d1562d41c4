//! Sessions, and links that hold them.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kew_amqp::Event;
use kew_amqp::codec::{Encode as _, Map, Symbol, Text};
use kew_amqp::message::{Message, Properties, write_data};
use kew_amqp::performative::{Attach, DeliveryState, Role, Source, Target};

use crate::client::Server;

/// The shortest lock duration of a queue.
const LOCK_DURATION: Duration = Duration::from_secs(5);

/// An idle client learns that it has lost a session too; a renewal postpones that.
#[tokio::test]
async fn a_session_that_is_lost_is_detached() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let began = Instant::now();
    let lost = client.session("brief", "lost").await;
    let renewed = client.session("brief", "renewed").await;
    while began.elapsed() < LOCK_DURATION / 5 {
        tokio::time::sleep(LOCK_DURATION / 10).await;
    }
    let renewed_at = Instant::now();
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:renew-session-lock"));
    let body = Map::build(|map| map.entry("session-id", &Text::from("renewed")));
    let answer = client.ask("brief/$management", &properties, &body).await;
    let status = answer.get("statusCode").unwrap().value().as_integer();
    assert_eq!(status, Some(200));
    for (link, since) in [(lost, began), (renewed, renewed_at)] {
        let (detached, error) = client
            .until(|event| match event {
                // A link that the client detached itself has no error.
                Event::Detached {
                    link,
                    error: Some(error),
                    ..
                } => Some((*link, error.clone())),
                _ => None,
            })
            .await;
        assert_eq!(detached, link);
        assert_eq!(error.condition, "com.microsoft:session-lock-lost");
        // Not before its time, and not much later.
        let held = since.elapsed();
        let least = LOCK_DURATION - Duration::from_millis(100);
        assert!(
            (least..LOCK_DURATION * 3).contains(&held),
            "{held:?} after the lock"
        );
    }
}

/// A message of a session.
pub(crate) fn of_session(id: &str) -> Bytes {
    let mut out = BytesMut::new();
    let properties = Properties {
        group_id: Some(id.into()),
        ..Properties::default()
    };
    properties.encode(&mut out);
    write_data(&mut out, b"x");
    out.freeze()
}

/// Outcomes that a client sends just before it releases their session take effect.
#[tokio::test]
async fn a_session_is_free_after_its_settlements() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("steps").await.unwrap();
    for _ in 0..2 {
        let sent = client.send(sender, 0, of_session("s")).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
    }
    let link = client.session("steps", "s").await;
    client.connection.grant(link, 1);
    let delivery = client.delivery().await.delivery;
    // Both are in the next write.
    client
        .connection
        .settle(delivery, Some(DeliveryState::ACCEPTED));
    client.connection.detach(link, true, None);
    let again = client.session("steps", "s").await;
    client.connection.grant(again, 2);
    let next = client.delivery().await;
    let annotations = Message::scan(next.payload).unwrap().message_annotations();
    let number = annotations.get("x-opt-sequence-number").unwrap().value();
    assert_eq!(number.as_integer(), Some(2));
}

/// A client that may only send to a queue cannot take its sessions from receivers.
#[tokio::test]
async fn a_sender_locks_no_session() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let mut attach = Attach::new("sends".into(), Role::Sender);
    let mut source = Source::new("here".into());
    source.filter = Some(Map::build(|map| {
        let filter = Symbol::from_static("com.microsoft:session-filter");
        map.entry(&filter, &Text::from("s"));
    }));
    attach.source = Some(source);
    attach.target = Some(Target::new("steps".into()));
    client.attach(attach).await.unwrap();
    client.session("steps", "s").await;
}
