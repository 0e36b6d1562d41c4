//! What all connections over HTTP share, beside what those over AMQP share with them.

use std::sync::Arc;

use kew_http_front::Front;

use super::audit::RefusedActs;
use super::operator::jobs::Jobs;
use crate::memory::answers::RoomForAnswers;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct HttpService {
    pub(super) shared: Arc<Shared>,
    /// What bounds connections, and what their heads and bodies hold together.
    pub(super) front: Front,
    /// The part of the room for answers that those over HTTP take at most: they have it until they are read.
    pub(super) answers: RoomForAnswers,
    /// Work that operators have begun.
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
