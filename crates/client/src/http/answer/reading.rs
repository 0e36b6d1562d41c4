//! An answer that is on its way: first its head, then its body.

use bytes::{Buf as _, Bytes, BytesMut};

use super::chunks::{Chunks, Next};
use super::head::{Begun, Body};
use super::{Answer, BODY_SIZE_MAX, HEAD_SIZE_MAX, Malformed};

/// An answer on its way.
#[derive(Debug)]
pub(in crate::http) struct Reading {
    /// The request asked for the head alone.
    is_head_only: bool,
    /// How much of the heads, and of what is in chunks beside the body, has come.
    head_size: usize,
    /// How much of the input has no end of the head.
    searched: usize,
    begun: Option<Begun>,
}

impl Reading {
    pub(in crate::http) fn new(is_head_only: bool) -> Self {
        Self {
            is_head_only,
            head_size: 0,
            searched: 0,
            begun: None,
        }
    }

    /// Takes what has come. `None` if more is to come. The second part says whether the connection can be used again.
    pub(in crate::http) fn take(
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
    pub(in crate::http) fn end(&mut self, input: &mut BytesMut) -> Result<Answer, Malformed> {
        let body = self.begun.as_ref().map(|begun| &begun.body);
        let is_whole = matches!(body, Some(Body::WithConnection));
        let answer = is_whole.then(|| self.answer(input.split().freeze()));
        let (answer, _) = answer.flatten().ok_or(Malformed::Truncated)?;
        Ok(answer)
    }

    /// How many bytes of the answer are certainly still to come.
    pub(in crate::http) fn missing(&self, input: &BytesMut) -> usize {
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
            // The last three bytes could be the start of the empty line.
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
