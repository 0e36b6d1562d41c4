//! What there may be to receive because of a turn, and for whom.

use kew_engine::bus::{Arrival, Awaited, BusCommand, BusOutcome, SessionChoice};
use kew_engine::{Command, EntityName, Incarnation, Outcome, Refusal, State, Token};

use crate::Wake;

/// Something that may be of interest to receivers. For whom is found out when somebody waits at all.
#[derive(Debug)]
pub(super) enum Stirred {
    /// An event has brought it.
    Arrived(Arrival),
    /// Another receiver has left it, or it was hidden.
    Left(Incarnation, Awaited),
    /// An entity has changed, or is gone.
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

/// What a command takes that others may wait for.
#[derive(Debug)]
pub(super) enum Taking {
    /// Messages of a queue, of the session with this lock if there is one.
    Messages(EntityName, Option<Token>),
    /// The next session of a queue.
    Session(EntityName),
}

impl Taking {
    pub(super) fn of(command: &Command) -> Option<Self> {
        let Command::Bus(command) = command else {
            return None;
        };
        match command {
            BusCommand::Receive { queue, session, .. } => {
                Some(Self::Messages(queue.clone(), *session))
            }
            BusCommand::AcceptSession {
                queue,
                session: SessionChoice::Next,
            } => Some(Self::Session(queue.clone())),
            // Nobody waits for what was named.
            BusCommand::AcceptSession {
                session: SessionChoice::Named(_),
                ..
            }
            | BusCommand::ReceiveDeferred { .. }
            | BusCommand::TakeMessage { .. }
            | BusCommand::CreateQueue { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::DeleteQueue { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::Send { .. }
            | BusCommand::Settle { .. }
            | BusCommand::RenewLocks { .. }
            | BusCommand::Peek { .. }
            | BusCommand::ReadLocked { .. }
            | BusCommand::CancelScheduled { .. }
            | BusCommand::RenewSession { .. }
            | BusCommand::ReleaseSession { .. }
            | BusCommand::ReadSessionState { .. }
            | BusCommand::SetSessionState { .. }
            | BusCommand::ListSessions { .. }
            | BusCommand::Purge { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::DeleteMessage { .. }
            | BusCommand::BreakLock { .. }
            | BusCommand::Resubmit { .. }
            | BusCommand::Transact { .. }
            | BusCommand::DeleteBatch { .. } => None,
        }
    }

    /// What the command has left for the next receiver, and what it may have passed over.
    ///
    /// Whoever took something and left something passes the wake-up on. Whoever found nothing does not:
    /// the next one would find nothing either, and so on without end.
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
                // A session has one receiver: nobody else waits for its messages.
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
