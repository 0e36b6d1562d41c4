//! The operator's interface, over HTTP.

use std::time::Duration;

use kew_amqp::codec::{Encode as _, Map, Value};
use kew_amqp::error::Error;
use kew_amqp::message::{Message, Properties, write_application_properties, write_data};
use kew_amqp::performative::DeliveryState;
use serde_json::{Value as Json, json};

use crate::client::{Client, Server, message, token};
use crate::rest::{Answer, ask};

/// A successful request, and its JSON.
pub(crate) async fn get(server: &Server, method: &str, path: &str, body: &Json) -> Json {
    let body = match body {
        Json::Null => String::new(),
        body => body.to_string(),
    };
    let answer = ask(server, method, &format!("$kew/v1/{path}"), &[], &body).await;
    assert!(answer.status < 300, "{path}: {answer:?}");
    answer.json()
}

pub(crate) async fn refused(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    let answer = ask(server, method, &format!("$kew/v1/{path}"), &[], body).await;
    assert!(answer.status >= 400, "{path}: {answer:?}");
    answer
}

/// Runs a job and waits for its end.
async fn job(server: &Server, path: &str, body: &Json) -> Json {
    let job = get(server, "POST", path, body).await;
    let path = format!("jobs/{}", job["id"].as_str().unwrap());
    let ending = async {
        loop {
            let job = get(server, "GET", &path, &Json::Null).await;
            if job["state"] != "running" {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), ending).await;
    ended.expect("the job ends")
}

/// Sends a message and dead-letters it, with a reason and a description.
async fn bury(client: &mut Client, body: &str, why: (&str, &str), session: Option<&str>) {
    let mut payload = bytes::BytesMut::new();
    let properties = Properties {
        subject: Some("orders".into()),
        message_id: Some(kew_amqp::message::MessageId::String(body.into())),
        group_id: session.map(Into::into),
        ..Properties::default()
    };
    properties.encode(&mut payload);
    let custom = Map::build(|map| map.entry("tries", &3));
    write_application_properties(&mut payload, &custom);
    write_data(&mut payload, body.as_bytes());
    let sender = client.sender("jobs").await.unwrap();
    client.send(sender, 0, payload.freeze()).await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let mut error = Error::new("com.microsoft:dead-letter", why.1);
    error.info = Some(Map::build(|map| {
        map.entry("DeadLetterReason", why.0);
        map.entry("DeadLetterErrorDescription", why.1);
    }));
    client.tell(&delivery, DeliveryState::rejected(error)).await;
    for link in [sender, receiver] {
        client.connection.detach(link, true, None);
    }
}

async fn dead_letters(server: &Server) -> Vec<Json> {
    let path = "messages/jobs/$DeadLetterQueue";
    let listed = get(server, "GET", path, &Json::Null).await;
    listed["messages"].as_array().unwrap().clone()
}

#[tokio::test]
async fn dead_letters_are_shown_grouped_and_filtered() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    bury(&mut client, "a", ("Late", "came too late"), None).await;
    bury(&mut client, "b", ("Late", "came too late"), None).await;
    bury(&mut client, "c", ("Broken", "no JSON"), None).await;
    let queue = get(&server, "GET", "queues/jobs", &Json::Null).await;
    assert_eq!(
        (&queue["dead_letters"], &queue["active_messages"]),
        (&json!(3), &json!(0))
    );
    let queues = get(&server, "GET", "queues", &Json::Null).await;
    assert_eq!(queues["queues"].as_array().unwrap().len(), 4);
    let queues = get(&server, "GET", "queues?limit=1&skip=3", &Json::Null).await;
    assert_eq!(
        (&queues["queues"][0]["name"], &queues["next"]),
        (&json!("steps"), &json!(4))
    );

    let letters = dead_letters(&server).await;
    assert_eq!(letters.len(), 3);
    assert_eq!(letters[2]["dead_letter_reason"], "Broken");
    assert_eq!(letters[2]["dead_letter_description"], "no JSON");
    assert_eq!(letters[2]["properties"], json!({"tries": 3}));
    assert_eq!(
        (&letters[2]["body"], &letters[2]["subject"]),
        (&json!("c"), &json!("orders"))
    );

    let groups = get(&server, "GET", "groups/jobs/$deadletterqueue", &Json::Null).await;
    let groups = groups["groups"].as_array().unwrap();
    assert_eq!((groups.len(), &groups[0]["count"]), (2, &json!(2)));
    assert_eq!(groups[0]["reason"], "Late");
    assert_eq!(groups[0]["last_sequence_number"], 2);

    for (filter, numbers) in [
        ("reason=Late", vec![1, 2]),
        ("description=too%20late&from=2", vec![2]),
        ("description=nothing", vec![]),
        ("to=1", vec![1]),
        ("message_id=b", vec![2]),
        ("subject=orders&state=active&limit=2", vec![1, 2]),
        ("property=tries=3&from=3", vec![3]),
        ("property=tries=%223%22", vec![]),
        ("enqueued_before=2020-01-01T00:00:00Z", vec![]),
        ("enqueued_after=2020-01-01T00:00:00Z&to=1", vec![1]),
        ("session_id=s", vec![]),
    ] {
        let path = format!("messages/jobs/$deadletterqueue?bodies=false&{filter}");
        let listed = get(&server, "GET", &path, &Json::Null).await;
        let found = listed["messages"].as_array().unwrap().iter();
        let found: Vec<u64> = found
            .map(|message| message["sequence_number"].as_u64().unwrap())
            .collect();
        assert_eq!(found, numbers, "{filter}");
        assert!(listed["messages"][0].get("body").is_none());
    }
    let page = get(
        &server,
        "GET",
        "messages/jobs/$deadletterqueue?limit=2",
        &Json::Null,
    )
    .await;
    assert_eq!(page["next"], 3);
    let page = get(
        &server,
        "GET",
        "groups/jobs/$deadletterqueue?scan=1",
        &Json::Null,
    )
    .await;
    assert_eq!((&page["looked_at"], &page["next"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn dead_letters_are_resubmitted_edited_and_elsewhere() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    for body in ["a", "b", "c"] {
        bury(&mut client, body, ("Late", "came too late"), None).await;
    }
    let path = "resubmit/jobs/$DeadLetterQueue";
    let dry = job(
        &server,
        path,
        &json!({"filter": {"to": 2}, "dry_run": true}),
    )
    .await;
    assert_eq!((&dry["done"], &dry["matched"]), (&json!(2), &json!(2)));
    assert_eq!(dead_letters(&server).await.len(), 3);

    let edit = json!({
        "filter": {"message_id": "b"},
        "message_id": "new",
        "edit": {
            "body": "edited",
            "subject": "S",
            "content_type": "text/plain",
            "properties": {"tries": null, "by": "me"},
        },
    });
    let done = job(&server, path, &edit).await;
    assert_eq!((&done["done"], &done["state"]), (&json!(1), &json!("done")));
    let again = ask(&server, "DELETE", "jobs/messages/head?timeout=0", &[], "").await;
    assert_eq!((again.status, again.body.as_str()), (200, "edited"));
    assert_eq!(again.header("by"), Some("\"me\""));
    for gone in ["tries", "DeadLetterReason", "DeadLetterErrorDescription"] {
        assert_eq!(again.header(gone), None, "{gone}");
    }
    assert_eq!(again.header("content-type"), Some("text/plain"));
    let told = again.properties();
    assert_eq!(
        (&told["Label"], &told["DeliveryCount"]),
        (&json!("S"), &json!(1))
    );
    assert_ne!(told["MessageId"], "b");

    // A queue with sessions accepts it if it has a session.
    let refusing = job(&server, path, &json!({"to": "Steps"})).await;
    assert_eq!(
        (&refusing["done"], &refusing["skipped"]),
        (&json!(0), &json!({"session_required": 2}))
    );
    let to = json!({"to": "steps", "edit": {"session_id": "s"}, "filter": {"to": 1}});
    assert_eq!(job(&server, path, &to).await["done"], 1);
    let steps = get(&server, "GET", "messages/steps", &Json::Null).await;
    assert_eq!(
        (
            &steps["messages"][0]["body"],
            &steps["messages"][0]["session_id"]
        ),
        (&json!("a"), &json!("s"))
    );
    assert_eq!(steps["messages"][0]["message_id"], "a");
    let left = dead_letters(&server).await;
    assert_eq!((left.len(), &left[0]["body"]), (1, &json!("c")));

    for (to, status) in [("none", 400), ("jobs/$deadletterqueue", 400)] {
        let answer = refused(&server, "POST", path, &json!({"to": to}).to_string()).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.body.contains(to), "{answer:?}");
    }
    let jobs = get(&server, "GET", "jobs", &Json::Null).await;
    assert_eq!(jobs.as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_resubmitted_message_is_the_same_to_its_receiver() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    bury(&mut client, "a", ("Late", "came too late"), Some("s")).await;
    job(&server, "resubmit/jobs/$DeadLetterQueue", &json!({})).await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    let received = Message::scan(client.delivery().await.payload).unwrap();
    let properties = received.properties().unwrap();
    assert_eq!(properties.group_id.unwrap().as_str(), "s");
    assert_eq!(received.header().unwrap().delivery_count, 0);
    assert_eq!(received.header().unwrap().ttl, None);
    let custom = received.application_properties();
    assert_eq!(custom.len(), 1);
    assert_eq!(custom.get("tries").unwrap().value(), Value::Int(3));
    let number = received.message_annotations().get("x-opt-sequence-number");
    assert_eq!(number.unwrap().value(), Value::Long(2));
}

#[tokio::test]
async fn many_messages_are_resubmitted_in_slices() {
    let server = Server::start().await;
    let batch: Vec<Json> = (0..1000).map(|n| json!({"Body": n.to_string()})).collect();
    let kind = [("Content-Type", "application/vnd.microsoft.servicebus.json")];
    let batch = Json::from(batch).to_string();
    assert_eq!(
        ask(&server, "POST", "jobs/messages", &kind, &batch)
            .await
            .status,
        201
    );
    let purged = job(&server, "purge/jobs", &json!({"filter": {"to": 10}})).await;
    assert_eq!(purged["done"], 10);
    // From one queue to another is possible, too.
    let moved = job(
        &server,
        "resubmit/jobs",
        &json!({"to": "steps", "edit": {"session_id": "s"}}),
    )
    .await;
    assert_eq!(
        (&moved["looked_at"], &moved["done"]),
        (&json!(990), &json!(990))
    );
    let steps = get(&server, "GET", "queues/steps", &Json::Null).await;
    assert_eq!(steps["active_messages"], 990);
    // An ended job can still be cancelled, which changes nothing.
    let path = format!("jobs/{}", moved["id"].as_str().unwrap());
    get(&server, "DELETE", &path, &Json::Null).await;
    let ended = get(&server, "GET", &path, &Json::Null).await;
    assert_eq!(
        (&ended["state"], &ended["done"]),
        (&json!("done"), &json!(990))
    );
}

#[tokio::test]
async fn a_purge_leaves_locked_messages_unless_asked() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    for body in ["held", "b", "c"] {
        client.send(sender, 0, message(body)).await;
    }
    let locked = ask(&server, "POST", "jobs/messages/head", &[], "").await;
    assert_eq!(locked.status, 201);
    let dry = job(&server, "purge/jobs", &json!({"dry_run": true})).await;
    assert_eq!(
        (&dry["done"], &dry["skipped"]),
        (&json!(2), &json!({"locked": 1}))
    );
    for filter in [json!({}), json!({"state": "active"})] {
        let purged = job(&server, "purge/jobs", &json!({"filter": filter})).await;
        assert_eq!(purged["state"], "done");
    }
    let left = get(&server, "GET", "messages/jobs", &Json::Null).await;
    assert_eq!(
        (&left["messages"][0]["body"], &left["messages"][1]),
        (&json!("held"), &Json::Null)
    );
    let purged = job(&server, "purge/jobs", &json!({"with_locked": true})).await;
    assert_eq!(purged["done"], 1);
    let location = locked
        .header("location")
        .unwrap()
        .rsplit_once("localhost/")
        .unwrap()
        .1;
    assert_eq!(ask(&server, "DELETE", location, &[], "").await.status, 410);
}

#[tokio::test]
async fn one_message_is_shown_received_unlocked_and_deleted_by_its_number() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    for body in ["a", "b", "c"] {
        client.send(sender, 0, message(body)).await;
    }
    let shown = get(&server, "GET", "message/jobs?number=2", &Json::Null).await;
    assert_eq!(
        (&shown["body"], &shown["state"]),
        (&json!("b"), &json!("active"))
    );
    let taken = get(
        &server,
        "POST",
        "message/jobs?number=2&mode=lock",
        &Json::Null,
    )
    .await;
    assert_eq!(taken["state"], "locked");
    assert!(taken["locked_until"].is_string(), "{taken}");
    let again = refused(&server, "POST", "message/jobs?number=2&mode=lock", "").await;
    assert_eq!(again.status, 409);
    assert_eq!(again.json()["error"]["code"], "Conflict");
    // The lock is one like any other.
    let lock = taken["lock_token"].as_str().unwrap();
    let path = format!("jobs/messages/2/{lock}");
    assert_eq!(ask(&server, "POST", &path, &[], "").await.status, 200);
    get(&server, "DELETE", "lock/jobs?number=2", &Json::Null).await;
    assert_eq!(ask(&server, "POST", &path, &[], "").await.status, 410);
    assert_eq!(
        refused(&server, "DELETE", "lock/jobs?number=2", "")
            .await
            .status,
        409
    );
    let shown = get(&server, "GET", "message/jobs?number=2", &Json::Null).await;
    assert_eq!(
        (&shown["delivery_count"], &shown["state"]),
        (&json!(0), &json!("active"))
    );

    let taken = get(
        &server,
        "POST",
        "message/jobs?number=3&mode=delete",
        &Json::Null,
    )
    .await;
    assert_eq!(taken["body"], "c");
    get(
        &server,
        "DELETE",
        "message/jobs?number=2&dry_run=true",
        &Json::Null,
    )
    .await;
    get(&server, "DELETE", "message/jobs?number=2", &Json::Null).await;
    for number in [2, 3, 99] {
        let path = format!("message/jobs?number={number}");
        for method in ["GET", "DELETE"] {
            assert_eq!(
                refused(&server, method, &path, "").await.status,
                404,
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_session_is_freed() {
    let server = Server::start().await;
    let headers = [("BrokerProperties", r#"{"SessionId": "s"}"#)];
    ask(&server, "POST", "steps/messages", &headers, "x").await;
    let none = refused(&server, "DELETE", "lock/steps?session=s", "").await;
    assert_eq!(none.status, 409);
    let taken = refused(&server, "POST", "message/steps?number=1&mode=lock", "").await;
    assert_eq!(taken.status, 400);
    let taken = get(
        &server,
        "POST",
        "message/steps?number=1&mode=delete",
        &Json::Null,
    )
    .await;
    assert_eq!(taken["session_id"], "s");
}

#[tokio::test]
async fn errors_are_json() {
    let server = Server::start().await;
    for (method, path, body, status, code) in [
        ("GET", "nothing", "", 404, "NotFound"),
        ("GET", "queues/none", "", 404, "NotFound"),
        ("GET", "messages/none", "", 404, "NotFound"),
        ("GET", "jobs/1-1", "", 404, "NotFound"),
        ("POST", "queues/jobs", "", 405, "MethodNotAllowed"),
        ("GET", "messages/jobs?limit=0", "", 400, "BadRequest"),
        ("GET", "messages/jobs?colour=red", "", 400, "BadRequest"),
        ("GET", "messages/jobs?from=x", "", 400, "BadRequest"),
        ("GET", "message/jobs", "", 400, "BadRequest"),
        ("POST", "message/jobs?number=1", "", 400, "BadRequest"),
        ("DELETE", "lock/jobs", "", 400, "BadRequest"),
        ("POST", "purge/none", "", 404, "NotFound"),
        ("POST", "purge/jobs", "{", 400, "BadRequest"),
        (
            "POST",
            "purge/jobs",
            r#"{"filter": {"x": 1}}"#,
            400,
            "BadRequest",
        ),
        (
            "POST",
            "resubmit/jobs",
            r#"{"edit": {"body": "a", "body_base64": "YQ=="}}"#,
            400,
            "BadRequest",
        ),
        (
            "POST",
            "resubmit/jobs",
            r#"{"edit": {"properties": {"a": []}}}"#,
            400,
            "BadRequest",
        ),
    ] {
        let answer = refused(&server, method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path} {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{method} {path}");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
    let wrong = token("sb://localhost/", "wrong", 60);
    let headers = [("Authorization", wrong.as_str())];
    let answer = crate::rest::ask_as(&server, "GET", "$kew/v1/queues", &headers, "").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["error"]["code"], "Unauthorized");
}

#[tokio::test]
async fn a_page_counts_all_that_it_writes() {
    let server = Server::start().await;
    // Properties too, with their escapes.
    let message = json!({"Body": "b", "UserProperties": {"p": "\u{1}".repeat(30_000)}});
    let messages = Json::from(vec![message; 5]).to_string();
    assert!(messages.len() > 900_000);
    let kind = [("Content-Type", "application/vnd.microsoft.servicebus.json")];
    for _ in 0..12 {
        let sent = ask(&server, "POST", "jobs/messages", &kind, &messages).await;
        assert_eq!(sent.status, 201, "{sent:?}");
    }
    let mut numbers = Vec::new();
    let mut from = json!(0);
    while let Some(number) = from.as_u64() {
        let path = format!("$kew/v1/messages/jobs?bodies=false&from={number}");
        let answer = ask(&server, "GET", &path, &[], "").await;
        assert!(answer.body.len() <= 8 << 20, "{}", answer.body.len());
        let page = answer.json();
        let messages = page["messages"].as_array().unwrap();
        assert_eq!(page["looked_at"], messages.len());
        let shown = messages
            .iter()
            .map(|message| message["sequence_number"].as_u64());
        numbers.extend(shown.map(Option::unwrap));
        from = page["next"].clone();
    }
    assert_eq!(numbers, (1..=60).collect::<Vec<_>>());
}

#[tokio::test]
async fn queues_are_listed_beyond_one_page_of_the_broker() {
    let server = Server::start().await;
    let content = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content>\
                   <QueueDescription/></content></entry>";
    for index in 0..230 {
        let path = format!("q{index:03}");
        let created = ask(&server, "PUT", &path, &[], content).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    for (query, count, first, last, next) in [
        ("", 234, "brief", "steps", Json::Null),
        ("?limit=205&skip=2", 205, "q000", "q204", json!(207)),
        ("?limit=100&skip=232", 2, "spare", "steps", Json::Null),
    ] {
        let page = get(&server, "GET", &format!("queues{query}"), &Json::Null).await;
        let queues = page["queues"].as_array().unwrap();
        let names: Vec<&str> = queues
            .iter()
            .filter_map(|queue| queue["name"].as_str())
            .collect();
        assert_eq!(
            (names.len(), names[0], names[names.len() - 1]),
            (count, first, last)
        );
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(page["next"], next, "{query}");
    }
}
