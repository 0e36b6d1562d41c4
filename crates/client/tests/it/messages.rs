//! Messages there and back.

use std::time::{Duration, SystemTime};

use kew_client::{Changes, Entity, ErrorKind, Message, MessageState, ReceiverOptions, Value};

use crate::server::Server;

const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_message_keeps_all_that_was_said_of_it() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let message = Message {
        id: Some("order-7".to_owned()),
        session_id: Some("s".to_owned()),
        correlation_id: Some("c".to_owned()),
        subject: Some("subject".to_owned()),
        content_type: Some("text/plain".to_owned()),
        reply_to: Some("answers".to_owned()),
        properties: vec![
            ("kind".to_owned(), Value::String("é".into())),
            ("count".to_owned(), Value::Long(7)),
        ],
        ..Message::new("body")
    };
    sender.send(&message).await.unwrap();
    let mut receiver = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    let received = receiver.receive().await.unwrap();
    assert_eq!(received.to_message(), message);
    assert_eq!(
        (received.sequence_number(), received.delivery_count()),
        (Some(1), 0)
    );
    let until = received.locked_until().unwrap();
    assert!(until > SystemTime::now() && received.enqueued_at().is_some());
    received.complete().await.unwrap();
    assert_eq!(server.view("jobs").await.counts.active, 0);
}

#[tokio::test]
async fn sends_are_pipelined_and_a_batch_is_whole() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let message = Message::new("x");
    let sends = futures_util::future::join_all((0..300).map(|_| sender.send(&message)));
    assert!(sends.await.into_iter().all(|sent| sent.is_ok()));
    let mut batch = sender.new_batch();
    for number in 0..100 {
        assert!(batch.try_add(&Message::new(format!("{number}"))).unwrap());
    }
    sender.send_batch(&batch).await.unwrap();
    sender.send_batch(&sender.new_batch()).await.unwrap();
    assert_eq!(server.view("jobs").await.counts.active, 400);
    // More than one frame, and as large as the service takes.
    let large = Message::new(vec![7; 900 << 10]);
    sender.send(&large).await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.deleting_receiver("jobs", options).await.unwrap();
    let mut came = Vec::new();
    while came.len() < 401 {
        came.extend(receiver.receive_batch(64, NO_WAIT).await.unwrap());
    }
    assert_eq!(came[400].body(), large.body);
}

#[tokio::test]
async fn what_the_service_does_not_take_is_refused() {
    let server = Server::start().await;
    let client = server.client();
    let refused = client.sender("absent").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.text().contains("could not be found"), "{refused}");
    let steps = client.sender("steps").await.unwrap();
    let refused = steps.send(&Message::new("without a session")).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.code()),
        (ErrorKind::Refused, Some("amqp:not-allowed"))
    );
    let jobs = client.sender("jobs").await.unwrap();
    let size = usize::try_from(jobs.message_size_max()).unwrap();
    let refused = jobs.send(&Message::new(vec![0; size])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    let mut batch = jobs.new_batch();
    assert!(!batch.try_add(&Message::new(vec![0; size])).unwrap());
    // All is as before.
    jobs.send(&Message::new("x")).await.unwrap();
}

#[tokio::test]
async fn scheduled_messages_come_in_time_and_can_be_cancelled() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let later = Message {
        id: Some("later".to_owned()),
        scheduled_at: Some(SystemTime::now() + Duration::from_hours(1)),
        ..Message::new("later")
    };
    let numbers = sender
        .schedule(&[later.clone(), later.clone()])
        .await
        .unwrap();
    assert_eq!(numbers, [1, 2]);
    let peeked = client.peek("jobs", 0, 10).await.unwrap();
    let states: Vec<_> = peeked.iter().map(|it| it.state()).collect();
    assert_eq!(states, [MessageState::Scheduled; 2]);
    assert!(peeked[0].scheduled_at() > Some(SystemTime::now() + Duration::from_mins(59)));
    sender.cancel_scheduled(&numbers).await.unwrap();
    let gone = sender.cancel_scheduled(&numbers).await.unwrap_err();
    assert_eq!(gone.code(), Some("com.microsoft:message-not-found"));
    assert!(client.peek("jobs", 0, 10).await.unwrap().is_empty());
    let refused = sender.schedule(&[Message::new("when?")]).await.unwrap_err();
    assert!(refused.text().contains("scheduled_at"), "{refused}");
    let past = Message {
        scheduled_at: Some(SystemTime::now() - Duration::from_secs(1)),
        ..Message::new("now")
    };
    sender.send(&past).await.unwrap();
    let mut receiver = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    assert_eq!(receiver.receive().await.unwrap().body(), "now");
}

#[tokio::test]
async fn a_batch_is_what_there_is_and_at_most_what_is_wanted() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    for number in 0..5 {
        sender
            .send(&Message::new(format!("{number}")))
            .await
            .unwrap();
    }
    let mut receiver = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    let three = receiver.receive_batch(3, LONG).await.unwrap();
    let bodies: Vec<_> = three.iter().map(|it| it.body()).collect();
    assert_eq!(bodies, ["0", "1", "2"]);
    let mut rest = Vec::new();
    while rest.len() < 2 {
        rest.extend(receiver.receive_batch(10, NO_WAIT).await.unwrap());
    }
    assert_eq!((rest[0].body(), rest[1].body()), ("3".into(), "4".into()));
}

#[tokio::test]
async fn what_is_fetched_ahead_and_not_taken_goes_back() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    for number in 0..20 {
        sender
            .send(&Message::new(format!("{number}")))
            .await
            .unwrap();
    }
    let options = ReceiverOptions { prefetch: 8 };
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    for number in 0..12 {
        let message = receiver.receive().await.unwrap();
        assert_eq!(message.body(), format!("{number}"));
        message.complete().await.unwrap();
    }
    receiver.close().await.unwrap();
    let mut next = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    for number in 12..20 {
        let message = next.receive().await.unwrap();
        assert_eq!(
            (message.body(), message.delivery_count()),
            (format!("{number}").into(), 0)
        );
        message.complete().await.unwrap();
    }
    // Of a receiver that deletes, they go to its caller.
    for number in 0..3 {
        sender
            .send(&Message::new(format!("{number}")))
            .await
            .unwrap();
    }
    let mut receiver = client.deleting_receiver("jobs", options).await.unwrap();
    let first = receiver.receive().await.unwrap();
    let rest = receiver.close().await.unwrap();
    let left = server.view("jobs").await.counts.active;
    assert_eq!(first.body(), "0");
    assert_eq!(rest.len() as u64 + left, 2, "nothing is lost");
}

/// Nothing is settled: the message is gone when it is sent, whatever becomes of its receiver.
#[tokio::test]
async fn what_a_deleting_receiver_was_sent_does_not_come_back() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("lost")).await.unwrap();
    let brief = server.client();
    let options = ReceiverOptions { prefetch: 1 };
    let receiver = brief.deleting_receiver("jobs", options);
    let mut receiver = receiver.await.unwrap();
    drop(receiver.receive().await.unwrap());
    assert_eq!(server.view("jobs").await.counts.active, 0);
    server.cut();
    drop((receiver, brief));
    // Another connection: on the one that was cut, a send can go out before the client sees its end.
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("next")).await.unwrap();
    let mut receiver = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    let next = receiver.receive().await.unwrap();
    assert_eq!((next.body(), next.delivery_count()), ("next".into(), 0));
}

#[tokio::test]
async fn dead_letters_are_an_entity() {
    let server = Server::start().await;
    let client = server.client();
    let queue = Entity::new("jobs");
    client
        .sender(&queue)
        .await
        .unwrap()
        .send(&Message::new("bad"))
        .await
        .unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver(&queue, options).await.unwrap();
    let changes = vec![("seen".to_owned(), Value::Boolean(true))];
    let message = receiver.receive().await.unwrap();
    message
        .dead_letter("Malformed", "at 1", changes)
        .await
        .unwrap();
    let dead = queue.dead_letters();
    let peeked = client.peek(&dead, 0, 10).await.unwrap();
    assert_eq!(peeked[0].dead_letter_reason().as_deref(), Some("Malformed"));
    let mut receiver = client.receiver(&dead, options).await.unwrap();
    let message = receiver.receive().await.unwrap();
    assert_eq!(message.dead_letter_description().as_deref(), Some("at 1"));
    assert_eq!(message.property("seen"), Some(Value::Boolean(true)));
    message.abandon(Changes::new()).await.unwrap();
    drop(receiver);
    let mut deletes = client.deleting_receiver(&dead, options).await.unwrap();
    assert_eq!(deletes.receive().await.unwrap().body(), "bad");
    assert_eq!(server.view("jobs").await.counts.dead_letters, 0);
    let refused = client.sender(&dead).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn another_receiver_gets_the_next_message_that_is_not_locked() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    for body in ["1", "2", "3"] {
        sender.send(&Message::new(body)).await.unwrap();
    }
    let options = ReceiverOptions::default();
    let mut one = client.receiver("jobs", options).await.unwrap();
    let mut other = server.client().receiver("jobs", options).await.unwrap();
    let first = one.receive().await.unwrap();
    let second = other.receive().await.unwrap();
    assert_eq!((first.body(), second.body()), ("1".into(), "2".into()));
    // What comes back has its old place.
    first.abandon(Changes::new()).await.unwrap();
    assert_eq!(other.receive().await.unwrap().body(), "1");
}
