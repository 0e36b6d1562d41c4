//! Clients that are slow or many do not keep others out for long, and do not stop the end of the program.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use kew_bank::client::Client;
use kew_bank::web::{Bank, Limits, router, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::database::Database;
use crate::kew::Kew;
use crate::service::{queue, storage};

const PATIENCE: Duration = Duration::from_secs(60);

/// Reads until the server closes the connection.
async fn read_all(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // An end by a reset is an end too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text))
        .await
        .unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn slow_clients_lose_their_connection_and_the_service_stops() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let bank = Bank::new(database.ledger.clone(), queue(&storage(&kew)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        connections_max: 4,
        head_max: Duration::from_secs(2),
        ..Limits::default()
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await;
    };
    let serving = serve(listener, router(Arc::new(bank)), limits, stopped);
    let serving = tokio::spawn(serving);
    let mut slow = Vec::new();
    for begin in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n", ""] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // One more is closed at once.
    let fifth = TcpStream::connect(address).await.unwrap();
    assert_eq!(read_all(fifth).await, "");
    let web = Client::new(&format!("http://{address}")).unwrap();
    let served = async {
        while web.call(Method::GET, "/", None, "").await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, served).await.unwrap();
    for stream in slow {
        let _ = read_all(stream).await;
    }
    // An idle client does not delay the end.
    let idle = TcpStream::connect(address).await.unwrap();
    stop.send(()).unwrap();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    assert_eq!(read_all(idle).await, "");
}

#[tokio::test]
async fn garbage_gets_an_answer_and_harms_nothing() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let web = crate::service::web(&database.ledger, queue(&storage(&kew))).await;
    let id = crate::database::id(1).to_string();
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    for body in [
        "",
        "null",
        "[]",
        "{",
        "\u{0}",
        "{\"userId\": {}, \"accountId\": [], \"amount\": null}",
        "{\"userId\":\"a\",\"userId\":\"b\",\"accountId\":\"c\",\"amount\":\"1\"}",
        &format!("{{\"x\": {deep}}}"),
        "{\"amount\": 1e999}",
    ] {
        for path in [
            "/transactions/insert",
            "/transactions/withdraw",
            "/cards/approve",
            "/partner/movements",
        ] {
            let reply = web.call(Method::POST, path, Some(&id), body.to_owned());
            assert_eq!(reply.await.unwrap().status, 400, "{path} {body:.40}");
        }
    }
    let huge = "x".repeat(1 << 20);
    // It may close the connection before all was sent.
    let reply = web.call(Method::POST, "/transactions/insert", Some(&id), huge);
    assert!(reply.await.is_ok_and(|it| it.status == 413) || web_answers(&web).await);
    for (method, path, expected) in [
        (Method::GET, "/transactions/insert", 405),
        (Method::GET, "/transactions/%ff/x", 400),
        (Method::GET, "/transactions/a%7Cb/x", 400),
        (Method::GET, "/nothing", 404),
        (Method::DELETE, "/", 405),
    ] {
        let reply = web.call(method, path, Some(&id), "").await.unwrap();
        assert_eq!(reply.status, expected, "{path}");
    }
    assert!(web_answers(&web).await);
    assert_eq!(database.booked().await, 0);
}

async fn web_answers(web: &Client) -> bool {
    let reply = web.call(Method::GET, "/state", None, "").await;
    reply.is_ok_and(|it| it.status == 200)
}
