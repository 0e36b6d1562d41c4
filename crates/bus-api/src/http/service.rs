//! The state that all connections over HTTP share, besides the state that they share with AMQP.

use std::sync::Arc;

use kew_http_front::Front;

use super::audit::RefusedActs;
use super::operator::jobs::Jobs;
use crate::memory::answers::RoomForAnswers;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct HttpService {
    pub(super) shared: Arc<Shared>,
    /// The bounds of connections, and the memory of their heads and bodies together.
    pub(super) front: Front,
    /// The largest part of the room for answers that HTTP takes: an answer keeps it until the client has read it.
    pub(super) answers: RoomForAnswers,
    /// Work that operators have started.
    pub(super) jobs: Jobs,
    pub(super) refused_acts: Arc<RefusedActs>,
}

impl HttpService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let limits = &shared.limits;
        Self {
            front: Front::new(limits.of_front()),
            answers: RoomForAnswers::new(limits.held_size_bytes_max / 2),
            jobs: Jobs::default(),
            refused_acts: Arc::default(),
            shared,
        }
    }
}
