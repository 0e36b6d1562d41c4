//! The head of an answer, and what it says of the end of the body.

use std::mem::MaybeUninit;

use bytes::Bytes;

use super::chunks::Chunks;
use super::{BODY_SIZE_MAX, HEADERS_MAX, Headers, Malformed};

/// An answer whose head has come.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) body: Body,
    /// Whether the connection can be used again afterwards.
    pub(super) is_kept: bool,
}

/// Where a body ends.
#[derive(Debug)]
pub(super) enum Body {
    After(usize),
    Chunks(Chunks),
    WithConnection,
}

impl Begun {
    /// Reads a head. `None` if it is that of a preliminary answer, which another one follows.
    pub(super) fn of(head: Bytes, is_head_only: bool) -> Result<Option<Self>, Malformed> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let read = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut parsed,
            &head,
            &mut headers,
        );
        // It has an empty line, so it is whole, unless that line is a part of something else.
        let (Ok(httparse::Status::Complete(_)), Some(status)) = (read, parsed.code) else {
            return Err(Malformed::Head(
                read.err().unwrap_or(httparse::Error::Status),
            ));
        };
        match status {
            101 => return Err(Malformed::OtherProtocol),
            100..200 => return Ok(None),
            200..=999 => {}
            _ => return Err(Malformed::Head(httparse::Error::Status)),
        }
        let mut framing = Framing::default();
        for header in &*parsed.headers {
            framing.add(header.name, header.value)?;
        }
        let (body, is_clear) = framing.body(status, is_head_only)?;
        let ends = matches!(body, Body::WithConnection);
        Ok(Some(Self {
            status,
            is_kept: is_clear && !ends && !framing.closes && parsed.version == Some(1),
            body,
            headers: Headers(head),
        }))
    }
}

/// What headers say of the end of the body, and of the connection.
#[derive(Debug, Default)]
struct Framing {
    length: Option<usize>,
    is_chunked: bool,
    closes: bool,
}

impl Framing {
    fn add(&mut self, name: &str, value: &[u8]) -> Result<(), Malformed> {
        if name.eq_ignore_ascii_case("content-length") {
            // A list of equal lengths is one length (RFC 9110, 8.6).
            for value in elements(value) {
                let length = length_of(value).ok_or(Malformed::Length)?;
                if self.length.replace(length).is_some_and(|it| it != length) {
                    return Err(Malformed::Length);
                }
            }
            self.length.ok_or(Malformed::Length)?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            // Nothing else was asked for.
            let is_first = !std::mem::replace(&mut self.is_chunked, true);
            if !is_first || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Encoding);
            }
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes |= elements(value).any(|it| it.eq_ignore_ascii_case(b"close"));
        }
        Ok(())
    }

    /// Where the body ends, and whether the next answer can begin there.
    fn body(&self, status: u16, is_head_only: bool) -> Result<(Body, bool), Malformed> {
        let has_no_body = is_head_only || matches!(status, 204 | 304);
        match (has_no_body, self.is_chunked, self.length) {
            // A 204 that announces a body contradicts itself: the body may follow, and is not the next answer. The
            // others tell what the body would be.
            (true, is_chunked, length) => {
                let announces = is_chunked || length.is_some_and(|length| length > 0);
                Ok((Body::After(0), is_head_only || status == 304 || !announces))
            }
            // Of the two, chunks count; and such a connection is not used again (RFC 9112, 6.3).
            (false, true, length) => Ok((Body::Chunks(Chunks::default()), length.is_none())),
            (false, false, Some(length)) if length > BODY_SIZE_MAX => Err(Malformed::LongBody),
            (false, false, Some(length)) => Ok((Body::After(length), true)),
            (false, false, None) => Ok((Body::WithConnection, true)),
        }
    }
}

/// The elements of a list in a header. Empty ones count, so that nothing is read into a value that has none.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Digits alone: `parse` would take a sign as well.
fn length_of(value: &[u8]) -> Option<usize> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok()
}
