//! The bytes of a WebSocket's frames (RFC 6455, 5).

use bytes::{BufMut as _, BytesMut};

/// The longest payload of a control frame (5.5).
pub(super) const CONTROL_SIZE_BYTES_MAX: usize = 125;
/// The longest header that a client sends.
const HEADER_SIZE_BYTES_MAX: usize = 14;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The next part of a message.
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Kind {
    fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            _ => return None,
        })
    }

    fn code(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Why a connection is closed.
///
/// Source: RFC 6455, 7.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseCode {
    Normal,
    ProtocolError,
    /// Data of an unsupported type.
    Unsupported,
}

impl CloseCode {
    pub(super) fn number(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::ProtocolError => 1002,
            Self::Unsupported => 1003,
        }
    }
}

/// The header of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Whether its message ends with it.
    pub(super) is_last: bool,
    pub(super) payload_size_bytes: u64,
    pub(super) mask: Mask,
}

/// The mask of a client's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask([u8; 4]);

impl Mask {
    /// Unmasks the next bytes of a payload.
    pub(super) fn apply(&mut self, bytes: &mut [u8]) {
        for (byte, mask) in bytes.iter_mut().zip(self.0.iter().cycle()) {
            *byte ^= mask;
        }
        self.0.rotate_left(bytes.len() % 4);
    }
}

/// Reads the header of a client's frame, and returns its size in bytes. `None`: it is incomplete.
///
/// Refuses frames that no client may send: with reserved bits, unknown opcodes, unmasked payloads,
/// and control frames that are too long or fragmented.
pub(super) fn read_header(bytes: &[u8]) -> Result<Option<(Header, usize)>, &'static str> {
    let Some((&[flags, length], rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    if flags & 0x70 != 0 {
        return Err("a frame has reserved bits set");
    }
    let kind = Kind::of_code(flags & 0x0F).ok_or("a frame has an unknown opcode")?;
    let is_last = flags & 0x80 != 0;
    if length & 0x80 == 0 {
        return Err("a frame is not masked, and frames of clients must be");
    }
    let (payload_size_bytes, rest) = match length & 0x7F {
        126 => match rest.split_first_chunk() {
            Some((size, rest)) => (u64::from(u16::from_be_bytes(*size)), rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk() {
            Some((size, rest)) => (u64::from_be_bytes(*size), rest),
            None => return Ok(None),
        },
        size => (u64::from(size), rest),
    };
    if payload_size_bytes > i64::MAX as u64 {
        return Err("the length of a frame has its highest bit set");
    }
    if kind.is_control() && (!is_last || payload_size_bytes > CONTROL_SIZE_BYTES_MAX as u64) {
        return Err("a control frame is longer than 125 bytes, or fragmented");
    }
    let Some((mask, rest)) = rest.split_first_chunk() else {
        return Ok(None);
    };
    let header = Header {
        kind,
        is_last,
        payload_size_bytes,
        mask: Mask(*mask),
    };
    let size = bytes.len() - rest.len();
    debug_assert!(size <= HEADER_SIZE_BYTES_MAX);
    Ok(Some((header, size)))
}

/// Writes a frame that is a whole message, as a server does: its payload is not masked.
pub(super) fn write_frame(out: &mut BytesMut, kind: Kind, payload: &[u8]) {
    out.put_u8(0x80 | kind.code());
    match payload.len() {
        size @ ..126 => out.put_u8(u8::try_from(size).unwrap_or(u8::MAX)),
        size => match u16::try_from(size) {
            Ok(size) => {
                out.put_u8(126);
                out.put_u16(size);
            }
            Err(_) => {
                out.put_u8(127);
                out.put_u64(size as u64);
            }
        },
    }
    out.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], kind: Kind, is_last: bool, payload_size_bytes: u64) {
        let header = Header {
            kind,
            is_last,
            payload_size_bytes,
            mask: Mask(*b"mask"),
        };
        let bytes = [bytes, b"mask"].concat();
        let found = read_header(&[&bytes, &b"more"[..]].concat());
        assert_eq!(found, Ok(Some((header, bytes.len()))));
        for size in 0..bytes.len() {
            assert_eq!(read_header(&bytes[..size]), Ok(None), "{size} bytes");
        }
    }

    #[test]
    fn headers_are_read_in_all_three_lengths_and_no_sooner_than_they_are_there() {
        check(b"\x82\x80", Kind::Binary, true, 0);
        check(b"\x02\xfd", Kind::Binary, false, 125);
        check(b"\x80\xfe\x01\x02", Kind::Continuation, true, 258);
        check(
            b"\x81\xff\0\0\0\x01\0\0\0\x02",
            Kind::Text,
            true,
            (1 << 32) + 2,
        );
        check(b"\x88\x82", Kind::Close, true, 2);
        check(b"\x89\xfd", Kind::Ping, true, 125);
        check(b"\x8a\x80", Kind::Pong, true, 0);
    }

    #[test]
    fn invalid_frames_are_refused_as_early_as_possible() {
        for bytes in [
            &b"\xc2\x80"[..],
            b"\xa2\x80",
            b"\x92\x80",
            b"\x83\x80",
            b"\x8b\x80",
            b"\x82\x05",
            b"\x82\xff\x80\0\0\0\0\0\0\0",
            b"\x09\x80",
            b"\x89\xfe\0\x7e",
        ] {
            assert!(read_header(bytes).is_err(), "{bytes:x?}");
        }
    }

    #[test]
    fn a_mask_continues_from_part_to_part() {
        // From RFC 6455, 5.7.
        let masked = b"\x7f\x9f\x4d\x51\x58";
        for cut in 0..=masked.len() {
            let mut mask = Mask(*b"\x37\xfa\x21\x3d");
            let mut bytes = *masked;
            let (one, two) = bytes.split_at_mut(cut);
            mask.apply(one);
            mask.apply(two);
            assert_eq!(&bytes, b"Hello");
        }
    }

    #[test]
    fn frames_are_written_in_all_three_lengths() {
        for (size, header) in [
            (0, &b"\x82\0"[..]),
            (125, b"\x82\x7d"),
            (126, b"\x82\x7e\0\x7e"),
            (65_535, b"\x82\x7e\xff\xff"),
            (65_536, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
        ] {
            let mut out = BytesMut::new();
            write_frame(&mut out, Kind::Binary, &vec![7; size]);
            assert_eq!(out.len(), header.len() + size);
            assert_eq!(&out[..header.len()], header);
        }
    }
}
