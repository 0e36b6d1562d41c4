//! Requests with an ambiguous end. The bytes after one must never count as another request.

use crate::client::{Call, Door, call, put};
use crate::forms::{FIRST_LINES, FORMS, Form};

const ORDERS: &str = "/orders/messages";

/// The form, signed as if it were valid, so that it is admitted if the server accepts it.
pub(crate) fn text_of(form: &Form, call: Call) -> String {
    form.of(|length| {
        let signed = match length {
            "" => call,
            length => call.header("Content-Length", length),
        };
        let head = String::from_utf8(signed.head()).unwrap();
        head.replacen(&format!("Content-Length: {length}\r\n"), "", 1)
    })
}

async fn check(door: &Door, name: &str, text: &str) {
    let smuggled = String::from_utf8(call("PUT", "/smuggled").to_bytes()).unwrap();
    // As a whole, and in pieces that cut lines.
    for size in [100_000, 61] {
        let wire = &mut door.connect();
        for piece in format!("{text}{smuggled}").as_bytes().chunks(size) {
            wire.write(piece).await;
            tokio::task::yield_now().await;
        }
        let answer = wire.answer(false).await;
        assert_eq!(answer.status, 400, "{name}: {text:?}: {answer:?}");
        assert!(answer.header("x-ms-error-code").is_some(), "{name}");
        assert!(answer.header("x-ms-request-id").is_some(), "{name}");
        assert!(wire.is_closed().await, "{name}: {text:?}: {answer:?}");
    }
}

/// Nothing after an ambiguous request was carried out, and neither was the request.
async fn check_untouched(door: &Door) {
    let list = door.send(call("GET", "/?comp=list")).await;
    assert_eq!(list.elements("Name"), ["orders"]);
    let orders = door.send(call("HEAD", "/orders?comp=metadata")).await;
    assert_eq!(orders.header("x-ms-approximate-messages-count"), Some("0"));
}

async fn open() -> Door {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    door
}

fn post() -> Call {
    call("POST", ORDERS)
}

#[tokio::test]
async fn ambiguous_requests_are_refused_with_everything_after_them() {
    let door = open().await;
    for form in FORMS {
        check(&door, form.name, &text_of(&form, post())).await;
    }
    check_untouched(&door).await;
}

#[tokio::test]
async fn ambiguous_requests_are_refused_with_any_signature() {
    let door = open().await;
    for form in FORMS {
        check(&door, form.name, &text_of(&form, post().lite())).await;
        check(
            &door,
            form.name,
            &text_of(&form, post().without("x-ms-version")),
        )
        .await;
    }
    check_untouched(&door).await;
}

#[tokio::test]
async fn a_request_before_does_not_help() {
    let door = open().await;
    for form in FORMS {
        let before = String::from_utf8(call("GET", "/?comp=list").to_bytes()).unwrap();
        let wire = &mut door.connect();
        let text = text_of(&form, post());
        // Sent before the first one is answered.
        wire.write(format!("{before}{text}{before}").as_bytes())
            .await;
        wire.answer(false).await.check_status(200);
        let answer = wire.answer(false).await;
        assert_eq!(answer.status, 400, "{}: {answer:?}", form.name);
        assert!(wire.is_closed().await, "{}", form.name);
    }
    check_untouched(&door).await;
}

#[tokio::test]
async fn invalid_first_lines_are_refused() {
    let door = open().await;
    let good = String::from_utf8(put("orders", "", "x").to_bytes()).unwrap();
    for (name, part, other) in FIRST_LINES {
        check(&door, name, &good.replacen(part, other, 1)).await;
    }
    check_untouched(&door).await;
}

#[tokio::test]
async fn http_10_has_no_chunks() {
    let door = open().await;
    let text = put("orders", "", "x").header("Transfer-Encoding", "chunked");
    let text = text.without("Content-Length");
    let text = String::from_utf8(text.head()).unwrap() + "0\r\n\r\n";
    check(
        &door,
        "chunks of HTTP 1.0",
        &text.replacen("HTTP/1.1", "HTTP/1.0", 1),
    )
    .await;
    check_untouched(&door).await;
}

/// Neither these bytes nor anything after them is a request of this protocol.
#[tokio::test]
async fn http_2_ends_the_connection() {
    let door = open().await;
    let smuggled = String::from_utf8(call("PUT", "/smuggled").to_bytes()).unwrap();
    for settings in ["", "\0\0\0\x04\0\0\0\0\0"] {
        let wire = &mut door.connect();
        let preface = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{settings}");
        wire.write(format!("{preface}{smuggled}").as_bytes()).await;
        assert!(wire.is_closed().await);
    }
    check_untouched(&door).await;
}

/// The end of the request is certain, and something else about it is odd: it gets one answer, and
/// the next request gets the next one.
#[tokio::test]
async fn odd_requests_get_one_answer() {
    let door = open().await;
    let get = || call("GET", "/orders?comp=metadata");
    let text = |call: Call| String::from_utf8(call.to_bytes()).unwrap();
    let chunked = |rest: &str| {
        let call = call("POST", ORDERS).header("Transfer-Encoding", "chunked");
        let body = "<QueueMessage/>";
        let head = String::from_utf8(call.head()).unwrap();
        format!("{head}{}", rest.replace('@', body))
    };
    let target = |target: &str| {
        let good = text(get());
        good.replacen(
            "/devstoreaccount1/orders?comp=metadata ",
            &format!("{target} "),
            1,
        )
    };
    let own = "http://127.0.0.1:10001/devstoreaccount1/orders?comp=metadata";
    let other = "http://other.example/devstoreaccount1/orders?comp=metadata";
    for (name, text, status) in [
        (
            "two hosts",
            text(get().and_header("Host", "other.example")),
            400,
        ),
        ("no host", text(get().without("Host")), 400),
        ("an empty host", text(get().header("Host", "")), 200),
        (
            "a host with a user",
            text(get().header("Host", "a@b/c")),
            403,
        ),
        ("absolute, and another host", target(other), 403),
        ("absolute, and this host", target(own), 200),
        (
            "absolute, and another host in the header",
            target(own).replacen("Host: 127.0.0.1:10001", "Host: other.example", 1),
            403,
        ),
        (
            "absolute, and no host in a header",
            target(own).replacen("Host: 127.0.0.1:10001\r\n", "", 1),
            400,
        ),
        ("an authority alone", target("other.example:80"), 400),
        ("everything", target("*"), 400),
        (
            "an upgrade to HTTP 2",
            text(
                get()
                    .header("Connection", "Upgrade, HTTP2-Settings")
                    .header("Upgrade", "h2c")
                    .header("HTTP2-Settings", "AAMAAABkAAQAAP__"),
            ),
            200,
        ),
        (
            "an upgrade to a web socket",
            text(
                get()
                    .header("Connection", "Upgrade")
                    .header("Upgrade", "websocket"),
            ),
            200,
        ),
        (
            "a length that is said to be of one hop",
            text(
                call("PUT", "/orders?comp=metadata")
                    .body("12345")
                    .header("Connection", "keep-alive, Content-Length"),
            ),
            204,
        ),
        (
            "another verb in a header",
            text(get().header("X-HTTP-Method-Override", "DELETE")),
            200,
        ),
        (
            "a length with zeros before it",
            text(
                call("PUT", "/orders?comp=metadata")
                    .header("Content-Length", "0000000000000000000000005"),
            ) + "12345",
            204,
        ),
        (
            "an underscore in place of the hyphen",
            text(
                get()
                    .header("Content_Length", "5")
                    .header("Transfer_Encoding", "chunked"),
            ),
            200,
        ),
        (
            "empty lines before",
            format!("\r\n\r\n{}", text(get())),
            200,
        ),
        (
            "an extension",
            chunked("f;name=\"v;\\\"\"\r\n@\r\n0\r\n\r\n"),
            400,
        ),
        (
            "a chunk with zeros before it",
            chunked("000f\r\n@\r\n000\r\n\r\n"),
            400,
        ),
        (
            "a length in a trailer",
            chunked("f\r\n@\r\n0\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400,
        ),
    ] {
        let after = String::from_utf8(call("GET", "/?comp=list").to_bytes()).unwrap();
        let wire = &mut door.connect();
        wire.write(format!("{text}{after}").as_bytes()).await;
        let answer = wire.answer(false).await;
        assert_eq!(answer.status, status, "{name}: {text:?}: {answer:?}");
        if answer.header("connection") == Some("close") {
            assert!(wire.is_closed().await, "{name}");
            continue;
        }
        let list = wire.answer(false).await;
        assert_eq!(list.elements("Name"), ["orders"], "{name}: {list:?}");
    }
    check_untouched(&door).await;
}

/// The body is requested, or the connection ends: the bytes after the head are never the next
/// request.
#[tokio::test]
async fn an_expectation_hides_no_request() {
    let door = open().await;
    let smuggled = String::from_utf8(call("PUT", "/smuggled").to_bytes()).unwrap();
    let length = smuggled.len().to_string();
    for (name, expect) in [
        ("in order", "100-continue"),
        ("in other case", "100-CONTINUE"),
        ("unknown", "tea"),
        ("a list", "100-continue, 100-continue"),
    ] {
        for known in [true, false] {
            let call = call("POST", ORDERS)
                .header("Content-Length", &length)
                .header("Expect", expect);
            let call = if known { call } else { call.anonymous() };
            let head = String::from_utf8(call.head()).unwrap();
            let wire = &mut door.connect();
            // The client does not wait.
            wire.write(format!("{head}{smuggled}").as_bytes()).await;
            let mut answer = wire.answer(false).await;
            if answer.status == 100 {
                answer = wire.answer(false).await;
            }
            let status = if known { 400 } else { 401 };
            assert_eq!(answer.status, status, "{name}: {answer:?}");
            let live = "GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n";
            if answer.header("connection") == Some("close") {
                assert!(wire.is_closed().await, "{name}");
            } else {
                wire.write(live.as_bytes()).await;
                assert_eq!(wire.answer(false).await.body, "live\n", "{name}");
            }
        }
    }
    check_untouched(&door).await;
}
