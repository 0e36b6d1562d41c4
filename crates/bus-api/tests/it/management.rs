//! Requests to `$management`.

use kew_amqp::codec::{Array, Map, Text, Value};
use kew_amqp::message::{BodyKind, Message};

use crate::client::{Server, message};

#[tokio::test]
async fn what_is_not_known_or_not_meant_is_told() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let operation = |name: &'static str| Map::build(|map| map.entry("operation", name));
    let text = Text::from("no map");
    let answer = client
        .ask(NODE, &operation("com.microsoft:peek-message"), &text)
        .await;
    assert_eq!(told(&answer), (400, "com.microsoft:argument-error".into()));
    for name in ["com.microsoft:add-rule", "com.microsoft:", ""] {
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

/// Who only looks at what messages say of themselves need not fetch their bodies.
#[tokio::test]
async fn messages_are_peeked_at_without_their_bodies() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    client.send(sender, 0, message("long")).await;
    for (omits_body, kind) in [(false, BodyKind::Data), (true, BodyKind::Empty)] {
        let properties = Map::build(|map| map.entry("operation", "com.microsoft:peek-message"));
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

/// Not every client names the session: some name the link that holds it.
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

const NODE: &str = "jobs/$management";

/// Status and condition of an answer.
fn told(answer: &Map) -> (i64, String) {
    let code = answer.get("statusCode").unwrap().value().as_integer();
    let condition = answer.get("errorCondition").unwrap().value();
    (code.unwrap(), condition.as_str().unwrap().to_owned())
}
