//! One keep-alive HTTP/1.1 connection that signs its requests with Shared Key.
//!
//! It connects on first use and again after any failure. It never sends a request twice.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::malformed;
use crate::{Endpoint, Error};

/// A connection with one request in flight, and the last answer.
pub struct Connection {
    endpoint: Arc<Endpoint>,
    stream: Option<TcpStream>,
    output: Vec<u8>,
    input: Vec<u8>,
    date: Date,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Connection {
    /// A connection that is opened by the first request.
    #[must_use]
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            stream: None,
            output: Vec::new(),
            input: Vec::new(),
            date: Date::default(),
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Sends one request and reads the whole answer; returns its status, whether success or error.
    ///
    /// `path` follows the endpoint's base. `query` holds decoded pairs, sorted by name. `headers`
    /// are more `x-ms-` headers with lower-case names.
    pub async fn call(
        &mut self,
        verb: &str,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(String, String)],
        body: &[u8],
    ) -> Result<u16, Error> {
        self.encode(verb, path, query, headers, body);
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.endpoint.address).await;
            let stream = stream.map_err(Error::NotSent)?;
            stream.set_nodelay(true).map_err(Error::NotSent)?;
            self.input.clear();
            self.stream = Some(stream);
        }
        let result = self.exchange(verb == "HEAD").await;
        if result.is_err() {
            self.stream = None;
        }
        result
    }

    /// The bytes of a request, signed now. For callers that send them in another way.
    pub fn to_bytes(
        &mut self,
        verb: &str,
        path: &str,
        query: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<u8> {
        self.encode(verb, path, query, &[], body);
        self.output.clone()
    }

    /// The body of the last answer.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// A header of the last answer.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers()
            .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }

    /// The headers of the last answer.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        head_lines(&self.head)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim(), value.trim()))
    }

    fn encode(
        &mut self,
        verb: &str,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(String, String)],
        body: &[u8],
    ) {
        let endpoint = &self.endpoint;
        let date = self.date.at((endpoint.clock)());
        let (content_type, signed_length) = if body.is_empty() {
            ("", String::new())
        } else {
            ("application/xml", body.len().to_string())
        };

        let mut named = vec![
            ("x-ms-date", date),
            ("x-ms-version", endpoint.version.as_str()),
        ];
        named.extend(
            headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        named.sort_unstable();
        let mut to_sign = format!("{verb}\n\n\n{signed_length}\n\n{content_type}\n\n\n\n\n\n\n");
        for (name, value) in &named {
            to_sign.extend([*name, ":", *value, "\n"]);
        }
        to_sign.extend(["/", &endpoint.account, &endpoint.base, path]);
        for (name, value) in query {
            to_sign.extend(["\n", *name, ":", *value]);
        }
        let signature = STANDARD.encode(hmac::sign(&endpoint.key, to_sign.as_bytes()));

        let output = &mut self.output;
        output.clear();
        output.extend_from_slice(format!("{verb} {}{path}", endpoint.base).as_bytes());
        for (at, (name, value)) in query.iter().enumerate() {
            output.push(if at == 0 { b'?' } else { b'&' });
            output.extend_from_slice(name.as_bytes());
            output.push(b'=');
            percent_encode(output, value);
        }
        output.extend_from_slice(format!(" HTTP/1.1\r\nhost: {}\r\n", endpoint.host).as_bytes());
        for (name, value) in &named {
            output.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !body.is_empty() {
            output.extend_from_slice(format!("content-type: {content_type}\r\n").as_bytes());
        }
        let account = &endpoint.account;
        let length = body.len();
        output.extend_from_slice(
            format!(
                "authorization: SharedKey {account}:{signature}\r\ncontent-length: {length}\r\n\r\n"
            )
            .as_bytes(),
        );
        output.extend_from_slice(body);
    }

    async fn exchange(&mut self, head_only: bool) -> Result<u16, Error> {
        let stream = self.stream.as_mut().expect("the caller connected");
        stream
            .write_all(&self.output)
            .await
            .map_err(Error::Unknown)?;

        let head_length = read_until(stream, &mut self.input, b"\r\n\r\n").await? + 4;
        self.head.clear();
        self.head.extend(self.input.drain(..head_length));
        let frame = Frame::parse(&self.head)?;

        self.body.clear();
        if head_only || frame.status == 204 || frame.status == 304 {
            // These have no body by definition.
        } else if frame.chunked {
            read_chunks(stream, &mut self.input, &mut self.body).await?;
        } else {
            let length = frame
                .length
                .ok_or_else(|| malformed("an answer with neither length nor chunks"))?;
            read_exactly(stream, &mut self.input, length).await?;
            self.body.extend(self.input.drain(..length));
        }
        if frame.close {
            self.stream = None;
        }
        Ok(frame.status)
    }
}

/// The time of a request as a header, formatted once a second.
#[derive(Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn at(&mut self, now: SystemTime) -> &str {
        let second = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if self.second != second {
            self.second = second;
            self.text = httpdate::fmt_http_date(now);
        }
        &self.text
    }
}

/// What the head says about the rest of an answer.
struct Frame {
    status: u16,
    length: Option<usize>,
    chunked: bool,
    close: bool,
}

impl Frame {
    fn parse(head: &[u8]) -> Result<Self, Error> {
        let status = std::str::from_utf8(head)
            .ok()
            .and_then(|head| head.strip_prefix("HTTP/1.1 "))
            .and_then(|rest| rest.get(..3))
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| malformed("an invalid status line"))?;
        let mut frame = Frame {
            status,
            length: None,
            chunked: false,
            close: false,
        };
        for (name, value) in head_lines(head).filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                let length = value
                    .parse()
                    .map_err(|_| malformed("a bad content-length"))?;
                frame.length = Some(length);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                frame.chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                frame.close = value.eq_ignore_ascii_case("close");
            }
        }
        Ok(frame)
    }
}

fn head_lines(head: &[u8]) -> impl Iterator<Item = &str> {
    std::str::from_utf8(head)
        .unwrap_or_default()
        .split("\r\n")
        .skip(1)
}

async fn read_chunks(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    body: &mut Vec<u8>,
) -> Result<(), Error> {
    loop {
        let line = read_until(stream, input, b"\r\n").await?;
        let size = std::str::from_utf8(&input[..line])
            .ok()
            .and_then(|text| text.split(';').next())
            .and_then(|text| usize::from_str_radix(text.trim(), 16).ok())
            .ok_or_else(|| malformed("a bad chunk size"))?;
        let (from, to) = (line + 2, line + 2 + size);
        read_exactly(stream, input, to + 2).await?;
        body.extend_from_slice(&input[from..to]);
        input.drain(..to + 2);
        if size == 0 {
            return Ok(());
        }
    }
}

/// Reads until the input holds `mark`; returns where it begins.
async fn read_until(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    mark: &[u8],
) -> Result<usize, Error> {
    loop {
        if let Some(at) = memmem::find(input, mark) {
            return Ok(at);
        }
        fill(stream, input).await?;
    }
}

async fn read_exactly(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    length: usize,
) -> Result<(), Error> {
    while input.len() < length {
        fill(stream, input).await?;
    }
    Ok(())
}

async fn fill(stream: &mut TcpStream, input: &mut Vec<u8>) -> Result<(), Error> {
    input.reserve(16 * 1024);
    match stream.read_buf(input).await {
        Ok(0) => Err(Error::Unknown(io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Unknown(error)),
    }
}

fn percent_encode(output: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            output.push(byte);
        } else {
            write!(output, "%{byte:02X}").expect("writing to memory cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_and_encoded() {
        // A put of one character to /devstoreaccount1/q with a receipt that needs escaping.
        let address = ([127, 0, 0, 1], 1).into();
        let mut connection = Connection::new(Arc::new(Endpoint::development(address)));
        let extra = [("x-ms-meta-b".to_owned(), "1".to_owned())];
        connection.encode(
            "PUT",
            "/q/messages/1",
            &[("popreceipt", "a+/=")],
            &extra,
            b"x",
        );
        let text = String::from_utf8(connection.output).expect("ASCII");
        assert!(
            text.starts_with(
                "PUT /devstoreaccount1/q/messages/1?popreceipt=a%2B%2F%3D HTTP/1.1\r\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("x-ms-meta-b: 1\r\nx-ms-version: 2021-12-02\r\n"),
            "{text}"
        );
        assert!(text.ends_with("content-length: 1\r\n\r\nx"), "{text}");
    }

    #[test]
    fn a_head_says_how_the_body_comes() {
        let frame = Frame::parse(
            b"HTTP/1.1 201 Created\r\nContent-Length: 12\r\nConnection: close\r\n\r\n",
        )
        .expect("valid");
        assert_eq!(
            (frame.status, frame.length, frame.chunked),
            (201, Some(12), false)
        );
        assert!(frame.close);
        assert!(Frame::parse(b"SSH-2.0\r\n\r\n").is_err());
    }
}
