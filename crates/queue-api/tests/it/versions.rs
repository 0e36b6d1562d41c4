//! Differences between versions.

use crate::client::{Door, call, message, put};

#[tokio::test]
async fn versions_are_echoed() {
    let door = Door::open();
    for version in ["2026-10-06", "2099-01-01", "2011-08-18", "2009-09-19"] {
        let answer = door.send(call("GET", "/?comp=list").version(version)).await;
        answer.check_status(200);
        assert_eq!(answer.header("x-ms-version"), Some(version));
    }
    for call in [
        call("GET", "/?comp=list").version("2009-07-17"),
        call("GET", "/?comp=list").without("x-ms-version"),
    ] {
        let answer = door.send(call).await;
        answer.check_status(200);
        assert_eq!(answer.header("x-ms-version"), None);
    }
}

#[tokio::test]
async fn invalid_versions_are_refused() {
    let door = Door::open();
    for version in ["2007-01-01", "2020-01-01", "latest", "2099-99-99"] {
        door.send(call("GET", "/?comp=list").version(version))
            .await
            .check_error(400, "InvalidHeaderValue")
            .check_element("HeaderName", "x-ms-version")
            .check_element("HeaderValue", version);
    }
}

#[tokio::test]
async fn limits_follow_the_version() {
    let wire = &mut Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let long = "x".repeat(8_193);
    wire.send(put("orders", "", &long).version("2009-09-19"))
        .await
        .check_error(413, "RequestBodyTooLarge")
        .check_element("MaxLimit", "8192");
    wire.send(put("orders", "", &long).version("2011-08-18"))
        .await
        .check_status(201);
    for (query, version) in [
        ("?messagettl=604801", "2016-05-31"),
        ("?messagettl=-1", "2016-05-31"),
    ] {
        wire.send(put("orders", query, "x").version(version))
            .await
            .check_error(400, "OutOfRangeQueryParameterValue")
            .check_element("MaximumAllowed", "604800");
    }
    let get = call("GET", "/orders/messages?visibilitytimeout=7201");
    wire.send(get.clone().version("2009-09-19"))
        .await
        .check_error(400, "OutOfRangeQueryParameterValue")
        .check_element("MaximumAllowed", "7200");
    wire.send(get).await.check_status(200);
}

#[tokio::test]
async fn answers_follow_the_version() {
    let wire = &mut Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let sent = wire
        .send(put("orders", "", "x").version("2015-12-11"))
        .await;
    sent.check_status(201);
    assert_eq!(sent.body, "");
    let peek = call("GET", "/orders/messages?peekonly=true");
    let old = wire.send(peek.clone().version("2009-07-17")).await;
    assert_eq!(old.element("DequeueCount"), None);
    let new = wire.send(peek.version("2009-09-19")).await;
    assert_eq!(new.element("DequeueCount"), Some("0"));
    let list = call("GET", "/?comp=list").version("2012-02-12");
    let list = wire.send(list).await;
    assert!(list.body.contains(
        "AccountName=\"http://127.0.0.1:10001/devstoreaccount1/\"><Queues><Queue>\
         <Name>orders</Name><Url>http://127.0.0.1:10001/devstoreaccount1/orders</Url>"
    ));
}

#[tokio::test]
async fn update_came_in_2011() {
    let wire = &mut Door::open().connect();
    let update = "/orders/messages/00112233-4455-6677-8899-aabbccddeeff\
                  ?popreceipt=AAAAAAAAAAAAAAAAAAAAAA==&visibilitytimeout=0";
    wire.send(call("PUT", update).version("2009-09-19").body(message("x")))
        .await
        .check_error(409, "FeatureVersionMismatch");
}

#[tokio::test]
async fn a_stale_receipt_has_two_names() {
    let wire = &mut Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    wire.send(put("orders", "", "x")).await.check_status(201);
    let answer = wire.send(call("GET", "/orders/messages")).await;
    let id = answer.element("MessageId").unwrap();
    let delete = call(
        "DELETE",
        &format!("/orders/messages/{id}?popreceipt=AAAAAAAAAAAAAAAAAAAAAA=="),
    );
    wire.send(delete.clone())
        .await
        .check_error(404, "MessageNotFound");
    wire.send(delete.without("x-ms-version"))
        .await
        .check_error(400, "PopReceiptMismatch");
}

#[tokio::test]
async fn client_request_ids_are_echoed() {
    let door = Door::open();
    let ask = |version: &str, id: &str| {
        call("GET", "/?comp=list")
            .version(version)
            .header("x-ms-client-request-id", id)
    };
    let answer = door.send(ask("2019-02-02", "abc-1")).await;
    assert_eq!(answer.header("x-ms-client-request-id"), Some("abc-1"));
    let answer = door.send(ask("2019-02-02", "abc-1").anonymous()).await;
    assert_eq!(answer.header("x-ms-client-request-id"), Some("abc-1"));
    let answer = door.send(ask("2018-03-28", "abc-1")).await;
    assert_eq!(answer.header("x-ms-client-request-id"), None);
    let answer = door.send(ask("2019-02-02", &"x".repeat(1025))).await;
    assert_eq!(answer.header("x-ms-client-request-id"), None);
}
