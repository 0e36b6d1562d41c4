//! Changes of a turn that may concern waiting receivers.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::bus::{Arrival, Awaited, BusOutcome, BusRefusal, Receives};
use kew_engine::{Description, EntityName, Incarnation, Outcome, Refusal, State, Timestamp, Token};

use super::Partition;
use super::batch::Batch;
use crate::Wake;

/// A change that may concern waiting receivers. Which receivers is looked up only if any wait.
#[derive(Debug)]
pub(super) enum Stirred {
    /// An event has brought something.
    Arrived(Arrival),
    /// Another receiver has left something, or expired messages had hidden it.
    Left(Incarnation, Awaited),
    /// An entity has changed or is gone.
    Changed(Incarnation),
}

impl Stirred {
    pub(super) fn wakes(self, state: &State) -> impl Iterator<Item = Wake> + use<> {
        let (wakes, changed) = match self {
            Self::Arrived(arrival) => {
                let awaited = state.awaited(arrival);
                let wakes =
                    awaited.map(|it| it.map(|(entity, awaited)| Wake::One(entity, awaited)));
                (wakes, Vec::new())
            }
            Self::Left(entity, awaited) => ([Some(Wake::One(entity, awaited)), None], Vec::new()),
            Self::Changed(entity) => ([None, None], state.changed_with(entity).collect()),
        };
        let changed = changed.into_iter().map(Wake::Changed);
        wakes.into_iter().flatten().chain(changed)
    }
}

/// Things that receivers wait for, by entity.
#[derive(Debug, Default)]
pub(super) struct PassedOver(BTreeMap<Incarnation, BTreeSet<Awaited>>);

impl PassedOver {
    pub(super) fn add(&mut self, entity: Incarnation, awaited: Awaited) {
        self.0.entry(entity).or_default().insert(awaited);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes those of an entity.
    pub(super) fn remove(&mut self, entity: Incarnation) -> impl Iterator<Item = Awaited> {
        self.0.remove(&entity).into_iter().flatten()
    }
}

/// What a command takes that other receivers may wait for.
#[derive(Debug)]
pub(super) enum Taking {
    /// Messages of a queue, or of the session with this lock.
    Messages(EntityName, Option<Token>),
    /// The next session of a queue.
    Session(EntityName),
}

impl Taking {
    /// No receiver waits for a deferred message, or for a session by name.
    pub(super) fn of(command: &Description<'_>) -> Option<Self> {
        match command.receives {
            Some(Receives::Messages { queue, session, .. }) => {
                Some(Self::Messages(queue.clone(), session))
            }
            Some(Receives::Session { queue }) => Some(Self::Session(queue.clone())),
            None => None,
        }
    }

    /// What the command has left for the next receiver, and what it may have passed over.
    ///
    /// A receiver that took something and left something wakes the next one. A receiver that found nothing
    /// does not: the next one would find nothing either, and so on without end.
    pub(super) fn look_back(
        self,
        result: &Result<Outcome, Refusal>,
        state: &State,
    ) -> (Option<Stirred>, Option<(Incarnation, Awaited)>) {
        match self {
            Self::Messages(queue, lock) => {
                let took_any = match result {
                    Ok(Outcome::Bus(BusOutcome::Received(taken))) => !taken.is_empty(),
                    // It found some, and has nothing of them.
                    Err(Refusal::Bus(BusRefusal::MessageDamaged { .. })) => true,
                    Ok(_) | Err(_) => return (None, None),
                };
                if !took_any {
                    return (None, state.passed_over(&queue, lock));
                }
                // A session has one receiver, so no other receiver waits for its messages.
                let left = lock.is_none().then(|| state.has_ready(&queue)).flatten();
                let left = left.map(|entity| Stirred::Left(entity, Awaited::Message));
                (left, None)
            }
            Self::Session(queue) => {
                let Ok(Outcome::Bus(BusOutcome::SessionAccepted(_))) = result else {
                    return (None, None);
                };
                let left = state.has_session(&queue);
                let left = left.map(|entity| Stirred::Left(entity, Awaited::Session));
                (left, None)
            }
        }
    }
}

impl<T> Partition<T> {
    /// Expired messages may have hidden others. Once all of an entity's are gone, its receivers are woken. Only
    /// entities of this turn are looked up: the others have what they had.
    pub(super) fn uncover(&mut self, batch: &Batch, now: Timestamp) {
        for entity in batch.entities.iter().chain(&batch.looked) {
            if self.passed_over.is_empty() {
                return;
            }
            if !self.state.may_have_expired(*entity, now) {
                let uncovered = self.passed_over.remove(*entity);
                let left = uncovered.map(|awaited| Stirred::Left(*entity, awaited));
                self.stirred.extend(left);
            }
        }
    }

    /// Takes the receivers to wake because of decisions since the last call. Dropping the iterator discards
    /// them.
    pub fn take_wakes(&mut self) -> impl Iterator<Item = Wake> + '_ {
        let state = &self.state;
        let stirred = self.stirred.drain(..);
        stirred.flat_map(move |stirred| stirred.wakes(state))
    }
}
