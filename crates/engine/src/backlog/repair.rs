//! The operations of a repair.

use std::collections::BTreeMap;

use super::Backlog;
use super::run::Run;
use crate::message::Message;
use crate::{LeaseGeneration, SequenceNumber};

impl Backlog {
    /// Adds messages of another backlog that are missing here.
    pub(crate) fn absorb(&mut self, other: Self) {
        let next = self.next.max(other.next);
        let mut messages = other.take_messages();
        messages.extend(std::mem::replace(self, Self::starting_at(next)).take_messages());
        self.place_all(messages);
    }

    /// Leaves out the next `count` sequence numbers.
    pub(crate) fn skip_numbers(&mut self, count: u64) {
        let highest = (1 << SequenceNumber::BITS) - 1;
        let next = SequenceNumber::new((self.next.as_u64() + count).min(highest));
        let messages = std::mem::replace(self, Self::starting_at(next)).take_messages();
        self.place_all(messages);
    }

    /// Leaves out the next `count` lease generations of every message.
    pub(crate) fn skip_generations(&mut self, count: u32) {
        for message in self.runs.values_mut().flat_map(Run::messages_mut) {
            let generation = message.generation.as_u32().wrapping_add(count);
            message.generation = LeaseGeneration::new(generation);
        }
    }

    fn take_messages(self) -> BTreeMap<SequenceNumber, Message> {
        let runs = self.runs.into_values();
        runs.flat_map(Run::into_messages).collect()
    }

    fn place_all(&mut self, messages: BTreeMap<SequenceNumber, Message>) {
        for (sequence_number, message) in messages {
            self.place(sequence_number, message);
        }
    }
}
