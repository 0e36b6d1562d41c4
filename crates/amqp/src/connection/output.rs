//! Output: one buffer for all of a turn.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Encode;
use crate::error::Error;
use crate::frame::{FRAME_SIZE_MAX_MIN, FrameType, write_frame};
use crate::performative::{DeliveryState, Disposition, Role, Transfer};
use crate::sasl::SaslFrame;

/// How many earlier dispositions are searched for one to extend.
const LOOK_BACK: usize = 8;

/// A disposition that may still grow to a range.
#[derive(Debug)]
struct Pending {
    channel: u16,
    disposition: Disposition,
    last: u32,
}

#[derive(Debug)]
pub(crate) struct Output {
    buffer: BytesMut,
    pending: Vec<Pending>,
    /// The peer's limit.
    frame_size_max: usize,
    /// A frame did not fit into the peer's limit.
    pub(crate) is_oversized: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            pending: Vec::new(),
            frame_size_max: FRAME_SIZE_MAX_MIN as usize,
            is_oversized: false,
        }
    }

    pub(crate) fn set_frame_size_max(&mut self, size: u32) {
        self.frame_size_max = usize::try_from(size).unwrap_or(usize::MAX);
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Frees memory that is not needed now.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.buffer = BytesMut::new();
            self.pending = Vec::new();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.pending.is_empty()
    }

    /// All bytes that were written.
    pub(crate) fn take(&mut self) -> Bytes {
        self.flush();
        self.buffer.split().freeze()
    }

    pub(crate) fn header(&mut self, header: [u8; 8]) {
        self.buffer.put_slice(&header);
    }

    pub(crate) fn sasl(&mut self, frame: &SaslFrame) {
        write_frame(&mut self.buffer, FrameType::Sasl, 0, |out| {
            frame.encode(out);
        });
    }

    pub(crate) fn heartbeat(&mut self) {
        write_frame(&mut self.buffer, FrameType::Amqp, 0, |_| ());
    }

    /// Writes a performative, after all dispositions that were made before it.
    pub(crate) fn frame(&mut self, channel: u16, performative: &impl Encode) {
        self.flush();
        if !self.write(channel, performative) {
            self.is_oversized = true;
        }
    }

    /// Writes a performative that may have an error. If the error's text is too long for the peer,
    /// the text is left out instead of sending nothing.
    pub(crate) fn frame_of_error<T: Encode>(
        &mut self,
        channel: u16,
        error: Option<Error>,
        of: impl Fn(Option<Error>) -> T,
    ) {
        self.flush();
        let bare = error.as_ref().map(Error::bare);
        if !self.write(channel, &of(error)) && !self.write(channel, &of(bare)) {
            self.is_oversized = true;
        }
    }

    /// Returns whether it fits into the peer's limit. If not, nothing is written.
    fn write(&mut self, channel: u16, performative: &impl Encode) -> bool {
        let begin = self.buffer.len();
        write_frame(&mut self.buffer, FrameType::Amqp, channel, |out| {
            performative.encode(out);
        });
        let fits = self.buffer.len() - begin <= self.frame_size_max;
        if !fits {
            self.buffer.truncate(begin);
        }
        fits
    }

    /// Writes one frame of a message, and removes its part from the payload.
    ///
    /// Sets `more` correctly. Returns whether the message is complete.
    pub(crate) fn transfer(
        &mut self,
        channel: u16,
        transfer: &mut Transfer,
        payload: &mut [Bytes; 2],
    ) -> bool {
        let begin = self.buffer.len();
        let left = payload.iter().map(Bytes::len).sum::<usize>();
        for more in [false, true] {
            transfer.more = more;
            let mut room = 0;
            write_frame(&mut self.buffer, FrameType::Amqp, channel, |out| {
                transfer.encode(out);
                room = self.frame_size_max.saturating_sub(out.len() - begin);
                if more || left <= room {
                    put_payload(out, payload, room);
                }
            });
            if left <= room {
                return true;
            }
            if !more || room == 0 {
                self.buffer.truncate(begin);
                self.is_oversized |= more;
            }
        }
        false
    }

    /// Remembers a disposition. Consecutive ones are sent as one.
    pub(crate) fn disposition(
        &mut self,
        channel: u16,
        role: Role,
        id: u32,
        settled: bool,
        state: Option<DeliveryState>,
    ) {
        let continued = self.pending.iter_mut().rev().take(LOOK_BACK).find(|own| {
            own.channel == channel
                && own.disposition.role == role
                && own.last.wrapping_add(1) == id
                && own.disposition.settled == settled
                && own.disposition.state == state
        });
        if let Some(own) = continued {
            own.last = id;
            return;
        }
        let disposition = Disposition {
            role,
            first: id,
            last: None,
            settled,
            state,
            batchable: false,
        };
        self.pending.push(Pending {
            channel,
            disposition,
            last: id,
        });
    }

    fn flush(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        for own in &mut pending {
            let disposition = &mut own.disposition;
            disposition.last = (own.last != disposition.first).then_some(own.last);
            if self.write(own.channel, disposition) {
                continue;
            }
            disposition.state = disposition.state.as_ref().map(DeliveryState::bare);
            if !self.write(own.channel, disposition) {
                self.is_oversized = true;
            }
        }
        pending.clear();
        self.pending = pending;
    }
}

fn put_payload(out: &mut BytesMut, payload: &mut [Bytes; 2], mut room: usize) {
    for part in payload {
        let size = part.len().min(room);
        out.put_slice(&part.split_to(size));
        room -= size;
    }
}
