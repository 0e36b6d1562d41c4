//! HTTP clients that are slow, send much, or send ambiguous requests.

use std::time::Duration;

use kew_bus_api::{Limits, WELL_KNOWN_KEY};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, timeout};

use crate::client::{Server, token};
use crate::metrics::{Page, until};
use crate::rest;

/// Longer than anything takes. If time is paused, it passes at once.
const PATIENCE: Duration = Duration::from_secs(600);

/// Everything that the server sends until it ends the connection, and how long that took.
async fn read_rest(stream: &mut DuplexStream) -> (String, Duration) {
    let began = Instant::now();
    let mut answer = Vec::new();
    let reading = timeout(PATIENCE, stream.read_to_end(&mut answer));
    // A broken connection is an end too.
    let _ = reading.await.expect("an end");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer, began.elapsed())
}

/// The answer to some bytes, when nothing follows them.
async fn ask(server: &Server, request: &str) -> String {
    let mut stream = server.stream();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_rest(&mut stream).await.0
}

fn authorization() -> String {
    let token = token("sb://localhost/jobs", WELL_KNOWN_KEY, 3600);
    format!("Authorization: {token}\r\n")
}

fn check_between(time: Duration, from_s: u64, to_s: u64) {
    let (from, to) = (Duration::from_secs(from_s), Duration::from_secs(to_s));
    assert!(time >= from && time <= to, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_heads_and_idle_connections_are_closed() {
    let server = Server::start().await;
    let health = "GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    for (sent, has_answer) in [
        ("GET /health HT", false),
        (health, true),
        (&format!("{health}GET /hea"), true),
    ] {
        let mut stream = server.stream();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let (answer, time) = read_rest(&mut stream).await;
        assert_eq!(answer.contains("200 OK"), has_answer, "{sent}: {answer}");
        check_between(time, 19, 25);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_cut_or_fail_are_counted() {
    let server = Server::start().await;
    for sent in [
        "GET /health HT",
        "GET /health HTTP/1.1\r\nHost: h\r\n\r\n",
        "no head\r\n\r\n",
    ] {
        let mut stream = server.stream();
        stream.write_all(sent.as_bytes()).await.unwrap();
        read_rest(&mut stream).await;
    }
    let count = |page: &Page, name: &str, labels: &[(&str, &str)]| {
        page.sum(&format!("kew_connections_{name}_total"), labels)
    };
    until(&server, |page| {
        count(page, "timed_out", &[("phase", "head")]) == 1
            && count(page, "timed_out", &[("phase", "idle")]) == 1
            && count(page, "failed", &[]) == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bytes_that_drip_do_not_hold_a_head_open() {
    let server = Server::start().await;
    let mut stream = server.stream();
    let began = Instant::now();
    for byte in "GET /health HTTP/1.1\r\nx: "
        .bytes()
        .chain(std::iter::repeat(b'y'))
    {
        if stream.write_all(&[byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < PATIENCE, "it is held open");
    }
    check_between(began.elapsed(), 19, 25);
}

#[tokio::test(start_paused = true)]
async fn a_missing_body_gets_an_error() {
    let server = Server::start().await;
    let authorization = authorization();
    let mut stream = server.stream();
    let head = format!(
        "POST /jobs/messages HTTP/1.1\r\nHost: h\r\n{authorization}Content-Length: 9\r\n\r\nhalf"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (answer, time) = read_rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    // Paused time advances also during commands, because the broker's threads do not know about the
    // pause.
    assert!(time >= Duration::from_secs(59), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_answers_is_closed() {
    let server = Server::start().await;
    let mut stream = server.stream();
    let began = Instant::now();
    let requests = "GET /health HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1_000);
    // Until the answers fill all buffers, and the server stops reading.
    while let Ok(Ok(())) = timeout(PATIENCE, stream.write_all(requests.as_bytes())).await {}
    check_between(began.elapsed(), 59, 85);
}

#[tokio::test]
async fn a_client_without_a_token_sends_no_body() {
    let server = Server::start().await;
    let request = "POST /jobs/messages HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\
                   Content-Length: 1000\r\n\r\n";
    let answer = ask(&server, request).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn a_body_is_asked_for_once_the_token_is_right() {
    let server = Server::start().await;
    let authorization = authorization();
    let mut stream = server.stream();
    let head = format!(
        "POST /jobs/messages HTTP/1.1\r\nHost: h\r\n{authorization}Expect: 100-continue\r\n\
         Connection: close\r\nContent-Length: 4\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let (answer, _) = read_rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[tokio::test]
async fn oversized_requests_are_refused() {
    let server = Server::start().await;
    let authorization = authorization();
    let large = format!(
        "POST /jobs/messages HTTP/1.1\r\nHost: h\r\n{authorization}Content-Length: 2000000\r\n\r\n"
    );
    let answer = ask(&server, &large).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(20);
    let endless = format!(
        "POST /jobs/messages HTTP/1.1\r\nHost: h\r\n{authorization}Transfer-Encoding: chunked\r\n\r\n"
    );
    let mut stream = server.stream();
    let (mut reading, mut writing) = tokio::io::split(&mut stream);
    let sent = [endless, chunk].concat();
    let mut answer = Vec::new();
    // The server need not read everything.
    let _ = tokio::join!(
        writing.write_all(sent.as_bytes()),
        reading.read_to_end(&mut answer)
    );
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let long = format!(
        "GET /health HTTP/1.1\r\nHost: h\r\nx: {}\r\n\r\n",
        "y".repeat(70_000)
    );
    let mut stream = server.stream();
    let (mut reading, mut writing) = tokio::io::split(&mut stream);
    let mut answer = Vec::new();
    let _ = tokio::join!(
        writing.write_all(long.as_bytes()),
        reading.read_to_end(&mut answer)
    );
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = format!(
        "GET /health HTTP/1.1\r\nHost: h\r\n{}\r\n",
        "x: y\r\n".repeat(101)
    );
    let answer = ask(&server, &many).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn a_request_in_chunks_ends_the_connection_if_it_has_a_length_too() {
    let server = Server::start().await;
    let authorization = authorization();
    // A proxy that uses the length reads as a body what others read as a second request.
    let next = "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let length = next.len() + 5;
    let request = |framing: &str| {
        format!(
            "POST /jobs/messages HTTP/1.1\r\nHost: h\r\n{authorization}{framing}\r\n0\r\n\r\n{next}"
        )
    };
    for framing in [
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
    ] {
        let answer = ask(&server, &request(&framing)).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        assert!(!answer.contains("healthy"), "{answer}");
    }
    // The end of chunks without a length is certain, so the connection continues.
    let answer = ask(&server, &request("Transfer-Encoding: chunked\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    assert!(answer.ends_with("is healthy.\"}"), "{answer}");
}

#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused() {
    let server = Server::start().await;
    for head in [
        "GET /health HTTP/1.1\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        "GET /health HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "GET /health HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n",
        "GET /health HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n",
        "GET /health HTTP/1.1\r\nHost: h\r\nx : y\r\n",
        "GET /health HTTP/1.1\r\nHost: h\r\nx: y\r\n z\r\n",
        "GET /health HTTP/9.1\r\nHost: h\r\n",
        "GET  /health HTTP/1.1\r\nHost: h\r\n",
        "GET /hea\0lth HTTP/1.1\r\nHost: h\r\n",
        "\u{16}\u{3}\u{1}",
    ] {
        let answer = ask(&server, &format!("{head}Connection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer}");
    }
}

#[tokio::test]
async fn answers_have_the_order_of_the_requests() {
    let server = Server::start().await;
    let requests = "HEAD /health HTTP/1.1\r\nHost: h\r\n\r\nGET /jobs HTTP/1.1\r\nHost: h\r\n\r\n\
                    GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n\
                    GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    let answer = ask(&server, requests).await;
    let statuses: Vec<&str> = answer
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|part| &part[..3])
        .collect();
    assert_eq!(statuses, ["200", "401", "200"], "{answer}");
    assert_eq!(answer.matches("is healthy.").count(), 1, "{answer}");
}

#[tokio::test]
async fn the_memory_of_all_requests_is_bounded() {
    let limits = Limits {
        http_heads_size_bytes_max: 40 << 10,
        http_size_bytes_max: 40 << 10,
        ..Limits::default()
    };
    let server = Server::start_with(limits).await;
    let head = format!(
        "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx: {}",
        "y".repeat(40_000)
    );
    let authorization = authorization();
    let (body, rest) = ("z".repeat(30_000), "z".repeat(10));
    let send = format!(
        "POST /jobs/messages HTTP/1.1\r\nHost: h\r\n{authorization}Connection: close\r\n\
         Content-Length: 30010\r\n\r\n{body}"
    );
    let (whole_head, whole_send) = (format!("{head}\r\n\r\n"), format!("{send}{rest}"));
    let is = async |request: &str, status: &str| {
        // The body of another connection is read within its own time limit.
        let answered = timeout(PATIENCE, async {
            while !ask(&server, request).await.starts_with(status) {}
        });
        answered.await.expect(status);
    };
    let [no_room, ok, created] = ["HTTP/1.1 503 ", "HTTP/1.1 200 ", "HTTP/1.1 201 "];
    // The head of a client without a token takes room from other such clients, but none from bodies.
    let mut stranger = server.stream();
    stranger.write_all(head.as_bytes()).await.unwrap();
    is(&whole_head, no_room).await;
    assert!(ask(&server, &whole_send).await.starts_with(created));
    let mut sender = server.stream();
    sender.write_all(send.as_bytes()).await.unwrap();
    is(&whole_send, no_room).await;
    drop(stranger);
    is(&whole_head, ok).await;
    assert!(ask(&server, &whole_send).await.starts_with(no_room));
    drop(sender);
    is(&whole_send, created).await;
}

/// Sends a message of this size.
async fn send(server: &Server, queue: &str, size_bytes: usize) {
    let path = format!("{queue}/messages");
    let answer = rest::ask(server, "POST", &path, &[], &"z".repeat(size_bytes)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[tokio::test]
async fn unread_answers_share_one_bound() {
    let limits = Limits {
        // Answers over HTTP may use half of it.
        held_size_bytes_max: 32 << 20,
        ..Limits::default()
    };
    let server = Server::start_with(limits).await;
    send(&server, "jobs", 40_000).await;
    for _ in 0..17 {
        send(&server, "spare", 1_040_000).await;
    }
    let take = rest::request("POST", "spare/messages/head?timeout=60", &[], "");
    let mut unread = Vec::new();
    // Each answer begins to be written, and its rest waits for its reader.
    for _ in 0..16 {
        let mut stream = server.stream();
        stream.write_all(take.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 201");
        unread.push(stream);
    }
    // Other operations did nothing, and report that, each in its own form.
    let now = "spare/messages/head?timeout=0";
    let refused = [
        ("POST", now),
        ("DELETE", now),
        ("GET", "$kew/v1/messages/spare"),
        ("POST", "$kew/v1/message/spare?number=17&mode=delete"),
        ("GET", "$kew/v1/queues"),
        ("GET", "spare"),
        ("GET", "$Resources/queues"),
        ("DELETE", "spare"),
    ];
    let refused = refused.map(|(method, path)| {
        let server = &server;
        async move {
            let answer = rest::ask(server, method, path, &[], "").await;
            assert_eq!(answer.status, 503, "{path}: {}", answer.head);
            assert_eq!(answer.header("retry-after"), Some("1"));
            match path.starts_with("$kew") {
                true => assert_eq!(answer.json()["error"]["code"], "ServiceUnavailable"),
                false => assert!(answer.body.contains("SubCode=50004."), "{answer:?}"),
            }
        }
    });
    futures_util::future::join_all(refused).await;
    // AMQP has the other half.
    let mut client = server.trusted().await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    client.delivery().await;
    // The last message was neither taken nor locked meanwhile.
    drop(unread);
    let taken = rest::ask(&server, "POST", now, &[], "").await;
    assert_eq!(taken.status, 201, "{}", taken.head);
    assert_eq!(taken.properties()["DeliveryCount"], 1);
    assert_eq!(taken.properties()["SequenceNumber"], 17);
}

#[tokio::test]
async fn a_waiting_receive_holds_no_memory() {
    let limits = Limits {
        held_size_bytes_max: 0,
        http_size_bytes_max: 64 << 10,
        ..Limits::default()
    };
    let server = Server::start_with(limits).await;
    let body = "x".repeat(40_000);
    let wait = rest::request("DELETE", "jobs/messages/head?timeout=60", &[], &body);
    let mut waiting = Vec::new();
    for count in 1..=20 {
        let mut stream = server.stream();
        stream.write_all(wait.as_bytes()).await.unwrap();
        server.waiting(count).await;
        waiting.push(stream);
    }
    // As large as the room.
    let listed = rest::ask(&server, "GET", "$kew/v1/messages/jobs", &[], "").await;
    assert_eq!(listed.status, 200, "{listed:?}");
    for _ in 0..20 {
        send(&server, "jobs", 60_000).await;
    }
    for mut stream in waiting {
        let (answer, _) = read_rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.100}");
    }
}

#[tokio::test]
async fn a_head_that_arrives_with_another_is_counted() {
    let limits = Limits {
        http_heads_size_bytes_max: 56 << 10,
        ..Limits::default()
    };
    let server = Server::start_with(limits).await;
    let head = |size_bytes, more: &str| {
        let padding = "y".repeat(size_bytes);
        format!("GET /health HTTP/1.1\r\nHost: h\r\n{more}x: {padding}")
    };
    // After a large read the next read is large too: the end of the first request, and most of a
    // second.
    let (first, second) = (head(24_600, ""), head(45_000, ""));
    let mut stream = server.stream();
    let both = format!("{first}\r\n\r\n{second}");
    stream.write_all(both.as_bytes()).await.unwrap();
    let another = format!("{}\r\n\r\n", head(40_000, "Connection: close\r\n"));
    let is = async |status: &str| {
        let answered = timeout(Duration::from_secs(20), async {
            while !ask(&server, &another).await.starts_with(status) {}
        });
        answered.await.expect(status);
    };
    is("HTTP/1.1 503 ").await;
    // After its answer a request holds no memory.
    stream.write_all(b"\r\n\r\n").await.unwrap();
    is("HTTP/1.1 200 ").await;
    drop(stream);
}

#[tokio::test]
async fn a_stop_ends_waits_and_answers_requests() {
    let server = Server::start().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut idle = server.stream_until(async { drop(stopped.await) });
    let request = "GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    idle.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stop.send(()).unwrap();
    let (answer, _) = read_rest(&mut idle).await;
    assert!(answer.ends_with("is healthy.\"}"), "{answer}");
}
