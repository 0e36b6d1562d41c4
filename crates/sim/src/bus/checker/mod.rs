//! What clients of bus queues may see, checked against the history that they did see.
//!
//! Of each message the checker keeps every fate that the history leaves open ([`life`]): an
//! operation of unknown outcome adds some, time adds some, and each observation removes all that do
//! not fit. If none is left, a promise is broken. So an unknown outcome is never required, and an
//! observed one always is.
//!
//! | promise | what is checked | where |
//! |---|---|---|
//! | one place | a message is in one entity and state, with its body, number, session, changes and cause | [`Checker::narrow`] |
//! | no loss | a client that asks for more messages than exist gets all that must exist, and can settle them | [`Checker::not_shown`], `settle` |
//! | no resurrection | what was completed, expired or deleted is never shown | [`Checker::narrow`] |
//! | locks (I4) | a lock is one receiver's until it ends, and holds exactly as long as the queue says | `receive`, `settle` |
//! | order (I5) | messages come in the order of their numbers, in a queue or a session | `receive` |
//! | delivery count (I8) | every failed delivery counts once, and the last one makes a dead letter | [`life`], `receive` |
//! | dead letters (I6) | each has the right cause | [`life`], `receive` |
//! | duplicates (I11) | a repeated id is dropped within the window, and only there | `send` |
//! | numbers (I9) | no number is given out twice | [`Checker::learn_number`] |
//! | counts (I7) | counts and sizes lie between what must and what can be there | `queues` |
//! | forwarding | a message arrives once, and is forwarded four times at most | [`life`] |
//! | | a message that is forwarded to a topic has copies, or it is still on its way | `gathering` |
//! | sessions | one receiver, the state that was set, and no session is missing | `sessions` |
//! | atomicity | of messages that were sent together all arrived, or none | [`works`] |
//! | | a transaction is done as a whole, or it is refused with a reason and has changed nothing | `transact`, [`works`] |
//! | | a message that is sent again is in its old place or in its new one | `resubmit` |
//! | topics | each subscription gets one copy of each message that its topic accepted and its rule selects, with the changes of its rule, and they come in that order | `publish` |
//! | | what waits in its topic is copied later, all of a message before any of the next one, and by the rules of its number | `waiting` |
//! | | what is scheduled in a topic gets its copies by the rules of its time, and none if it was cancelled | [`life`], `scheduled` |
//! | | a topic takes its subscriptions with it | `queues` |
//! | damage | what rules cannot read fails in its topic, and nothing else does | `damaged` |
//! | | what is set aside is never shown, and counts where it was | `lost` |
//! | operators | the messages that they removed are deleted and counted, and nothing else has changed | `operate` |
//! | liveness | at the end everything was shown | `drain` |

mod damaged;
mod gathering;
pub(crate) mod life;
mod lost;
mod message;
mod operate;
mod publish;
mod purge;
mod queue;
mod queues;
mod receive;
mod refused;
mod resubmit;
mod scheduled;
mod send;
mod sessions;
mod settle;
mod shown;
mod time;
mod transact;
mod transfer;
mod unknown;
mod waiting;
mod works;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use gathering::Gathering;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusOutcome, TransactionPart};
use kew_engine::{Command, EntityName, Outcome, Refusal, Timestamp, Token};
use life::{Entity, Fate, Life};
use lost::Lost;
use message::Message;
use queue::{Owner, Queue, Queues};
use time::DUE_MAX;
use works::Works;

use super::{entity, topics};
use crate::checker::{Operation, Seen, Violation, violated};

pub(crate) const ANSWERS_FIT: &str = "bus: an answer fits its question";
pub(crate) const ATOMIC: &str = "bus: what is sent together comes in together";
pub(crate) const COUNTS: &str = "bus: counts are those of what is there";
pub(crate) const DUPLICATES: &str =
    "bus: a repeated id is dropped within the window, and only there";
pub(crate) const LOCKS: &str = "bus: a lock is one receiver's until it ends";
pub(crate) const NO_LOSS: &str = "bus: what was taken in is there until it is done";
pub(crate) const NO_RESURRECTION: &str = "bus: what is gone is never shown again";
pub(crate) const NUMBERS: &str = "bus: no number is given out twice";
pub(crate) const ONE_PLACE: &str = "bus: a message is in one place, as it was left";
pub(crate) const ORDER_OF_COPIES: &str = "bus: copies come in the order of their topic";
pub(crate) const ORDER: &str = "bus: messages come in the order of their numbers";
pub(crate) const QUEUES: &str = "bus: a queue is as its owner left it";
pub(crate) const SESSIONS: &str = "bus: a session has one receiver and keeps its state";

/// Follows the history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checker {
    queues: Queues,
    /// Messages that can still be seen, by the number in their body.
    messages: BTreeMap<u64, Message>,
    /// Messages that can never be seen again.
    over: BTreeSet<u64>,
    works: Works,
    /// The latest incarnation of each entity that was shown.
    incarnations: BTreeMap<Entity, u64>,
    /// The owner of each lock token.
    locks: BTreeMap<[u8; 16], u64>,
    session_locks: BTreeMap<[u8; 16], Box<str>>,
    /// Locks that refused transactions would have ended.
    refused_locks: BTreeSet<[u8; 16]>,
    last_message: u64,
    /// The messages that were sent to topics: to which, and their places in the order of the decisions.
    published: BTreeMap<u64, (usize, u64)>,
    gathering: Gathering,
    /// Messages that an operator has sent again: they do not come in the order of their topic any more.
    sent_again: BTreeSet<u64>,
    /// Messages that waited in a topic, and went to its failed transfers because their bytes are damaged.
    buried: BTreeSet<u64>,
    /// Messages that were set aside, by their entity and their number in it.
    lost: BTreeMap<(Entity, u64), Lost>,
    /// How many copies a command makes at once. `None` if that is enough for all.
    copies_at_once: Option<u64>,
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    /// How often each rare thing happened.
    pub(crate) occurred: BTreeMap<&'static str, u64>,
}

/// The number at the beginning of a body.
pub(crate) fn number_of(body: &[u8]) -> u64 {
    let first = body.first_chunk::<8>();
    first.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The answer to an operation, and the time of its decision.
struct Answered<'a> {
    command: &'a BusCommand,
    outcome: &'a BusOutcome,
    bodies: &'a [Bytes],
    at: Timestamp,
}

impl Checker {
    /// A checker of a world in which a command makes so many copies of messages at once.
    pub(crate) fn new(copies_at_once: Option<u64>) -> Self {
        Self {
            copies_at_once,
            ..Self::default()
        }
    }

    /// Looks at the next operation of the history.
    pub(crate) fn check(&mut self, operation: &Operation) -> Result<(), Violation> {
        let Command::Bus(command) = &operation.command else {
            return Ok(());
        };
        self.operations += 1;
        self.look(command, operation)?;
        self.agree_on_gathered()?;
        self.conclude()?;
        self.agree_on_gathered()?;
        self.queues.1 = match operation.seen {
            Seen::Answered(Ok(_) | Err(Rejection::Refused(_))) => operation.until,
            // What has an unknown outcome may have been done at any time since it began.
            Seen::Answered(Err(Rejection::Stopped | Rejection::Unknown)) | Seen::Unknown => {
                operation.from
            }
            // No time has passed for the messages, either.
            Seen::Answered(Err(_)) => self.queues.1,
        };
        Ok(())
    }

    fn look(&mut self, command: &BusCommand, operation: &Operation) -> Result<(), Violation> {
        match &operation.seen {
            // Nothing has changed.
            Seen::Answered(Err(
                Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
            )) => Ok(()),
            Seen::Unknown | Seen::Answered(Err(Rejection::Stopped | Rejection::Unknown)) => {
                self.unknown += 1;
                self.pass_time(operation.until);
                self.unknown(command, operation);
                Ok(())
            }
            Seen::Answered(Ok((Outcome::Bus(outcome), bodies))) => {
                self.pass_time(operation.until);
                self.be_there(command, operation)?;
                self.succeeded(&Answered {
                    command,
                    outcome,
                    bodies,
                    at: operation.until,
                })
            }
            Seen::Answered(Err(Rejection::Refused(Refusal::Bus(refusal)))) => {
                self.pass_time(operation.until);
                self.refused(command, refusal, operation)
            }
            seen => violated!(ANSWERS_FIT, "{command:?}: {seen:?}"),
        }
    }

    fn succeeded(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        match answered.command {
            BusCommand::CreateQueue { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::DeleteQueue { .. }
            | BusCommand::CreateTopic { .. }
            | BusCommand::CreateSubscription { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::ListTopics { .. }
            | BusCommand::ListSubscriptions { .. }
            | BusCommand::SetRule { .. }
            | BusCommand::ReadRule { .. } => self.managed(answered),
            BusCommand::Send { queue, messages } => self.sent(answered, queue, messages),
            BusCommand::Receive { .. } | BusCommand::ReceiveDeferred { .. } => {
                self.received(answered)
            }
            BusCommand::Peek { .. } => self.peeked(answered),
            BusCommand::Settle { queue, settlements } => self.settled(answered, queue, settlements),
            BusCommand::RenewLocks { queue, locks } => self.renewed(answered, queue, locks),
            BusCommand::CancelScheduled { queue, numbers } => {
                self.cancelled(answered, queue, numbers)
            }
            BusCommand::DeleteBatch { .. } => self.batch_deleted(answered),
            BusCommand::Transact { parts } => self.transacted(answered, parts),
            command if is_operation(command) => self.operated(answered),
            _ => self.of_session(answered),
        }
    }

    /// The queues that an answer proves to exist.
    fn be_there(&mut self, command: &BusCommand, operation: &Operation) -> Result<(), Violation> {
        let entities = entities_of(command);
        let is_success = matches!(operation.seen, Seen::Answered(Ok(_)));
        let is_use = !matches!(
            command,
            BusCommand::ReadQueue { .. } | BusCommand::ReadRule { .. }
        );
        for entity in &entities {
            self.is_there(entity.queue, operation)?;
            let queue = self.queues.get(entity.queue);
            if is_success && is_use && operation.had_room {
                queue.used_at = queue.used_at.max(operation.from);
            }
        }
        // If there are several, due work in one may change another. A rule is of its topic, too.
        if !matches!(command, BusCommand::SetRule { .. })
            && let [entity] = entities[..]
            && operation.had_room
            && operation.could_read_due
            && operation.from == operation.until
        {
            self.do_due(entity, operation.from);
        }
        if let BusCommand::SetRule { topic, .. } = command
            && operation.had_room
            && operation.could_read_due
            && operation.from == operation.until
        {
            // The budget is for the subscription, too.
            self.activate_due(entity(topic).queue, operation.from, DUE_MAX / 3);
        }
        Ok(())
    }

    /// An answer proves that a queue exists.
    fn is_there(&mut self, index: usize, answer: &dyn std::fmt::Debug) -> Result<(), Violation> {
        if let Some(topic) = topics::topic_of(index) {
            self.is_there(topic, answer)?;
        }
        let queue = self.queues.get(index);
        queue.possible.retain(Option::is_some);
        if queue.possible.is_empty() {
            return violated!(QUEUES, "queue {index} is gone, and answers {answer:?}");
        }
        if queue.is_perhaps_new {
            return Ok(());
        }
        self.is_still_there(index)
    }

    /// A queue was not deleted, nor anything with it.
    fn is_still_there(&mut self, queue: usize) -> Result<(), Violation> {
        let gone = Fate::GoneWith(queue);
        let is_perhaps_gone = |message: &Message| message.fates().any(|fate| *fate == gone);
        if !self.messages.values().any(is_perhaps_gone) {
            return Ok(());
        }
        self.change_all(NO_LOSS, "its queue is still there", |message| {
            message.keep(|fate| *fate != gone);
        })
    }

    /// Changes every message. If no fate is left for one, the promise is broken.
    fn change_all(
        &mut self,
        promise: &'static str,
        what: &str,
        mut change: impl FnMut(&mut Message),
    ) -> Result<(), Violation> {
        let mut over = Vec::new();
        for (number, message) in &mut self.messages {
            let before = message.clone();
            change(message);
            if message.is_impossible() {
                return violated!(promise, "message {number}, {before:?}: {what}");
            }
            if message.is_over() {
                over.push(*number);
            }
        }
        for number in over {
            self.end(number);
        }
        Ok(())
    }

    fn end(&mut self, number: u64) {
        if let Some(message) = self.messages.remove(&number) {
            self.gathering.note_end(number, &message);
        }
        self.over.insert(number);
    }

    /// A message was observed: keeps only the fates that fit, and replaces each by its result.
    fn narrow(
        &mut self,
        number: u64,
        promise: &'static str,
        seen: &dyn std::fmt::Debug,
        then: impl Fn(&Life) -> Option<Vec<Fate>>,
    ) -> Result<(), Violation> {
        let Some(message) = self.messages.get_mut(&number) else {
            if self.over.contains(&number) {
                return violated!(NO_RESURRECTION, "message {number}: {seen:?}");
            }
            return violated!(ONE_PLACE, "message {number} was never sent: {seen:?}");
        };
        let before = message.follow(|fate| fate.life().and_then(&then).unwrap_or_default());
        if message.is_impossible() {
            return violated!(promise, "message {number}, {before:?}: {seen:?}");
        }
        let was_unknown = before.iter().any(|it| *it.fate() == Fate::NeverSent);
        if message.is_over() {
            self.end(number);
        }
        if was_unknown {
            self.note("what was sent without an answer was shown");
            if self.published.contains_key(&topics::number_in_body(number)) {
                self.note("a copy was shown that was sent without an answer");
            }
        }
        Ok(())
    }

    /// These were not shown: the fates that `is` describes are impossible, because the message
    /// would have been shown.
    fn not_shown(
        &mut self,
        promise: &'static str,
        what: &dyn std::fmt::Debug,
        shown: &BTreeSet<u64>,
        is: impl Fn(&Life) -> bool,
    ) -> Result<(), Violation> {
        let mut over = Vec::new();
        for (number, message) in &mut self.messages {
            if shown.contains(number) {
                continue;
            }
            if !message.may(&is) {
                continue;
            }
            let before = message.clone();
            message.keep(|fate| !fate.life().is_some_and(&is));
            if message.is_impossible() {
                return violated!(promise, "message {number}, {before:?}, is not in {what:?}");
            }
            if message.is_over() {
                over.push(*number);
            }
        }
        over.into_iter().for_each(|number| self.end(number));
        Ok(())
    }

    /// A message was seen under a number.
    fn learn_number(&mut self, entity: Entity, number: u64, owner: Owner) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        let known = queue.numbers.insert((entity.part, number), owner);
        match known {
            Some(known) if known != owner => violated!(
                NUMBERS,
                "{number} of {entity:?} is {known:?}, and {owner:?}"
            ),
            _ => {
                self.check_order_of_copies(entity, number, owner.message)?;
                self.earlier_are_copied(entity.queue, owner.message)
            }
        }
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.occurred.entry(what).or_default() += 1;
    }

    fn note_lock(&mut self, token: Token, number: u64) {
        self.locks.insert(*token.as_bytes(), number);
    }

    /// The message of a lock.
    fn message_of(&self, token: Token) -> Option<u64> {
        self.locks.get(token.as_bytes()).copied()
    }

    /// The session of a lock.
    fn session_of(&self, token: Token) -> Option<Box<str>> {
        self.session_locks.get(token.as_bytes()).cloned()
    }

    /// After everything was received and completed, every accepted message must have been shown.
    pub(crate) fn check_drained(&self) -> Result<(), Violation> {
        let is_over = |fate: &Fate| !matches!(fate, Fate::Here(_));
        let left = self.messages.iter();
        let mut left = left.filter(|(_, message)| !message.fates().any(is_over));
        match left.next() {
            Some((number, message)) => violated!(NO_LOSS, "message {number}: {message:?}"),
            None => Ok(()),
        }
    }
}

/// The entities of a command that must exist for it.
fn entities_of(command: &BusCommand) -> Vec<Entity> {
    if let BusCommand::Transact { parts } = command {
        return entities_in(parts);
    }
    queue_of(command).map(entity).into_iter().collect()
}

/// Each entity of a transaction that must exist for it, once.
fn entities_in(parts: &[TransactionPart]) -> Vec<Entity> {
    let parts = parts.iter().filter(|part| !transact::is_transfer(part));
    let all: BTreeSet<_> = parts.map(|part| entity(&part.queue)).collect();
    all.into_iter().collect()
}

/// Whether only operators use this command.
pub(super) fn is_operation(command: &BusCommand) -> bool {
    matches!(
        command,
        BusCommand::Purge { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::TakeMessage { .. }
            | BusCommand::DeleteMessage { .. }
            | BusCommand::BreakLock { .. }
            | BusCommand::Resubmit { .. }
    )
}

/// The queue of a command, if it must exist for it.
pub(super) fn queue_of(command: &BusCommand) -> Option<&EntityName> {
    match command {
        BusCommand::CreateQueue { .. }
        | BusCommand::CreateTopic { .. }
        | BusCommand::CreateSubscription { .. }
        | BusCommand::ListQueues { .. }
        | BusCommand::ListTopics { .. }
        | BusCommand::ListRules { .. }
        | BusCommand::AddRule { .. }
        | BusCommand::RemoveRule { .. }
        // The workload sends via an entity in transactions only.
        | BusCommand::SendVia { .. }
        | BusCommand::Transact { .. } => None,
        BusCommand::UpdateQueue { queue, .. }
        | BusCommand::DeleteQueue { queue }
        | BusCommand::ReadQueue { queue }
        | BusCommand::Send { queue, .. }
        | BusCommand::Deposit { queue, .. }
        | BusCommand::Receive { queue, .. }
        | BusCommand::Settle { queue, .. }
        | BusCommand::RenewLocks { queue, .. }
        | BusCommand::Peek { queue, .. }
        | BusCommand::CancelScheduled { queue, .. }
        | BusCommand::AcceptSession { queue, .. }
        | BusCommand::RenewSession { queue, .. }
        | BusCommand::ReleaseSession { queue, .. }
        | BusCommand::ReadSessionState { queue, .. }
        | BusCommand::SetSessionState { queue, .. }
        | BusCommand::ListSessions { queue, .. }
        | BusCommand::ReadLocked { queue, .. }
        | BusCommand::Purge { queue, .. }
        | BusCommand::ClearSessionStates { queue, .. }
        | BusCommand::TakeMessage { queue, .. }
        | BusCommand::DeleteMessage { queue, .. }
        | BusCommand::BreakLock { queue, .. }
        | BusCommand::Resubmit { queue, .. }
        | BusCommand::DeleteBatch { queue, .. } => Some(queue),
        BusCommand::ListSubscriptions { topic, .. } => Some(topic),
        BusCommand::ReadRule { subscription, .. } | BusCommand::SetRule { subscription, .. } => {
            Some(subscription)
        }
        BusCommand::ReceiveDeferred { read } => Some(&read.queue),
    }
}
