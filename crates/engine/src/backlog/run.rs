//! A run: consecutive sequence numbers of an entity, and what they count for together.

use super::RUN_LENGTH;
use crate::hint::Hint;
use crate::message::Message;
use crate::{SequenceNumber, Timestamp};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The sequence number of the first slot. Which slots there are depends on the past, also on whether the run
    /// comes from a snapshot: only the messages in them count.
    first: u64,
    slots: Vec<Option<Message>>,
    /// How many messages there are.
    pub(super) live: u64,
    /// The fresh ones: a bit for each number of the run.
    fresh: u128,
    /// What the messages count for in their account's bytes.
    pub(super) size_bytes: u64,
    /// A lower bound of the expiries: the message that had it may be gone.
    pub(super) expires_first: Hint<Timestamp>,
    /// An upper bound, likewise. A run that comes from a snapshot may have a lower one.
    pub(super) expires_last: Timestamp,
}

/// The number of the run that a message is in.
pub(super) fn run_of(number: SequenceNumber) -> u64 {
    number.as_u64() / RUN_LENGTH
}

fn bit(number: SequenceNumber) -> u128 {
    1 << (number.as_u64() % RUN_LENGTH)
}

impl Run {
    /// An empty run that begins with this message.
    pub(super) fn starting_at(number: SequenceNumber) -> Self {
        Self {
            first: number.as_u64(),
            slots: Vec::new(),
            live: 0,
            fresh: 0,
            size_bytes: 0,
            expires_first: Hint::new(Timestamp::NEVER),
            expires_last: Timestamp::ZERO,
        }
    }

    /// The number of the first message.
    pub(super) fn first(&self) -> u64 {
        let empty = self.slots.iter().take_while(|slot| slot.is_none());
        self.first + empty.count() as u64
    }

    /// The number after that of the last message.
    pub(super) fn end(&self) -> u64 {
        let empty = self.slots.iter().rev().take_while(|slot| slot.is_none());
        self.end_of_slots() - empty.count() as u64
    }

    fn end_of_slots(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether all of its messages lie in a range of numbers.
    pub(super) fn is_within(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        self.first() >= from.as_u64() && self.end() <= until.as_u64()
    }

    /// Puts a message into its slot. Returns false if there is one.
    pub(super) fn put(&mut self, number: SequenceNumber, message: Message) -> bool {
        // Nearly always a message goes behind the last one.
        if number.as_u64() == self.end_of_slots() {
            self.slots.push(Some(message));
        } else {
            self.make_room(number.as_u64());
            match self.slot(number) {
                Some(slot @ None) => *slot = Some(message),
                Some(Some(_)) | None => return false,
            }
        }
        self.live += 1;
        true
    }

    fn make_room(&mut self, number: u64) {
        if number < self.first {
            let missing = (number..self.first).map(|_| None);
            self.slots.splice(0..0, missing);
            self.first = number;
        } else if number >= self.end_of_slots() {
            let missing = (self.end_of_slots()..=number).map(|_| None);
            self.slots.extend(missing);
        }
    }

    /// Takes a message out of its slot. Returns false if there is none.
    pub(super) fn take(&mut self, number: SequenceNumber) -> bool {
        let is_there = self.slot(number).is_some_and(|slot| slot.take().is_some());
        self.live -= u64::from(is_there);
        is_there
    }

    fn slot(&mut self, number: SequenceNumber) -> Option<&mut Option<Message>> {
        let index = self.index(number)?;
        self.slots.get_mut(index)
    }

    fn index(&self, number: SequenceNumber) -> Option<usize> {
        usize::try_from(number.as_u64().checked_sub(self.first)?).ok()
    }

    pub(super) fn get(&self, number: SequenceNumber) -> Option<&Message> {
        self.slots.get(self.index(number)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: SequenceNumber) -> Option<&mut Message> {
        self.slot(number)?.as_mut()
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        (self.first..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| Some((SequenceNumber::new(number), slot.as_ref()?)))
    }

    pub(super) fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        self.slots.iter_mut().flatten()
    }

    pub(super) fn into_messages(self) -> impl Iterator<Item = (SequenceNumber, Message)> {
        (self.first..)
            .zip(self.slots)
            .filter_map(|(number, slot)| Some((SequenceNumber::new(number), slot?)))
    }

    pub(super) fn has_fresh(&self) -> bool {
        self.fresh != 0
    }

    /// Whether every message is fresh, so that none has an entry in the order by time.
    pub(super) fn is_fresh(&self) -> bool {
        u64::from(self.fresh.count_ones()) == self.live
    }

    pub(super) fn set_fresh(&mut self, number: SequenceNumber) {
        self.fresh |= bit(number);
    }

    pub(super) fn clear_fresh(&mut self, number: SequenceNumber) {
        self.fresh &= !bit(number);
    }

    /// The fresh messages, in order.
    pub(super) fn fresh(&self) -> impl Iterator<Item = (SequenceNumber, &Message)> {
        let start = self.first - self.first % RUN_LENGTH;
        let mut left = self.fresh;
        std::iter::from_fn(move || {
            while left != 0 {
                let number = SequenceNumber::new(start + u64::from(left.trailing_zeros()));
                left &= left - 1;
                if let Some(message) = self.get(number) {
                    return Some((number, message));
                }
            }
            None
        })
    }
}
