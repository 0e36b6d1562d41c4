//! What all connections share, each subject's part by itself.
//!
//! It stands above the parts and below those who serve connections: a part knows nothing of it, and takes what it
//! needs from its caller.

use std::sync::Arc;

use kew_broker::Broker;
use kew_listen::ServerNames;

use crate::authorization::authority::Authority;
use crate::ground::clock::Clock;
use crate::ground::limits::Limits;
use crate::memory::answers::RoomForAnswers;
use crate::memory::holdings::Memory;
use crate::messages::claims::Claims;
use crate::metrics::Observer;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) limits: Limits,
    /// What this server is called.
    pub(crate) names: ServerNames,
    pub(crate) clock: Clock,
    /// When this server was started, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    /// Who may do what.
    pub(crate) authority: Authority,
    /// What is counted and logged.
    pub(crate) observer: Arc<Observer>,
    /// What all connections hold together.
    pub(crate) memory: Memory,
    /// Room for answers with messages in them.
    pub(crate) answers: RoomForAnswers,
    /// Locks that open transactions are to end.
    pub(crate) claims: Arc<Claims>,
}
