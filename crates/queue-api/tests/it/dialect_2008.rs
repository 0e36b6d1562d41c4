//! The 2008 dialect, as the first description of the service shows it: checklist 89 to 92.
//!
//! Three requests of that description are written out here, byte for byte except dates, signatures
//! and values that the server chose. These parts of the answers must match: the status line, the
//! documented headers, and every byte of the body. These may differ: the framing, because Kew sends
//! the length where the service sent chunks, and HTTP/1.1 allows both; the order and case of header
//! names; and additional headers.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_broker::Broker;
use kew_queue_api::{Account, AccountKey, Accounts, QueueApiOptions};
use std::time::SystemTime;

use crate::client::{ACCOUNT, Answer, Call, Door, Wire, call, md5_of, message, put};

const HOST: &str = "sally.queue.kew.test";
const KEY: &[u8] = b"a key of 256 bits, which is 32 b";

fn sallys() -> Door {
    let key = AccountKey::from_base64(&STANDARD.encode(KEY)).unwrap();
    let account = Account::new("sally", key.clone(), key).unwrap();
    let options = QueueApiOptions {
        accounts: Accounts::from_iter([account]),
        ..QueueApiOptions::default()
    };
    Door::with_options(Broker::start_in_memory().unwrap(), options)
}

fn now() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}

/// The signature of these lines.
fn sign(lines: &[&str]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY);
    STANDARD.encode(hmac::sign(&key, lines.join("\n").as_bytes()))
}

async fn send(wire: &mut Wire, request: &str) -> Answer {
    wire.write(request.as_bytes()).await;
    wire.answer(false).await
}

#[track_caller]
fn check_old_answer(answer: &Answer, status: u16) {
    answer.check_status(status);
    for name in ["server", "date", "x-ms-request-id"] {
        assert!(answer.header(name).is_some(), "{name}: {answer:?}");
    }
    assert_eq!(answer.header("x-ms-version"), None, "{answer:?}");
}

async fn create(wire: &mut Wire) {
    let date = now();
    let dated = format!("x-ms-date:{date}");
    let signature = sign(&["PUT", "", "", "", &dated, "/sally/myqueue"]);
    let request = format!(
        "PUT http://{HOST}/myqueue HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\
         x-ms-date: {date}\r\nAuthorization: SharedKey sally: {signature}\r\n\r\n"
    );
    check_old_answer(&send(wire, &request).await, 201);
}

/// The first example: bytes are put, with their digest.
async fn put_example(wire: &mut Wire, body: &str) -> Answer {
    let date = now();
    let md5 = md5_of(body);
    let dated = format!("x-ms-date:{date}");
    let signature = sign(&["PUT", &md5, "", "", &dated, "/sally/myqueue/messages"]);
    let request = format!(
        "PUT http://{HOST}/myqueue/messages?messagettl=3600 HTTP/1.1\r\nHost: {HOST}\r\n\
         Content-Length: {}\r\nContent-MD5: {md5}\r\nx-ms-date: {date}\r\n\
         Authorization: SharedKey sally: {signature}\r\n\r\n{body}",
        body.len()
    );
    send(wire, &request).await
}

/// The second example: two messages are fetched and hidden for a minute.
async fn get_example(wire: &mut Wire) -> Answer {
    let date = now();
    let dated = format!("x-ms-date:{date}");
    let signature = sign(&["GET", "", "", "", &dated, "/sally/myqueue/messages"]);
    let request = format!(
        "GET http://{HOST}/myqueue/messages?numofmessages=2&visibilitytimeout=60 HTTP/1.1\r\n\
         Host: {HOST}\r\nx-ms-date: {date}\r\nAuthorization: SharedKey sally: {signature}\r\n\r\n"
    );
    send(wire, &request).await
}

/// The third example: a message is deleted, with the account in the path.
async fn delete_example(wire: &mut Wire, id: &str, receipt: &str) -> Answer {
    let date = now();
    let dated = format!("x-ms-date:{date}");
    let path = format!("/sally/myqueue/messages/{id}");
    let resource = format!("/sally{path}");
    let signature = sign(&["DELETE", "", "binary/octet-stream", "", &dated, &resource]);
    // Clients of that time escape with lower-case letters.
    let receipt = receipt
        .replace('+', "%2b")
        .replace('/', "%2f")
        .replace('=', "%3d");
    let request = format!(
        "DELETE {path}?popreceipt={receipt}&timeout=30 HTTP/1.1\r\n\
         Content-Type: binary/octet-stream\r\nx-ms-date: {date}\r\n\
         Authorization: SharedKey sally:{signature}\r\nHost: 127.0.0.1:10001\r\n\r\n"
    );
    send(wire, &request).await
}

#[tokio::test]
async fn item_90_the_three_examples_work_as_they_stand() {
    let door = sallys();
    let wire = &mut door.connect_tcp().await;
    create(wire).await;
    let put = put_example(wire, "a raw <message> & more").await;
    check_old_answer(&put, 201);
    assert_eq!(put.body, "");
    put_example(wire, "second").await.check_status(201);

    let got = get_example(wire).await;
    check_old_answer(&got, 200);
    assert_eq!(got.header("content-type"), Some("application/xml"));
    let (ids, receipts) = (got.elements("MessageId"), got.elements("PopReceipt"));
    let (inserted, expires) = (
        got.elements("InsertionTime"),
        got.elements("ExpirationTime"),
    );
    let visible = got.elements("TimeNextVisible");
    let texts = ["a raw <message> & more", "second"].map(|text| STANDARD.encode(text));
    let shown: String = (0..2)
        .map(|n| {
            format!(
                "<QueueMessage><MessageId>{}</MessageId><InsertionTime>{}</InsertionTime>\
                 <ExpirationTime>{}</ExpirationTime><PopReceipt>{}</PopReceipt>\
                 <TimeNextVisible>{}</TimeNextVisible><MessageText>{}</MessageText></QueueMessage>",
                ids[n], inserted[n], expires[n], receipts[n], visible[n], texts[n]
            )
        })
        .collect();
    assert_eq!(
        got.body,
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>{shown}\
             </QueueMessagesList>"
        )
    );
    let at = |text| httpdate::parse_http_date(text).unwrap();
    let lifetime = at(expires[0]).duration_since(at(inserted[0])).unwrap();
    assert_eq!(lifetime.as_secs(), 3600);
    for n in 0..2 {
        let deleted = delete_example(wire, ids[n], receipts[n]).await;
        check_old_answer(&deleted, 204);
        assert_eq!(deleted.header("content-length"), None);
    }
    let empty = get_example(wire).await;
    assert!(empty.body.ends_with("<QueueMessagesList />"));
}

#[tokio::test]
async fn item_90_a_stale_receipt_is_a_mismatch_with_details_for_people() {
    let door = sallys();
    let wire = &mut door.connect();
    create(wire).await;
    put_example(wire, "x").await.check_status(201);
    let got = get_example(wire).await;
    let id = got.element("MessageId").unwrap();
    let stale = delete_example(wire, id, "AAAAAAAAAAAAAAAAAAAAAA==").await;
    stale.check_error(400, "PopReceiptMismatch");
    assert!(stale.body.starts_with(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>PopReceiptMismatch</Code><Message>"
    ));
    assert!(
        stale.body.ends_with(
            "</Message><ExceptionDetails><ExceptionMessage>The specified pop receipt did not match \
             the pop receipt for a dequeued message.</ExceptionMessage><StackTrace />\
             </ExceptionDetails></Error>"
        ),
        "{stale:?}"
    );
    // The message still exists for a client with the right receipt.
    let receipt = got.element("PopReceipt").unwrap();
    delete_example(wire, id, receipt).await.check_status(204);
    let gone = delete_example(wire, id, receipt).await;
    gone.check_error(404, "MessageNotFound");
}

#[tokio::test]
async fn item_90_a_signature_is_of_the_old_form() {
    let door = sallys();
    let wire = &mut door.connect();
    create(wire).await;
    let date = now();
    let dated = format!("x-ms-date:{date}");
    let signature = sign(&["GET", "", "", "", &dated, "/sally/other/messages"]);
    let request = format!(
        "GET /myqueue/messages HTTP/1.1\r\nHost: {HOST}\r\nx-ms-date: {date}\r\n\
         Authorization: SharedKey sally: {signature}\r\n\r\n"
    );
    let answer = send(wire, &request).await;
    answer.check_error(403, "AuthenticationFailed");
}

fn old(method: &'static str, target: &str) -> Call {
    call(method, target).without("x-ms-version")
}

async fn orders() -> Wire {
    let mut wire = Door::open().connect();
    wire.send(old("PUT", "/orders")).await.check_status(201);
    wire
}

#[tokio::test]
async fn item_90_bare_bytes_are_checked() {
    let wire = &mut orders().await;
    let put =
        |query: &str, body: Vec<u8>| old("PUT", &format!("/orders/messages{query}")).body(body);
    for (call, status, code) in [
        (put("", vec![0; 8_193]), 413, "RequestBodyTooLarge"),
        (
            put("", vec![0; 3]).header("Content-MD5", &md5_of("other")),
            400,
            "Md5Mismatch",
        ),
        (
            put("", vec![0; 3]).header("Content-MD5", "x"),
            400,
            "InvalidMd5",
        ),
        (
            put("?messagettl=604801", vec![0; 3]),
            400,
            "OutOfRangeQueryParameterValue",
        ),
        (
            put("?messagettl=0", vec![0; 3]),
            400,
            "OutOfRangeQueryParameterValue",
        ),
        (
            old("PUT", "/orders/messages"),
            411,
            "MissingContentLengthHeader",
        ),
        (
            old("PUT", "/others/messages").body("x"),
            404,
            "QueueNotFound",
        ),
        (
            old("GET", "/orders/messages?visibilitytimeout=7201"),
            400,
            "OutOfRangeQueryParameterValue",
        ),
    ] {
        wire.send(call).await.check_error(status, code);
    }
    wire.send(put("?messagettl=604800", vec![0xFF; 8_192]))
        .await
        .check_status(201);
    wire.send(put("", Vec::new())).await.check_status(201);
    let got = wire
        .send(old(
            "GET",
            "/orders/messages?numofmessages=2&visibilitytimeout=7200",
        ))
        .await;
    got.check_status(200)
        .check_element("MessageText", &STANDARD.encode([0xFF; 8_192]));
    assert!(
        got.body
            .contains("<MessageText /></QueueMessage></QueueMessagesList>")
    );
}

#[tokio::test]
async fn item_90_later_versions_have_no_such_verb() {
    let wire = &mut orders().await;
    for version in ["2009-09-19", "2026-10-06"] {
        let put = call("PUT", "/orders/messages").version(version).body("raw");
        let answer = wire.send(put).await;
        answer.check_error(405, "UnsupportedHttpVerb");
        assert_eq!(answer.header("allow"), Some("DELETE, GET, POST"));
    }
    for version in ["2008-10-27", "2009-04-14", "2009-07-17"] {
        let put = call("PUT", "/orders/messages").version(version).body("raw");
        wire.send(put).await.check_status(201);
    }
}

#[tokio::test]
async fn item_91_every_version_sees_base64_until_the_text_is_replaced() {
    let wire = &mut orders().await;
    let put_raw = old("PUT", "/orders/messages").body(vec![0, 159, 255]);
    wire.send(put_raw).await.check_status(201);
    let encoded = STANDARD.encode([0, 159, 255]);
    for version in ["2009-07-17", "2009-09-19", "2026-10-06"] {
        let peek = call("GET", "/orders/messages?peekonly=true").version(version);
        wire.send(peek).await.check_element("MessageText", &encoded);
    }
    let got = wire.send(call("GET", "/orders/messages")).await;
    got.check_element("MessageText", &encoded);
    let (id, receipt) = (
        got.element("MessageId").unwrap(),
        got.element("PopReceipt").unwrap(),
    );
    let receipt = crate::client::escape(receipt);
    let target = format!("/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0");
    wire.send(
        call("PUT", &target).body(message(
            "plain & <b>"
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .as_str(),
        )),
    )
    .await
    .check_status(204);
    let peek = old("GET", "/orders/messages?peekonly=true");
    wire.send(peek)
        .await
        .check_element("MessageText", "plain &amp; &lt;b&gt;");
}

#[tokio::test]
async fn old_versions_read_messages_of_new_ones() {
    let wire = &mut orders().await;
    let long = "é".repeat(32_768);
    wire.send(put("orders", "?messagettl=-1", &long))
        .await
        .check_status(201);
    let got = wire.send(old("GET", "/orders/messages")).await;
    got.check_element("MessageText", &long)
        .check_element("ExpirationTime", "Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(got.element("DequeueCount"), None);
}

#[tokio::test]
async fn item_63_listings_and_metadata_of_the_oldest_versions() {
    let wire = &mut Door::open().connect();
    let create = old("PUT", "/orders")
        .header("x-ms-meta-not-a-name", "1")
        .header("x-ms-meta-name", "2");
    wire.send(create).await.check_status(201);
    let large = old("PUT", "/orders?comp=metadata").header("x-ms-meta-a-b", &"v".repeat(8190));
    wire.send(large).await.check_error(400, "MetadataTooLarge");
    let list = wire.send(old("GET", "/?comp=list")).await;
    let endpoint = format!("http://127.0.0.1:10001/{ACCOUNT}/");
    assert_eq!(
        list.body,
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults \
             AccountName=\"{endpoint}\"><Queues><Queue><QueueName>orders</QueueName>\
             <Url>{endpoint}orders</Url></Queue></Queues><NextMarker /></EnumerationResults>"
        )
    );
    let list = wire.send(call("GET", "/?comp=list&include=metadata")).await;
    list.check_element("name", "2")
        .check_element("x-ms-invalid-name", "not-a-name");
    let answer = wire.send(call("GET", "/orders?comp=metadata")).await;
    assert_eq!(answer.header("x-ms-meta-not-a-name"), Some("1"));
    wire.send(call("PUT", "/others").header("x-ms-meta-not-a-name", "1"))
        .await
        .check_error(400, "InvalidMetadata");
}
