//! Access policies of queues: checklist 64 and 65.

use crate::client::{Answer, Call, Door, Wire, call};

fn policies(inner: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers>{inner}</SignedIdentifiers>"
    )
}

fn policy(id: &str, inner: &str) -> String {
    format!("<SignedIdentifier><Id>{id}</Id>{inner}</SignedIdentifier>")
}

fn set(body: &str) -> Call {
    call("PUT", "/orders?comp=acl").body(body)
}

async fn orders() -> Wire {
    let mut wire = Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    wire
}

async fn get(wire: &mut Wire) -> Answer {
    let answer = wire.send(call("GET", "/orders?comp=acl")).await;
    answer.check_status(200);
    assert_eq!(answer.header("content-type"), Some("application/xml"));
    answer
}

#[tokio::test]
async fn item_64_policies_round_trip_with_seven_digits() {
    let wire = &mut orders().await;
    let sent = policy(
        "reader",
        "<AccessPolicy><Start>2026-11-20</Start><Expiry>2026-11-21T10:30:01.5Z</Expiry>\
         <Permission>raup</Permission></AccessPolicy>",
    );
    let answer = wire.send(set(&policies(&sent))).await;
    answer.check_status(204);
    let shown = policy(
        "reader",
        "<AccessPolicy><Start>2026-11-20T00:00:00.0000000Z</Start>\
         <Expiry>2026-11-21T10:30:01.5000000Z</Expiry><Permission>raup</Permission></AccessPolicy>",
    );
    assert_eq!(get(wire).await.body, policies(&shown));
    let head = wire.send(call("HEAD", "/orders?comp=acl")).await;
    head.check_status(200);

    // Metadata and policies do not affect each other.
    let metadata = call("PUT", "/orders?comp=metadata").header("x-ms-meta-a", "1");
    wire.send(metadata).await.check_status(204);
    assert_eq!(get(wire).await.body, policies(&shown));
    let answer = wire.send(call("GET", "/orders?comp=metadata")).await;
    assert_eq!(answer.header("x-ms-meta-a"), Some("1"));
}

#[tokio::test]
async fn item_64_five_policies_with_ids_of_64_characters() {
    let wire = &mut orders().await;
    let many = |count: usize| -> String {
        (0..count)
            .map(|number| policy(&format!("{number}{}", "x".repeat(63)), ""))
            .collect()
    };
    wire.send(set(&policies(&many(5)))).await.check_status(204);
    for (body, code) in [
        (many(6), "InvalidXmlDocument"),
        (policy(&"x".repeat(65), ""), "InvalidXmlDocument"),
        (policy("", ""), "InvalidXmlNodeValue"),
        (many(1).repeat(2), "InvalidXmlDocument"),
        ("<SignedIdentifier/>".to_owned(), "MissingRequiredXmlNode"),
        ("<Policy/>".to_owned(), "UnsupportedXmlNode"),
        (
            policy(
                "a",
                "<AccessPolicy><Permission>rw</Permission></AccessPolicy>",
            ),
            "InvalidXmlNodeValue",
        ),
        (
            policy("a", "<AccessPolicy><Start>soon</Start></AccessPolicy>"),
            "InvalidXmlNodeValue",
        ),
    ] {
        let answer = wire.send(set(&policies(&body))).await;
        answer.check_error(400, code);
    }
    wire.send(set("<SignedIdentifiers>"))
        .await
        .check_error(400, "InvalidXmlDocument");
    // A refused request changed nothing.
    assert_eq!(get(wire).await.body, policies(&many(5)));
}

#[tokio::test]
async fn item_65_an_empty_policy_is_its_id() {
    let wire = &mut orders().await;
    let none = "<SignedIdentifiers />";
    assert!(get(wire).await.body.ends_with(none));
    let body = policies(&policy("a", "<AccessPolicy/>"));
    wire.send(set(&body)).await.check_status(204);
    assert_eq!(get(wire).await.body, policies(&policy("a", "")));
    for clearing in ["", "<SignedIdentifiers/>"] {
        wire.send(set(&body)).await.check_status(204);
        wire.send(set(clearing)).await.check_status(204);
        assert!(get(wire).await.body.ends_with(none));
    }
}

#[tokio::test]
async fn policies_belong_to_a_queue_and_a_version() {
    let wire = &mut orders().await;
    for method in ["GET", "PUT"] {
        let other = call(method, "/others?comp=acl").body("");
        wire.send(other).await.check_error(404, "QueueNotFound");
        let old = call(method, "/orders?comp=acl").version("2011-08-18");
        wire.send(old.body(""))
            .await
            .check_error(409, "FeatureVersionMismatch");
    }
    wire.send(set(&policies(&policy("a", ""))).version("2012-02-12"))
        .await
        .check_status(204);
    wire.send(call("DELETE", "/orders")).await.check_status(204);
    wire.send(call("PUT", "/orders")).await.check_status(201);
    assert!(get(wire).await.body.ends_with("<SignedIdentifiers />"));
}
