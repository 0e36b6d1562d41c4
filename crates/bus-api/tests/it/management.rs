//! Requests to `$management`.

use kew_amqp::codec::{Map, Text};

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

const NODE: &str = "jobs/$management";

/// Status and condition of an answer.
fn told(answer: &Map) -> (i64, String) {
    let code = answer.get("statusCode").unwrap().value().as_integer();
    let condition = answer.get("errorCondition").unwrap().value();
    (code.unwrap(), condition.as_str().unwrap().to_owned())
}
