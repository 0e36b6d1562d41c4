//! What a message takes that is sent to a queue or topic: a place in what is remembered of ids, and a number.

use super::super::BusMessage;
use super::Turn;
use super::effects::place;
use crate::bus::{Effect, OwnEffect};
use crate::vocabulary::{Incarnation, SequenceNumber};

/// A message has the id of an earlier one, and is dropped.
pub(super) struct Duplicate;

impl Turn<'_> {
    /// The hash of a message's id, if the entity is going to remember it.
    ///
    /// What this reads has to be in memory: a command that comes here asks for it in its first phase (`ask_ids` in
    /// `missing.rs`), and a tick does so before it forwards a message (`ask_to_pass_on` in `forwarded.rs`).
    ///
    /// Source: Service Bus, *Duplicate detection*.
    pub(super) fn id_hash(
        &self,
        entity: Incarnation,
        id: Option<&str>,
    ) -> Result<Option<u128>, Duplicate> {
        if self.bus(entity).options.duplicate_window_ms.is_none() {
            return Ok(None);
        }
        let hash = id.map(|id| self.cipher().hash(id.as_bytes()));
        self.unless_known(entity, hash)
    }

    /// The same for an id of which the hash is known.
    pub(super) fn unless_known(
        &self,
        entity: Incarnation,
        hash: Option<u128>,
    ) -> Result<Option<u128>, Duplicate> {
        let found = self.bus(entity);
        let (Some(hash), Some(window_ms)) = (hash, found.options.duplicate_window_ms) else {
            return Ok(None);
        };
        match found.duplicates.has(hash, window_ms, self.now()) {
            true => Err(Duplicate),
            false => Ok(Some(hash)),
        }
    }

    /// Gives a message that is sent to a topic the topic's next number, and remembers its id. The topic does not keep
    /// the message. `None` if it is a duplicate.
    pub(super) fn pass(
        &mut self,
        topic: Incarnation,
        message: &BusMessage,
    ) -> Option<SequenceNumber> {
        let Ok(id_hash) = self.id_hash(topic, message.message_id.as_deref()) else {
            self.0.tally_duplicate(topic);
            return None;
        };
        let number = self.bus_backlog(topic).next();
        self.emit_bus_effect(Effect::Own(OwnEffect::Passed {
            topic: place(topic, number),
            id_hash,
        }));
        Some(number)
    }
}
