//! The state that all connections share, by subject.
//!
//! It stands above the parts and below the code that serves connections: a part does not know it,
//! and takes what it needs from its caller.

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
    /// The names of this server.
    pub(crate) names: ServerNames,
    pub(crate) clock: Clock,
    /// When this server was started, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    /// Rules and rights.
    pub(crate) authority: Authority,
    /// Counters and logs.
    pub(crate) observer: Arc<Observer>,
    /// The memory of all connections.
    pub(crate) memory: Memory,
    /// Room for answers with messages in them.
    pub(crate) answers: RoomForAnswers,
    /// Locks that open transactions will end.
    pub(crate) claims: Arc<Claims>,
}
