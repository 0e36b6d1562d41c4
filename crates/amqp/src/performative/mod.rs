//! The nine performatives (AMQP 1.0, 2.7), and the types of their fields.

mod choice;
mod frames;
mod state;
mod terminus;

use bytes::{Bytes, BytesMut};

pub use choice::{ReceiverSettleMode, Role, SenderSettleMode};
pub use frames::{Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Tag, Transfer};
pub use state::{
    Accepted, Control, Declare, Declared, DeliveryState, Discharge, Modified, Outcome, Received,
    Rejected, Released, TransactionalState,
};
pub use terminus::{Coordinator, Source, Target, TargetNode};

use crate::codec::{Composite, DecodeError, Reader, descriptor_code};

/// The content of a frame. The large ones, which are rare, are boxed.
#[derive(Clone, Debug, PartialEq)]
pub enum Performative {
    /// Negotiates a connection.
    Open(Box<Open>),
    /// Begins a session.
    Begin(Begin),
    /// Attaches a link.
    Attach(Box<Attach>),
    /// Updates windows and credit.
    Flow(Flow),
    /// Carries a message, or a part of one.
    Transfer(Transfer),
    /// Reports the state of deliveries.
    Disposition(Disposition),
    /// Detaches a link.
    Detach(Detach),
    /// Ends a session.
    End(End),
    /// Closes a connection.
    Close(Close),
}

const NAMES: &[(u64, &str)] = &[
    (Transfer::CODE, Transfer::NAME),
    (Disposition::CODE, Disposition::NAME),
    (Flow::CODE, Flow::NAME),
    (Attach::CODE, Attach::NAME),
    (Detach::CODE, Detach::NAME),
    (Begin::CODE, Begin::NAME),
    (End::CODE, End::NAME),
    (Open::CODE, Open::NAME),
    (Close::CODE, Close::NAME),
];

impl Performative {
    /// Reads the body of a frame: a performative, and the payload that follows it.
    ///
    /// Long-lived performatives (all but transfers, flows and dispositions) are copied out of the
    /// input, so that a name does not keep the whole buffer.
    pub fn decode(body: &Bytes) -> Result<(Self, Bytes), DecodeError> {
        let mut reader = Reader::new(body);
        let code = descriptor_code(&reader.descriptor()?, NAMES)?;
        let is_short_lived = matches!(code, Transfer::CODE | Flow::CODE | Disposition::CODE);
        if is_short_lived {
            return Self::of(code, reader);
        }
        let own = Bytes::copy_from_slice(&reader.rest());
        Self::of(code, Reader::new(&own))
    }

    fn of(code: u64, mut reader: Reader<'_>) -> Result<(Self, Bytes), DecodeError> {
        let read = &mut reader;
        let performative = match code {
            Open::CODE => Self::Open(Box::new(Open::read_list(read)?)),
            Begin::CODE => Self::Begin(Begin::read_list(read)?),
            Attach::CODE => Self::Attach(Box::new(Attach::read_list(read)?)),
            Flow::CODE => Self::Flow(Flow::read_list(read)?),
            Transfer::CODE => Self::Transfer(Transfer::read_list(read)?),
            Disposition::CODE => Self::Disposition(Disposition::read_list(read)?),
            Detach::CODE => Self::Detach(Detach::read_list(read)?),
            End::CODE => Self::End(End::read_list(read)?),
            Close::CODE => Self::Close(Close::read_list(read)?),
            other => return Err(DecodeError::UnknownDescriptor(other)),
        };
        Ok((performative, reader.rest()))
    }

    /// Writes it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Open(open) => open.write(out),
            Self::Begin(begin) => begin.write(out),
            Self::Attach(attach) => attach.write(out),
            Self::Flow(flow) => flow.write(out),
            Self::Transfer(transfer) => transfer.write(out),
            Self::Disposition(disposition) => disposition.write(out),
            Self::Detach(detach) => detach.write(out),
            Self::End(end) => end.write(out),
            Self::Close(close) => close.write(out),
        }
    }
}
