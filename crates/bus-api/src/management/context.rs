//! The context of a request about an entity, and its answer.

use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use kew_amqp::codec::{MapWriter, Raw, write_map};
use kew_amqp::error::{Error, condition};
use kew_broker::{Answer, Broker};
use kew_engine::bus::BusCommand;
use kew_engine::{EntityName, Timestamp, Token};

use crate::authorization::rights::Rights;
use crate::ground::origin::Origin;
use crate::ground::refusal::error_of;
use crate::ground::submit::Submitted;
use crate::shared::Shared;

/// The context of a request.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// The handle of the client that asks.
    pub(crate) broker: Arc<Broker>,
    pub(crate) origin: Origin,
    /// Whether there is no room for an answer with messages.
    pub(crate) is_busy: bool,
    pub(crate) entity: EntityName,
    /// The client's rights on the entity for requests.
    pub(crate) rights: Rights,
    /// The lock of the session that the request names, if the client holds it.
    pub(crate) session: Option<Token>,
    /// Set when that lock was renewed.
    pub(crate) renewed_until: OnceLock<Timestamp>,
}

impl Context {
    pub(super) async fn submit(&self, command: BusCommand) -> Result<Answer, Error> {
        let answer = Submitted::new(&self.broker, command).answer().await;
        answer.map_err(|rejection| error_of(&rejection))
    }
}

/// The answer of a successful request.
pub(super) enum Answered {
    /// 200, with this map.
    Body(Raw),
    /// 204: the result is empty.
    Nothing,
}

impl Answered {
    pub(super) fn map(write: impl FnOnce(&mut MapWriter<'_>)) -> Result<Self, Error> {
        let mut out = BytesMut::new();
        write_map(&mut out, write);
        Ok(Self::Body(Raw::new(out.freeze())?))
    }
}

/// The broker returned an answer of another kind, which is a bug.
pub(super) fn unexpected() -> Error {
    let text = "The server was unable to process the request.";
    Error::new(condition::INTERNAL_ERROR, text)
}
