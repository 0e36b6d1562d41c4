//! What becomes of messages under lock.

use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use kew_amqp::message::write_data;
use kew_client::{
    BusClient, BusOptions, ErrorKind, Locked, Message, Receiver, ReceiverOptions, Retry, Value,
};

use crate::peer::Peer;
use crate::server::Server;

async fn receiver(client: &BusClient) -> Receiver {
    let options = ReceiverOptions::default();
    client.receiver("jobs", options).await.unwrap()
}

async fn one(client: &BusClient, receiver: &mut Receiver) -> Locked {
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("x")).await.unwrap();
    receiver.receive().await.unwrap()
}

fn changed() -> Vec<(String, Value)> {
    vec![("progress".to_owned(), Value::Long(2))]
}

#[tokio::test]
async fn abandoned_messages_come_again_with_their_changes() {
    let server = Server::start().await;
    let client = server.client();
    let mut receiver = receiver(&client).await;
    let message = one(&client, &mut receiver).await;
    message.abandon(changed()).await.unwrap();
    let again = receiver.receive().await.unwrap();
    assert_eq!(again.sequence_number(), message.sequence_number());
    assert_eq!(again.delivery_count(), 1);
    assert_eq!(again.property("progress"), Some(Value::Long(2)));
    again.complete().await.unwrap();
}

#[tokio::test]
async fn deferred_messages_are_received_by_number_and_settled_by_token() {
    let server = Server::start().await;
    let client = server.client();
    let mut receiver = receiver(&client).await;
    for verdict in 0..4 {
        let message = one(&client, &mut receiver).await;
        message.defer(changed()).await.unwrap();
        let number = message.sequence_number().unwrap();
        let found = receiver.receive_deferred(&[number]).await.unwrap();
        let [message] = &found[..] else {
            panic!("one was deferred");
        };
        assert_eq!(message.property("progress"), Some(Value::Long(2)));
        match verdict {
            0 => message.complete().await.unwrap(),
            1 => message.defer(Vec::new()).await.unwrap(),
            2 => message.abandon(Vec::new()).await.unwrap(),
            _ => message.dead_letter("why", "how", changed()).await.unwrap(),
        }
        // Abandoned or deferred again, it stays where it is.
        let again = receiver.receive_deferred(&[number]).await;
        match again {
            Ok(again) => {
                assert!((1..=2).contains(&verdict));
                again[0].complete().await.unwrap();
            }
            Err(error) => {
                assert!(!(1..=2).contains(&verdict), "{error}");
                assert_eq!(error.code(), Some("com.microsoft:message-not-found"));
            }
        }
    }
    assert_eq!(server.view("jobs").await.counts.dead_letters, 1);
    assert!(receiver.receive_deferred(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_second_settlement_finds_no_lock() {
    let server = Server::start().await;
    let client = server.client();
    let mut receiver = receiver(&client).await;
    let message = one(&client, &mut receiver).await;
    message.complete().await.unwrap();
    let error = message.complete().await.unwrap_err();
    assert!(
        error.is_lock_lost() && error.kind() == ErrorKind::Refused,
        "{error}"
    );
    let error = message.renew().await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
}

#[tokio::test]
async fn locks_are_renewed() {
    let server = Server::start().await;
    let client = server.client();
    let mut receiver = receiver(&client).await;
    let message = one(&client, &mut receiver).await;
    let before = message.locked_until().unwrap();
    let until = message.renew().await.unwrap();
    assert!(until >= before && until > SystemTime::now() + Duration::from_secs(20));
    assert_eq!(message.locked_until(), Some(until));
    message.complete().await.unwrap();
}

#[tokio::test]
async fn locks_outlive_links_and_connections() {
    let server = Server::start().await;
    let client = server.client();
    for way in 0..3 {
        let mut receiver = receiver(&client).await;
        let message = one(&client, &mut receiver).await;
        match way {
            0 => drop(receiver),
            1 => receiver.close().await.unwrap(),
            _ => server.cut(),
        }
        message.complete().await.unwrap();
        assert_eq!(server.view("jobs").await.counts.active, 0);
    }
}

#[tokio::test]
async fn settlements_run_side_by_side() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    for _ in 0..100 {
        sender.send(&Message::new("x")).await.unwrap();
    }
    let options = ReceiverOptions { prefetch: 50 };
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let mut settled = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let message = receiver.receive().await.unwrap();
        settled.spawn(async move { message.complete().await });
    }
    while let Some(settled) = settled.join_next().await {
        settled.unwrap().unwrap();
    }
    assert_eq!(server.view("jobs").await.counts.active, 0);
}

#[tokio::test]
async fn messages_are_completed_together_and_each_has_its_own_outcome() {
    let server = Server::start().await;
    let client = server.client();
    let (mut first, mut second) = (receiver(&client).await, receiver(&client).await);
    let mut messages = Vec::new();
    for number in 0..6 {
        let receiver = if number < 4 { &mut first } else { &mut second };
        messages.push(one(&client, receiver).await);
    }
    messages[1].complete().await.unwrap();
    // The messages of this one are settled by their lock tokens.
    drop(second);
    let all: Vec<_> = messages.iter().collect();
    for (number, outcome) in Locked::complete_all(&all).await.into_iter().enumerate() {
        match number {
            1 => assert!(outcome.unwrap_err().is_lock_lost()),
            _ => outcome.unwrap(),
        }
    }
    assert_eq!(server.view("jobs").await.counts.active, 0);
    assert!(Locked::complete_all(&[]).await.is_empty());
    server.cut();
    let message = one(&client, &mut first).await;
    server.cut();
    let outcomes = Locked::complete_all(&[&message]).await;
    assert_eq!(outcomes, [Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_may_have_been_carried_out_stays_unknown() {
    for (statuses, is_settled) in [
        // The lock may be gone because of the first try.
        (vec![410], false),
        // Busy, and then the same.
        (vec![503, 410], false),
        (vec![503, 503], false),
        (vec![503], true),
        (vec![], true),
    ] {
        let peer = Peer::start();
        let mut payload = BytesMut::new();
        write_data(&mut payload, b"x");
        peer.with(|it| {
            it.deliveries.push_back(payload.freeze());
            it.refusals.push_back("com.microsoft:timeout");
            it.statuses.extend(&statuses);
        });
        let client = peer.client(BusOptions {
            retry: Retry {
                retries: 1,
                ..Retry::default()
            },
            ..BusOptions::default()
        });
        let mut receiver = receiver(&client).await;
        let message = receiver.receive().await.unwrap();
        let settled = message.complete().await;
        let kind = settled.err().map(|error| error.kind());
        let expected = (!is_settled).then_some(ErrorKind::OutcomeUnknown);
        assert_eq!(kind, expected, "{statuses:?}");
    }
}
