//! What was received, and the values that most of the codec consists of.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use crate::vocabulary::codec::{DecodeError, Reader, put_optional, put_varint};
use crate::vocabulary::elements::{put_location, put_time, sequence_number, time};
use crate::vocabulary::{BodyLocation, SequenceNumber, Timestamp, Token};

/// What was received, as far as it was not read yet.
pub(super) struct Received<'a> {
    whole: &'a Bytes,
    reader: Reader<'a>,
}

impl<'a> Received<'a> {
    pub(super) fn new(whole: &'a Bytes) -> Self {
        Self {
            whole,
            reader: Reader::new(whole),
        }
    }

    /// Refuses trailing bytes.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        self.reader.finish()
    }

    /// A body: a slice of what was received.
    pub(super) fn body(&mut self) -> Result<Bytes, DecodeError> {
        let bytes = self.reader.bytes()?;
        Ok(self.whole.slice_ref(bytes))
    }

    pub(super) fn text<T: From<&'a str>>(&mut self) -> Result<T, DecodeError> {
        Ok(self.reader.str()?.into())
    }

    pub(super) fn optional_text<T: From<&'a str>>(&mut self) -> Result<Option<T>, DecodeError> {
        self.optional(Self::text)
    }

    pub(super) fn token(&mut self) -> Result<Token, DecodeError> {
        self.array().map(Token::from_bytes)
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, DecodeError> {
        time(self)
    }

    pub(super) fn sequence_number(&mut self) -> Result<SequenceNumber, DecodeError> {
        sequence_number(self)
    }

    /// A size of something in memory.
    pub(super) fn size(&mut self) -> Result<usize, DecodeError> {
        let size = self.varint()?;
        usize::try_from(size).map_err(|_| self.error("size out of range"))
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.flag()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    /// A list of values, each of which takes at least one byte.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.varint()?;
        // Collecting through a `Result` takes no capacity from `count`, which is not checked yet.
        (0..count).map(|_| read(self)).collect()
    }
}

impl<'a> Deref for Received<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl DerefMut for Received<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

pub(super) fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, list.len() as u64);
    for value in list {
        put(out, value);
    }
}

pub(super) fn put_token(out: &mut Vec<u8>, token: Token) {
    out.extend_from_slice(token.as_bytes());
}

pub(super) fn put_number(out: &mut Vec<u8>, number: SequenceNumber) {
    put_varint(out, number.as_u64());
}

pub(super) fn put_numbers(out: &mut Vec<u8>, numbers: &[SequenceNumber]) {
    put_list(out, numbers, |out, number| put_number(out, *number));
}

pub(super) fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

pub(super) fn put_optional_time(out: &mut Vec<u8>, time: Option<Timestamp>) {
    put_optional(out, time, put_time);
}

pub(super) fn put_locations(out: &mut Vec<u8>, locations: &[BodyLocation]) {
    put_list(out, locations, |out, location| put_location(out, *location));
}
