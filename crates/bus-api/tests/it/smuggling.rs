//! Requests whose end is in doubt, over HTTP. The bytes after one must never be read as another request.

use kew_bus_api::WELL_KNOWN_KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::client::{Server, token};
use crate::forms::{FIRST_LINES, FORMS};

/// A head with a token for everything, without a length.
pub(crate) fn head(method: &str, path: &str) -> String {
    let token = token("sb://localhost/", WELL_KNOWN_KEY, 3600);
    format!("{method} /{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n")
}

/// A good request that must not be carried out.
fn smuggled() -> String {
    let head = head("POST", "jobs/messages");
    let head = head.strip_suffix("\r\n").unwrap();
    format!("{head}Content-Length: 8\r\n\r\nsmuggled")
}

/// Everything that the server sends.
async fn read(stream: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// One refusal in the service's form, and the end of the connection.
fn check_refused(name: &str, text: &str, answer: &str) {
    assert!(
        answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
        "{name}: {text:?}: {answer}"
    );
    assert_eq!(
        answer.matches("HTTP/1.1 ").count(),
        1,
        "{name}: {text:?}: {answer}"
    );
    let error = "<Error><Code>400</Code><Detail>SubCode=40000. ";
    assert!(answer.contains(error), "{name}: {answer}");
}

async fn check(server: &Server, name: &str, text: &str) {
    // Whole, and in pieces that cut lines.
    for size in [100_000, 61] {
        let mut stream = server.stream();
        for piece in format!("{text}{}", smuggled()).as_bytes().chunks(size) {
            // The server may close before everything is sent.
            let _ = stream.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        check_refused(name, text, &read(&mut stream).await);
    }
}

/// Nothing that followed a form was carried out, and no form was.
async fn check_untouched(server: &Server) {
    assert_eq!(server.view("jobs").await.counts.active, 0);
}

#[tokio::test]
async fn a_request_in_doubt_is_refused_with_everything_after_it() {
    let server = Server::start().await;
    for form in FORMS {
        let text = form.of(|_| head("POST", "jobs/messages"));
        check(&server, form.name, &text).await;
    }
    check_untouched(&server).await;
}

#[tokio::test]
async fn a_request_before_does_not_help() {
    let server = Server::start().await;
    let before = "GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    for form in FORMS {
        let text = form.of(|_| head("POST", "jobs/messages"));
        let mut stream = server.stream();
        // Sent before the first one is answered.
        let all = format!("{before}{text}{before}");
        stream.write_all(all.as_bytes()).await.unwrap();
        let answers = read(&mut stream).await;
        assert!(answers.starts_with("HTTP/1.1 200 OK\r\n"), "{answers}");
        let (_, second) = answers.split_once("is healthy.\"}").unwrap();
        check_refused(form.name, &text, second);
    }
    check_untouched(&server).await;
}

#[tokio::test]
async fn first_lines_that_are_none_are_refused() {
    let server = Server::start().await;
    for (name, part, other) in FIRST_LINES {
        check(&server, name, &smuggled().replacen(part, other, 1)).await;
    }
    check_untouched(&server).await;
}

#[tokio::test]
async fn http_10_has_no_chunks() {
    let server = Server::start().await;
    let text = head("POST", "jobs/messages").replacen("HTTP/1.1", "HTTP/1.0", 1);
    let head = text.strip_suffix("\r\n").unwrap();
    let text = format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    check(&server, "chunks of HTTP 1.0", &text).await;
    check_untouched(&server).await;
}

#[tokio::test]
async fn http_2_ends_the_connection() {
    let server = Server::start().await;
    for settings in ["", "\0\0\0\x04\0\0\0\0\0"] {
        let mut stream = server.stream();
        let all = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{settings}{}", smuggled());
        let _ = stream.write_all(all.as_bytes()).await;
        assert_eq!(read(&mut stream).await, "");
    }
    check_untouched(&server).await;
}

#[tokio::test]
async fn operators_are_refused_in_their_form() {
    let server = Server::start().await;
    let head = head("GET", "$kew/v1/queues");
    let head = head.strip_suffix("\r\n").unwrap();
    let mut stream = server.stream();
    let text = format!("{head}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let answer = read(&mut stream).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(head.contains("\r\nconnection: close"), "{answer}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], "BadRequest", "{answer}");
}

/// The end of the request is certain, and something else about it is odd: it gets one answer, and the next request
/// gets the next one.
#[tokio::test]
async fn an_odd_request_has_one_answer() {
    let server = Server::start().await;
    let get = |more: &str| {
        let head = head("GET", "jobs");
        format!("{}{more}\r\n", head.strip_suffix("\r\n").unwrap())
    };
    let target = |target: &str| get("").replacen("GET /jobs ", &format!("GET {target} "), 1);
    let refused = head("PUT", "jobs/messages");
    let refused = refused.strip_suffix("\r\n").unwrap();
    for (name, text, status) in [
        ("two hosts", get("Host: other.example\r\n"), "400"),
        (
            "no host",
            get("").replacen("Host: localhost\r\n", "", 1),
            "400",
        ),
        (
            "a host that is not text",
            get("").replacen("Host: localhost", "Host: \u{e4}", 1),
            "400",
        ),
        (
            "absolute, and another host",
            target("http://other.example/jobs"),
            "401",
        ),
        ("everything", target("*"), "404"),
        (
            "an upgrade to HTTP 2",
            get("Connection: Upgrade\r\nUpgrade: h2c\r\n"),
            "200",
        ),
        (
            "another verb in a header",
            get("X-HTTP-Method-Override: DELETE\r\n"),
            "200",
        ),
        (
            "an underscore in place of the hyphen",
            get("Content_Length: 5\r\nTransfer_Encoding: chunked\r\n"),
            "200",
        ),
        ("empty lines before", format!("\r\n\r\n{}", get("")), "200"),
        (
            "a length with zeros before it",
            format!("{refused}Content-Length: 0000000000000000005\r\n\r\n12345"),
            "400",
        ),
    ] {
        let mut stream = server.stream();
        let after = "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        stream
            .write_all(format!("{text}{after}").as_bytes())
            .await
            .unwrap();
        let answers = read(&mut stream).await;
        assert!(
            answers.starts_with(&format!("HTTP/1.1 {status} ")),
            "{name}: {answers}"
        );
        let (first, _) = answers.split_once("\r\n\r\n").unwrap();
        let count = match first.contains("\r\nconnection: close") {
            true => 1,
            false => 2,
        };
        assert_eq!(
            answers.matches("HTTP/1.1 ").count(),
            count,
            "{name}: {answers}"
        );
    }
    check_untouched(&server).await;
}
