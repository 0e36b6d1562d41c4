//! What tasks come to.

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

/// What a task of the client comes to.
pub(crate) enum Done {
    /// The entity of a link, and whether it was looked for alone, and no session.
    Opened(LinkId, Result<Opened, Error>, bool),
    Received(LinkId, EntityName, Result<Received, Rejection>),
    Answered(Asker, Reply),
    /// What the queue is now whose scheduled messages a transaction is to take back.
    Cancelling(
        Box<Cancelling>,
        Result<Option<Box<BusQueueView>>, Rejection>,
    ),
    Judged(Judged),
    JudgedAgain(JudgedAgain),
    /// What a link's entity is now, if it is one at all.
    Looked(LinkId, Result<Option<Box<BusQueueView>>, Rejection>),
    LookAgain(LinkId),
    SessionLookedAt(LinkId, Token, Result<(), Rejection>),
    Settled(Settlements, Result<Outcome, Rejection>, Instant),
    /// Nobody waits for it.
    Released,
}
