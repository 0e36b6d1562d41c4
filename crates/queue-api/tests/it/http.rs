//! HTTP itself: framing, limits, and the life of a connection.

use std::time::Duration;

use kew_queue_api::Limits;

use crate::client::{Call, Door, call, message, put};

#[tokio::test]
async fn every_answer_has_its_headers() {
    let wire = &mut Door::open().connect();
    for call in [
        call("PUT", "/orders"),
        call("PUT", "/orders"),
        call("GET", "/?comp=list"),
        call("GET", "/nothing/messages"),
        put("orders", "", "x"),
    ] {
        let answer = wire.send(call).await;
        for name in ["server", "date", "x-ms-request-id", "x-ms-version"] {
            assert!(answer.header(name).is_some(), "{name}: {answer:?}");
        }
        assert_eq!(answer.header("x-ms-request-id").unwrap().len(), 36);
    }
}

#[tokio::test]
async fn errors_of_head_have_no_body() {
    let wire = &mut Door::open().connect();
    let answer = wire.send(call("HEAD", "/nothing?comp=metadata")).await;
    answer.check_status(404);
    assert_eq!(answer.header("x-ms-error-code"), Some("QueueNotFound"));
    assert_eq!(answer.header("content-type"), None);
    // Nothing is left over: the next answer begins where this one ended.
    wire.send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let wire = &mut Door::open().connect();
    let mut bytes = Vec::new();
    bytes.extend(call("PUT", "/orders").to_bytes());
    for text in ["a", "b"] {
        bytes.extend(put("orders", "", text).to_bytes());
    }
    bytes.extend(put("orders", "", "x").anonymous().to_bytes());
    bytes.extend(call("GET", "/orders/messages?numofmessages=3").to_bytes());
    wire.write(&bytes).await;
    for status in [201, 201, 201, 401] {
        wire.answer(false).await.check_status(status);
    }
    let answer = wire.answer(false).await;
    assert_eq!(answer.elements("MessageText"), ["a", "b"]);
}

#[tokio::test]
async fn verbs() {
    let wire = &mut Door::open().connect();
    let answer = wire.send(call("PATCH", "/orders")).await;
    answer.check_error(405, "UnsupportedHttpVerb");
    assert_eq!(answer.header("allow"), Some("DELETE, GET, HEAD, PUT"));
    wire.send(call("BREW", "/orders"))
        .await
        .check_error(400, "InvalidHttpVerb");
    wire.send(call("GET", "/orders"))
        .await
        .check_error(400, "MissingRequiredQueryParameter")
        .check_element("QueryParameterName", "comp");
    wire.send(call("GET", "/orders?comp=nonsense"))
        .await
        .check_error(400, "InvalidQueryParameterValue")
        .check_element("QueryParameterValue", "nonsense");
    wire.send(call("GET", "/orders/other"))
        .await
        .check_error(400, "InvalidUri");
}

#[tokio::test]
async fn a_put_needs_a_length() {
    let wire = &mut Door::open().connect();
    wire.send(call("POST", "/orders/messages"))
        .await
        .check_error(411, "MissingContentLengthHeader");
}

#[tokio::test]
async fn chunked_bodies() {
    let wire = &mut Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let mut bytes = call("POST", "/orders/messages")
        .header("Transfer-Encoding", "chunked")
        .head();
    for piece in message("chunked").as_bytes().chunks(7) {
        bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
        bytes.extend(piece);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    for byte in bytes.chunks(11) {
        wire.write(byte).await;
        tokio::task::yield_now().await;
    }
    wire.answer(false).await.check_status(201);
    let answer = wire.send(call("GET", "/orders/messages")).await;
    answer.check_element("MessageText", "chunked");
}

#[tokio::test]
async fn a_body_is_asked_for() {
    let door = Door::open();
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let put = put("orders", "", "x").header("Expect", "100-continue");
    wire.write(&put.head()).await;
    wire.answer(false).await.check_status(100);
    wire.write(message("x").as_bytes()).await;
    wire.answer(false).await.check_status(201);

    // A client without the right to put is not asked to continue, nor is one with too large a body.
    let large = put.clone().header("Content-Length", "397313");
    wire.write(&large.head()).await;
    let answer = wire.answer(false).await;
    answer.check_error(413, "RequestBodyTooLarge");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(wire.is_closed().await);
    let wire = &mut door.connect();
    wire.write(&put.anonymous().head()).await;
    let answer = wire.answer(false).await;
    answer.check_status(401);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn large_bodies_end_early() {
    let door = Door::open();
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    // A body slightly too large is read to its end, and the connection stays usable.
    let body = vec![b'x'; 500_000];
    let answer = wire.send(call("POST", "/orders/messages").body(body)).await;
    answer.check_error(413, "RequestBodyTooLarge");
    wire.send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
    // Far too large is not.
    let head = call("POST", "/orders/messages").header("Content-Length", "1000000000");
    wire.write(&head.head()).await;
    wire.write(&vec![b'x'; 500_000]).await;
    let answer = wire.answer(false).await;
    answer.check_error(413, "RequestBodyTooLarge");
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn hosts_are_needed_once() {
    let door = Door::open();
    door.send(call("GET", "/?comp=list").without("Host"))
        .await
        .check_error(400, "MissingRequiredHeader")
        .check_element("HeaderName", "Host");
    door.send(call("GET", "/?comp=list").and_header("Host", "other"))
        .await
        .check_error(400, "InvalidHeaderValue");
}

#[tokio::test]
async fn conditions_are_refused() {
    let door = Door::open();
    for name in [
        "If-Match",
        "If-None-Match",
        "If-Modified-Since",
        "If-Unmodified-Since",
    ] {
        door.send(call("PUT", "/orders").header(name, "*"))
            .await
            .check_error(400, "ConditionHeadersNotSupported");
    }
}

#[tokio::test]
async fn health() {
    let wire = &mut Door::open().connect();
    for (target, body) in [("/health/live", "live\n"), ("/health/ready", "ready\n")] {
        let answer = wire.send(call("GET", "").target(target).anonymous()).await;
        answer.check_status(200);
        assert_eq!(answer.body, body);
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
    let answer = wire
        .send(call("GET", "").target("/health/other").anonymous())
        .await;
    assert_ne!(answer.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_cut() {
    let door = Door::open();
    let start = tokio::time::Instant::now();
    let wire = &mut door.connect();
    wire.write(b"GET / HTTP/1.1\r\n").await;
    assert!(wire.is_closed_at_last().await);
    assert_eq!(start.elapsed().as_secs(), 30);
    // Sending one byte at a time does not extend it.
    let start = tokio::time::Instant::now();
    let wire = &mut door.connect();
    for _ in 0..20 {
        wire.write(b"x").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(wire.is_closed_at_last().await);
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_cut_after_a_good_one() {
    let wire = &mut Door::open().connect();
    wire.send(call("DELETE", "/Orders")).await.check_status(400);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let start = tokio::time::Instant::now();
    wire.write(b"GET / HTTP/1.1\r\n").await;
    assert!(wire.is_closed_at_last().await);
    let waited = start.elapsed().as_secs();
    assert!((30..=60).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_cut() {
    let wire = &mut Door::open().connect();
    let put = put("orders", "", "x");
    wire.write(&put.head()).await;
    let answer = wire.answer(false).await;
    answer.check_error(500, "OperationTimedOut");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(wire.is_closed_at_last().await);
}

#[tokio::test(start_paused = true)]
async fn an_unread_answer_ends_its_connection() {
    let door = Door::open();
    let wire = &mut door.connect_through(64);
    let start = tokio::time::Instant::now();
    wire.write(&call("DELETE", "/Orders").to_bytes()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    while door.connection_count() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let waited = start.elapsed().as_secs();
    assert!((60..=62).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_of_an_unauthenticated_client_is_cut_off_soon() {
    let wire = &mut Door::open().connect();
    let start = tokio::time::Instant::now();
    wire.write(&put("orders", "", "x").anonymous().head()).await;
    let answer = wire.answer(false).await;
    answer.check_error(401, "NoAuthenticationInformation");
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn a_large_body_of_an_unauthenticated_client_is_not_read() {
    let wire = &mut Door::open().connect();
    let body = vec![b'x'; 100_000];
    let put = call("POST", "/orders/messages").body(body).anonymous();
    let answer = wire.send(put).await;
    answer.check_error(401, "NoAuthenticationInformation");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn the_last_answer_survives_unread_bytes() {
    let door = Door::open();
    let create = call("PUT", "/orders");
    door.connect_tcp()
        .await
        .send(create)
        .await
        .check_status(201);
    for _ in 0..5 {
        // Far too large, and sent to its end before the client reads the answer.
        let wire = &mut door.connect_tcp().await;
        let put = call("POST", "/orders/messages").body(vec![b'x'; 2 * 1024 * 1024]);
        let answer = wire.send(put).await;
        answer.check_error(413, "RequestBodyTooLarge");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(wire.is_closed().await);
        // Input that is not a request.
        let wire = &mut door.connect_tcp().await;
        wire.write(&[b'x'; 300_000]).await;
        wire.answer(false).await.check_error(400, "InvalidInput");
        assert!(wire.is_closed().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_farewell_ends() {
    let door = Door::open();
    let wire = &mut door.connect();
    let head = call("POST", "/orders/messages").header("Content-Length", "1000000000");
    wire.write(&head.head()).await;
    wire.answer(false)
        .await
        .check_error(413, "RequestBodyTooLarge");
    assert!(wire.is_closed().await);
    // The client continues to send, and the server reads only for a while.
    let start = tokio::time::Instant::now();
    while door.connection_count() > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let waited = start.elapsed().as_secs_f64();
    assert!((1.8..2.5).contains(&waited), "{waited}");
}

#[tokio::test]
async fn shutting_down_ends_idle_connections() {
    let door = Door::open();
    let used = &mut door.connect();
    used.send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
    let new = &mut door.connect();
    while door.connection_count() < 2 {
        tokio::task::yield_now().await;
    }
    door.shut_down();
    // Much sooner than after the idle time.
    assert!(used.is_closed().await);
    assert!(new.is_closed().await);
}

#[tokio::test]
async fn one_connection_too_many_gets_an_error() {
    let limits = Limits {
        connections_max: 1,
        ..Limits::default()
    };
    let door = Door::with_limits(limits);
    let first = &mut door.connect();
    first
        .send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
    let second = &mut door.connect();
    let answer = second.send(call("GET", "/?comp=list")).await;
    answer.check_error(503, "ServerBusy");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("server"), Some("Kew"));
    let date = answer.header("date").unwrap();
    assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    assert!(second.is_closed().await);
    first
        .send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
}

/// How long a connection stays open after this request, in seconds of a clock that runs ahead.
///
/// A request to the broker would race with that clock, so this is one that is answered without.
async fn idle_seconds(call: Call, status: u16) -> u64 {
    let wire = &mut Door::open().connect();
    for _ in 0..3 {
        wire.send(call.clone()).await.check_status(status);
        tokio::time::sleep(Duration::from_secs(25)).await;
    }
    wire.send(call).await.check_status(status);
    let start = tokio::time::Instant::now();
    assert!(wire.is_closed_at_last().await);
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_kept_longer_after_an_authentic_request() {
    let signed = call("DELETE", "/Orders");
    assert_eq!(idle_seconds(signed.clone(), 400).await, 180);
    assert_eq!(idle_seconds(signed.anonymous(), 401).await, 30);
    let live = call("GET", "").target("/health/live");
    assert_eq!(idle_seconds(live, 200).await, 30);
}

#[tokio::test]
async fn invalid_requests_get_an_error() {
    let door = Door::with_limits(Limits {
        head_size_bytes_max: 100_000,
        ..Limits::default()
    });
    let path = "x".repeat(70_000);
    let long = "x".repeat(100_000);
    let many = "X: y\r\n".repeat(1001);
    for (head, code) in [
        ("GET / HTTP/9.9\r\n", "InvalidInput"),
        ("G@T / HTTP/1.1\r\n", "InvalidInput"),
        ("GET / HTTP/1.1\r\nBad Name: x\r\n", "InvalidInput"),
        (&format!("GET /{path} HTTP/1.1\r\n"), "InvalidUri"),
        (&format!("GET / HTTP/1.1\r\nX: {long}\r\n"), "InvalidInput"),
        (&format!("GET / HTTP/1.1\r\n{many}"), "InvalidInput"),
    ] {
        // Alone, and after a valid request.
        for before in ["", "GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n"] {
            let wire = &mut door.connect();
            wire.write(format!("{before}{head}\r\n").as_bytes()).await;
            if !before.is_empty() {
                wire.answer(false).await.check_status(200);
            }
            let answer = wire.answer(false).await;
            answer.check_error(400, code);
            for name in ["server", "date", "x-ms-version"] {
                assert!(answer.header(name).is_some(), "{name}: {answer:?}");
            }
            assert!(wire.is_closed().await);
        }
    }
}

#[tokio::test]
async fn a_cut_body_gets_an_error() {
    let wire = &mut Door::open().connect();
    let mut bytes = call("POST", "/orders/messages")
        .header("Transfer-Encoding", "chunked")
        .head();
    bytes.extend(b"5\r\n<Queu\r\n");
    wire.write(&bytes).await;
    wire.finish().await;
    wire.answer(false).await.check_error(400, "InvalidInput");
    assert!(wire.is_closed().await);
}
