//! More connections than the limit: those without a token give way.

use kew_bus_api::{Limits, WELL_KNOWN_KEY};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::client::{Server, message, token};

const CONNECTIONS_MAX: usize = 8;
/// More than the server keeps, but no more than may be closed at once.
const SILENT: usize = 50;

async fn start() -> Server {
    Server::start_with(Limits {
        connections_max: CONNECTIONS_MAX,
        ..Limits::default()
    })
    .await
}

/// Connections that begin to send something and stop.
async fn fall_silent(server: &Server) -> Vec<DuplexStream> {
    let mut silent = Vec::new();
    for begun in [&b""[..], b"AMQP", b"GET /jobs HT"].into_iter().cycle() {
        let mut stream = server.stream();
        stream.write_all(begun).await.unwrap();
        silent.push(stream);
        tokio::task::yield_now().await;
        if silent.len() == SILENT {
            break;
        }
    }
    silent
}

/// One request with a token, over a connection that stays open.
async fn ask(stream: &mut DuplexStream) -> String {
    let token = token("sb://localhost/jobs", WELL_KNOWN_KEY, 3600);
    let request = format!(
        "GET /jobs?api-version=2017-04 HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    String::from_utf8_lossy(&status).into_owned()
}

#[tokio::test]
async fn silent_connections_lock_no_client_out() {
    let server = start().await;
    let mut known = server.trusted().await;
    let sender = known.sender("jobs").await.unwrap();
    let mut over_http = server.stream();
    assert_eq!(ask(&mut over_http).await, "HTTP/1.1 200");
    for _ in 0..3 {
        let mut silent = fall_silent(&server).await;
        for _ in 0..5 {
            let mut client = server.trusted().await;
            let sender = client.sender("jobs").await.unwrap();
            client.send(sender, 0, message("x")).await;
            assert_eq!(ask(&mut server.stream()).await, "HTTP/1.1 200");
        }
        // The oldest are closed.
        assert_eq!(silent[0].read(&mut [0; 8]).await.unwrap(), 0);
    }
    // A client with a token keeps its connection.
    known.send(sender, 0, message("x")).await;
    drop(over_http);
}

#[tokio::test]
async fn connections_with_a_token_do_not_give_way() {
    let server = start().await;
    let mut known = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut client = server.trusted().await;
        let sender = client.sender("jobs").await.unwrap();
        known.push((client, sender));
    }
    let peer = crate::client::LOCAL.peer;
    assert!(server.api().admit(peer).is_none());
    for (client, sender) in &mut known {
        client.send(*sender, 0, message("x")).await;
    }
}
