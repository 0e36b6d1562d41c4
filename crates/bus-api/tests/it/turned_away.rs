//! Clients that are not served, and get the reason.

use kew_amqp::Event;
use kew_bus_api::TurnedAway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{LOCAL, Server};

#[tokio::test]
async fn over_amqp_the_error_comes_after_the_open() {
    let server = Server::start().await;
    for (why, condition, word) in [
        (TurnedAway::Plain, "amqp:unauthorized-access", "TLS"),
        (TurnedAway::Crowded, "amqp:resource-limit-exceeded", "later"),
    ] {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let api = server.api();
        let turning = tokio::spawn(async move { api.turn_away(theirs, LOCAL, why).await });
        let mut client = server.connect_over(ours, "ANONYMOUS", None);
        let error = client.until(|event| match event {
            Event::Closed { error, .. } => Some(error.clone()),
            Event::Begun { .. } => panic!("a session of a client that is not served"),
            _ => None,
        });
        let error = error.await.unwrap();
        assert_eq!(error.condition.as_str(), condition);
        let text = format!("{error:?}");
        assert!(text.contains(word), "{text}");
        drop(client);
        turning.await.unwrap();
    }
}

#[tokio::test]
async fn over_http_requests_are_not_read() {
    let server = Server::start().await;
    for (why, status) in [
        (TurnedAway::Plain, "403 Forbidden"),
        (TurnedAway::Crowded, "503 Service Unavailable"),
    ] {
        let (mut ours, theirs) = tokio::io::duplex(64 << 10);
        let api = server.api();
        let turning = tokio::spawn(async move { api.turn_away(theirs, LOCAL, why).await });
        ours.write_all(b"P").await.unwrap();
        let mut answer = vec![0; 64];
        let size = ours.read(&mut answer).await.unwrap();
        answer.truncate(size);
        ours.write_all(&[0; 100_000]).await.unwrap();
        ours.shutdown().await.unwrap();
        ours.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{answer}"
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{answer}"
        );
        turning.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_not_waited_for() {
    let server = Server::start().await;
    for begun in ["", "A", "AMQP\0\x01\0\0"] {
        let (mut ours, theirs) = tokio::io::duplex(64 << 10);
        ours.write_all(begun.as_bytes()).await.unwrap();
        // It ends, although the client does nothing more.
        server
            .api()
            .turn_away(theirs, LOCAL, TurnedAway::Plain)
            .await;
    }
}
