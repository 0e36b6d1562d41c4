//! The bytes of events and snapshot parts.
//!
//! Integers are LEB128 varints, strings and lists carry their length in front. Decoding never
//! panics and never allocates by a length that it has not checked against what is there.

use thiserror::Error;

/// The bytes are not from this version or an older one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at byte {offset} of {length}")]
pub struct DecodeError {
    what: &'static str,
    offset: usize,
    length: usize,
}

/// A value that is there has this flag.
pub(crate) fn if_some<T>(value: Option<T>, flag: u8) -> u8 {
    if_that(value.is_some(), flag)
}

/// The flag, if something is so.
pub(crate) fn if_that(is_so: bool, flag: u8) -> u8 {
    if is_so { flag } else { 0 }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// A value that may be missing: a byte 0, or a byte 1 and the value.
pub(crate) fn put_optional<T>(
    out: &mut Vec<u8>,
    value: Option<T>,
    put: impl FnOnce(&mut Vec<u8>, T),
) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

pub(crate) fn optional<'a, T>(
    r: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    match r.flag()? {
        true => read(r).map(Some),
        false => Ok(None),
    }
}

/// A difference modulo 2^64 as a number that is small if the difference is near 0.
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference >> 63).wrapping_neg()
}

pub(crate) fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Reads the output of the `put_` functions.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    whole: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            whole: bytes.len(),
            rest: bytes,
        }
    }

    pub(crate) fn error(&self, what: &'static str) -> DecodeError {
        DecodeError {
            what,
            offset: self.whole - self.rest.len(),
            length: self.whole,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses trailing bytes.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error("trailing bytes"))
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(self.error("early end"))?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("flag that is neither 0 nor 1")),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            Some(_) | None => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        let mut rest = self.rest;
        for shift in (0..64).step_by(7) {
            let Some((&byte, after)) = rest.split_first() else {
                self.rest = rest;
                return Err(self.error("early end"));
            };
            rest = after;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                self.rest = rest;
                return Ok(value);
            }
        }
        self.rest = rest;
        Err(self.error("integer of more than 64 bits"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.error("integer of more than 32 bits"))
    }

    /// An integer whose successor also has at most `bits` bits.
    pub(crate) fn varint_bits(&mut self, bits: u32) -> Result<u64, DecodeError> {
        let value = self.varint()?;
        if value < (1 << bits) - 1 {
            Ok(value)
        } else {
            Err(self.error("integer out of range"))
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(self.error("early end"))?;
        self.rest = rest;
        Ok(*array)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| self.error("length out of range"))?;
        self.take(length)
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(self.error("early end"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn str(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.error("text that is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reading_undoes_writing(number: u64, text: String) {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            put_str(&mut out, &text);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint()?, number);
            prop_assert_eq!(reader.str()?, &text);
            prop_assert!(reader.finish().is_ok());
            for cut in 0..out.len() {
                let mut reader = Reader::new(&out[..cut]);
                prop_assert!(reader.varint().and_then(|_| reader.str()).is_err());
            }
        }
    }

    #[test]
    fn a_length_beyond_the_end_takes_no_memory() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        assert!(Reader::new(&out).bytes().is_err());
    }

    #[test]
    fn an_integer_has_at_most_64_bits() {
        let mut longest = [0xff; 10];
        longest[9] = 1;
        assert_eq!(Reader::new(&longest).varint(), Ok(u64::MAX));
        longest[9] = 2;
        assert!(Reader::new(&longest).varint().is_err());
    }
}
