//! What all connections over HTTP share, beside what those over AMQP share with them.

use std::sync::Arc;

use super::audit::RefusedActs;
use super::operator::jobs::Jobs;
use super::room::Room;
use crate::memory::answers::RoomForAnswers;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct HttpService {
    pub(super) shared: Arc<Shared>,
    /// For long heads of requests, from authenticated and other clients.
    pub(super) heads: Room,
    /// For bodies of requests, of clients with a token: strangers have no part in it.
    pub(super) bodies: Room,
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
            heads: Room::new(limits.http_heads_size_bytes_max),
            bodies: Room::new(limits.http_size_bytes_max),
            answers: RoomForAnswers::new(limits.held_size_bytes_max / 2),
            jobs: Jobs::default(),
            refused_acts: Arc::default(),
            shared,
        }
    }
}
