//! A client that writes bytes and signs by itself: it shares no code with the crate under test.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_broker::Broker;
use kew_loopback::handle_for_test;
use kew_queue_api::{Accounts, Limits, Origin, QueueApi, QueueApiOptions, Reach};
use md5::{Digest as _, Md5};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::panics::fail_on_panics_of_the_server;

pub(crate) const ACCOUNT: &str = "devstoreaccount1";
pub(crate) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The front end with an empty broker behind it.
pub(crate) struct Door {
    api: QueueApi,
    shutdown: watch::Sender<bool>,
}

impl Door {
    pub(crate) fn open() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self::with(Broker::start_in_memory().unwrap(), limits)
    }

    pub(crate) fn with_broker(broker: Broker) -> Self {
        Self::with(broker, Limits::default())
    }

    fn with(broker: Broker, limits: Limits) -> Self {
        Self::with_options(
            broker,
            QueueApiOptions {
                accounts: Accounts::well_known(),
                limits,
                ..QueueApiOptions::default()
            },
        )
    }

    pub(crate) fn with_options(broker: Broker, options: QueueApiOptions) -> Self {
        Self::of(QueueApi::new(handle_for_test(broker), options))
    }

    pub(crate) fn of(api: QueueApi) -> Self {
        fail_on_panics_of_the_server();
        Self {
            api,
            shutdown: watch::channel(false).0,
        }
    }

    pub(crate) fn connect(&self) -> Wire {
        self.connect_through(1 << 20)
    }

    /// A connection that transfers at most `size_bytes` at a time.
    pub(crate) fn connect_through(&self, size_bytes: usize) -> Wire {
        let (ours, theirs) = tokio::io::duplex(size_bytes);
        self.serve(theirs);
        Wire::new(ours)
    }

    /// A connection through the kernel, which discards data in transit when a socket is closed with
    /// unread bytes. The client's buffer is small, so that it notices while it writes.
    pub(crate) async fn connect_tcp(&self) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(16 * 1024).unwrap();
        let (ours, accepted) = tokio::join!(socket.connect(address), listener.accept());
        self.serve(accepted.unwrap().0);
        Wire::new(ours.unwrap())
    }

    /// Serves a port of this machine, until the test ends.
    pub(crate) async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let api = self.api.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let api = api.clone();
                let origin = Origin {
                    peer,
                    is_secure: false,
                    may_use_public_key: true,
                };
                tokio::spawn(async move {
                    api.serve_connection(stream, origin, std::future::pending::<()>())
                        .await;
                });
            }
        });
        address
    }

    /// A connection from another address than this machine's own.
    pub(crate) fn connect_from(&self, peer: SocketAddr) -> Wire {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        self.serve_from(theirs, peer);
        Wire::new(ours)
    }

    /// A connection to a listener for operators.
    pub(crate) fn connect_operator(&self) -> Wire {
        self.connect_operator_with(Reach::Loopback)
    }

    pub(crate) fn connect_operator_with(&self, reach: Reach) -> Wire {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let api = self.api.clone();
        tokio::spawn(async move {
            api.serve_operator_connection(theirs, reach, std::future::pending::<()>())
                .await;
        });
        Wire::new(ours)
    }

    fn serve(&self, stream: impl Stream) {
        self.serve_from(stream, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    }

    fn serve_from(&self, stream: impl Stream, peer: SocketAddr) {
        let api = self.api.clone();
        let mut shutdown = self.shutdown.subscribe();
        tokio::spawn(async move {
            let shutdown = async move {
                // Dropping a door does not close its connections.
                if shutdown.wait_for(|down| *down).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let origin = Origin {
                peer,
                is_secure: false,
                may_use_public_key: true,
            };
            api.serve_connection(stream, origin, shutdown).await;
        });
    }

    pub(crate) fn shut_down(&self) {
        self.shutdown.send(true).unwrap();
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.api.connection_count()
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn send(&self, call: Call) -> Answer {
        self.connect().send(call).await
    }
}

/// The streams that a connection can use.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// A connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
}

impl Wire {
    fn new(stream: impl Stream) -> Self {
        Self {
            stream: Box::new(stream),
            read: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, call: Call) -> Answer {
        let is_head = call.method == "HEAD";
        self.write(&call.to_bytes()).await;
        self.answer(is_head).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Ends the client's direction.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Reads one answer.
    pub(crate) async fn answer(&mut self, is_head: bool) -> Answer {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            assert!(self.fill().await > 0, "closed before an answer");
        };
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap()[9..12].parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_owned(), value.trim().to_owned())
            })
            .collect();
        let mut answer = Answer {
            status,
            headers,
            body: String::new(),
        };
        let length = answer.header("content-length").map(|text| text.parse());
        let has_body = !is_head && status != 204 && status >= 200;
        let length: usize = length.map_or(0, Result::unwrap);
        if has_body && length > 0 {
            while self.read.len() < length {
                assert!(self.fill().await > 0, "closed within an answer");
            }
            let body = self.read.drain(..length).collect();
            answer.body = String::from_utf8(body).unwrap();
        }
        answer
    }

    /// Whether the server closes the connection at once, cleanly, and without an answer.
    pub(crate) async fn is_closed(&mut self) -> bool {
        // Sooner than an idle connection, but late enough for a machine that stalls for a while.
        self.closes_within(Duration::from_secs(20)).await
    }

    /// Whether the server ever closes the connection, without an answer. For clocks that run ahead
    /// while the test waits.
    pub(crate) async fn is_closed_at_last(&mut self) -> bool {
        self.closes_within(Duration::from_secs(3600)).await
    }

    /// Whether the server closes the connection before any request.
    pub(crate) async fn closes_soon(&mut self) -> bool {
        self.closes_within(Duration::from_millis(100)).await
    }

    async fn closes_within(&mut self, limit: Duration) -> bool {
        if !self.read.is_empty() {
            return false;
        }
        let read = self.stream.read_buf(&mut self.read);
        matches!(timeout(limit, read).await, Ok(Ok(0)))
    }

    async fn fill(&mut self) -> usize {
        self.stream.read_buf(&mut self.read).await.unwrap_or(0)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The text of the first element of that name.
    pub(crate) fn element(&self, name: &str) -> Option<&str> {
        self.elements(name).into_iter().next()
    }

    /// The texts of all elements of that name.
    pub(crate) fn elements(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        self.body
            .split(&open)
            .skip(1)
            .map(|rest| rest.split(&close).next().unwrap())
            .collect()
    }

    /// Checks an error: its status, its code in body and header, and the headers of every answer.
    #[track_caller]
    pub(crate) fn check_error(&self, status: u16, code: &str) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("x-ms-error-code"), Some(code), "{self:?}");
        assert_eq!(self.element("Code"), Some(code), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/xml"));
        let id = self.header("x-ms-request-id").unwrap();
        let message = self.element("Message").unwrap();
        assert!(
            message.contains(&format!("\nRequestId:{id}\nTime:")),
            "{message}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn check_element(&self, name: &str, text: &str) -> &Self {
        assert_eq!(self.element(name), Some(text), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn check_status(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// A request in the making. By default it is signed, of the newest version, and dated now.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    authorization: Authorization,
    lite: bool,
}

#[derive(Clone)]
enum Authorization {
    Signed { account: String, key: String },
    Given(String),
    None,
}

/// `target` follows the account: `/queue/messages?numofmessages=1`.
pub(crate) fn call(method: &'static str, target: &str) -> Call {
    Call {
        method,
        target: format!("/{ACCOUNT}{target}"),
        headers: vec![
            ("Host".into(), "127.0.0.1:10001".into()),
            ("x-ms-version".into(), "2026-10-06".into()),
            (
                "x-ms-date".into(),
                httpdate::fmt_http_date(SystemTime::now()),
            ),
        ],
        body: None,
        authorization: Authorization::Signed {
            account: ACCOUNT.into(),
            key: KEY.into(),
        },
        lite: false,
    }
}

/// A put of this text, not yet escaped.
pub(crate) fn put(queue: &str, query: &str, text: &str) -> Call {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    call("POST", &format!("/{queue}/messages{query}")).body(message(&text))
}

/// The body of a put or an update.
pub(crate) fn message(text: &str) -> String {
    format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>")
}

impl Call {
    pub(crate) fn target(mut self, target: &str) -> Self {
        self.target = target.into();
        self
    }

    pub(crate) fn version(self, version: &str) -> Self {
        self.header("x-ms-version", version)
    }

    /// Replaces a header.
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        let mut call = self.without(name);
        call.headers.push((name.into(), value.into()));
        call
    }

    pub(crate) fn and_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let length = body.len().to_string();
        self.body = Some(body);
        self.header("Content-Length", &length)
    }

    pub(crate) fn key(mut self, account: &str, key: &str) -> Self {
        self.authorization = Authorization::Signed {
            account: account.into(),
            key: key.into(),
        };
        self
    }

    pub(crate) fn lite(mut self) -> Self {
        self.lite = true;
        self
    }

    pub(crate) fn authorization(mut self, value: &str) -> Self {
        self.authorization = Authorization::Given(value.into());
        self
    }

    pub(crate) fn anonymous(mut self) -> Self {
        self.authorization = Authorization::None;
        self
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = self.head();
        text.extend_from_slice(self.body.as_deref().unwrap_or_default());
        text
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.authorization {
            Authorization::Signed { account, key } => {
                let signature = self.sign(key);
                let scheme = if self.lite {
                    "SharedKeyLite"
                } else {
                    "SharedKey"
                };
                text.push_str(&format!(
                    "Authorization: {scheme} {account}:{signature}\r\n"
                ));
            }
            Authorization::Given(value) => text.push_str(&format!("Authorization: {value}\r\n")),
            Authorization::None => {}
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    fn sign(&self, key: &str) -> String {
        let key = STANDARD.decode(key).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        STANDARD.encode(hmac::sign(&key, self.string_to_sign().as_bytes()))
    }

    pub(crate) fn string_to_sign(&self) -> String {
        let get = |name: &str| {
            let mut headers = self.headers.iter();
            headers
                .find(|(other, _)| other.eq_ignore_ascii_case(name))
                .map_or("", |(_, value)| value.as_str())
        };
        let is_old = get("x-ms-version") < "2009-09-19";
        let mut lines = vec![self.method.to_owned()];
        if self.lite || is_old {
            lines.extend(["content-md5", "content-type"].map(|name| get(name).to_owned()));
        } else {
            lines.extend(["content-encoding", "content-language"].map(|name| get(name).to_owned()));
            let length = get("content-length");
            let is_empty = length == "0" && get("x-ms-version") >= "2015-02-21";
            lines.push(if is_empty { "" } else { length }.to_owned());
            lines.extend(["content-md5", "content-type"].map(|name| get(name).to_owned()));
        }
        let has_date = !get("x-ms-date").is_empty();
        lines.push(if has_date { "" } else { get("date") }.to_owned());
        if !(self.lite || is_old) {
            let conditions = ["if-modified-since", "if-match", "if-none-match"];
            lines.extend(conditions.map(|name| get(name).to_owned()));
            lines.extend(["if-unmodified-since", "range"].map(|name| get(name).to_owned()));
        }
        let mut extra: Vec<(String, String)> = Vec::new();
        for (name, value) in &self.headers {
            let name = name.to_lowercase();
            if !name.starts_with("x-ms-") {
                continue;
            }
            match extra.iter_mut().find(|(other, _)| *other == name) {
                Some((_, values)) => values.push_str(&format!(",{value}")),
                None => extra.push((name, value.clone())),
            }
        }
        extra.sort();
        lines.extend(extra.iter().map(|(name, value)| format!("{name}:{value}")));
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let account = match &self.authorization {
            Authorization::Signed { account, .. } => account,
            Authorization::Given(_) | Authorization::None => ACCOUNT,
        };
        let mut resource = format!("/{account}{path}");
        let mut parameters: Vec<String> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                format!("{}:{}", name.to_lowercase(), unescape(value))
            })
            .collect();
        parameters.sort();
        if self.lite || is_old {
            for parameter in parameters {
                if let Some(comp) = parameter.strip_prefix("comp:") {
                    resource.push_str(&format!("?comp={comp}"));
                }
            }
        } else {
            for parameter in parameters {
                resource.push_str(&format!("\n{parameter}"));
            }
        }
        lines.push(resource);
        lines.join("\n")
    }
}

fn unescape(value: &str) -> String {
    percent_encoding::percent_decode_str(value)
        .decode_utf8_lossy()
        .into_owned()
}

/// The `Content-MD5` of a body.
pub(crate) fn md5_of(body: &str) -> String {
    STANDARD.encode(Md5::digest(body))
}

/// Escapes the characters that must be escaped in a query.
pub(crate) fn escape(value: &str) -> String {
    value
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D")
}
