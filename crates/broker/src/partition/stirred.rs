//! Changes of a turn that may concern waiting receivers.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::bus::{Arrival, Awaited, BusOutcome, Receives};
use kew_engine::{Description, EntityName, Incarnation, Outcome, Refusal, State, Token};

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
        let wakes = match self {
            Self::Arrived(arrival) => state
                .awaited(arrival)
                .map(|awaited| awaited.map(|(entity, awaited)| Wake::One(entity, awaited))),
            Self::Left(entity, awaited) => [Some(Wake::One(entity, awaited)), None],
            Self::Changed(entity) => [Some(Wake::Changed(entity)), None],
        };
        wakes.into_iter().flatten()
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
        let Ok(Outcome::Bus(outcome)) = result else {
            return (None, None);
        };
        match self {
            Self::Messages(queue, lock) => {
                let BusOutcome::Received(taken) = outcome else {
                    return (None, None);
                };
                if taken.is_empty() {
                    return (None, state.passed_over(&queue, lock));
                }
                // A session has one receiver, so no other receiver waits for its messages.
                let left = lock.is_none().then(|| state.has_ready(&queue)).flatten();
                let left = left.map(|entity| Stirred::Left(entity, Awaited::Message));
                (left, None)
            }
            Self::Session(queue) => {
                let BusOutcome::SessionAccepted(_) = outcome else {
                    return (None, None);
                };
                let left = state.has_session(&queue);
                let left = left.map(|entity| Stirred::Left(entity, Awaited::Session));
                (left, None)
            }
        }
    }
}
