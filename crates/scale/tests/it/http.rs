//! Targets over HTTP, beside a server that answers as a test says.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kew_scale::{Config, Group, Happened, HttpTarget, Target as _, TargetConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A server that gives one answer for each connection. It ends with the test's runtime.
struct Server {
    address: String,
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            answers: Arc::default(),
            requests: Arc::default(),
        };
        let (answers, requests) = (server.answers.clone(), server.requests.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (answers, requests) = (answers.clone(), requests.clone());
                tokio::spawn(async move {
                    let request = whole(&mut stream).await;
                    requests.lock().unwrap().push(request);
                    let answer = answers.lock().unwrap().pop_front();
                    match answer {
                        Some(answer) => {
                            // The client can have enough before the end.
                            let _ = stream.write_all(&answer).await;
                        }
                        None => std::future::pending().await,
                    }
                });
            }
        });
        server
    }

    fn answer(&self, status: &str, body: &str) {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.answer_raw(head.as_bytes());
    }

    fn answer_raw(&self, bytes: &[u8]) {
        self.answers.lock().unwrap().push_back(bytes.to_vec());
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    fn target(&self, more: &str) -> HttpTarget {
        let variable = |name: &str| (name == "TOKEN").then(|| OsString::from("the-token"));
        let group = self.group(more);
        HttpTarget::open(&group, http(&group), &variable).unwrap()
    }

    fn group(&self, more: &str) -> Group {
        group(&format!(
            "url = 'http://{}/n?key=secret'\n{more}",
            self.address
        ))
    }
}

fn group(target: &str) -> Group {
    let text = format!(
        "[[group]]\nname = 'jobs'\nstart_delay = '1h'\n\
         [[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n[group.target.http]\n{target}\n"
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    config.groups.into_iter().next().unwrap()
}

fn http(group: &Group) -> &kew_scale::Http {
    match &group.target {
        TargetConfig::Http(http) => http,
        other => panic!("{other:?}"),
    }
}

/// Reads a request with a body of the length that it says.
async fn whole(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8(bytes.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|it| it.strip_prefix("content-length: "));
            if length.is_none_or(|it| it.parse::<usize>().unwrap() <= body.len()) {
                return text;
            }
        }
        let read = stream.read_buf(&mut bytes).await.unwrap();
        assert!(read > 0, "the request ends early: {text}");
    }
}

async fn count(target: &mut HttpTarget) -> Result<(u32, u32), String> {
    let found = target.instances().await;
    found
        .map(|it| (it.ready, it.starting))
        .map_err(|it| it.to_string())
}

async fn told(target: &mut HttpTarget, count: u32) -> String {
    let mut happened = target.set(count).await;
    assert_eq!(happened.len(), 1, "{happened:?}");
    happened.pop().unwrap().to_string()
}

#[tokio::test]
async fn get_counts_and_put_changes() {
    let server = Server::start().await;
    let mut target = server.target("");
    server.answer("200 OK", "3\n");
    assert_eq!(count(&mut target).await, Ok((3, 0)));
    server.answer("204 No Content", "");
    assert_eq!(
        told(&mut target, 8).await,
        "the number of instances was set to 8"
    );
    server.answer("200 OK", "8");
    assert_eq!(count(&mut target).await, Ok((3, 5)));
    let requests = server.requests();
    let host = &server.address;
    assert_eq!(
        requests[0],
        format!("GET /n?key=secret HTTP/1.1\r\nhost: {host}\r\n\r\n")
    );
    assert_eq!(
        requests[1],
        format!(
            "PUT /n?key=secret HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n8"
        )
    );
}

#[tokio::test]
async fn templates_pointers_and_tokens() {
    let server = Server::start().await;
    let more = format!(
        "number = '/size/now'\nset_url = 'http://{}/set/{{instances}}'\nbody = '{{\"size\": {{instances}}}}'\n\
         content_type = 'application/merge-patch+json'\ntoken_env = 'TOKEN'",
        server.address
    );
    let mut target = server.target(&more);
    server.answer("200 OK", "{\"size\": {\"now\": 3}}");
    assert_eq!(count(&mut target).await, Ok((3, 0)));
    server.answer("200 OK", "ignored");
    assert_eq!(
        told(&mut target, 10).await,
        "the number of instances was set to 10"
    );
    let requests = server.requests();
    assert!(
        requests
            .iter()
            .all(|it| it.contains("\r\nauthorization: Bearer the-token\r\n")),
        "{requests:?}"
    );
    assert!(
        requests[1].starts_with("PUT /set/10 HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[1].contains("\r\ncontent-type: application/merge-patch+json\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[1].ends_with("\r\n\r\n{\"size\": 10}"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn what_is_wrong_names_its_line_and_no_secret() {
    let server = Server::start().await;
    let mut target = server.target("token_env = 'TOKEN'\ntimeout = '1s'");
    let begin = format!("scale.toml:8:7: GET http://{}/n: ", server.address);
    let answer = |status: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let cases = [
        (
            answer("500 Internal Server Error", "it\nis\tbroken"),
            "the answer is 500 Internal Server Error: \"it\\nis\\tbroken\"",
        ),
        (answer("404 Not Found", ""), "the answer is 404 Not Found"),
        (answer("302 Found", ""), "the answer is 302 Found"),
        (
            answer("200 OK", "three"),
            "the answer is \"three\", and a whole number of instances was expected",
        ),
        (
            answer("200 OK", ""),
            "the answer is \"\", and a whole number of instances was expected",
        ),
        (
            answer("200 OK", &"1".repeat(70_000)),
            "the answer cannot be read: length limit exceeded",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n3".to_owned(),
            "the answer cannot be read: ",
        ),
        (
            "SSH-2.0-OpenSSH\r\n\r\n".to_owned(),
            "there is no whole answer: ",
        ),
        (String::new(), "there is no whole answer: "),
    ];
    for (answer, expected) in cases {
        server.answer_raw(answer.as_bytes());
        let error = count(&mut target).await.unwrap_err();
        assert!(
            error.starts_with(&begin) && error.contains(expected),
            "{error}\n{expected}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            !error.contains("secret") && !error.contains("the-token"),
            "{error}"
        );
    }
    // No answer is left: the server says nothing.
    let error = count(&mut target).await.unwrap_err();
    assert!(error.ends_with("there was no answer within 1 s"), "{error}");
    server.answer("503 Service Unavailable", "later");
    let text = told(&mut target, 5).await;
    let expected = format!(
        "scale.toml:8:7: PUT http://{}/n with 5 instances: the answer is 503 Service Unavailable: \"later\"",
        server.address
    );
    assert_eq!(text, expected);
    server.answer_raw(b"");
    let happened = target.set(5).await;
    assert!(
        matches!(happened[..], [Happened::Failed(_)]),
        "{happened:?}"
    );
    assert!(!format!("{target:?}").contains("the-token"), "{target:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_an_error_of_the_look() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let group = group(&format!("url = 'http://{address}'"));
    let mut target = HttpTarget::open(&group, http(&group), &|_| None).unwrap();
    let error = count(&mut target).await.unwrap_err();
    let expected = format!(
        "scale.toml:8:7: GET http://{address}: try again later: cannot connect to {address}: Connection refused"
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn the_token_and_certificates_are_read_at_the_start() {
    for (more, value, expected) in [
        (
            "token_env = 'TOKEN'",
            None,
            "9:13: token_env is \"TOKEN\", and this environment variable is not set: set it to a token",
        ),
        (
            "token_env = 'TOKEN'",
            Some(""),
            "9:13: token_env is \"TOKEN\", and this environment variable is not set",
        ),
        (
            "token_env = 'TOKEN'",
            Some("secret\n"),
            "9:13: the environment variable TOKEN has characters that a token cannot have",
        ),
        (
            "ca_cert = '/absent.pem'",
            None,
            "9:11: ca_cert is \"/absent.pem\", which cannot be read: ",
        ),
    ] {
        let group = group(&format!("url = 'https://localhost/n'\n{more}"));
        let variable = |_: &str| value.map(OsString::from);
        let error = HttpTarget::open(&group, http(&group), &variable)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("scale.toml:{expected}")),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}
