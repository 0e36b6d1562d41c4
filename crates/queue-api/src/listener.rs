//! Hears on the wire what the HTTP library does not tell: how the names of metadata are spelled, and
//! how bodies are framed.
//!
//! The listener follows the bytes of a connection from request to request. It keeps the spellings of
//! each head. And it is strict where the library is lenient: when a line of a head ends with a bare
//! line feed, a length is given twice, a transfer encoding is not just `chunked`, or a request has
//! both, somebody on the way may have seen other requests than the library does. From there on it
//! hears no head, and who serves a head that was not heard refuses it.
//!
//! It judges nothing else: what the library refuses anyway may pass here.

use memchr::memchr;

use crate::metadata::PREFIX;
use crate::spelling::Spellings;

/// The longest part of a line that is looked at. A longer one has a value, and its name came first.
const LINE_SIZE_BYTES_MAX: usize = 8 * 1024;

const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

/// Follows the bytes that come in.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    place: Place,
    /// The head that is being heard.
    head: Head,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// Whether the last byte was a carriage return.
    after_return: bool,
    /// How much was heard that is no body, since somebody asked.
    size_bytes: usize,
    /// How much of that belongs to a head that has not ended.
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
    /// Unknown, for good.
    Lost,
}

/// What was heard of a head.
#[derive(Debug, Default)]
struct Head {
    /// Whether it has begun: empty lines before it do not end it.
    has_line: bool,
    length: Option<u64>,
    is_chunked: bool,
    spellings: Spellings,
}

/// A line that cannot be understood in one way only.
struct Unsound;

impl Listener {
    /// Looks at bytes that came in. Calls `heard` at the end of each head, with the names that it
    /// spells; never again after one that is unsound.
    pub(crate) fn listen(&mut self, mut bytes: &[u8], mut heard: impl FnMut(Spellings)) {
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
                    self.weigh(piece.len());
                    if self.hear_piece(piece, &mut heard).is_err() {
                        self.place = Place::Lost;
                        self.partial = Vec::new();
                    }
                }
            }
        }
    }

    /// How many bytes were heard since this was last asked that are no body: heads, mostly.
    pub(crate) fn take_size_bytes(&mut self) -> usize {
        std::mem::take(&mut self.size_bytes)
    }

    /// How much there is of a head that has not ended.
    pub(crate) fn unfinished_size_bytes(&self) -> usize {
        self.unfinished_size_bytes
    }

    fn weigh(&mut self, size_bytes: usize) {
        self.size_bytes = self.size_bytes.saturating_add(size_bytes);
        self.unfinished_size_bytes = self.unfinished_size_bytes.saturating_add(size_bytes);
    }

    /// Takes a line or, at the end of what has come, a part of one.
    fn hear_piece(
        &mut self,
        piece: &[u8],
        heard: &mut impl FnMut(Spellings),
    ) -> Result<(), Unsound> {
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
        if self.partial.is_empty() {
            return self.hear_line(line, heard);
        }
        self.keep(line);
        let line = std::mem::take(&mut self.partial);
        self.hear_line(&line, heard)
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = LINE_SIZE_BYTES_MAX.saturating_sub(self.partial.len());
        self.partial
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// `line` may still have its carriage return.
    fn hear_line(&mut self, line: &[u8], heard: &mut impl FnMut(Spellings)) -> Result<(), Unsound> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.place {
            Place::Head if !line.is_empty() => self.head.hear_line(line),
            Place::Head if !self.head.has_line => Ok(()),
            Place::Head => {
                self.unfinished_size_bytes = 0;
                let head = std::mem::take(&mut self.head);
                self.place = head.body();
                heard(head.spellings);
                Ok(())
            }
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

impl Head {
    fn hear_line(&mut self, line: &[u8]) -> Result<(), Unsound> {
        self.has_line = true;
        match line.first() {
            Some(b'x' | b'X') => {
                self.hear_spelling(line);
                Ok(())
            }
            Some(b'c' | b'C') => match value_of(line, CONTENT_LENGTH) {
                Some(_) if self.length.is_some() || self.is_chunked => Err(Unsound),
                Some(value) => {
                    self.length = Some(decimal(value)?);
                    Ok(())
                }
                None => Ok(()),
            },
            Some(b't' | b'T') => match value_of(line, TRANSFER_ENCODING) {
                Some(_) if self.length.is_some() || self.is_chunked => Err(Unsound),
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

    fn hear_spelling(&mut self, line: &[u8]) {
        let Some((prefix, rest)) = line.split_at_checked(PREFIX.len()) else {
            return;
        };
        if prefix.eq_ignore_ascii_case(PREFIX.as_bytes()) {
            let name = rest.split(|byte| *byte == b':').next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name) {
                self.spellings.push(name);
            }
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
    // `parse` would take a sign.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "PUT /a/q HTTP/1.1\r\nHost: h\r\nX-Ms-Meta-OwnerName: x-ms-meta-No: 1\r\n\
        x-ms-date: y\r\nx-ms-meta-lower:2\r\n";

    fn spellings(names: &[&str]) -> Spellings {
        let mut spellings = Spellings::default();
        for name in names {
            spellings.push(name);
        }
        spellings
    }

    fn heard(pieces: &[&[u8]]) -> Vec<Spellings> {
        let mut listener = Listener::default();
        let mut heard = Vec::new();
        for piece in pieces {
            listener.listen(piece, |spellings| heard.push(spellings));
        }
        heard
    }

    /// Three requests, one with each kind of body, and the names that each spells.
    fn pipeline() -> (String, Vec<Spellings>) {
        let text = format!(
            "\r\n{HEAD}Content-Length: 19\r\n\r\nx-ms-meta-Body: 3\r\n\
             {HEAD}transfer-ENCODING:chunked\r\n\r\n\
             A;x=y\r\n\r\n\r\nx-ms-m\r\n1 \r\nx\r\n0\r\nx-ms-meta-Trailer: 1\r\n\r\n\
             GET / HTTP/1.1\r\nx-ms-META-last: 1\r\n\r\n"
        );
        let names = spellings(&["OwnerName", "lower"]);
        (text, vec![names.clone(), names, spellings(&["last"])])
    }

    #[test]
    fn heads_are_heard_and_bodies_are_not() {
        let (text, expected) = pipeline();
        assert_eq!(heard(&[text.as_bytes()]), expected);
    }

    #[test]
    fn every_split_is_heard_alike() {
        let (text, expected) = pipeline();
        for index in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(index);
            assert_eq!(heard(&[first, second]), expected, "{index}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(heard(&bytes), expected);
    }

    #[test]
    fn heads_are_weighed_and_bodies_are_not() {
        let head = "PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\n";
        let mut listener = Listener::default();
        let mut hear = |text: &str| {
            listener.listen(text.as_bytes(), |_| {});
            (listener.take_size_bytes(), listener.unfinished_size_bytes())
        };
        assert_eq!(hear(head), (head.len(), 0));
        assert_eq!(hear("12345GET"), (3, 3));
        assert_eq!(hear(" / "), (3, 6));
        assert_eq!(hear("HTTP/1.1\nlost"), (13, 19));
        assert_eq!(hear("more"), (4, 23));
    }

    #[test]
    fn a_long_line_is_heard_by_its_name() {
        let long = "v".repeat(3 * LINE_SIZE_BYTES_MAX);
        let text = format!("GET / HTTP/1.1\r\nx-ms-meta-Long: {long}\r\n\r\n");
        for size in [1, 1000, 100_000] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(heard(&pieces), [spellings(&["Long"])], "{size}");
        }
    }

    #[test]
    fn what_is_unsound_is_not_heard_nor_what_follows() {
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\ncontent-length: 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "X: y\nY: z\r\n",
            "\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\n{lines}\r\nGET / HTTP/1.1\r\n\r\n");
            assert_eq!(heard(&[text.as_bytes()]), [], "{lines}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(heard(&bytes), [], "{lines}");
        }
        for chunks in [
            "5\n",
            "x\r\n",
            "\r\n",
            "ffffffffffffffff\r\n",
            "10000000000000000\r\n",
        ] {
            let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
            let text = format!("{head}{chunks}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(heard(&[text.as_bytes()]).len(), 1, "{chunks}");
        }
    }

    proptest! {
        #[test]
        fn listening_never_panics(pieces: Vec<Vec<u8>>) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            heard(&pieces);
        }

        #[test]
        fn splits_make_no_difference(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("\r\n"), Just("\n"), Just("\r"), Just("x-ms-meta-A"), Just(":"), Just("5"),
                    Just("content-length:"), Just("transfer-encoding:"), Just("chunked"), Just("0"),
                ],
                0..40,
            ),
            size in 1_usize..9,
        ) {
            let text = parts.concat();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(heard(&pieces), heard(&[text.as_bytes()]));
        }
    }
}
