//! The life of a connection: its deadlines, turns, memory and end.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::plain::{Server, rest};

fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n")
}

async fn check_closed_after(sent: &str, expected_s: u64, reason: &str) {
    let server = Server::new();
    let (mut stream, serving) = server.connect();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let began = Instant::now();
    rest(&mut stream).await;
    let took_s = began.elapsed().as_secs();
    // A deadline is checked when the previous one has passed.
    assert!(
        (expected_s..=expected_s + 20).contains(&took_s),
        "{sent:?}: {took_s} s"
    );
    serving.await.unwrap();
    assert_eq!(server.told.all().last().unwrap(), reason, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_heads_and_idle_connections_are_closed() {
    let known = get("/", "known: yes\r\n");
    check_closed_after("", 20, "overdue Head").await;
    check_closed_after("GET / HTTP/1.1\r\nx", 20, "overdue Head").await;
    check_closed_after(&get("/", ""), 30, "overdue Idle").await;
    check_closed_after(&known, 180, "overdue Idle").await;
    check_closed_after(&format!("{known}GET"), 20, "overdue Head").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_answers_is_closed() {
    let server = Server::new();
    let (mut stream, serving) = server.connect();
    let requests = get("/", "").repeat(1000);
    let writing = tokio::time::timeout(Duration::from_secs(600), async {
        while stream.write_all(requests.as_bytes()).await.is_ok() {}
    });
    writing.await.unwrap();
    serving.await.unwrap();
    assert_eq!(server.told.all().last().unwrap(), "overdue Answer");
}

#[tokio::test]
async fn pipelined_requests_let_others_go_first() {
    let server = Server::new();
    let (mut stream, _serving) = server.connect();
    let requests = [get("/", "").repeat(4), get("/", "Connection: close\r\n")].concat();
    stream.write_all(requests.as_bytes()).await.unwrap();
    let answers = rest(&mut stream).await;
    assert_eq!(answers.matches("200 OK").count(), 5, "{answers}");
    // Before the third and the fifth.
    let told = server.told.all();
    let cut = told.iter().filter(|what| *what == "turn cut");
    assert_eq!(cut.count(), 2, "{told:?}");
}

#[tokio::test]
async fn unauthenticated_clients_share_room_for_long_heads_and_others_have_their_own() {
    let server = Server::new();
    let long = "x".repeat(60_000);
    let (mut first, _first) = server.connect();
    let begun = format!("GET / HTTP/1.1\r\nHost: h\r\nx: {long}");
    first.write_all(begun.as_bytes()).await.unwrap();
    // Until that was read.
    loop {
        let (mut second, _second) = server.connect();
        second.write_all(begun.as_bytes()).await.unwrap();
        second.shutdown().await.unwrap();
        if rest(&mut second).await.contains(" 503 ") {
            break;
        }
    }
    let (mut known, _known) = server.connect();
    known
        .write_all(get("/", "known: yes\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = [0; 12];
    known.read_exact(&mut answer).await.unwrap();
    let headers = format!("Connection: close\r\nx: {long}\r\n");
    known
        .write_all(get("/long", &headers).as_bytes())
        .await
        .unwrap();
    let answer = rest(&mut known).await;
    assert!(answer.ends_with("/long 0"), "{answer}");
}

#[tokio::test]
async fn the_service_writes_the_refusal_of_an_invalid_head() {
    let server = Server::new();
    for (sent, status) in [
        ("nothing\r\n\r\n".to_owned(), 400),
        (get("/", &"x: y\r\n".repeat(10)), 431),
        (get(&format!("/{}", "x".repeat(66_000)), ""), 414),
    ] {
        let (mut stream, _serving) = server.connect();
        let (mut reading, mut writing) = tokio::io::split(&mut stream);
        let mut answer = String::new();
        // The server may close before it has read everything.
        let (_, read) = tokio::join!(
            writing.write_all(sent.as_bytes()),
            reading.read_to_string(&mut answer)
        );
        read.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with("invalid"),
            "{:.40}: {answer}",
            sent
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_sending_gets_its_last_answer_within_the_limits() {
    let server = Server::new();
    let (mut stream, serving) = server.connect();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n";
    let began = Instant::now();
    let sent = [head.as_bytes(), &[b'x'; 60_000]].concat();
    stream.write_all(&sent).await.unwrap();
    // It does not close, and sends no more than the limit.
    assert!(serving.await.unwrap().is_none());
    assert!(
        began.elapsed() <= Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let answer = rest(&mut stream).await;
    assert!(answer.ends_with("TooLarge"), "{answer}");
}

#[tokio::test]
async fn a_switch_returns_the_socket_with_the_bytes_that_were_read() {
    let server = Server::new();
    let (mut stream, serving) = server.connect();
    let request = get("/switch", "Connection: upgrade\r\nUpgrade: other\r\n");
    let all = format!("{request}other protocol");
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    let switched = serving.await.unwrap().unwrap();
    assert_eq!(switched.begun, "other protocol");
    let mut socket = switched.io;
    socket.write_all(b"!").await.unwrap();
    drop(socket);
    assert!(rest(&mut stream).await.ends_with("\r\n\r\n!"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_idle_connections_at_once() {
    let server = Server::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let (mut stream, serving) = server.connect_until(async { drop(stopped.await) });
    stream.write_all(get("/", "").as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    let began = Instant::now();
    stop.send(()).unwrap();
    serving.await.unwrap();
    // The client has sent whole requests only, so the server waits for no more input.
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_a_pipelining_client_time_to_read_its_last_answer() {
    let server = Server::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let (mut stream, serving) = server.connect_until(async { drop(stopped.await) });
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    stream
        .write_all(format!("{head}1234").as_bytes())
        .await
        .unwrap();
    while server.told.all().is_empty() {
        tokio::task::yield_now().await;
    }
    stop.send(()).unwrap();
    // Until that was noticed.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    stream.write_all(b"5").await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    // It does not know yet, and its next request must not destroy the answer.
    stream.write_all(get("/", "").as_bytes()).await.unwrap();
    serving.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
    assert_eq!(server.told.all(), ["asked /"]);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_begins_during_a_slow_answer_does_not_cut_the_answer() {
    let server = Server::new();
    let (mut stream, serving) = server.connect();
    // Their answers are more than the client's side takes unread.
    let requests = get(&format!("/{}", "x".repeat(25_000)), "").repeat(3);
    stream.write_all(requests.as_bytes()).await.unwrap();
    while server
        .told
        .all()
        .iter()
        .filter(|what| what.starts_with("asked"))
        .count()
        < 3
    {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    stream.write_all(b"GET").await.unwrap();
    serving.await.unwrap();
    assert!(began.elapsed().as_secs() >= 60, "{:?}", began.elapsed());
    assert_eq!(server.told.all().last().unwrap(), "overdue Answer");
}

#[tokio::test]
async fn the_lines_between_chunks_leave_room_for_heads_after_their_request() {
    let server = Server::new();
    let (mut first, _first) = server.connect();
    let chunk = format!("{}1\r\nx\r\n", "0".repeat(4_000));
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let request = format!("{head}{}0\r\n\r\n", chunk.repeat(15));
    first.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    // While the first connection stays open.
    let (mut second, _second) = server.connect();
    let headers = format!("Connection: close\r\nx: {}\r\n", "x".repeat(60_000));
    let head = get("/", &headers);
    second.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut second).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_connection_takes_little_memory() {
    let size_bytes = Server::new().size_bytes_of_connection();
    assert!(size_bytes < 3 * 1024, "{size_bytes} bytes");
}
