//! AMQP within a WebSocket, with an independent client library.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use kew_amqp::Event;
use kew_amqp::performative::DeliveryState;
use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::client::{Client, LOCAL, Server, message};

const PATH: &str = "/$servicebus/websocket";

/// Opens a WebSocket. Returns the chosen protocol too.
async fn open(
    server: &Server,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(WebSocketStream<DuplexStream>, String), Error> {
    let mut request = format!("ws://localhost:5672{path}").into_client_request()?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let (socket, answer) = client_async(request, server.stream()).await?;
    let protocol = answer.headers()["sec-websocket-protocol"].to_str().unwrap();
    Ok((socket, protocol.to_owned()))
}

pub(crate) async fn open_amqp(
    server: &Server,
    more: &[(&'static str, &str)],
) -> WebSocketStream<DuplexStream> {
    let headers = [&[("sec-websocket-protocol", "AMQPWSB10")], more].concat();
    open(server, PATH, &headers).await.unwrap().0
}

/// The size of an AMQP frame or header.
fn size_of(frame: &[u8]) -> usize {
    match &frame[..4] {
        b"AMQP" => 8,
        size => u32::from_be_bytes(size.try_into().unwrap()) as usize,
    }
}

/// An unauthenticated AMQP client within a WebSocket.
pub(crate) fn anonymous(server: &Server, socket: WebSocketStream<DuplexStream>) -> Client {
    server.connect_over(carried(socket, 4_096), "ANONYMOUS", None)
}

/// A client of AMQP, whose bytes go through a WebSocket in messages of one size.
fn through(
    server: &Server,
    socket: WebSocketStream<DuplexStream>,
    size: usize,
    key: &str,
) -> Client {
    let response = format!("\0{WELL_KNOWN_RULE}\0{key}");
    server.connect_over(carried(socket, size), "PLAIN", Some(&response))
}

/// Sends all written bytes through a WebSocket in messages of one size, and makes received ones
/// readable.
fn carried(mut socket: WebSocketStream<DuplexStream>, size: usize) -> DuplexStream {
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let mut buffer = vec![0; size];
        loop {
            tokio::select! {
                read = theirs.read(&mut buffer) => match read {
                    Ok(1..) => {
                        let bytes = buffer[..read.unwrap()].to_vec();
                        socket.send(Message::binary(bytes)).await.unwrap();
                    }
                    _ => break,
                },
                received = socket.next() => match received {
                    Some(Ok(Message::Binary(frame))) => {
                        assert_eq!(size_of(&frame), frame.len(), "one frame in each message");
                        if theirs.write_all(&frame).await.is_err() {
                            break;
                        }
                    }
                    Some(Ok(_)) => {}
                    _ => break,
                },
            }
        }
    });
    ours
}

#[tokio::test]
async fn messages_are_sent_and_received_however_they_are_cut() {
    let server = Server::start().await;
    let long = "x".repeat(300_000);
    for size in [5, 4_096, 200_000] {
        let socket = open_amqp(&server, &[]).await;
        let mut client = through(&server, socket, size, WELL_KNOWN_KEY);
        client.begun().await;
        let sender = client.sender("jobs").await.unwrap();
        let receiver = client.receiver("jobs").await.unwrap();
        for body in ["short", &long] {
            let sent = client.send(sender, 0, message(body)).await;
            assert_eq!(sent, DeliveryState::ACCEPTED);
            client.connection.grant(receiver, 1);
            let delivery = client.delivery().await;
            assert!(delivery.payload.ends_with(&message(body)));
            let told = client.tell(&delivery, DeliveryState::ACCEPTED).await;
            assert_eq!(told, DeliveryState::ACCEPTED);
        }
    }
}

#[tokio::test]
async fn paths_and_protocols_are_those_of_sdks() {
    let server = Server::start().await;
    for (path, asked, spoken) in [
        (PATH, "AMQPWSB10", "AMQPWSB10"),
        ("/$servicebus/websocket/", "amqp", "amqp"),
        (
            "/$ServiceBus/WebSocket?sb-hc-action=connect",
            "x, amqp",
            "amqp",
        ),
        (
            "/%24servicebus/websocket?a=b&c",
            "AMQPWSB10,amqp",
            "AMQPWSB10",
        ),
    ] {
        let headers = [("sec-websocket-protocol", asked)];
        let (_, protocol) = open(&server, path, &headers).await.unwrap();
        assert_eq!(protocol, spoken, "{path}");
    }
}

#[tokio::test]
async fn invalid_handshakes_are_refused_and_the_connection_stays() {
    let server = Server::start().await;
    for (path, asked, status) in [(PATH, "mqtt", 400), ("/elsewhere", "amqp", 401)] {
        let headers = [("sec-websocket-protocol", asked)];
        match open(&server, path, &headers).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status().as_u16(), status, "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
    let mut stream = server.stream();
    let plain = format!("GET {PATH} HTTP/1.1\r\nHost: h\r\n\r\n");
    let last = "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    stream.write_all((plain + last).as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert!(
        answers.starts_with("HTTP/1.1 426 Upgrade Required\r\n"),
        "{answers}"
    );
    assert!(
        answers.contains("sec-websocket-version: 13\r\n"),
        "{answers}"
    );
    assert!(answers.ends_with("Service is healthy.\"}"), "{answers}");
}

#[tokio::test]
async fn pings_are_answered_and_a_close_is_too() {
    let server = Server::start().await;
    let mut socket = open_amqp(&server, &[]).await;
    socket.send(Message::Ping("hello".into())).await.unwrap();
    let pong = socket.next().await.unwrap().unwrap();
    assert_eq!(pong, Message::Pong("hello".into()));
    socket.close(None).await.unwrap();
    let closed = socket.next().await.unwrap().unwrap();
    assert!(matches!(closed, Message::Close(_)), "{closed:?}");
    assert!(socket.next().await.is_none());
}

#[tokio::test]
async fn text_is_not_spoken() {
    let server = Server::start().await;
    let mut socket = open_amqp(&server, &[]).await;
    socket.send(Message::text("AMQP")).await.unwrap();
    let closed = socket.next().await.unwrap().unwrap();
    let Message::Close(Some(CloseFrame { code, .. })) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(code, CloseCode::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn a_client_silent_after_the_handshake_is_not_waited_for() {
    let server = Server::start().await;
    let mut socket = open_amqp(&server, &[]).await;
    let ended = tokio::time::timeout(Duration::from_secs(60), async {
        while let Some(Ok(_)) = socket.next().await {}
    });
    ended.await.expect("an end");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_public_key() {
    let server = Server::start().await;
    for (page, is_opened) in [
        ("http://localhost:3000", true),
        ("https://example.com", false),
    ] {
        let socket = open_amqp(&server, &[("origin", page)]).await;
        let mut client = through(&server, socket, 4_096, WELL_KNOWN_KEY);
        let opened = client.until(|event| match event {
            Event::Opened(_) => Some(true),
            Event::Closed { .. } => Some(false),
            _ => None,
        });
        assert_eq!(opened.await, is_opened, "{page}");
    }
}

#[tokio::test]
async fn a_stop_sends_an_error_and_closes_the_web_socket() {
    let server = Server::start().await;
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let api = server.api();
    let permit = api.admit(LOCAL.peer).unwrap();
    let serving = tokio::spawn(async move {
        let shutdown = async { drop(stopped.await) };
        api.serve(theirs, LOCAL, permit, shutdown).await;
    });
    let mut request = format!("ws://localhost{PATH}")
        .into_client_request()
        .unwrap();
    let protocol = "amqp".parse().unwrap();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocol);
    let (mut socket, _) = client_async(request, ours).await.unwrap();
    let open = b"AMQP\0\x01\0\0\0\0\0\x10\x02\0\0\0\0\x53\x10\xc0\x03\x01\xa1\0";
    socket.send(Message::binary(open.to_vec())).await.unwrap();
    // The header, and the open.
    for _ in 0..2 {
        assert!(matches!(socket.next().await, Some(Ok(Message::Binary(_)))));
    }
    stop.send(()).unwrap();
    let Some(Ok(Message::Binary(close))) = socket.next().await else {
        panic!("no close of AMQP");
    };
    let close = String::from_utf8_lossy(&close);
    assert!(close.contains("amqp:connection:forced"), "{close}");
    let close = b"\0\0\0\x0c\x02\0\0\0\0\x53\x18\x45";
    socket.send(Message::binary(close.to_vec())).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    drop(socket);
    serving.await.unwrap();
}
