//! Answers of HTTP/1.1, read as their bytes come in.
//!
//! The service may be anything, so everything that it makes us keep has a limit: the head, the body, and what else is
//! between the chunks of one. Where an answer ends must be beyond doubt (RFC 9112, 6.3). If two parts of it contradict
//! each other it is refused: what one side takes for a body, the other side could take for the next answer.
//!
//! Nothing here knows a connection: bytes are taken out of a buffer, and those that follow the answer stay there.

mod chunks;
mod head;
mod reading;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub(super) use self::reading::Reading;

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
