//! Delivery states and outcomes (AMQP 1.0, 3.4 and 4.5).

use bytes::{Bytes, BytesMut};

use crate::codec::{
    Composite, Decode, DecodeError, Encode, Map, Raw, Reader, composite, descriptor_code,
};
use crate::error::Error;

composite! {
    /// How much of a delivery a receiver has.
    pub struct Received = 0x23 "amqp:received:list" {
        /// In which section.
        section_number: u32,
        /// Where in it.
        section_offset: u64,
    }
}

composite! {
    /// The receiver has it.
    pub struct Accepted = 0x24 "amqp:accepted:list" {}
}

composite! {
    /// The receiver cannot do anything with it.
    pub struct Rejected = 0x25 "amqp:rejected:list" {
        /// Why.
        error: Option<Error>,
    }
}

composite! {
    /// The receiver returns it unchanged.
    pub struct Released = 0x26 "amqp:released:list" {}
}

composite! {
    /// The receiver gives it back with changes.
    pub struct Modified = 0x27 "amqp:modified:list" {
        /// Whether it counts as an attempt.
        delivery_failed: Option<bool>,
        /// Whether it should not come here again.
        undeliverable_here: Option<bool>,
        /// Entries to add to its annotations.
        message_annotations: Option<Map>,
    }
}

composite! {
    /// Asks a coordinator for a transaction.
    pub struct Declare = 0x31 "amqp:declare:list" {
        /// Of a distributed transaction.
        global_id: Option<Raw>,
    }
}

composite! {
    /// Asks a coordinator to end a transaction.
    pub struct Discharge = 0x32 "amqp:discharge:list" {
        /// Which.
        txn_id: Bytes,
        /// Whether it is rolled back.
        fail: Option<bool>,
    }
}

composite! {
    /// A transaction was made.
    pub struct Declared = 0x33 "amqp:declared:list" {
        /// Which.
        txn_id: Bytes,
    }
}

composite! {
    /// The delivery or its outcome is part of a transaction.
    pub struct TransactionalState = 0x34 "amqp:transactional-state:list" {
        /// Which.
        txn_id: Bytes,
        /// The outcome, once the transaction is through.
        outcome: Option<Outcome>,
    }
}

/// A request to a coordinator: the body of a message to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// For a transaction.
    Declare(Declare),
    /// To end one.
    Discharge(Discharge),
}

impl Decode for Control {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let names = [
            (Declare::CODE, Declare::NAME),
            (Discharge::CODE, Discharge::NAME),
        ];
        match descriptor_code(&reader.descriptor()?, &names)? {
            Declare::CODE => Declare::read_list(reader).map(Self::Declare),
            _ => Discharge::read_list(reader).map(Self::Discharge),
        }
    }
}

impl Encode for Control {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Declare(declare) => declare.encode(out),
            Self::Discharge(discharge) => discharge.encode(out),
        }
    }
}

/// A state in which a delivery can end.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The receiver has it.
    Accepted,
    /// The receiver cannot do anything with it.
    Rejected(Rejected),
    /// The receiver returns it unchanged.
    Released,
    /// The receiver gives it back with changes.
    Modified(Modified),
    /// The coordinator has begun the requested transaction.
    Declared(Declared),
}

impl Outcome {
    /// Rejected for a reason.
    pub fn rejected(error: Error) -> Self {
        Self::Rejected(Rejected { error: Some(error) })
    }
}

/// Any state of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum DeliveryState {
    /// It ends with this outcome.
    Outcome(Outcome),
    /// It has been received up to here.
    Received(Received),
    /// It is part of a transaction.
    Transactional(TransactionalState),
}

impl DeliveryState {
    /// The receiver has it.
    pub const ACCEPTED: Self = Self::Outcome(Outcome::Accepted);

    /// Rejected for a reason.
    pub fn rejected(error: Error) -> Self {
        Self::Outcome(Outcome::rejected(error))
    }

    /// The outcome, if it is one, also inside a transaction.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Outcome(outcome) => Some(outcome),
            Self::Transactional(state) => state.outcome.as_ref(),
            Self::Received(_) => None,
        }
    }

    /// The same, with only the kind of its error.
    pub(crate) fn bare(&self) -> Self {
        match self {
            Self::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) => {
                Self::rejected(error.bare())
            }
            other => other.clone(),
        }
    }
}

impl From<Outcome> for DeliveryState {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

const OUTCOMES: [(u64, &str); 5] = [
    (Accepted::CODE, Accepted::NAME),
    (Rejected::CODE, Rejected::NAME),
    (Released::CODE, Released::NAME),
    (Modified::CODE, Modified::NAME),
    (Declared::CODE, Declared::NAME),
];

const STATES: [(u64, &str); 7] = {
    let [a, b, c, d, e] = OUTCOMES;
    let received = (Received::CODE, Received::NAME);
    let transactional = (TransactionalState::CODE, TransactionalState::NAME);
    [a, b, c, d, e, received, transactional]
};

fn outcome_of(code: u64, reader: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
    Ok(match code {
        Accepted::CODE => Accepted::read_list(reader).map(|_| Outcome::Accepted)?,
        Rejected::CODE => Outcome::Rejected(Rejected::read_list(reader)?),
        Released::CODE => Released::read_list(reader).map(|_| Outcome::Released)?,
        Modified::CODE => Outcome::Modified(Modified::read_list(reader)?),
        Declared::CODE => Outcome::Declared(Declared::read_list(reader)?),
        other => return Err(DecodeError::UnknownDescriptor(other)),
    })
}

impl Decode for Outcome {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = descriptor_code(&reader.descriptor()?, &OUTCOMES)?;
        outcome_of(code, reader)
    }
}

impl Encode for Outcome {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Accepted => Accepted {}.encode(out),
            Self::Rejected(rejected) => rejected.encode(out),
            Self::Released => Released {}.encode(out),
            Self::Modified(modified) => modified.encode(out),
            Self::Declared(declared) => declared.encode(out),
        }
    }
}

impl Decode for DeliveryState {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match descriptor_code(&reader.descriptor()?, &STATES)? {
            Received::CODE => Received::read_list(reader).map(Self::Received),
            TransactionalState::CODE => {
                TransactionalState::read_list(reader).map(Self::Transactional)
            }
            code => outcome_of(code, reader).map(Self::Outcome),
        }
    }
}

impl Encode for DeliveryState {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Outcome(outcome) => outcome.encode(out),
            Self::Received(received) => received.encode(out),
            Self::Transactional(state) => state.encode(out),
        }
    }
}
