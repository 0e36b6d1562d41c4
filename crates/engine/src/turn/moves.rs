//! Decides which bodies move.

use super::{Decision, Turn, in_catalogue};
use crate::bus::BusFact;
use crate::event::Fact;
use crate::moves::{BodyToMove, Holder};
use crate::outcome::Outcome;
use crate::queues::Moved;
use crate::storage::StorageFact;
use crate::vocabulary::BodyMove;

/// Moves of both services, in order.
#[derive(Default)]
struct Moves {
    stored: Vec<Moved>,
    bus: Vec<Moved>,
}

impl Turn<'_> {
    /// Stores bodies again that are still in their places. Nothing that a client sees changes.
    pub(super) fn move_bodies(&mut self, bodies: Vec<BodyToMove>) -> Decision {
        let mut moves = Moves::default();
        for body in bodies {
            self.move_body(&body, &mut moves);
        }
        let Moves { stored, bus } = moves;
        let count = stored.len() + bus.len();
        if !stored.is_empty() {
            self.emit(Fact::Storage(StorageFact::BodiesMoved { moves: stored }));
        }
        if !bus.is_empty() {
            self.emit(Fact::Bus(BusFact::BodiesMoved { moves: bus }));
        }
        in_catalogue(Ok(Outcome::BodiesMoved { count }))
    }

    fn move_body(&mut self, moving: &BodyToMove, moves: &mut Moves) {
        let from = moving.from;
        let (storage, bus) = (&self.state.storage, &self.state.bus);
        match &moving.holder {
            Holder::Message(at) if storage.has_body(*at, from) => {
                let to = self.journal.store_body(&moving.body);
                moves
                    .stored
                    .extend(storage.moving(*at, BodyMove { from, to }));
            }
            Holder::Message(at) if bus.has_body(*at, from) => {
                let to = self.journal.store_body(&moving.body);
                moves.bus.extend(bus.moving(*at, BodyMove { from, to }));
            }
            Holder::Session { queue, session } if bus.has_state(*queue, session, from) => {
                let to = self.journal.store_body(&moving.body);
                let moved = bus.moving_state(*queue, session, BodyMove { from, to });
                moves.bus.extend(moved);
            }
            // It was deleted, or replaced, since it was read.
            Holder::Message(_) | Holder::Session { .. } => {}
        }
    }
}
