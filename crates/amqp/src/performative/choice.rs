//! Fields with a short list of choices (AMQP 1.0, 2.8).

use bytes::{BufMut, BytesMut};

use crate::codec::{Decode, DecodeError, Encode, Reader, code};

/// Which end of a link one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It sends messages.
    Sender,
    /// It receives messages.
    Receiver,
}

impl Role {
    /// The other end's.
    pub fn opposite(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

impl Decode for Role {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(reader)? {
            Self::Receiver
        } else {
            Self::Sender
        })
    }
}

impl Encode for Role {
    fn encode(&self, out: &mut BytesMut) {
        (*self == Self::Receiver).encode(out);
    }
}

/// Whether a sender's deliveries are settled when they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderSettleMode {
    /// No delivery is.
    Unsettled,
    /// Every delivery is.
    Settled,
    /// Each delivery has its own flag.
    Mixed,
}

/// When a receiver settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverSettleMode {
    /// At once, with its outcome.
    First,
    /// After the sender has settled.
    Second,
}

macro_rules! choices {
    ($type:ident, $field:literal, $($number:literal => $choice:ident),+) => {
        impl Decode for $type {
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match u8::decode(reader)? {
                    $($number => Ok(Self::$choice),)+
                    other => Err(DecodeError::BadChoice { field: $field, value: u64::from(other) }),
                }
            }
        }

        impl Encode for $type {
            fn encode(&self, out: &mut BytesMut) {
                let number = match self { $(Self::$choice => $number,)+ };
                out.put_slice(&[code::UBYTE, number]);
            }
        }
    };
}

choices!(SenderSettleMode, "snd-settle-mode", 0 => Unsettled, 1 => Settled, 2 => Mixed);
choices!(ReceiverSettleMode, "rcv-settle-mode", 0 => First, 1 => Second);
