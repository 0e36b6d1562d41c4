//! Requests of HTTP/1.1 as they are written: one piece of memory, and one write.
//!
//! A request is sent as its caller made it. What cannot be a part of it, such as a line break in a header, is refused:
//! it would begin a header or a request that nobody asked for.

use crate::error::Error;

/// About how long a request is without its body, in bytes.
const HEAD_SIZE: usize = 640;

/// The methods without a body. All others say how long theirs is, also if it is empty.
const WITHOUT_BODY: [&str; 2] = ["GET", "HEAD"];

/// A request that is ready to be sent.
pub(crate) struct Request {
    bytes: Vec<u8>,
    is_head: bool,
}

/// A request that is being made.
pub(crate) struct Builder {
    bytes: Vec<u8>,
    is_head: bool,
    has_length: bool,
    /// Everything so far is allowed in HTTP.
    is_good: bool,
}

/// Says nothing of the request: its target and its headers can hold signatures and tokens.
pub(crate) fn cannot_carry() -> Error {
    Error::refused("the request has characters that HTTP cannot carry")
}

impl Request {
    /// Begins a request. The target is a path and perhaps a query, both encoded.
    pub(crate) fn begin(method: &str, target: &str, host: &str) -> Builder {
        let mut bytes = Vec::with_capacity(HEAD_SIZE);
        for part in [method, " ", target, " HTTP/1.1\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        let begun = Builder {
            bytes,
            is_head: method == "HEAD",
            has_length: !WITHOUT_BODY.contains(&method),
            is_good: is_method(method) && is_target(target) && host.is_ascii(),
        };
        begun.header("host", host)
    }

    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the answer has no body, whatever its headers say.
    pub(super) fn is_head(&self) -> bool {
        self.is_head
    }
}

impl Builder {
    /// Adds a header. The length of the body and the host are no business of the caller.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.is_good &= is_token(name) && value.bytes().all(is_in_value);
        self.line(name, value);
        self
    }

    /// Ends it. Fails if a part of it cannot be a part of a request.
    pub(crate) fn finish(mut self, body: &[u8]) -> Result<Request, Error> {
        if !self.is_good {
            return Err(cannot_carry());
        }
        if self.has_length || !body.is_empty() {
            self.line("content-length", &body.len().to_string());
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(body);
        Ok(Request {
            bytes: self.bytes,
            is_head: self.is_head,
        })
    }

    fn line(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
    }
}

/// Whether it can be a method or the name of a header (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// `CONNECT` would make something else of the connection.
pub(crate) fn is_method(text: &str) -> bool {
    is_token(text) && text != "CONNECT"
}

/// Whether it can be the target of a request. A fragment is not sent.
fn is_target(text: &str) -> bool {
    let is_allowed = |byte: u8| byte > b' ' && byte != 0x7f && byte != b'#';
    text.starts_with('/') && text.bytes().all(is_allowed)
}

/// Whether it can be in the value of a header (RFC 9110, 5.5).
fn is_in_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(builder: Builder, body: &[u8]) -> Option<String> {
        let request = builder.finish(body).ok()?;
        Some(String::from_utf8(request.bytes().to_vec()).unwrap())
    }

    #[test]
    fn a_request_is_written_in_one_piece() {
        let put = Request::begin("PUT", "/q/messages/1?popreceipt=a%2Bb", "acct.host:1");
        let put = put.header("x-ms-meta-name", "é \t!");
        assert_eq!(
            written(put, b"<a/>").unwrap(),
            "PUT /q/messages/1?popreceipt=a%2Bb HTTP/1.1\r\nhost: acct.host:1\r\n\
             x-ms-meta-name: é \t!\r\ncontent-length: 4\r\n\r\n<a/>"
        );
    }

    #[test]
    fn only_methods_that_may_have_a_body_say_that_it_is_empty() {
        for (method, has_length) in [
            ("DELETE", true),
            ("PUT", true),
            ("POST", true),
            ("GET", false),
            ("HEAD", false),
        ] {
            let request = Request::begin(method, "/", "h");
            assert_eq!(request.is_head, method == "HEAD");
            let text = written(request, b"").unwrap();
            assert_eq!(text.contains("content-length: 0\r\n"), has_length, "{text}");
        }
    }

    #[test]
    fn nothing_begins_another_header_or_another_request() {
        let get = || Request::begin("GET", "/", "h");
        for bad in [
            Request::begin("", "/", "h"),
            Request::begin("GET /", "/", "h"),
            Request::begin("CONNECT", "/", "h"),
            Request::begin("GET", "", "h"),
            Request::begin("GET", "q", "h"),
            Request::begin("GET", "/ HTTP/1.1\r\n", "h"),
            Request::begin("GET", "/a b", "h"),
            Request::begin("GET", "/a#b", "h"),
            Request::begin("GET", "/\u{7f}", "h"),
            Request::begin("GET", "/", "h\r\nx: y"),
            Request::begin("GET", "/", "hé"),
            get().header("", "v"),
            get().header("a b", "v"),
            get().header("a:", "v"),
            get().header("é", "v"),
            get().header("a", "v\r\nb: c"),
            get().header("a", "v\n"),
            get().header("a", "\0"),
            get().header("a", "\u{7f}"),
        ] {
            assert_eq!(written(bad, b""), None);
        }
    }
}
