//! Answers of HTTP/1.1, read as their bytes come in.
//!
//! The service may be anything, so everything that it makes us keep has a limit: the head, the body, and what else is
//! between the chunks of one. Where an answer ends must be beyond doubt (RFC 9112, 6.3). If two parts of it contradict
//! each other it is refused: what one side takes for a body, the other side could take for the next answer.
//!
//! This file knows no connection. It takes bytes out of a buffer, and leaves those there that follow the answer.

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};

/// The most that the body of an answer may be: 5,000 queues with all the metadata they may have, and some.
const BODY_SIZE_MAX: usize = 64 << 20;

/// The most that its head may be, with those of preliminary answers, and all that is in chunks beside the body.
const HEAD_SIZE_MAX: usize = 64 << 10;

/// The most headers of a head.
const HEADERS_MAX: usize = 128;

/// The longest line with the size of a chunk.
const CHUNK_LINE_MAX: usize = 4 << 10;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The headers of an answer: its head, which was checked. Most answers are used for their status alone, so headers are
/// looked for when they are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers(Bytes);

impl Headers {
    /// Names as the service wrote them, and values without the space around them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // The first line is that of the status.
        let lines = self.0.split(|byte| *byte == b'\n').skip(1);
        lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = line.split_at_checked(colon)?;
            let value = value.strip_prefix(b":")?.trim_ascii();
            Some((std::str::from_utf8(name).ok()?, value))
        })
    }

    /// The first value of a header, if it is text.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.iter();
        let (_, value) = all.find(|(it, _)| it.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }
}

/// Why an answer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("its head is not HTTP/1.1: {0}")]
    Head(httparse::Error),
    #[error("its head, or what is between its chunks, is longer than {HEAD_SIZE_MAX} bytes")]
    LongHead,
    #[error("it is longer than {BODY_SIZE_MAX} bytes")]
    LongBody,
    #[error("it changes to another protocol, which was not asked for")]
    OtherProtocol,
    #[error("its length is not a number, or there are two")]
    Length,
    #[error("it is encoded in a way that was not asked for")]
    Encoding,
    #[error("a chunk of it is malformed")]
    Chunk,
    #[error("it ends in its middle")]
    Truncated,
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Reading {
    /// The request asked for the head alone.
    is_head_only: bool,
    /// How much of the heads, and of what is in chunks beside the body, has come.
    head_size: usize,
    /// How much of the input has no end of the head.
    searched: usize,
    begun: Option<Begun>,
}

/// An answer whose head has come.
#[derive(Debug)]
struct Begun {
    status: u16,
    headers: Headers,
    body: Body,
    /// Whether the connection can be used again afterwards.
    is_kept: bool,
}

/// Where a body ends.
#[derive(Debug)]
enum Body {
    After(usize),
    Chunks(Chunks),
    WithConnection,
}

/// A body in chunks.
#[derive(Debug, Default)]
struct Chunks {
    whole: BytesMut,
    next: Next,
}

/// What comes next in a body of chunks.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Size,
    /// So much data, and a line break.
    Data(usize),
    Trailers,
}

impl Reading {
    pub(super) fn new(is_head_only: bool) -> Self {
        Self {
            is_head_only,
            head_size: 0,
            searched: 0,
            begun: None,
        }
    }

    /// Takes what has come. `None` if more is to come. The second part says whether the connection can be used again.
    pub(super) fn take(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<(Answer, bool)>, Malformed> {
        while self.begun.is_none() {
            let Some(head) = self.head(input)? else {
                return Ok(None);
            };
            self.begun = Begun::of(head, self.is_head_only)?;
        }
        let Some(begun) = &mut self.begun else {
            return Ok(None);
        };
        let body = match &mut begun.body {
            Body::After(size) if input.len() >= *size => input.split_to(*size).freeze(),
            Body::After(_) => return Ok(None),
            Body::Chunks(chunks) => match chunks.take(input, &mut self.head_size)? {
                Some(whole) => whole,
                None => return Ok(None),
            },
            Body::WithConnection if input.len() > BODY_SIZE_MAX => {
                return Err(Malformed::LongBody);
            }
            Body::WithConnection => return Ok(None),
        };
        Ok(self.answer(body))
    }

    /// The connection has ended, and this is what came last.
    pub(super) fn end(&mut self, input: &mut BytesMut) -> Result<Answer, Malformed> {
        let body = self.begun.as_ref().map(|begun| &begun.body);
        let is_whole = matches!(body, Some(Body::WithConnection));
        let answer = is_whole.then(|| self.answer(input.split().freeze()));
        let (answer, _) = answer.flatten().ok_or(Malformed::Truncated)?;
        Ok(answer)
    }

    /// How many bytes of the answer are certainly still to come.
    pub(super) fn missing(&self, input: &BytesMut) -> usize {
        match self.begun.as_ref().map(|begun| &begun.body) {
            Some(
                Body::After(size)
                | Body::Chunks(Chunks {
                    next: Next::Data(size),
                    ..
                }),
            ) => size.saturating_sub(input.len()),
            Some(Body::Chunks(_) | Body::WithConnection) | None => 0,
        }
    }

    fn answer(&mut self, body: Bytes) -> Option<(Answer, bool)> {
        let begun = self.begun.take()?;
        let answer = Answer {
            status: begun.status,
            headers: begun.headers,
            body,
        };
        Some((answer, begun.is_kept))
    }

    /// The next head, once all of it has come.
    fn head(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
        // Some services send a line break too much after a body.
        while self.searched == 0 && matches!(input.first(), Some(b'\r' | b'\n')) {
            input.advance(1);
            self.head_size += 1;
        }
        let size = end_of_head(input, self.searched);
        let seen = size.unwrap_or(input.len());
        if self.head_size + seen > HEAD_SIZE_MAX {
            return Err(Malformed::LongHead);
        }
        let Some(size) = size else {
            // The last three bytes can be the begin of the end.
            self.searched = input.len().saturating_sub(3);
            return Ok(None);
        };
        self.head_size += size;
        self.searched = 0;
        Ok(Some(input.split_to(size).freeze()))
    }
}

/// Where the empty line after the headers ends. Nothing before `searched` is its begin.
fn end_of_head(input: &[u8], searched: usize) -> Option<usize> {
    let mut from = searched;
    loop {
        let rest = input.get(from..)?;
        let line = from + rest.iter().position(|byte| *byte == b'\n')? + 1;
        match input.get(line..)? {
            [b'\n', ..] => return Some(line + 1),
            [b'\r', b'\n', ..] => return Some(line + 2),
            _ => from = line,
        }
    }
}

impl Begun {
    /// Reads a head. `None` if it is that of a preliminary answer, which another one follows.
    fn of(head: Bytes, is_head_only: bool) -> Result<Option<Self>, Malformed> {
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
            (true, _, _) => Ok((Body::After(0), true)),
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

impl Chunks {
    /// Takes what has come, and returns the whole body after its last part.
    fn take(
        &mut self,
        input: &mut BytesMut,
        head_size: &mut usize,
    ) -> Result<Option<Bytes>, Malformed> {
        loop {
            self.next = match self.next {
                Next::Size => {
                    let Some(line) = line(input, CHUNK_LINE_MAX)? else {
                        return Ok(None);
                    };
                    let (size, extra) = chunk_size(line).ok_or(Malformed::Chunk)?;
                    skip_line(input, line.len());
                    count(head_size, extra)?;
                    match self.whole.len().checked_add(size) {
                        Some(0..=BODY_SIZE_MAX) => {}
                        Some(_) | None => return Err(Malformed::LongBody),
                    }
                    match size {
                        0 => Next::Trailers,
                        size => Next::Data(size),
                    }
                }
                Next::Data(0) => match line(input, CHUNK_LINE_MAX)? {
                    None => return Ok(None),
                    Some([]) => {
                        skip_line(input, 0);
                        Next::Size
                    }
                    Some(_) => return Err(Malformed::Chunk),
                },
                Next::Data(_) if input.is_empty() => return Ok(None),
                Next::Data(left) => {
                    let size = left.min(input.len());
                    self.whole
                        .extend_from_slice(input.get(..size).unwrap_or_default());
                    input.advance(size);
                    Next::Data(left - size)
                }
                Next::Trailers => match line(input, HEAD_SIZE_MAX)?.map(<[u8]>::len) {
                    None => return Ok(None),
                    Some(0) => {
                        skip_line(input, 0);
                        return Ok(Some(self.whole.split().freeze()));
                    }
                    // Nothing in them is of interest.
                    Some(size) => {
                        skip_line(input, size);
                        count(head_size, size)?;
                        Next::Trailers
                    }
                },
            };
        }
    }
}

fn count(head_size: &mut usize, more: usize) -> Result<(), Malformed> {
    *head_size += more;
    match *head_size <= HEAD_SIZE_MAX {
        true => Ok(()),
        false => Err(Malformed::LongHead),
    }
}

/// The next line without its break, once all of it has come. It stays in the input.
fn line(input: &[u8], size_max: usize) -> Result<Option<&[u8]>, Malformed> {
    let end = input.iter().take(size_max).position(|byte| *byte == b'\n');
    match end.and_then(|end| input.get(..=end)) {
        Some(line) => {
            let line = line.strip_suffix(b"\r\n");
            line.map(Some).ok_or(Malformed::Chunk)
        }
        None if input.len() < size_max => Ok(None),
        None => Err(Malformed::Chunk),
    }
}

/// Takes a line of this size, with its break.
fn skip_line(input: &mut BytesMut, size: usize) {
    input.advance(size + 2);
}

/// The size of a chunk, and how much else is in its line. Extensions mean nothing to us, and some services write
/// spaces after the size.
fn chunk_size(line: &[u8]) -> Option<(usize, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (digits, rest) = line.split_at_checked(digits.count())?;
    let is_good = matches!(rest.trim_ascii_start(), [] | [b';', ..]) && !digits.is_empty();
    let text = std::str::from_utf8(digits).ok().filter(|_| is_good)?;
    Some((usize::from_str_radix(text, 16).ok()?, rest.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = Result<Option<(Answer, bool)>, Malformed>;

    /// Reads an answer that comes in these pieces. What follows it stays in the input.
    fn read_of(pieces: &[&[u8]], input: &mut BytesMut, is_head_only: bool) -> (Reading, Read) {
        let mut reading = Reading::new(is_head_only);
        for piece in pieces {
            input.extend_from_slice(piece);
            match reading.take(input) {
                Ok(None) => {}
                other => return (reading, other),
            }
        }
        (reading, Ok(None))
    }

    fn error_of(text: &str) -> Option<Malformed> {
        let mut input = BytesMut::new();
        read_of(&[text.as_bytes()], &mut input, false).1.err()
    }

    /// Answers with their bodies, and whether their connections can be used again.
    const WHOLE: [(&str, &str, bool); 17] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        ("HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok", "ok", true),
        (
            "\r\n\nHTTP/1.1 200 OK\nContent-Length: 2 \n\nok",
            "ok",
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        ("HTTP/1.1 204 \r\nContent-Length: 9\r\n\r\n", "", true),
        (
            "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
            "",
            true,
        ),
        (
            "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            "",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\ncontent-length: 1\r\n\r\n1",
            "1",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: Keep-Alive, CLOSE\r\nContent-Length: 1\r\n\r\n1",
            "1",
            false,
        ),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1", "1", false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            "abc",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
             00000000000000000C ; a=b;c=\"d\"\r\nhello\r\nworld\r\n1   \r\n!\r\n0\r\nx: y\r\nz:\r\n\r\n",
            "hello\r\nworld!",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0;last\r\n\r\n",
            "",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "a",
            false,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n\
             HTTP/1.1 400 Bad\r\nContent-Length: 1\r\n\r\n1",
            "1",
            true,
        ),
        (
            "HTTP/1.1 599 \u{e9}\r\nx-ms-meta-a: \u{e9}\r\nContent-Length: 1\r\n\r\n1",
            "1",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection:\r\nContent-Length: 0\r\n\r\n",
            "",
            true,
        ),
    ];

    #[test]
    fn an_answer_ends_where_its_framing_says() {
        for (text, body, is_kept) in WHOLE {
            let with_next = format!("{text}HTTP");
            let mut input = BytesMut::new();
            let (_, read) = read_of(&[with_next.as_bytes()], &mut input, false);
            let (answer, kept) = read.unwrap().unwrap();
            assert_eq!(
                (&answer.body[..], kept),
                (body.as_bytes(), is_kept),
                "{text}"
            );
            assert_eq!(input, "HTTP", "{text}");
        }
    }

    #[test]
    fn an_answer_is_the_same_in_any_pieces_and_none_is_whole_early() {
        for (text, body, _) in WHOLE {
            for cut in 0..text.len() {
                let (first, rest) = text.as_bytes().split_at(cut);
                let mut input = BytesMut::new();
                let (mut reading, read) = read_of(&[first], &mut input, false);
                assert!(matches!(read, Ok(None)), "{text:?} after {cut}");
                assert_eq!(reading.end(&mut input).err(), Some(Malformed::Truncated));
                let mut input = BytesMut::new();
                let (_, read) = read_of(&[first, rest], &mut input, false);
                assert_eq!(read.unwrap().unwrap().0.body, body, "{text:?} cut at {cut}");
            }
            let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
            let mut input = BytesMut::new();
            let (_, read) = read_of(&bytes, &mut input, false);
            assert_eq!(read.unwrap().unwrap().0.body, body, "{text:?}");
            assert!(input.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let text = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n1\r\n\r\n2";
        let (head, _) = text.split_at(text.len() - 6);
        for cut in 0..=text.len() {
            let (first, rest) = text.split_at(cut);
            let mut input = BytesMut::new();
            let (mut reading, read) = read_of(&[first, rest], &mut input, false);
            assert!(matches!(read, Ok(None)), "{read:?}");
            assert_eq!(reading.end(&mut input).unwrap().body, "1\r\n\r\n2");
            let mut input = BytesMut::new();
            let (mut reading, _) = read_of(&[first], &mut input, false);
            let ended = reading.end(&mut input);
            assert_eq!(ended.is_ok(), first.len() >= head.len(), "{ended:?}");
        }
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ] {
            let (_, read) = read_of(&[head.as_bytes()], &mut BytesMut::new(), true);
            let (answer, is_kept) = read.unwrap().unwrap();
            assert_eq!((answer.body.len(), is_kept), (0, true));
        }
    }

    #[test]
    fn headers_are_found_in_any_case() {
        let text = "HTTP/1.1 200 OK: fine\r\nX-Ms-A:  b c \r\nx-ms-a: second\r\nEmpty:\r\n\
             x-ms-meta-Raw: \u{e9}\r\ncolon: a:b\r\nContent-Length: 0\r\n\r\n";
        let (_, read) = read_of(&[text.as_bytes()], &mut BytesMut::new(), false);
        let headers = read.unwrap().unwrap().0.headers;
        for (name, value) in [
            ("x-ms-a", Some("b c")),
            ("EMPTY", Some("")),
            ("x-ms-meta-raw", Some("\u{e9}")),
            ("colon", Some("a:b")),
            ("http/1.1 200 ok", None),
            ("b c", None),
        ] {
            assert_eq!(headers.get(name), value, "{name}");
        }
        assert_eq!(headers.iter().count(), 6);
    }

    #[test]
    fn what_is_in_doubt_is_refused() {
        let with = |header: &str| error_of(&format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n1"));
        for header in [
            "content-length: +1",
            "content-length: -1",
            "content-length: 0x1",
            "content-length: 1 1",
            "content-length: 1, 2",
            "content-length: 1,",
            "content-length:",
            "content-length: 99999999999999999999",
            "content-length: 1\r\ncontent-length: 2",
        ] {
            assert_eq!(with(header), Some(Malformed::Length), "{header}");
        }
        for header in [
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: identity",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding:",
        ] {
            assert_eq!(with(header), Some(Malformed::Encoding), "{header}");
        }
        for header in ["no colon", " folded", "a : b", "a\0: b", "a: \0"] {
            assert!(matches!(with(header), Some(Malformed::Head(_))), "{header}");
        }
        for text in [
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "<html>\n\n",
        ] {
            assert!(matches!(error_of(text), Some(Malformed::Head(_))), "{text}");
        }
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
        assert_eq!(error_of(switched), Some(Malformed::OtherProtocol));
        for chunks in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "1 1\r\n",
            ";\r\n",
            "1\n1\r\n",
            "1\r\n12\r\n",
            "1\r\n1\n",
            "0\r\n\n",
            "11111111111111111\r\n",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
            assert_eq!(error_of(&text), Some(Malformed::Chunk), "{chunks:?}");
        }
    }

    #[test]
    fn all_that_is_kept_has_a_limit() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let chunked = format!("{ok}transfer-encoding: chunked\r\n\r\n");
        let many = |part: &str| part.repeat(HEAD_SIZE_MAX / part.len() + 1);
        for (text, expected) in [
            // It is refused before its end.
            (format!("{ok}a: {}", many("b")), Malformed::LongHead),
            (many("\r\n"), Malformed::LongHead),
            (many("HTTP/1.1 100 Continue\r\n\r\n"), Malformed::LongHead),
            (
                format!("{ok}{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1)),
                Malformed::Head(httparse::Error::TooManyHeaders),
            ),
            (
                format!("{ok}content-length: {}\r\n\r\n", BODY_SIZE_MAX + 1),
                Malformed::LongBody,
            ),
            (
                format!("{chunked}{:x}\r\n", BODY_SIZE_MAX + 1),
                Malformed::LongBody,
            ),
            (
                format!("{chunked}1\r\na\r\nffffffffffffffff\r\n"),
                Malformed::LongBody,
            ),
            (
                format!("{chunked}{}", "0".repeat(CHUNK_LINE_MAX)),
                Malformed::Chunk,
            ),
            (
                format!("{chunked}{}", many("1;abcdefg\r\na\r\n").repeat(3)),
                Malformed::LongHead,
            ),
            (
                format!("{chunked}0\r\n{}", many("a: b\r\n").repeat(2)),
                Malformed::LongHead,
            ),
        ] {
            let begin = text.get(..99).unwrap_or(&text);
            assert_eq!(error_of(&text), Some(expected), "{begin}");
        }
        let mut input = BytesMut::new();
        let endless = [
            format!("{ok}\r\n").into_bytes(),
            vec![b'a'; BODY_SIZE_MAX + 1],
        ];
        let pieces: Vec<&[u8]> = endless.iter().map(Vec::as_slice).collect();
        let (_, read) = read_of(&pieces, &mut input, false);
        assert_eq!(read.err(), Some(Malformed::LongBody));
    }

    proptest! {
        #[test]
        fn the_outcome_does_not_depend_on_the_pieces(
            which in 0..WHOLE.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut bytes = WHOLE[which].0.as_bytes().to_vec();
            for (at, byte) in changes {
                *at.get_mut(&mut bytes) = byte;
            }
            let mut cuts: Vec<_> = cuts.iter().map(|it| it.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|it| &bytes[it[0]..it[1]]).collect();
            let outcome = |pieces: &[&[u8]]| {
                let mut input = BytesMut::new();
                let (mut reading, read) = read_of(pieces, &mut input, false);
                match read? {
                    Some((answer, is_kept)) => Ok((answer.status, answer.body, is_kept)),
                    None => reading.end(&mut input).map(|it| (it.status, it.body, false)),
                }
            };
            prop_assert_eq!(outcome(&[&bytes]), outcome(&pieces));
        }
    }
}
