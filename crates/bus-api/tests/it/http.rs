//! HTTP on a listener of Service Bus, by raw requests.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::Server;

/// The answer to a request that closes the connection.
async fn ask(server: &Server, request: &str) -> String {
    let mut stream = server.stream();
    let request = request.replace('\n', "\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn health_needs_no_credential() {
    let server = Server::start().await;
    let answer = ask(
        &server,
        "GET /health HTTP/1.1\nHost: h\nConnection: close\n\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let body = r#"{"status":"healthy","message":"Service is healthy."}"#;
    assert!(answer.ends_with(body), "{answer}");
}

#[tokio::test]
async fn a_request_without_a_token_is_refused() {
    let server = Server::start().await;
    let answer = ask(&server, "GET /q HTTP/1.1\nHost: h\nConnection: close\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(
        answer.contains("<Code>401</Code><Detail>MissingToken"),
        "{answer}"
    );
    let authorization = "Authorization: SharedAccessSignature sr=x&sig=AA%3D%3D&se=1&skn=r";
    let request = format!("GET /q HTTP/1.1\nHost: h\nConnection: close\n{authorization}\n\n");
    let answer = ask(&server, &request).await;
    assert!(answer.contains("<Detail>InvalidSignature"), "{answer}");
}
