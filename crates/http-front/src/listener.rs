//! Reads from the wire what the HTTP library does not pass on: how names are spelled, and how bodies are
//! framed.
//!
//! The listener follows the bytes of a connection from request to request. It notes the spelling of
//! each head, and it is strict where the library is lenient. If a line of a head ends with a bare line
//! feed, a length is given twice, a transfer encoding is not exactly `chunked`, or a request has both,
//! then a proxy in between may have seen other requests than the library does. From there on the
//! listener reports no head, and a request whose head was not reported is refused.
//!
//! It checks nothing else: it may let a request pass that the library refuses.

use memchr::memchr;

use crate::spelling::Spelling;

/// The longest part of a line that is looked at. A longer one has a value, and its name came first. If its value
/// frames a body, it is unsound.
const LINE_SIZE_BYTES_MAX: usize = 8 * 1024;

const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

/// Follows the bytes that come in.
#[derive(Debug, Default)]
pub(crate) struct Listener<S> {
    place: Place,
    /// The head that is being read.
    head: Head<S>,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    /// Whether more of that line came than `partial` has.
    is_cut: bool,
    /// Whether the last byte was a carriage return.
    after_return: bool,
    /// How many bytes outside bodies were read since the count was last taken.
    size_bytes: usize,
    /// How many of these belong to a head that has not ended.
    unfinished_size_bytes: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    /// A body, or a chunk with its line end. What follows is another chunk or the next head.
    Body {
        left_bytes: u64,
        is_chunk: bool,
    },
    ChunkSize,
    Trailers,
    /// Unknown, and it stays unknown.
    Lost,
}

/// The part of a head that was read.
#[derive(Debug, Default)]
struct Head<S> {
    /// Whether it has begun: empty lines before it do not end it.
    has_line: bool,
    length: Option<u64>,
    is_chunked: bool,
    spelling: S,
}

/// A line that has more than one meaning, or none.
struct Unsound;

impl<S: Spelling> Listener<S> {
    /// Reads bytes from the client. Calls `heard` at the end of each head, with its spelling, but never
    /// again after an unsound one.
    pub(crate) fn listen(&mut self, mut bytes: &[u8], mut heard: impl FnMut(S)) {
        while !bytes.is_empty() {
            match self.place {
                Place::Lost => return self.weigh(bytes.len()),
                Place::Body {
                    left_bytes,
                    is_chunk,
                } => {
                    let here = usize::try_from(left_bytes).unwrap_or(usize::MAX);
                    let here = here.min(bytes.len());
                    bytes = bytes.get(here..).unwrap_or_default();
                    self.place = match left_bytes - here as u64 {
                        0 if is_chunk => Place::ChunkSize,
                        0 => Place::Head,
                        left_bytes => Place::Body {
                            left_bytes,
                            is_chunk,
                        },
                    };
                }
                Place::Head | Place::ChunkSize | Place::Trailers => {
                    let size = memchr(b'\n', bytes).map_or(bytes.len(), |index| index + 1);
                    let (piece, rest) = bytes.split_at_checked(size).unwrap_or((bytes, &[]));
                    bytes = rest;
                    match self.place {
                        // Between the chunks of a body that is being read.
                        Place::ChunkSize | Place::Trailers => {
                            self.size_bytes = self.size_bytes.saturating_add(piece.len());
                        }
                        Place::Head | Place::Body { .. } | Place::Lost => self.weigh(piece.len()),
                    }
                    if self.hear_piece(piece, &mut heard).is_err() {
                        self.place = Place::Lost;
                        self.partial = Vec::new();
                    }
                }
            }
        }
    }

    /// How many bytes outside bodies were read since the last call: mostly those of heads.
    pub(crate) fn take_size_bytes(&mut self) -> usize {
        std::mem::take(&mut self.size_bytes)
    }

    /// Whether the next byte would begin a request.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.place == Place::Head && !self.is_within_head()
    }

    /// Whether the last byte belongs to a head that has not ended.
    pub(crate) fn is_within_head(&self) -> bool {
        self.place == Place::Head && (self.head.has_line || !self.partial.is_empty())
    }

    /// Whether it is unknown what the next byte belongs to.
    pub(crate) fn is_lost(&self) -> bool {
        self.place == Place::Lost
    }

    /// How much there is of a head that has not ended.
    pub(crate) fn unfinished_size_bytes(&self) -> usize {
        self.unfinished_size_bytes
    }

    fn weigh(&mut self, size_bytes: usize) {
        self.size_bytes = self.size_bytes.saturating_add(size_bytes);
        self.unfinished_size_bytes = self.unfinished_size_bytes.saturating_add(size_bytes);
    }

    /// Reads a line or, at the end of the bytes, a part of one.
    fn hear_piece(&mut self, piece: &[u8], heard: &mut impl FnMut(S)) -> Result<(), Unsound> {
        let Some(line) = piece.strip_suffix(b"\n") else {
            self.keep(piece);
            self.after_return = piece.ends_with(b"\r");
            return Ok(());
        };
        let is_ended_well = line.ends_with(b"\r") || (line.is_empty() && self.after_return);
        self.after_return = false;
        if !is_ended_well {
            return Err(Unsound);
        }
        if self.partial.is_empty() && line.len() <= LINE_SIZE_BYTES_MAX {
            return self.hear_line(line, false, heard);
        }
        self.keep(line);
        let line = std::mem::take(&mut self.partial);
        let is_cut = std::mem::take(&mut self.is_cut);
        self.hear_line(&line, is_cut, heard)
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = LINE_SIZE_BYTES_MAX.saturating_sub(self.partial.len());
        let kept = piece.get(..room).unwrap_or(piece);
        self.partial.extend_from_slice(kept);
        self.is_cut |= kept.len() < piece.len();
    }

    /// `line` may still have its carriage return.
    fn hear_line(
        &mut self,
        line: &[u8],
        is_cut: bool,
        heard: &mut impl FnMut(S),
    ) -> Result<(), Unsound> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.place {
            Place::Head if !line.is_empty() => self.head.hear_line(line, is_cut),
            Place::Head if !self.head.has_line => Ok(()),
            Place::Head => {
                self.unfinished_size_bytes = 0;
                let head = std::mem::take(&mut self.head);
                self.place = head.body();
                heard(head.spelling);
                Ok(())
            }
            Place::ChunkSize if is_cut => Err(Unsound),
            Place::ChunkSize => {
                self.place = match chunk_size_bytes(line)? {
                    0 => Place::Trailers,
                    size_bytes => Place::Body {
                        left_bytes: size_bytes.checked_add(2).ok_or(Unsound)?,
                        is_chunk: true,
                    },
                };
                Ok(())
            }
            Place::Trailers => {
                if line.is_empty() {
                    self.place = Place::Head;
                }
                Ok(())
            }
            Place::Body { .. } | Place::Lost => Ok(()),
        }
    }
}

impl<S: Spelling> Head<S> {
    fn hear_line(&mut self, line: &[u8], is_cut: bool) -> Result<(), Unsound> {
        self.has_line = true;
        self.spelling.hear(line);
        match line.first() {
            Some(b'c' | b'C') => match value_of(line, CONTENT_LENGTH) {
                Some(_) if is_cut || self.length.is_some() || self.is_chunked => Err(Unsound),
                Some(value) => {
                    self.length = Some(decimal(value)?);
                    Ok(())
                }
                None => Ok(()),
            },
            Some(b't' | b'T') => match value_of(line, TRANSFER_ENCODING) {
                Some(_) if is_cut || self.length.is_some() || self.is_chunked => Err(Unsound),
                Some(value) if value.eq_ignore_ascii_case(b"chunked") => {
                    self.is_chunked = true;
                    Ok(())
                }
                Some(_) => Err(Unsound),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// What follows the head.
    fn body(&self) -> Place {
        match self.length {
            _ if self.is_chunked => Place::ChunkSize,
            None | Some(0) => Place::Head,
            Some(left_bytes) => Place::Body {
                left_bytes,
                is_chunk: false,
            },
        }
    }
}

/// The value in a header's line, if the header has that name, which is in lower case.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn decimal(digits: &[u8]) -> Result<u64, Unsound> {
    // `parse` would accept a sign.
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Unsound);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Unsound)?;
    digits.parse().map_err(|_| Unsound)
}

/// The size in the line that begins a chunk. Extensions may follow it.
fn chunk_size_bytes(line: &[u8]) -> Result<u64, Unsound> {
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    let count = line.iter().take_while(|byte| is_digit(byte)).count();
    let (digits, rest) = line.split_at_checked(count).ok_or(Unsound)?;
    if !matches!(rest.first(), None | Some(b';' | b' ' | b'\t')) {
        return Err(Unsound);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Unsound)?;
    u64::from_str_radix(digits, 16).map_err(|_| Unsound)
}

#[cfg(test)]
mod tests;
