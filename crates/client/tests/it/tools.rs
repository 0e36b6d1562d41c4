//! What tools need beside applications: locks by their tokens, lists of sessions, exact messages, and rights for a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Symbol, Timestamp};
use kew_amqp::message::{
    Header, Message as Raw, MessageId, Properties, write_application_properties, write_head,
    write_value,
};
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, Encoded, ErrorKind, Message, MessageState,
    ReceiverOptions, SessionChoice, Uuid, Value,
};

use crate::server::{CONNECTION_STRING, QUICK, Server};

#[tokio::test]
async fn a_lock_is_settled_by_its_token_alone() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    for body in ["a", "b", "c", "d"] {
        sender.send(&Message::new(body)).await.unwrap();
    }
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let mut tokens = Vec::new();
    for _ in 0..4 {
        tokens.push(receiver.receive().await.unwrap().lock_token());
    }
    // Another process, after the first one has ended.
    drop((receiver, sender, client));
    server.ended().await;
    let client = server.client();
    let held = |index: usize| client.held("jobs", tokens[index]);
    assert!(held(0).renew().await.unwrap() > SystemTime::now());
    held(0).complete().await.unwrap();
    held(1).abandon(Vec::new()).await.unwrap();
    let changes = vec![("step".to_owned(), Value::Long(2))];
    held(2).defer(changes).await.unwrap();
    held(3)
        .dead_letter("Bad", "no price", Vec::new())
        .await
        .unwrap();
    let lost = held(0).complete().await.unwrap_err();
    assert!(lost.is_lock_lost(), "{lost}");
    let seen = client.peek("jobs", 0, 10).await.unwrap();
    let seen: Vec<_> = seen
        .iter()
        .map(|it| (it.body(), it.delivery_count()))
        .collect();
    assert_eq!(seen, [("b".into(), 1), ("c".into(), 0)]);
    let deferred = &client.peek("jobs", 3, 1).await.unwrap()[0];
    assert_eq!(deferred.state(), MessageState::Deferred);
    assert_eq!(deferred.property("step"), Some(Value::Long(2)));
    let dead = client.peek("jobs/$deadletterqueue", 0, 1).await.unwrap();
    assert_eq!(dead[0].dead_letter_reason().as_deref(), Some("Bad"));
    let unknown = client.held("jobs", Uuid([7; 16])).complete().await;
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn all_sessions_are_listed() {
    let server = Server::start().await;
    let client = server.client();
    let none = client.sessions("steps", 0).await.unwrap();
    assert_eq!(none, (Vec::new(), None));
    let sender = client.sender("steps").await.unwrap();
    let sends = (0..150).map(|number| {
        let message = Message {
            session_id: Some(format!("{number:03}")),
            ..Message::new("x")
        };
        let sender = &sender;
        async move { sender.send(&message).await }
    });
    let sent = futures_util::future::join_all(sends).await;
    assert!(sent.into_iter().all(|it| it.is_ok()));
    // One with a state alone is listed too.
    let choice = SessionChoice::named("state");
    let session = client.session("steps", choice, ReceiverOptions::default());
    let session = session.await.unwrap();
    session
        .set_state(Some(Bytes::from_static(b"s")))
        .await
        .unwrap();
    let mut all = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let (page, next) = client.sessions("steps", first).await.unwrap();
        assert!(page.len() <= 100);
        all.extend(page);
        skip = next;
    }
    let mut expected: Vec<String> = (0..150).map(|number| format!("{number:03}")).collect();
    expected.push("state".to_owned());
    assert_eq!(all, expected);
}

/// A message that [`Message`] cannot express.
fn exact(session: Option<&str>, scheduled_at: Option<i64>) -> Encoded {
    let annotations = Map::build(|map| {
        map.entry(&Symbol::from_static("x-opt-mine"), &7_i32);
        if let Some(ms) = scheduled_at {
            let key = Symbol::from_static("x-opt-scheduled-enqueue-time");
            map.entry(&key, &Timestamp(ms));
        }
    });
    let properties = Properties {
        message_id: Some(MessageId::Ulong(7)),
        group_id: session.map(Into::into),
        ..Properties::default()
    };
    let application = Map::build(|map| map.entry("when", &Timestamp(1)));
    let mut out = BytesMut::new();
    write_head(&mut out, &Header::default(), &Map::default(), &annotations);
    properties.encode(&mut out);
    write_application_properties(&mut out, &application);
    write_value(&mut out, &Value::Double(0.5));
    Encoded::new(out.freeze()).unwrap()
}

fn check_exact(message: &Raw) {
    assert_eq!(
        message.properties().unwrap().message_id,
        Some(MessageId::Ulong(7))
    );
    let mine = message.message_annotations().get("x-opt-mine").unwrap();
    assert_eq!(mine.value(), Value::Int(7));
    let when = message.application_properties().get("when").unwrap();
    assert_eq!(when.value(), Value::Timestamp(Timestamp(1)));
    let body: Vec<Value> = message.body_values().map(|raw| raw.value()).collect();
    assert_eq!(body, [Value::Double(0.5)]);
}

#[tokio::test]
async fn a_message_is_sent_exactly_as_it_is() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let message = exact(None, None);
    sender.send_encoded(&message).await.unwrap();
    let mut batch = sender.new_batch();
    assert!(batch.try_add_encoded(&message) && batch.try_add_encoded(&message));
    sender.send_batch(&batch).await.unwrap();
    let transaction = client.begin().await.unwrap();
    transaction.send_encoded(&sender, &message).await.unwrap();
    transaction.commit().await.unwrap();
    let later = SystemTime::now() + Duration::from_hours(1);
    let later_ms = later.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let scheduled = exact(None, Some(i64::try_from(later_ms).unwrap()));
    let numbers = sender.schedule_encoded(&[scheduled]).await.unwrap();
    let seen = client.peek("jobs", 0, 10).await.unwrap();
    assert_eq!(seen.len(), 5);
    for message in &seen {
        check_exact(message.raw());
    }
    assert_eq!(seen[4].state(), MessageState::Scheduled);
    assert_eq!(seen[4].sequence_number(), Some(numbers[0]));
    // The envelope of a batch names its session.
    let sender = client.sender("steps").await.unwrap();
    let mut batch = sender.new_batch();
    assert!(batch.try_add_encoded(&exact(Some("s"), None)));
    sender.send_batch(&batch).await.unwrap();
    let seen = client.peek("steps", 0, 10).await.unwrap();
    assert_eq!(seen[0].session_id(), Some("s"));
}

fn admin(server: &std::sync::Arc<Server>, connection_string: &str) -> BusAdmin {
    let options = AdminOptions {
        retry: QUICK,
        dial: Some(server.clone()),
        ..AdminOptions::default()
    };
    BusAdmin::new(BusNamespace::parse(connection_string).unwrap(), options).unwrap()
}

#[tokio::test]
async fn another_interface_of_the_service_is_asked() {
    let server = Server::start().await;
    let admin = admin(&server, CONNECTION_STRING);
    let answer = admin.ask("GET", "$kew/v1/jobs", None).await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"[]"[..]));
    let body = Bytes::from_static(b"{\"dry_run\": true}");
    let answer = admin
        .ask("POST", "$kew/v1/purge/jobs", Some(body))
        .await
        .unwrap();
    assert_eq!(answer.status, 202);
    // A status that is no success is an answer.
    let answer = admin
        .ask("DELETE", "$kew/v1/jobs/none", None)
        .await
        .unwrap();
    assert_eq!(answer.status, 404);
    let wrong = admin.ask("GET", "no path", None).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Refused);
    server.stop();
    // With no connection of before, nothing was sent.
    let admin = self::admin(&server, CONNECTION_STRING);
    let gone = admin.ask("POST", "$kew/v1/purge/jobs", None).await;
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::TryAgainLater);
}

#[tokio::test]
async fn rights_that_are_given_away_hold_for_one_queue_and_a_time() {
    let server = Server::start().await;
    let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let client_until = |expires_at_s: u64| {
        let delegation = namespace.delegate(Some("jobs"), expires_at_s).unwrap();
        assert_eq!(delegation.resource, "sb://localhost/jobs");
        let text = delegation.connection_string.expose();
        assert!(text.contains(delegation.token.expose()) && !text.contains("SAS_KEY_VALUE"));
        let given = BusNamespace::parse(text).unwrap();
        assert_eq!(given.entity(), Some("jobs"));
        assert_eq!(given.amqp_port(), namespace.amqp_port());
        // Nothing is left to give away.
        assert!(given.delegate(None, expires_at_s).is_none());
        BusClient::new(given, server.options()).unwrap()
    };
    let client = client_until(now.as_secs() + 600);
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("x")).await.unwrap();
    let other = client.sender("spare").await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Refused, "{other}");
    let late = client_until(now.as_secs() - 600).sender("jobs").await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Refused);
}
