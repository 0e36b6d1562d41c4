//! Open, begin, attach, flow, transfer, disposition, detach, end, close.
//!
//! The fields are those of the specification, in its order. See AMQP 1.0, 2.7.1 to 2.7.9.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::{DeliveryState, ReceiverSettleMode, Role, SenderSettleMode, Source, Target};
use crate::codec::{Decode, DecodeError, Encode, Map, Reader, Symbols, Text, code, composite};
use crate::error::Error;

composite! {
    /// Negotiates a connection.
    pub struct Open = 0x10 "amqp:open:list" {
        /// The name of the sender of the frame.
        container_id: Text,
        /// The host that the client connects to, for a server with several.
        hostname: Option<Text>,
        /// The largest frame that it accepts, in bytes. At least 512.
        max_frame_size: u32 = u32::MAX,
        /// The highest channel number.
        channel_max: u16 = u16::MAX,
        /// After how many milliseconds without a frame it closes the connection.
        idle_time_out: Option<u32>,
        /// Languages of the texts it sends.
        outgoing_locales: Symbols = Symbols::default(),
        /// Languages of the texts it likes.
        incoming_locales: Symbols = Symbols::default(),
        /// Extensions that it supports.
        offered_capabilities: Symbols = Symbols::default(),
        /// Extensions that it would use.
        desired_capabilities: Symbols = Symbols::default(),
        /// Other properties.
        properties: Option<Map>,
    }
}

composite! {
    /// Begins a session.
    pub struct Begin = 0x11 "amqp:begin:list" {
        /// The other's channel, in an answer.
        remote_channel: Option<u16>,
        /// The number of its first transfer.
        next_outgoing_id: u32,
        /// How many transfers it accepts.
        incoming_window: u32,
        /// How many transfers it may send.
        outgoing_window: u32,
        /// The highest handle.
        handle_max: u32 = u32::MAX,
        /// Extensions that it supports.
        offered_capabilities: Symbols = Symbols::default(),
        /// Extensions that it would use.
        desired_capabilities: Symbols = Symbols::default(),
        /// Other properties.
        properties: Option<Map>,
    }
}

composite! {
    /// Attaches a link.
    pub struct Attach = 0x12 "amqp:attach:list" {
        /// The link's name.
        name: Text,
        /// Its number within the session.
        handle: u32,
        /// Which end speaks.
        role: Role,
        /// Whether deliveries are settled when they are sent.
        snd_settle_mode: SenderSettleMode = SenderSettleMode::Mixed,
        /// When the receiver settles.
        rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode::First,
        /// Where messages come from.
        source: Option<Source>,
        /// Where messages go to.
        target: Option<Target>,
        /// The unsettled deliveries, if a link is resumed.
        unsettled: Option<Map>,
        /// Whether that list is incomplete.
        incomplete_unsettled: bool = false,
        /// Where a sender begins to count its deliveries.
        initial_delivery_count: Option<u32>,
        /// The largest message, in bytes. 0 is no limit.
        max_message_size: Option<u64>,
        /// Extensions that it supports.
        offered_capabilities: Symbols = Symbols::default(),
        /// Extensions that it would use.
        desired_capabilities: Symbols = Symbols::default(),
        /// Other properties.
        properties: Option<Map>,
    }
}

composite! {
    /// Updates the windows of a session, and the credit of a link if it names one.
    pub struct Flow = 0x13 "amqp:flow:list" {
        /// Which transfer it expects next. Null before it has received the peer's begin.
        next_incoming_id: Option<u32>,
        /// How many transfers it accepts.
        incoming_window: u32,
        /// Which transfer it sends next.
        next_outgoing_id: u32,
        /// How many transfers it may send.
        outgoing_window: u32,
        /// Which link it is about.
        handle: Option<u32>,
        /// The link's count of deliveries.
        delivery_count: Option<u32>,
        /// How many deliveries it accepts from there on.
        link_credit: Option<u32>,
        /// How many deliveries wait.
        available: Option<u32>,
        /// Whether to return credit that cannot be used.
        drain: bool = false,
        /// Whether an answer is wanted.
        echo: bool = false,
        /// Other properties.
        properties: Option<Map>,
    }
}

composite! {
    /// Carries a message, or a part of one.
    pub struct Transfer = 0x14 "amqp:transfer:list" {
        /// Which link it is on.
        handle: u32,
        /// The delivery's number. Only the first of its transfers must have it.
        delivery_id: Option<u32>,
        /// The delivery's tag. Only the first of its transfers must have it.
        delivery_tag: Option<Tag>,
        /// The format of the message.
        message_format: Option<u32>,
        /// Whether it is settled already.
        settled: Option<bool>,
        /// Whether more of the message follows.
        more: bool = false,
        /// When the receiver settles.
        rcv_settle_mode: Option<ReceiverSettleMode>,
        /// The state at the sender.
        state: Option<DeliveryState>,
        /// Whether it resumes a delivery of a former link.
        resume: bool = false,
        /// Whether it is given up.
        aborted: bool = false,
        /// Whether the answer may wait for others.
        batchable: bool = false,
    }
}

composite! {
    /// Reports the state of deliveries.
    pub struct Disposition = 0x15 "amqp:disposition:list" {
        /// Which end speaks.
        role: Role,
        /// The first delivery.
        first: u32,
        /// The last delivery. Null: the first is the only one.
        last: Option<u32>,
        /// Whether it has forgotten them.
        settled: bool = false,
        /// Their state.
        state: Option<DeliveryState>,
        /// Whether the answer may wait for others.
        batchable: bool = false,
    }
}

composite! {
    /// Detaches a link.
    pub struct Detach = 0x16 "amqp:detach:list" {
        /// Which link.
        handle: u32,
        /// Whether for good.
        closed: bool = false,
        /// The error, if the other side did not ask for it.
        error: Option<Error>,
    }
}

composite! {
    /// Ends a session.
    pub struct End = 0x17 "amqp:end:list" {
        /// The error, if the other side did not ask for it.
        error: Option<Error>,
    }
}

composite! {
    /// Closes a connection.
    pub struct Close = 0x18 "amqp:close:list" {
        /// The error, if the other side did not ask for it.
        error: Option<Error>,
    }
}

impl Attach {
    /// An attach with only the mandatory fields. The handle is set when it is sent.
    pub fn new(name: Text, role: Role) -> Self {
        Self {
            name,
            handle: 0,
            role,
            snd_settle_mode: SenderSettleMode::Mixed,
            rcv_settle_mode: ReceiverSettleMode::First,
            source: None,
            target: None,
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: (role == Role::Sender).then_some(0),
            max_message_size: None,
            offered_capabilities: Symbols::default(),
            desired_capabilities: Symbols::default(),
            properties: None,
        }
    }

    /// An answer that agrees to everything: the same termini and modes, the other role.
    pub fn answer(&self) -> Self {
        Self {
            snd_settle_mode: self.snd_settle_mode,
            rcv_settle_mode: self.rcv_settle_mode,
            source: self.source.clone(),
            target: self.target.clone(),
            ..Self::new(self.name.clone(), self.role.opposite())
        }
    }

    /// A copy to keep, and its size in bytes: input shares the buffer of its whole frame, and of
    /// the frames that were read with it.
    #[must_use]
    pub fn unshared(&self) -> (Self, usize) {
        let mut own = BytesMut::new();
        self.encode(&mut own);
        // Without the unused capacity of the buffer.
        let own = Bytes::copy_from_slice(&own);
        // Encoded bytes can always be decoded. If they could not, the buffer would be kept.
        let copy = Self::decode(&mut Reader::new(&own));
        (copy.unwrap_or_else(|_| self.clone()), own.len())
    }
}

/// A delivery tag: 0 to 32 bytes, chosen by the sender. A broker uses its lock token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    size: u8,
    bytes: [u8; Tag::SIZE_MAX],
}

impl Tag {
    /// How many bytes one may have.
    pub const SIZE_MAX: usize = 32;

    /// A tag of these bytes.
    pub fn new(tag: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = [0; Self::SIZE_MAX];
        let too_long = DecodeError::LongTag(tag.len());
        let size = u8::try_from(tag.len()).map_err(|_| too_long)?;
        let place = bytes.get_mut(..tag.len()).ok_or(too_long)?;
        place.copy_from_slice(tag);
        Ok(Self { size, bytes })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.size))
            .unwrap_or(&self.bytes)
    }
}

impl From<[u8; 16]> for Tag {
    fn from(token: [u8; 16]) -> Self {
        let mut bytes = [0; Self::SIZE_MAX];
        for (place, byte) in bytes.iter_mut().zip(token) {
            *place = byte;
        }
        Self { size: 16, bytes }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl Decode for Tag {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = reader.byte()?;
        if code != code::BINARY8 && code != code::BINARY32 {
            return Err(DecodeError::WrongType {
                expected: "a binary",
                found: code,
            });
        }
        Self::new(&reader.variable(code)?)
    }
}

impl Encode for Tag {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&[code::BINARY8, self.size]);
        out.put_slice(self.as_bytes());
    }
}
