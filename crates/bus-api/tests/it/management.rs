//! Requests to `$management`.

use kew_amqp::codec::Map;

use crate::client::Server;

#[tokio::test]
async fn what_is_not_known_or_not_meant_is_told() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let operation = |name: &'static str| Map::build(|map| map.entry("operation", name));
    for name in ["com.microsoft:add-rule", "com.microsoft:renew-lock", ""] {
        let answer = client
            .ask("jobs/$management", &operation(name), &"no map".into())
            .await;
        let code = answer.get("statusCode").unwrap().value().as_integer();
        assert_eq!(code, Some(400), "{name}");
        let condition = answer.get("errorCondition").unwrap().value();
        assert_eq!(condition.as_str(), Some("com.microsoft:argument-error"));
    }
}
