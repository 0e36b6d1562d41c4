//! The SASL frames before AMQP proper: authentication (AMQP 1.0, 5.3).

use bytes::{Bytes, BytesMut};

use crate::codec::{
    Composite, Decode, DecodeError, Encode, Reader, Symbol, Symbols, Text, composite,
    descriptor_code,
};

composite! {
    /// The server's list.
    pub struct SaslMechanisms = 0x40 "amqp:sasl-mechanisms:list" {
        /// The mechanisms that the server accepts.
        sasl_server_mechanisms: Symbols,
    }
}

composite! {
    /// The client's choice.
    pub struct SaslInit = 0x41 "amqp:sasl-init:list" {
        /// The chosen mechanism.
        mechanism: Symbol,
        /// The client's first response.
        initial_response: Option<Bytes>,
        /// The host that the client connects to.
        hostname: Option<Text>,
    }
}

composite! {
    /// The server asks.
    pub struct SaslChallenge = 0x42 "amqp:sasl-challenge:list" {
        /// The challenge.
        challenge: Bytes,
    }
}

composite! {
    /// The client answers.
    pub struct SaslResponse = 0x43 "amqp:sasl-response:list" {
        /// The response.
        response: Bytes,
    }
}

composite! {
    /// How it ended.
    pub struct SaslOutcome = 0x44 "amqp:sasl-outcome:list" {
        /// How.
        code: SaslCode,
        /// The server's last data.
        additional_data: Option<Bytes>,
    }
}

/// How authentication ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslCode {
    /// The client is authenticated.
    Ok,
    /// It is not.
    Auth,
    /// The server failed.
    System,
    /// The server failed, and will again.
    SystemPermanent,
    /// The server failed, and may not again.
    SystemTemporary,
}

const CODES: [SaslCode; 5] = [
    SaslCode::Ok,
    SaslCode::Auth,
    SaslCode::System,
    SaslCode::SystemPermanent,
    SaslCode::SystemTemporary,
];

impl Decode for SaslCode {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = u8::decode(reader)?;
        let code = CODES.get(usize::from(number));
        code.copied().ok_or(DecodeError::BadChoice {
            field: "code",
            value: u64::from(number),
        })
    }
}

impl Encode for SaslCode {
    fn encode(&self, out: &mut BytesMut) {
        let number: u8 = match self {
            Self::Ok => 0,
            Self::Auth => 1,
            Self::System => 2,
            Self::SystemPermanent => 3,
            Self::SystemTemporary => 4,
        };
        number.encode(out);
    }
}

/// The content of a SASL frame.
#[derive(Clone, Debug, PartialEq)]
pub enum SaslFrame {
    /// The server's list.
    Mechanisms(SaslMechanisms),
    /// The client's choice.
    Init(SaslInit),
    /// The server asks.
    Challenge(SaslChallenge),
    /// The client answers.
    Response(SaslResponse),
    /// How it ended.
    Outcome(SaslOutcome),
}

const NAMES: &[(u64, &str)] = &[
    (SaslMechanisms::CODE, SaslMechanisms::NAME),
    (SaslInit::CODE, SaslInit::NAME),
    (SaslChallenge::CODE, SaslChallenge::NAME),
    (SaslResponse::CODE, SaslResponse::NAME),
    (SaslOutcome::CODE, SaslOutcome::NAME),
];

impl SaslFrame {
    /// Reads the body of a frame, all of it.
    pub fn decode(body: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let read = &mut reader;
        let frame = match descriptor_code(&read.descriptor()?, NAMES)? {
            SaslMechanisms::CODE => Self::Mechanisms(SaslMechanisms::read_list(read)?),
            SaslInit::CODE => Self::Init(SaslInit::read_list(read)?),
            SaslChallenge::CODE => Self::Challenge(SaslChallenge::read_list(read)?),
            SaslResponse::CODE => Self::Response(SaslResponse::read_list(read)?),
            _ => Self::Outcome(SaslOutcome::read_list(read)?),
        };
        reader.must_be_empty()?;
        Ok(frame)
    }

    /// Writes it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Mechanisms(mechanisms) => mechanisms.write(out),
            Self::Init(init) => init.write(out),
            Self::Challenge(challenge) => challenge.write(out),
            Self::Response(response) => response.write(out),
            Self::Outcome(outcome) => outcome.write(out),
        }
    }
}
