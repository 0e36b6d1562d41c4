//! What a decision answers, and what the answer rests on.

use crate::vocabulary::Incarnation;

/// The answer to a command, and its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<O, R> {
    /// The answer. It may be shown only once the log is durable up to the last event within the scope: a
    /// crash could take back what it shows.
    pub result: Result<O, R>,
    /// The part of the state that the command read or changed.
    pub scope: Scope,
}

impl<O, R> Decision<O, R> {
    /// The same decision, as one of another kind.
    pub(crate) fn map<P, S>(self) -> Decision<P, S>
    where
        P: From<O>,
        S: From<R>,
    {
        Decision {
            result: self.result.map(P::from).map_err(S::from),
            scope: self.scope,
        }
    }
}

/// The part of the state that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One entity, and nothing else.
    Entity(Incarnation),
    /// A bus queue and its sub-queues.
    BusQueue(Incarnation),
    /// The list of entities, and their metadata; accounts, and the properties of services.
    Catalogue,
    /// All of the partition. An account's usage is the sum over its queues.
    Everything,
}
