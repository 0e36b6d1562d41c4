//! What clients may see, checked against the history that they did see.
//!
//! Operations are checked in the order in which the partition has decided them. An operation without a known outcome
//! may have happened or not; the checker then knows less, but never something false.
//!
//! [`queue`] and [`message`] hold the known facts; each promise is checked by functions of its own:
//!
//! | promise | what is checked | where |
//! |---|---|---|
//! | I1 no loss | a client that asks for more messages than exist gets all that must exist | `promise::no_loss_in_listing` |
//! | | a message that must exist can be settled with its last receipt | `promise::no_loss_on_refusal` |
//! | | an existing queue is found, listed, and not created again | `Queue::must_be_absent` |
//! | | at the end every message was received | `Queue::check_drained` |
//! | I2 no phantom | every message that is shown or settled was sent | `Queue::index_of_body`, `Queue::settled` |
//! | I2 no change | body, times and metadata are those that were sent | `promise::no_change`, `Queue::check_metadata` |
//! | | access policies, properties and accounts are those that were set | `Queue::check_policies`, `Accounts::check` |
//! | I3 no resurrection | a deleted message or queue is not shown, not settled, not counted | `promise::no_resurrection`, `Queue::must_be_possible` |
//! | I4 lease exclusivity | nothing is shown before its lease or delay is over | `promise::lease_exclusivity` |
//! | I4 stale receipts refused | only the latest receipt settles, and refusals name the right reason | `promise::only_latest_settles`, `promise::exact_refusal` |
//! | I7 counts conserved | the count lies between what must and what can be there; at the end it is zero | `promise::counts_conserved`, `World::drain` |
//! | | an account is refused for its quota if, and only if, that is used up | `Accounts::check_refusal`, `Accounts::check_success` |
//! | I8 delivery count | one more for each delivery, none for a look | `promise::delivery_count` |
//! | I9 unique ids | no id and no receipt is handed out twice | `Queue::issue` |
//! | I10 time | nothing is shown after its expiry | `promise::not_after_expiry` |
//! | | the partition's time follows elapsed time, whatever the wall clock does | [`Timekeeping`] |
//! | F1 fair turns | a source of commands waits for one share of each other entity at most until its own is served, and there for one share of each other source | [`Turns`] |
//! | L1 liveness | every request is answered, everything drains in bounded steps | `World::drain`, `World::ask_and_wait` |
//! | owners | no owner answers a command that came after an answer of a later owner | `World::check_owner` |
//! | | a clock begins no earlier than what is recorded or acknowledged | `World::begin_life`, `World::check_changed_at` |
//! | recovery | what faults of the list leave behind can be opened | `World::reopen` |
//! | no damage | a scrub names what was damaged and nothing else, also what is removed beside it | `World::scrub_piece` |
//! | stops | after a failed call, or the end of its log, nothing succeeds any more | `World::check_stopped` |
//! | no panic | the product's own assertions hold | `run` |
//!
//! Bus queues and topics, with their locks, sessions, dead letters, duplicates and copies, have a checker of their own
//! in [`crate::bus`].

mod account;
mod clock;
mod message;
pub(crate) mod promise;
mod queue;
mod turns;

use std::collections::BTreeMap;
use std::fmt;

use account::Accounts;
use bytes::Bytes;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, TransactionPart};
use kew_engine::storage::{QueuePage, StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, Timestamp, Token};
use queue::Queue;

pub(crate) use clock::Timekeeping;
pub(crate) use turns::Turns;

use crate::rare::RareStates;
use crate::workload::queue_name;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// The observation that breaks it.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.seen)
    }
}

/// Reports a broken promise, with the observation.
macro_rules! violated {
    ($promise:expr, $($seen:tt)*) => {
        Err($crate::checker::Violation { promise: $promise, seen: format!($($seen)*) })
    };
}
pub(crate) use violated;

/// The result of an operation, as its client sees it.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// It was answered.
    Answered(Result<(Outcome, Vec<Bytes>), Rejection>),
    /// It may have happened or not: a crash came before the answer, or the client gave up.
    Unknown,
}

/// An operation of the history.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) queue: usize,
    pub(crate) command: Command,
    /// The partition's time before which it cannot have been decided.
    pub(crate) from: Timestamp,
    /// The partition's time after which it cannot have been decided.
    pub(crate) until: Timestamp,
    /// Whether the disk had room for all due work before it.
    pub(crate) had_room: bool,
    /// Whether all due work before it could be read.
    pub(crate) could_read_due: bool,
    pub(crate) seen: Seen,
}

impl Operation {
    /// The parts, if it is a transaction.
    pub(crate) fn transaction(&self) -> Option<&[TransactionPart]> {
        match &self.command {
            Command::Bus(BusCommand::Transact { parts }) => Some(parts),
            _ => None,
        }
    }
}

/// Follows the history.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    queues: BTreeMap<usize, Queue>,
    accounts: Accounts,
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) rare: RareStates,
}

impl Checker {
    pub(crate) fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            accounts: Accounts::default(),
            operations: 0,
            unknown: 0,
            rare: RareStates::default(),
        }
    }

    /// Looks at the next operation of the history.
    pub(crate) fn check(&mut self, operation: &Operation) -> Result<(), Violation> {
        self.operations += 1;
        let unknown = matches!(
            operation.seen,
            Seen::Unknown | Seen::Answered(Err(Rejection::Stopped | Rejection::Unknown))
        );
        self.unknown += u64::from(unknown);
        if let Command::Storage(StorageCommand::ListQueues { .. }) = &operation.command {
            return self.listed(operation);
        }
        if Accounts::is_about(&operation.command) {
            return self.accounts.check(operation, &mut self.queues);
        }
        match &operation.seen {
            Seen::Answered(Ok((outcome, _))) => {
                self.accounts
                    .check_success(operation, outcome, &self.queues)?;
            }
            Seen::Answered(Err(Rejection::Refused(refusal))) => {
                self.accounts
                    .check_refusal(operation, refusal, &self.queues)?;
            }
            _ => {}
        }
        let queue = self.queues.entry(operation.queue).or_default();
        match &operation.seen {
            Seen::Answered(Ok((outcome, bodies))) => {
                queue.succeeded(operation, outcome, bodies, &mut self.rare)
            }
            Seen::Answered(Err(Rejection::Refused(refusal))) => {
                queue.refused(operation, refusal, &mut self.rare)
            }
            // Nothing has changed.
            Seen::Answered(Err(
                Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
            )) => Ok(()),
            Seen::Answered(Err(Rejection::Stopped | Rejection::Unknown)) | Seen::Unknown => {
                queue.unknown(operation);
                Ok(())
            }
        }
    }

    /// A listing of all queues shows those that must exist, and none that cannot.
    fn listed(&mut self, operation: &Operation) -> Result<(), Violation> {
        let page = match &operation.seen {
            Seen::Answered(Ok((Outcome::Storage(StorageOutcome::Queues(page)), _))) => page,
            Seen::Answered(Ok(_) | Err(Rejection::Refused(_))) => {
                return violated!(promise::ANSWERS_FIT, "{operation:?}");
            }
            _ => return Ok(()),
        };
        let QueuePage { queues, next } = page;
        if next.is_some() || !queues.is_sorted_by(|one, next| one.name < next.name) {
            return violated!(promise::ANSWERS_FIT, "{operation:?}");
        }
        let mut known = 0;
        for (index, queue) in &mut self.queues {
            let name = queue_name(*index).name;
            match queues.iter().find(|listed| listed.name == name) {
                Some(listed) => {
                    queue.must_be_possible(operation)?;
                    queue.check_metadata(&listed.metadata)?;
                    known += 1;
                }
                None => queue.must_be_absent(operation)?,
            }
        }
        if known < queues.len() {
            return violated!(promise::NO_PHANTOM, "{operation:?}");
        }
        Ok(())
    }

    /// Whether a message may be in a queue, or was there when it expired.
    pub(crate) fn may_exist(&self, queue: usize, message: Token) -> bool {
        let queue = self.queues.get(&queue);
        queue.is_some_and(|queue| queue.may_exist(message))
    }

    /// A message can no longer be shown because its body is damaged, and the client got an error.
    pub(crate) fn excuse(&mut self, queue: usize, message: Token) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.excuse(message);
        }
    }

    /// At the end, after everything was received and deleted, every acknowledged message must have
    /// been shown.
    pub(crate) fn check_drained(&self, now: Timestamp) -> Result<(), Violation> {
        self.queues
            .values()
            .try_for_each(|queue| queue.check_drained(now))
    }
}
