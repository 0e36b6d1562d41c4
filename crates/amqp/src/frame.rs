//! Protocol headers and frames (AMQP 1.0, 2.2 and 2.3).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, condition};

/// The smallest limit that a peer may have for frames, in bytes (AMQP 1.0, 2.3.1).
pub const FRAME_SIZE_MAX_MIN: u32 = 512;

/// Bytes of a frame before its body, without extended header.
pub const FRAME_HEAD_SIZE: usize = 8;

/// The header before SASL frames.
pub const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

/// The header before AMQP frames.
pub const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    /// AMQP proper.
    Amqp,
    /// Authentication.
    Sasl,
}

/// A frame. An empty body is a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: FrameType,
    /// The channel, of an AMQP frame.
    pub channel: u16,
    /// The body after the header.
    pub body: Bytes,
}

/// Takes the next frame from the input, if it has arrived completely.
///
/// The size is checked when the first four bytes have arrived, so the caller never buffers a frame
/// that is too large.
pub fn take_frame(input: &mut BytesMut, size_max: u32) -> Result<Option<Frame>, Error> {
    let Some(&size) = input.first_chunk::<4>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(size);
    if size > size_max || (size as usize) < FRAME_HEAD_SIZE {
        let text = format!("a frame has {size} bytes, {FRAME_HEAD_SIZE} to {size_max} are allowed");
        return Err(Error::new(condition::FRAMING_ERROR, text));
    }
    let Some(&[_, _, _, _, doff, kind, high, low]) = input.first_chunk::<FRAME_HEAD_SIZE>() else {
        return Ok(None);
    };
    let body = usize::from(doff) * 4;
    if body < FRAME_HEAD_SIZE || body > size as usize {
        let text = format!("the body of a frame of {size} bytes begins at {body}");
        return Err(Error::new(condition::FRAMING_ERROR, text));
    }
    let kind = match kind {
        0 => FrameType::Amqp,
        1 => FrameType::Sasl,
        other => {
            let text = format!("a frame has type {other}, only 0 and 1 are known");
            return Err(Error::new(condition::FRAMING_ERROR, text));
        }
    };
    if input.len() < size as usize {
        return Ok(None);
    }
    let mut frame = input.split_to(size as usize).freeze();
    frame.advance(body);
    Ok(Some(Frame {
        kind,
        channel: u16::from_be_bytes([high, low]),
        body: frame,
    }))
}

/// Writes a frame: `write` writes its body.
///
/// # Panics
///
/// If the body is 4 GiB long.
pub fn write_frame(
    out: &mut BytesMut,
    kind: FrameType,
    channel: u16,
    write: impl FnOnce(&mut BytesMut),
) {
    let begin = out.len();
    let kind = match kind {
        FrameType::Amqp => 0,
        FrameType::Sasl => 1,
    };
    out.put_slice(&[0, 0, 0, 0, 2, kind]);
    out.put_u16(channel);
    write(out);
    let size = u32::try_from(out.len() - begin).expect("a frame is shorter than 4 GiB");
    let place = out.iter_mut().skip(begin);
    for (byte, value) in place.zip(size.to_be_bytes()) {
        *byte = value;
    }
}
