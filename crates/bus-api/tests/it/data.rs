//! Messages over HTTP.

use std::time::Duration;

use kew_amqp::codec::{Map, Uuid, Value, write_list};
use kew_amqp::message::{Message, MessageId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Server, message};
use crate::rest::{Answer, ask, request};

const HEAD: &str = "jobs/messages/head?timeout=0";

async fn send(server: &Server, headers: &[(&str, &str)], body: &str) {
    let answer = ask(server, "POST", "jobs/messages", headers, body).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (201, ""),
        "{answer:?}"
    );
}

async fn lock(server: &Server) -> Answer {
    ask(server, "POST", HEAD, &[], "").await
}

/// The path of a locked message.
fn location(answer: &Answer) -> &str {
    let location = answer.header("location").unwrap();
    location.strip_prefix("http://localhost/").unwrap()
}

#[tokio::test]
async fn a_message_is_received_as_it_was_sent() {
    let server = Server::start().await;
    let properties = r#"{"Label": "L", "MessageId": "m-1", "CorrelationId": "c", "TimeToLive": 90,
        "To": "t", "ReplyTo": "r", "Nobody": 1}"#;
    let headers = [
        ("BrokerProperties", properties),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Priority", "\"High\""),
        ("x-count", "12"),
        ("x-part", "1.5"),
        ("x-is", "true"),
        ("x-at", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("User-Agent", "test"),
    ];
    let headers = headers.map(|(name, value)| (name, value.replace('\n', " ")));
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    send(&server, &headers, "hello").await;

    let answer = ask(&server, "DELETE", HEAD, &[], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("priority", "\"High\""),
        ("x-count", "12"),
        ("x-part", "1.5"),
        ("x-is", "true"),
        ("x-at", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(answer.header("user-agent"), None);
    assert_eq!(answer.header("location"), None);
    let told = answer.properties();
    for (name, value) in [
        ("Label", "\"L\""),
        ("MessageId", "\"m-1\""),
        ("CorrelationId", "\"c\""),
        ("To", "\"t\""),
        ("ReplyTo", "\"r\""),
        ("TimeToLive", "90.0"),
        ("DeliveryCount", "1"),
        ("SequenceNumber", "1"),
        ("EnqueuedSequenceNumber", "1"),
        ("State", "\"Active\""),
    ] {
        assert_eq!(told[name].to_string(), value, "{name}");
    }
    assert!(told.get("LockToken").is_none());
    // It does not exist any more.
    let answer = ask(&server, "DELETE", HEAD, &[], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
}

#[tokio::test]
async fn what_http_sends_amqp_receives() {
    let server = Server::start().await;
    let properties = r#"{"SessionId": "s", "PartitionKey": "s"}"#;
    let headers = [
        ("BrokerProperties", properties),
        ("Content-Type", "text/plain"),
        ("x-count", "12"),
    ];
    send(&server, &headers, "hello").await;
    let mut client = server.trusted().await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let received = Message::scan(delivery.payload).unwrap();
    let properties = received.properties().unwrap();
    assert!(matches!(properties.message_id, Some(MessageId::String(_))));
    assert_eq!(properties.content_type.unwrap(), "text/plain");
    assert_eq!(properties.group_id.unwrap().as_str(), "s");
    let count = received.application_properties().get("x-count").unwrap();
    assert_eq!(count.value(), Value::Int(12));
    let body = received.body_values().next().unwrap().value();
    assert_eq!(body, Value::Binary("hello".into()));
    let key = received.message_annotations().get("x-opt-partition-key");
    assert_eq!(key.unwrap().value().as_str(), Some("s"));
}

#[tokio::test]
async fn what_amqp_sends_http_receives() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    client.send(sender, 0, message("from afar")).await;
    let answer = ask(&server, "DELETE", HEAD, &[], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "from afar"));
}

#[tokio::test]
async fn a_batch_is_sent_completely_or_not_at_all() {
    let server = Server::start().await;
    let kind = [("Content-Type", "application/vnd.microsoft.servicebus.json")];
    let batch = r#"[{"Body": "one", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "dHdv", "IsBodyBase64": true, "UserProperties": {"Priority": "Low", "n": 5000000000}}]"#;
    let answer = ask(&server, "POST", "jobs/messages?timeout=60", &kind, batch).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let first = ask(&server, "DELETE", HEAD, &[], "").await;
    assert_eq!(first.body, "one");
    assert_eq!(first.properties()["Label"], "M1");
    assert_eq!(first.properties()["TimeToLive"], 40.0);
    let second = ask(&server, "DELETE", HEAD, &[], "").await;
    assert_eq!(second.body, "two");
    assert_eq!(second.header("priority"), Some("\"Low\""));
    assert_eq!(second.header("n"), Some("5000000000"));
    for wrong in [
        "[]",
        "{}",
        r#"[{"Body": "kept?"}, {"Body": "x", "BrokerProperties": {"TimeToLive": 0}}]"#,
        r#"[{"Body": "kept?"}, {"Body": "x", "UserProperties": {"a": []}}]"#,
        r#"[{"Body": "no base64!", "IsBodyBase64": true}]"#,
    ] {
        let answer = ask(&server, "POST", "jobs/messages", &kind, wrong).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    assert_eq!(ask(&server, "DELETE", HEAD, &[], "").await.status, 204);
}

#[tokio::test]
async fn a_locked_message_is_completed_by_number_or_id() {
    let server = Server::start().await;
    let headers = [("BrokerProperties", r#"{"MessageId": "a b"}"#)];
    send(&server, &headers, "one").await;
    send(&server, &headers, "two").await;
    let first = lock(&server).await;
    assert_eq!((first.status, first.body.as_str()), (201, "one"));
    let told = first.properties();
    let token = told["LockToken"].as_str().unwrap();
    assert_eq!(location(&first), format!("jobs/messages/1/{token}"));
    assert!(told["LockedUntilUtc"].as_str().unwrap().ends_with(" GMT"));
    let second = lock(&server).await;
    // The lock of another message, by its number or its id.
    for wrong in ["2", "c"] {
        let path = format!("jobs/messages/{wrong}/{token}");
        assert_eq!(
            ask(&server, "DELETE", &path, &[], "").await.status,
            404,
            "{wrong}"
        );
    }
    let renewed = ask(&server, "POST", location(&first), &[], "").await;
    assert_eq!(renewed.status, 200);
    let path = format!("Jobs/messages/a%20b/{token}");
    assert_eq!(ask(&server, "DELETE", &path, &[], "").await.status, 200);
    let again = ask(&server, "DELETE", &path, &[], "").await;
    assert_eq!(again.status, 410, "{again:?}");
    assert!(again.body.contains("SubCode=41000"), "{again:?}");
    // After the unlock it is available at once, and its delivery has failed.
    assert_eq!(
        ask(&server, "PUT", location(&second), &[], "").await.status,
        200
    );
    let second = lock(&server).await;
    assert_eq!(second.properties()["DeliveryCount"], 2);
    let renewed = ask(&server, "POST", "jobs/messages/2/no-uuid", &[], "").await;
    assert_eq!(renewed.status, 400);
}

#[tokio::test]
async fn dead_letters_are_read_with_their_reason() {
    let server = Server::start().await;
    send(&server, &[], "bad").await;
    for _ in 0..10 {
        let locked = lock(&server).await;
        assert_eq!(
            ask(&server, "PUT", location(&locked), &[], "").await.status,
            200
        );
    }
    assert_eq!(lock(&server).await.status, 204);
    let path = "jobs/$DeadLetterQueue/messages/head?timeout=0";
    let dead = ask(&server, "POST", path, &[], "").await;
    assert_eq!((dead.status, dead.body.as_str()), (201, "bad"));
    let reason = dead.header("DeadLetterReason");
    assert_eq!(reason, Some("\"MaxDeliveryCountExceeded\""));
    assert_eq!(
        ask(&server, "DELETE", location(&dead), &[], "")
            .await
            .status,
        200
    );
    assert_eq!(ask(&server, "POST", path, &[], "").await.status, 204);
}

#[tokio::test]
async fn a_receive_waits_for_a_message_or_its_time() {
    let server = Server::start().await;
    let began = std::time::Instant::now();
    let brief = "jobs/messages/head?timeout=1";
    assert_eq!(ask(&server, "DELETE", brief, &[], "").await.status, 204);
    assert!(began.elapsed() >= Duration::from_secs(1));
    let waiting = ask(&server, "DELETE", "jobs/messages/head", &[], "");
    let sending = async {
        server.waiting(1).await;
        send(&server, &[], "late").await;
    };
    let (answer, ()) = tokio::join!(waiting, sending);
    assert_eq!((answer.status, answer.body.as_str()), (200, "late"));
    let wrong = ask(&server, "DELETE", "jobs/messages/head?timeout=x", &[], "").await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn a_client_that_leaves_while_waiting_receives_nothing() {
    let server = Server::start().await;
    for method in ["POST", "DELETE"] {
        let mut stream = server.stream();
        let request = request(method, "jobs/messages/head", &[], "");
        stream.write_all(request.as_bytes()).await.unwrap();
        // The broker has no message for it, so that it waits.
        server.waiting(1).await;
        drop(stream);
        server.waiting(0).await;
    }
    send(&server, &[], "for another").await;
    let answer = lock(&server).await;
    assert_eq!((answer.status, answer.body.as_str()), (201, "for another"));
    assert_eq!(answer.properties()["DeliveryCount"], 1);
}

#[tokio::test]
async fn a_wait_ends_when_the_server_stops() {
    let server = Server::start().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stream = server.stream_until(async move {
        let _ = stopped.await;
    });
    let request = request("POST", "jobs/messages/head", &[], "");
    stream.write_all(request.as_bytes()).await.unwrap();
    server.waiting(1).await;
    stop.send(()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
}

#[tokio::test]
async fn errors_name_the_mistake() {
    let server = Server::start().await;
    let large = "x".repeat((1 << 20) + 1);
    for (method, path, headers, body, status) in [
        ("POST", "none/messages", None, "", 404),
        ("DELETE", "none/messages/head", None, "", 404),
        ("POST", "-/messages", None, "", 404),
        ("POST", "jobs/$DeadLetterQueue/messages", None, "", 400),
        ("POST", "steps/messages", None, "no session", 400),
        ("POST", "steps/messages/head", None, "", 400),
        ("POST", "jobs/messages", Some("{"), "", 400),
        ("POST", "jobs/messages", None, large.as_str(), 403),
    ] {
        let headers: Vec<_> = headers
            .map(|it| ("BrokerProperties", it))
            .into_iter()
            .collect();
        let answer = ask(&server, method, path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {path} {answer:?}");
        assert!(
            answer.body.starts_with(&format!("<Error><Code>{status}<")),
            "{answer:?}"
        );
    }
    let headers = [("BrokerProperties", r#"{"SessionId": "a"}"#)];
    let answer = ask(&server, "POST", "steps/messages", &headers, "x").await;
    assert_eq!(answer.status, 201);
}

/// A sender and a receiver together can give a message more properties than fit into a head.
#[tokio::test]
async fn a_head_is_bounded_after_any_changes_to_its_message() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let properties: serde_json::Map<_, _> =
        (0..7_000).map(|n| (format!("a{n}"), 1.into())).collect();
    let sent = serde_json::json!([{"Body": "body", "UserProperties": properties}]).to_string();
    let kind = [("Content-Type", "application/vnd.microsoft.servicebus.json")];
    let sent = ask(&server, "POST", "jobs/messages", &kind, &sent).await;
    assert_eq!(sent.status, 201, "{sent:?}");
    let locked = lock(&server).await;
    let token = locked.properties()["LockToken"]
        .as_str()
        .unwrap()
        .to_owned();
    let token = u128::from_str_radix(&token.replace('-', ""), 16).unwrap();
    let operation = Map::build(|map| map.entry("operation", "com.microsoft:update-disposition"));
    let mut abandoned = async |count: i32| {
        let changes = Map::build(|map| {
            for index in 0..count {
                map.entry(format!("b{index}").as_str(), &true);
            }
        });
        let abandoned = Map::build(|map| {
            map.entry("disposition-status", "abandoned");
            map.entry("properties-to-modify", &changes);
            map.entry_with("lock-tokens", |out| {
                write_list(out, |list| list.field(&Uuid(token.to_be_bytes())));
            });
        });
        let answer = client.ask("jobs/$management", &operation, &abandoned).await;
        answer.get("statusCode").unwrap().value()
    };
    assert_eq!(abandoned(10_000).await, Value::Int(400));
    assert_eq!(abandoned(7_000).await, Value::Int(200));
    let taken = ask(&server, "DELETE", HEAD, &[], "").await;
    assert_eq!((taken.status, taken.body.as_str()), (200, "body"));
    let shown = taken
        .head
        .lines()
        .filter(|line| line.starts_with(['a', 'b']));
    // Including those that the service adds.
    assert!((12_000..12_010).contains(&shown.count()));
}
