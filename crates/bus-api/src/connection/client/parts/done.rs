//! The results of tasks.

use kew_amqp::LinkId;
use kew_amqp::error::Error;
use kew_broker::Rejection;
use kew_engine::bus::BusQueueView;
use kew_engine::{EntityName, Outcome, Token};
use tokio::time::Instant;

use super::asked::Cancelling;
use super::credentials::{Judged, JudgedAgain};
use super::settlements::Settlements;
use crate::connection::client::links::opening::Opened;
use crate::connection::client::links::receive::Received;
use crate::connection::client::links::requests::{Asker, Reply};

/// The result of a task of the client.
pub(crate) enum Done {
    /// The entity of a link, and whether only the entity was looked up, without a session.
    Opened(LinkId, Result<Opened, Error>, bool),
    Received(LinkId, EntityName, Result<Received, Rejection>),
    Answered(Asker, Reply),
    /// The current state of a queue whose scheduled messages a transaction will cancel.
    Cancelling(
        Box<Cancelling>,
        Result<Option<Box<BusQueueView>>, Rejection>,
    ),
    Judged(Judged),
    JudgedAgain(JudgedAgain),
    /// The current state of a link's entity, if it still exists.
    Looked(LinkId, Result<Option<Box<BusQueueView>>, Rejection>),
    LookAgain(LinkId),
    SessionLookedAt(LinkId, Token, Result<(), Rejection>),
    Settled(Settlements, Result<Outcome, Rejection>, Instant),
    /// A result that needs no action.
    Released,
}
