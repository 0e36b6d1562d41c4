//! A body in chunks (RFC 9112, 7.1).

use bytes::{Buf as _, Bytes, BytesMut};

use super::{BODY_SIZE_MAX, CHUNK_LINE_MAX, HEAD_SIZE_MAX, Malformed};

/// A body in chunks.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    whole: BytesMut,
    pub(super) next: Next,
}

/// What comes next in a body of chunks.
#[derive(Debug, Default)]
pub(super) enum Next {
    #[default]
    Size,
    /// So much data, and a line break.
    Data(usize),
    Trailers,
}

impl Chunks {
    /// Takes what has come, and returns the whole body after its last part.
    pub(super) fn take(
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
