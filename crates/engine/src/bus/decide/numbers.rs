//! What a message takes that is sent to a queue or topic: a place in what is remembered of ids, and a number.

use super::super::BusMessage;
use super::Turn;
use super::effects::place;
use crate::effect::Effect;
use crate::vocabulary::{Incarnation, SequenceNumber};

/// A message has the id of an earlier one, and is dropped.
pub(super) struct Duplicate;

impl Turn<'_> {
    /// The hash of a message's id, if the entity is going to remember it.
    ///
    /// What this reads has to be in memory: a command that comes here asks for it in its first phase (`ask_ids` in
    /// `missing.rs`).
    ///
    /// Source: Service Bus, *Duplicate detection*.
    pub(super) fn id_hash(
        &self,
        entity: Incarnation,
        id: Option<&str>,
    ) -> Result<Option<u128>, Duplicate> {
        let found = self.bus(entity);
        let (Some(id), Some(window_ms)) = (id, found.options.duplicate_window_ms) else {
            return Ok(None);
        };
        let hash = self.cipher().hash(id.as_bytes());
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
        self.emit_bus_effect(Effect::Passed {
            topic: place(topic, number),
            id_hash,
        });
        Some(number)
    }
}
