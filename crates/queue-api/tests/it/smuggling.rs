//! Requests whose end is in doubt. What follows one of them must never pass for another request.

use crate::client::{Call, Door, call};

const ORDERS: &str = "/orders/messages";

/// A request in doubt: the length that is signed, lines for its head, and what follows the head.
type Form = (&'static str, &'static str, &'static str);

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

const FORMS: [Form; 46] = [
    // Two lengths, or one that is none.
    ("5", "Content-Length: 5\r\nContent-Length: 6\r\n", "12345"),
    ("6", "Content-Length: 6\r\nContent-Length: 5\r\n", "12345"),
    ("5", "Content-Length: 5\r\nContent-Length: 5\r\n", "12345"),
    ("5", "Content-Length: 5\r\ncontent-length: 0\r\n", "12345"),
    ("5,5", "Content-Length: 5,5\r\n", "12345"),
    ("5, 6", "Content-Length: 5, 6\r\n", "12345"),
    ("+5", "Content-Length: +5\r\n", "12345"),
    ("-5", "Content-Length: -5\r\n", "12345"),
    ("0x5", "Content-Length: 0x5\r\n", "12345"),
    ("5 5", "Content-Length: 5 5\r\n", "12345"),
    ("5.0", "Content-Length: 5.0\r\n", "12345"),
    ("\"5\"", "Content-Length: \"5\"\r\n", "12345"),
    ("", "Content-Length:\r\n", "12345"),
    (
        "18446744073709551621",
        "Content-Length: 18446744073709551621\r\n",
        "12345",
    ),
    ("5", "Content-Length : 5\r\n", "12345"),
    ("5", "Content-Length\t: 5\r\n", "12345"),
    ("5", "Content-Length: 5\0\r\n", "12345"),
    // A length and chunks.
    (
        "5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    ),
    (
        "",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    ),
    (
        "",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "0\r\n\r\n",
    ),
    (
        "",
        "transfer-encoding:CHUNKED\r\nX: y\r\ncontent-length:5\r\n",
        "0\r\n\r\n",
    ),
    // Encodings that are not just chunks.
    (
        "5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n",
        "12345",
    ),
    ("", "Transfer-Encoding: identity\r\n", "12345"),
    ("", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding: chunkedx\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding: , chunked\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n"),
    ("", "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    (
        "",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "0\r\n\r\n",
    ),
    (
        "",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    ),
    // Lines that are none.
    ("", " folded: x\r\n", ""),
    ("", "X: y\r\n Content-Length: 5\r\n", "12345"),
    ("", "Bad Name: x\r\n", ""),
    ("", ": x\r\n", ""),
    ("", "X: a\0b\r\n", ""),
    ("5", "X: y\nContent-Length: 5\r\n", "12345"),
    ("5", "X: y\rContent-Length: 5\r\n", "12345"),
    // Chunks that are none.
    ("", CHUNKED, "FFFFFFFFFFFFFFFFF\r\n"),
    ("", CHUNKED, "1\n1\r\n0\r\n\r\n"),
    ("", CHUNKED, "0x1\r\n1\r\n0\r\n\r\n"),
    ("", CHUNKED, "1;x=\n1\r\n0\r\n\r\n"),
    ("", CHUNKED, "1\r\n12\r\n0\r\n\r\n"),
    ("", CHUNKED, "-1\r\n\r\n"),
];

/// The request, signed as if it were in order, so that it is let in where it is understood.
fn request(call: Call, form: Form) -> String {
    let (length, lines, rest) = form;
    let signed = match length {
        "" => call,
        length => call.header("Content-Length", length),
    };
    let head = String::from_utf8(signed.head()).unwrap();
    let head = head.replacen(&format!("Content-Length: {length}\r\n"), "", 1);
    let head = head.strip_suffix("\r\n").unwrap();
    format!("{head}{lines}\r\n{rest}")
}

async fn check(door: &Door, text: &str) {
    let smuggled = String::from_utf8(call("PUT", "/smuggled").to_bytes()).unwrap();
    // Whole, and in pieces that cut lines.
    for size in [100_000, 61] {
        let wire = &mut door.connect();
        for piece in format!("{text}{smuggled}").as_bytes().chunks(size) {
            wire.write(piece).await;
            tokio::task::yield_now().await;
        }
        let answer = wire.answer(false).await;
        assert_eq!(answer.status, 400, "{text:?}: {answer:?}");
        assert!(answer.header("x-ms-error-code").is_some(), "{text:?}");
        assert!(answer.header("x-ms-request-id").is_some(), "{text:?}");
        assert!(wire.is_closed().await, "{text:?}");
    }
}

#[tokio::test]
async fn what_is_in_doubt_is_refused_with_all_that_follows() {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    for form in FORMS {
        let post = || call("POST", ORDERS);
        check(&door, &request(post(), form)).await;
        check(&door, &request(post().lite(), form)).await;
        check(&door, &request(post().without("x-ms-version"), form)).await;
        // Not the first request of the connection, and sent before that is answered.
        let before = String::from_utf8(call("GET", "/?comp=list").to_bytes()).unwrap();
        let wire = &mut door.connect();
        let text = request(post(), form);
        wire.write(format!("{before}{text}{before}").as_bytes())
            .await;
        wire.answer(false).await.check_status(200);
        let answer = wire.answer(false).await;
        assert_eq!(answer.status, 400, "{text:?}: {answer:?}");
        assert!(wire.is_closed().await, "{text:?}");
    }
    for line in ["POST  ", "POST\t", " POST "] {
        let text = request(call("POST", ORDERS), FORMS[0]);
        check(&door, &text.replacen("POST ", line, 1)).await;
    }
    let list = door.send(call("GET", "/?comp=list")).await;
    assert_eq!(list.elements("Name"), ["orders"]);
    let orders = door.send(call("HEAD", "/orders?comp=metadata")).await;
    assert_eq!(orders.header("x-ms-approximate-messages-count"), Some("0"));
}

#[tokio::test]
async fn http_10_has_no_chunks() {
    let door = Door::open();
    let form = ("", CHUNKED, "0\r\n\r\n");
    let text = request(call("POST", ORDERS), form);
    check(&door, &text.replacen("HTTP/1.1", "HTTP/1.0", 1)).await;
}
