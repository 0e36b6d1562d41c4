//! A client of HTTP: one request a connection, raw.

use std::fmt::Write as _;

use kew_bus_api::WELL_KNOWN_KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Server, token};

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The service's properties of a message.
    pub(crate) fn properties(&self) -> serde_json::Value {
        serde_json::from_str(self.header("brokerproperties").unwrap()).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The bytes of a request with all rights.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let token = token("sb://localhost/", WELL_KNOWN_KEY, 60);
    let mut all = vec![("Authorization", token.as_str())];
    all.extend(headers);
    request_as(method, path, &all, body)
}

/// The bytes of a request with its own credentials.
fn request_as(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut request =
        format!("{method} /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        write!(request, "{name}: {value}\r\n").unwrap();
    }
    write!(request, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    request
}

/// Asks, and waits for the answer.
pub(crate) async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    exchange(server, &request(method, path, headers, body)).await
}

/// Sends a request with other credentials.
pub(crate) async fn ask_as(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    exchange(server, &request_as(method, path, headers, body)).await
}

/// The same with a body that is no text.
pub(crate) async fn ask_bytes(server: &Server, method: &str, path: &str, body: &[u8]) -> Answer {
    let length = format!("Content-Length: {}", body.len());
    let head = request(method, path, &[], "").replace("Content-Length: 0", &length);
    exchange_bytes(server, &[head.as_bytes(), body].concat()).await
}

/// Sends a request that closes the connection, and waits for the answer.
pub(crate) async fn exchange(server: &Server, request: &str) -> Answer {
    exchange_bytes(server, request.as_bytes()).await
}

async fn exchange_bytes(server: &Server, request: &[u8]) -> Answer {
    let mut stream = server.stream();
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}
