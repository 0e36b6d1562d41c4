//! Requests to `$management`.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Array, Map, Text, Value};
use kew_amqp::message::{BodyKind, Message, write_application_properties, write_value};
use kew_amqp::performative::{Attach, DeliveryState, Role, Source, Tag, Target};
use kew_amqp::{Delivery, Event, LinkId, Outgoing};

use kew_engine::Timestamp;
use kew_engine::bus::{BusCommand, BusMessage};

use crate::client::{Client, Server, lock_of, message, queue_named};
use crate::sessions::of_session;

const PEEK: &str = "com.microsoft:peek-message";

#[tokio::test]
async fn unknown_and_unmatched_requests_get_errors() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let operation = |name: &'static str| Map::build(|map| map.entry("operation", name));
    let text = Text::from("no map");
    let answer = client.ask(NODE, &operation(PEEK), &text).await;
    assert_eq!(told(&answer), (400, "com.microsoft:argument-error".into()));
    for name in ["com.microsoft:add-rules", "com.microsoft:", ""] {
        let answer = client.ask(NODE, &operation(name), &Map::default()).await;
        assert_eq!(
            told(&answer),
            (501, "amqp:not-implemented".into()),
            "{name}"
        );
    }
    for name in [
        "renew-lock",
        "peek-message",
        "schedule-message",
        "update-disposition",
    ] {
        let name = format!("com.microsoft:{name}");
        let properties = Map::build(|map| map.entry("operation", name.as_str()));
        let answer = client.ask(NODE, &properties, &Map::default()).await;
        assert_eq!(
            told(&answer),
            (400, "com.microsoft:argument-error".into()),
            "{name}"
        );
    }
}

/// A client that reads only properties need not fetch bodies.
#[tokio::test]
async fn messages_are_peeked_at_without_their_bodies() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    client.send(sender, 0, message("long")).await;
    for (omits_body, kind) in [(false, BodyKind::Data), (true, BodyKind::Empty)] {
        let properties = Map::build(|map| map.entry("operation", PEEK));
        let body = Map::build(|map| {
            map.entry("from-sequence-number", &0_i64);
            map.entry("message-count", &1);
            map.entry("omit-message-body", &omits_body);
        });
        let answer = client.ask_for(NODE, &properties, &body).await;
        let peeked = peeked(&answer);
        assert_eq!(peeked.body_kind(), kind);
        assert!(peeked.properties().unwrap().message_id.is_some());
        let annotations = peeked.message_annotations();
        assert!(annotations.get("x-opt-sequence-number").is_some());
    }
}

/// The one message in the answer to a peek.
fn peeked(answer: &Message) -> Message {
    let body = answer.body_values().next().unwrap().value();
    let Value::Map(body) = body else {
        panic!("{body:?}")
    };
    let Some(Value::List(messages)) = body.get("messages").map(|raw| raw.value()) else {
        panic!("{body:?}")
    };
    let Some(Value::Map(first)) = messages.iter().next().map(|raw| raw.value()) else {
        panic!("{messages:?}")
    };
    let Some(Value::Binary(bytes)) = first.get("message").map(|raw| raw.value()) else {
        panic!("{first:?}")
    };
    Message::scan(bytes).unwrap()
}

/// Not every client names the session: some name its link.
#[tokio::test]
async fn a_session_is_known_by_its_link() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    client.session("steps", "s").await;

    let body = Map::build(|map| {
        map.entry("sequence-numbers", &Value::Array(Array::longs([1])));
        map.entry("receiver-settle-mode", &1_u32);
    });
    for (link_name, told_is) in [
        ("s", (404, "com.microsoft:message-not-found")),
        ("another", (400, "amqp:not-allowed")),
    ] {
        let properties = Map::build(|map| {
            map.entry("operation", "com.microsoft:receive-by-sequence-number");
            map.entry("associated-link-name", link_name);
        });
        let answer = client.ask("steps/$management", &properties, &body).await;
        assert_eq!(told(&answer), (told_is.0, told_is.1.into()));
    }
}

/// A message of a session is locked as long as the session, so different ends show whose they are.
#[tokio::test]
async fn renewed_locks_are_answered_in_the_order_of_their_tokens() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("steps").await.unwrap();
    let mut locks = Vec::new();
    for id in ["a", "b"] {
        let sent = client.send(sender, 0, of_session(id)).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
        let link = client.session("steps", id).await;
        client.connection.grant(link, 1);
        locks.push(lock_of(&client.delivery().await));
    }
    let [a, b] = locks[..] else {
        panic!("{locks:?}")
    };
    let [mut end_of_a, end_of_b] = ends(&renew(&mut client, &[a, b]).await)[..] else {
        panic!("one end for each")
    };
    // Later than the other's, when the clock has advanced.
    let renewal = Map::build(|map| map.entry("operation", "com.microsoft:renew-session-lock"));
    let session = Map::build(|map| map.entry("session-id", "a"));
    while end_of_a <= end_of_b {
        client.ask("steps/$management", &renewal, &session).await;
        end_of_a = ends(&renew(&mut client, &[a]).await)[0];
    }
    for (tokens, expected) in [
        (&[a, b][..], &[end_of_a, end_of_b][..]),
        (&[b, a], &[end_of_b, end_of_a]),
        (&[b, a, b], &[end_of_b, end_of_a, end_of_b]),
    ] {
        assert_eq!(ends(&renew(&mut client, tokens).await), expected);
    }
    // For an unknown one the answer is an error.
    let answer = renew(&mut client, &[a, [7; 16], b]).await;
    let told = told(&answer.application_properties());
    assert_eq!(told, (410, "com.microsoft:message-lock-lost".into()));
}

/// Renews locks, given as an array of UUIDs.
async fn renew(client: &mut Client, locks: &[[u8; 16]]) -> Message {
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:renew-lock"));
    let body = Map::build(|map| {
        map.entry_with("lock-tokens", |out| {
            let count = u8::try_from(locks.len()).unwrap();
            // An array8 of UUIDs: its size counts the count and the constructor.
            out.extend_from_slice(&[0xe0, count * 16 + 2, count, 0x98]);
            out.extend(locks.iter().flatten());
        });
    });
    client
        .ask_for("steps/$management", &properties, &body)
        .await
}

/// When the locks in an answer end.
fn ends(answer: &Message) -> Vec<i64> {
    let body = answer.body_values().next().unwrap().value();
    let Value::Map(body) = body else {
        panic!("{body:?}")
    };
    let Some(Value::Array(ends)) = body.get("expirations").map(|raw| raw.value()) else {
        panic!("{body:?}")
    };
    let ends = ends.iter().map(|end| match end {
        Value::Timestamp(at) => at.0,
        other => panic!("{other:?}"),
    });
    ends.collect()
}

/// Skips more messages than the broker reads in one command; the client's requested number is
/// bounded.
#[tokio::test]
async fn long_lists_are_gone_through_in_parts() {
    let server = Server::start().await;
    let message = |session: &str| BusMessage {
        body: Bytes::from_static(b"\0Su\xa0\x01x"),
        message_id: None,
        session: Some(session.into()),
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let later = Timestamp::from_ms(u64::MAX >> 16);
    let scheduled = BusMessage {
        scheduled_at: Some(later),
        ..message("s")
    };
    let sessions = (0..1001).map(|index| message(&format!("{index:04}")));
    let mut sends = vec![vec![scheduled; 5000]; 4];
    sends.push(sessions.collect());
    for messages in sends {
        let queue = queue_named("steps");
        server.order(BusCommand::Send { queue, messages }).await;
    }
    let mut client = server.trusted().await;
    let mut ask = async |operation: &'static str, body: Map| -> Map {
        let properties = Map::build(|map| map.entry("operation", operation));
        let answer = client
            .ask_for("steps/$management", &properties, &body)
            .await;
        match answer.body_values().next().unwrap().value() {
            Value::Map(body) => body,
            other => panic!("{other:?}"),
        }
    };
    let number = |map: &Map, name| map.get(name).unwrap().value().as_integer();
    let list = |skip: i32| {
        Map::build(|map| {
            map.entry(
                "last-updated-time",
                &kew_amqp::codec::Timestamp(253_402_300_799_999),
            );
            map.entry("skip", &skip);
            map.entry("top", &i32::MAX);
        })
    };
    let listed = ask("com.microsoft:get-message-sessions", list(0)).await;
    assert_eq!(number(&listed, "skip"), Some(1000));
    let listed = ask("com.microsoft:get-message-sessions", list(1000)).await;
    assert_eq!(number(&listed, "skip"), Some(1002));
    let delete = Map::build(|map| {
        map.entry(
            "enqueued-time-utc",
            &kew_amqp::codec::Timestamp(253_402_300_799_999),
        );
        map.entry("message-count", &2000);
    });
    let deleted = ask("com.microsoft:batch-delete-messages", delete).await;
    assert_eq!(number(&deleted, "message-count"), Some(1001));
}

const NODE: &str = "jobs/$management";

/// Status and condition of an answer.
pub(crate) fn told(answer: &Map) -> (i64, String) {
    let code = answer.get("statusCode").unwrap().value().as_integer();
    let condition = answer.get("errorCondition").unwrap().value();
    (code.unwrap(), condition.as_str().unwrap().to_owned())
}

/// Asks something about the first message.
async fn ask_only(client: &mut Client, requests: LinkId, operation: &str) {
    client.can_send(requests).await;
    let mut payload = BytesMut::new();
    let properties = Map::build(|map| map.entry("operation", operation));
    write_application_properties(&mut payload, &properties);
    let body = Map::build(|map| {
        map.entry("from-sequence-number", &0_i64);
        map.entry("message-count", &1);
    });
    write_value(&mut payload, &body);
    let outgoing = Outgoing {
        tag: Tag::from([1; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    let parts = [payload.freeze(), Bytes::new()];
    client.connection.send(requests, outgoing, parts).unwrap();
}

/// The same, and detaches the link at once.
async fn ask_and_go(client: &mut Client, requests: LinkId, operation: &str) {
    ask_only(client, requests, operation).await;
    client.connection.detach(requests, true, None);
}

fn status_of(answer: &Delivery) -> Option<i64> {
    let answer = Message::scan(answer.payload.clone()).unwrap();
    let status = answer.application_properties().get("statusCode").unwrap();
    status.value().as_integer()
}

#[tokio::test]
async fn a_request_is_answered_when_its_link_is_gone() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let requests = client.sender(NODE).await.unwrap();
    let answers = client.receiver(NODE).await.unwrap();
    client.connection.grant(answers, 1);
    ask_and_go(&mut client, requests, PEEK).await;
    assert_eq!(status_of(&client.delivery().await), Some(204));
}

/// A client that starts again may skip from zero.
#[tokio::test]
async fn an_answer_does_not_go_over_a_link_of_later() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let requests = client.sender(NODE).await.unwrap();
    let answers = client.receiver(NODE).await.unwrap();
    ask_and_go(&mut client, requests, PEEK).await;
    client.connection.detach(answers, true, None);
    let mut attach = Attach::new("later".into(), Role::Receiver);
    attach.source = Some(Source::new(NODE.into()));
    attach.target = Some(Target::new("here".into()));
    let (later, _) = client.attach(attach).await.unwrap();
    let requests = client.sender(NODE).await.unwrap();
    ask_and_go(&mut client, requests, "com.microsoft:unknown").await;
    client.connection.grant(later, 1);
    assert_eq!(status_of(&client.delivery().await), Some(501));
}

/// Later answers would wait behind it forever.
#[tokio::test]
async fn an_answer_above_its_links_limit_detaches_it() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let mut attach = Attach::new("small".into(), Role::Receiver);
    attach.source = Some(Source::new(NODE.into()));
    attach.target = Some(Target::new("small".into()));
    attach.max_message_size = Some(10);
    let (answers, _) = client.attach(attach).await.unwrap();
    client.connection.grant(answers, 1);
    let requests = client.sender(NODE).await.unwrap();
    ask_only(&mut client, requests, PEEK).await;
    let error = client
        .until(|event| match event {
            Event::Detached { link, error, .. } if *link == answers => error.clone(),
            _ => None,
        })
        .await;
    assert_eq!(error.condition, "amqp:link:message-size-exceeded");
}
