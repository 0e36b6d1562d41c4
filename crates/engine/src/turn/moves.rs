//! Decides which bodies move.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Decision, Turn, in_catalogue};
use crate::bus::{self, BusFact};
use crate::event::Fact;
use crate::moves::{BodyToMove, Holder, MovedBody, Source};
use crate::outcome::{BodiesMoved, Outcome};
use crate::storage::{self, StorageFact};
use crate::vocabulary::{BodyLocation, BodyMove, Hold, Place};

/// Moves of both services, in order.
#[derive(Default)]
struct Moves {
    stored: Vec<storage::Moved>,
    bus: Vec<bus::Moved>,
    /// Where those that borrow have the bodies that were stored, by their old places.
    shared: BTreeMap<BodyLocation, BodyLocation>,
    outcome: BodiesMoved,
}

impl Turn<'_> {
    /// Stores bodies again that are still in their places. Nothing that a client sees changes.
    pub(super) fn move_bodies(&mut self, bodies: Vec<BodyToMove>) -> Decision {
        let mut moves = Moves::default();
        for body in bodies {
            self.move_body(&body, &mut moves);
        }
        let Moves {
            stored,
            bus,
            mut outcome,
            ..
        } = moves;
        outcome.count = stored.len() + bus.len();
        if !stored.is_empty() {
            self.emit(Fact::Storage(StorageFact::BodiesMoved { moves: stored }));
        }
        if !bus.is_empty() {
            self.emit(Fact::Bus(BusFact::BodiesMoved { moves: bus }));
        }
        in_catalogue(Ok(Outcome::BodiesMoved(outcome)))
    }

    fn move_body(&mut self, moving: &BodyToMove, moves: &mut Moves) {
        let from = moving.from;
        let (storage, bus) = (&self.state.storage, &self.state.bus);
        match &moving.holder {
            Holder::Message(at) if storage.has_body(*at, from) => {
                if let Some(to) = self.store_alone(moving, moves) {
                    let moved = self.state.storage.moving(*at, BodyMove { from, to });
                    moves.stored.extend(moved);
                }
            }
            Holder::Message(at) if bus.has_body(*at, from) => {
                let to = match from.hold() {
                    Hold::Alone => self.store_alone(moving, moves),
                    Hold::Lends | Hold::Borrows => self.store_shared(*at, moving, moves),
                };
                if let Some(to) = to {
                    let moved = self.state.bus.moving(*at, BodyMove { from, to });
                    moves.bus.extend(moved);
                }
            }
            Holder::Session { queue, session } if bus.has_state(*queue, session, from) => {
                if let Some(to) = self.store_alone(moving, moves) {
                    let body = BodyMove { from, to };
                    let moved = self.state.bus.moving_state(*queue, session, body);
                    moves.bus.extend(moved);
                }
            }
            // It was deleted, or replaced, since it was read.
            Holder::Message(_) | Holder::Session { .. } => {}
        }
    }

    fn store(&mut self, body: &Bytes, moves: &mut Moves) -> BodyLocation {
        moves.outcome.stored_bytes += body.len() as u64;
        self.journal.store_body(body)
    }

    /// Stores a body that no other message has. `None` without its bytes.
    fn store_alone(&mut self, moving: &BodyToMove, moves: &mut Moves) -> Option<BodyLocation> {
        match &moving.source {
            Source::Bytes(body) => Some(self.store(body, moves)),
            Source::SameAs(_) => None,
        }
    }

    /// Where a message has a body that others may have, too: the first one stores it. `None` if it is to be read first,
    /// because the message that moved before does not have it any more.
    fn store_shared(
        &mut self,
        holder: Place,
        moving: &BodyToMove,
        moves: &mut Moves,
    ) -> Option<BodyLocation> {
        let from = moving.from.with(Hold::Alone);
        if let Some(at) = moves.shared.get(&from) {
            return Some(*at);
        }
        match &moving.source {
            Source::Bytes(body) => {
                let to = self.store(body, moves);
                moves.shared.insert(from, to.with(Hold::Borrows));
                let at = to.with(Hold::Lends);
                moves.outcome.first.push((from, MovedBody { holder, at }));
                Some(at)
            }
            Source::SameAs(MovedBody { holder, at }) => {
                let is_there = at.length == from.length && self.state.bus.has_body(*holder, *at);
                if !is_there {
                    moves.outcome.gone.push(from);
                    return None;
                }
                Some(at.with(Hold::Borrows))
            }
        }
    }
}
