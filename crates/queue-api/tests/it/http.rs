//! HTTP itself: framing, limits, and the life of a connection.

use std::time::Duration;

use kew_queue_api::Limits;

use crate::client::{Door, call, message, put};

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
    let wire = &mut Door::open().connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let put = put("orders", "", "x").header("Expect", "100-continue");
    wire.write(&put.head()).await;
    wire.answer(false).await.check_status(100);
    wire.write(message("x").as_bytes()).await;
    wire.answer(false).await.check_status(201);

    // Who may not put is not asked.
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
    // A little too large is read to its end, and the connection goes on.
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
async fn smuggling_is_refused() {
    let door = Door::open();
    for extra in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5,5\r\n",
        "Transfer-Encoding: identity\r\n",
        " folded: x\r\n",
        "Bad Name: x\r\n",
        "X: a\0b\r\n",
    ] {
        let wire = &mut door.connect();
        let head =
            format!("POST /devstoreaccount1/orders/messages HTTP/1.1\r\nHost: h\r\n{extra}\r\n");
        let smuggled = "12345GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n";
        wire.write(format!("{head}{smuggled}").as_bytes()).await;
        let answer = wire.answer(false).await;
        assert!((400..500).contains(&answer.status), "{extra}: {answer:?}");
        assert!(wire.is_closed().await, "{extra}");
    }
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
    for name in ["If-Match", "If-None-Match", "If-Modified-Since"] {
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
    assert!(wire.is_closed().await);
    assert_eq!(start.elapsed().as_secs(), 30);
    // Dribbling does not help.
    let start = tokio::time::Instant::now();
    let wire = &mut door.connect();
    for _ in 0..20 {
        wire.write(b"x").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(wire.is_closed().await);
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_cut() {
    let wire = &mut Door::open().connect();
    let put = put("orders", "", "x");
    wire.write(&put.head()).await;
    let answer = wire.answer(false).await;
    answer.check_error(500, "OperationTimedOut");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn shutting_down_ends_idle_connections() {
    let door = Door::open();
    let wire = &mut door.connect();
    wire.send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
    assert_eq!(door.connection_count(), 1);
    door.shut_down();
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
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
    assert!(second.is_closed().await);
    first
        .send(call("GET", "/?comp=list"))
        .await
        .check_status(200);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_kept_for_long() {
    let wire = &mut Door::open().connect();
    // What asks the broker would race with the clock, which runs ahead while the test waits.
    let live = call("GET", "").target("/health/live");
    for _ in 0..3 {
        wire.send(live.clone()).await.check_status(200);
        tokio::time::sleep(Duration::from_secs(170)).await;
    }
    wire.send(live).await.check_status(200);
    let start = tokio::time::Instant::now();
    assert!(wire.is_closed().await);
    assert_eq!(start.elapsed().as_secs(), 180);
}
