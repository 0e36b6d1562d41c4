//! The identity of a client, as far as it is known.

use std::sync::Arc;

use kew_amqp::Millis;
use kew_amqp::error::Error;
use kew_listen::Place;

use crate::ground::origin::Origin;

pub(crate) struct Peer {
    pub(crate) origin: Origin,
    /// The connection's place.
    place: Arc<Place>,
    /// When a first token is due.
    token_due: Option<Millis>,
    /// The error that ended the connection; `None` if there was none.
    pub(crate) ended: Option<Error>,
}

impl Peer {
    /// A client whose first token is due at this time.
    pub(crate) fn new(origin: Origin, place: Arc<Place>, token_due: Millis) -> Self {
        Self {
            origin,
            place,
            token_due: Some(token_due),
            ended: None,
        }
    }

    /// Whether no first token is due any more.
    pub(crate) fn is_proven(&self) -> bool {
        self.token_due.is_none()
    }

    /// When a first token is due.
    pub(crate) fn token_due(&self) -> Option<Millis> {
        self.token_due
    }

    /// The client is authenticated. Returns whether it was not before.
    pub(crate) fn prove(&mut self) -> bool {
        let is_first = self.token_due.take().is_some();
        if is_first {
            self.place.prove();
        }
        is_first
    }

    /// Whether its first token is overdue. Returns `true` only once.
    pub(crate) fn is_overdue(&mut self, now: Millis) -> bool {
        self.token_due.take_if(|due| *due <= now).is_some()
    }
}
