//! Requests to `$management`.

use kew_amqp::codec::{Array, Map, Symbol, Text, Value};
use kew_amqp::performative::{Attach, Role, Source, Target};

use crate::client::Server;

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

/// Not every client names the session: some name the link that holds it.
#[tokio::test]
async fn a_session_is_known_by_its_link() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let mut attach = Attach::new("holds it".into(), Role::Receiver);
    let mut source = Source::new("steps".into());
    source.filter = Some(Map::build(|map| {
        map.entry(
            &Symbol::from_static("com.microsoft:session-filter"),
            &Text::from("s"),
        );
    }));
    attach.source = Some(source);
    attach.target = Some(Target::new("here".into()));
    client.attach(attach).await.unwrap();

    let body = Map::build(|map| {
        map.entry("sequence-numbers", &Value::Array(Array::longs([1])));
        map.entry("receiver-settle-mode", &1_u32);
    });
    for (link_name, told_is) in [
        ("holds it", (404, "com.microsoft:message-not-found")),
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
