//! What decisions about bus queues, and due things before them, need: the records that are not in memory.
//!
//! Each function walks as its decision does, over bits where there are no records.

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use super::super::backlog::Backlog;
use super::super::message::{self, Message};
use super::super::role::Role;
use super::super::room::{ITEMS_MAX, LOOKED_AT_MAX, released_at_once};
use super::super::session::Sessions;
use super::super::{
    BreakTarget, BusCommand, BusMessage, BusMessageState, BusQueue, Purge, ReceiveMode, Resubmit,
    TransactionPart, TransactionWork,
};
use super::bodies::PASSED_OVER_MAX;
use super::{By, DueStep, Turn};
use crate::queues::{Receiving, Walk};
use crate::table::{ALL_SLOTS, Group, Missing, Seen};
use crate::vocabulary::token::TokenKind;
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Timestamp, Token};

/// Why records cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// A later read may find them.
    Now,
    /// What lies there is damaged, in both copies.
    Lost,
}

/// What a command has spent of the budgets for due work, over all of its tries: work that becomes due faster than it is
/// read cannot hold the command back. The budget is that of the last try: it is small while the disk is full.
#[derive(Debug, Default)]
pub(crate) struct DueSpent {
    spent: BTreeMap<Incarnation, u32>,
    /// Entities whose due work cannot be read.
    left_alone: BTreeSet<Incarnation>,
    /// Whether what was missing in the last try is due work's.
    is_due_missing: bool,
    /// How the command carries out due work.
    by: Option<By>,
}

impl DueSpent {
    /// If due work of that entity was missing in the last try, later tries go on without it. Returns false if not.
    pub(crate) fn leave_alone(&mut self, entity: Incarnation, unread: Unread) -> bool {
        let leaves = self.is_due_missing && (unread == Unread::Lost || !self.comes_behind_due());
        if leaves {
            self.left_alone.insert(entity);
        }
        leaves
    }

    /// Whether the command has to come behind due work, as far as that can be read, now or later: what is about to be
    /// deleted, or to get other settings, forwards its messages before that.
    pub(crate) fn comes_behind_due(&self) -> bool {
        self.is_due_missing && self.by == Some(By::Change)
    }

    /// The entities whose due work was left alone.
    pub(crate) fn left_alone(&self) -> &BTreeSet<Incarnation> {
        &self.left_alone
    }
}

/// A queue that a command names, with the messages that it names in it.
struct Asked<'a> {
    entity: Incarnation,
    queue: &'a BusQueue,
}

/// The messages that a walk is about.
#[derive(Default)]
struct Asking {
    from: SequenceNumber,
    until: Option<SequenceNumber>,
    before: Option<Timestamp>,
}

impl Asking {
    /// Whether a message may be among them: its run says when the first of its messages came.
    fn may_have(&self, backlog: &Backlog, number: SequenceNumber) -> bool {
        let came_later = |before| backlog.came_from(number, before);
        self.until.is_none_or(|until| number < until) && !self.before.is_some_and(came_later)
    }
}

impl Turn<'_> {
    /// Carries out what is due before a command, as far as its records are in memory, and says what of it is missing;
    /// then what the decision misses.
    ///
    /// `may_be_cold` says whether any records may not be in memory. Otherwise only bodies can be missing.
    pub(crate) fn prepare(
        &mut self,
        command: &BusCommand,
        spent: &mut DueSpent,
        may_be_cold: bool,
    ) -> Missing {
        let mut missing = Missing::default();
        let (description, by) = (command.describe(), By::of(command));
        let names = description.touches.due_before();
        if description.due_in > 0 {
            let budget = self.due_budget_for(names.len());
            for name in names {
                let queue = self.catalogue().find(name);
                let queue = queue.filter(|it| !spent.left_alone.contains(it));
                if let Some(queue) = queue {
                    // What is in memory is done at once, and holds nothing back.
                    let mut spent_at_once = 0;
                    let spent = match may_be_cold {
                        true => spent.spent.entry(queue).or_default(),
                        false => &mut spent_at_once,
                    };
                    if is_planted(Bug::DueHoldsBack) {
                        *spent = 0;
                    }
                    if missing.is_empty() {
                        self.do_due_here(queue, (budget, by), spent, &mut missing);
                    } else {
                        // Due things of one queue come before those of the next one.
                        let left = budget.saturating_sub(*spent);
                        let due = self.missing_for_due(queue, left, by);
                        missing.add_messages(due);
                    }
                }
            }
        }
        spent.by = Some(by);
        spent.is_due_missing = !missing.is_empty();
        if missing.is_empty() && may_be_cold {
            self.ask_for(command, &mut missing);
        }
        if missing.is_empty() && description.needs_bodies {
            self.ask_for_bodies(command, &mut missing);
        }
        missing
    }

    /// What a command that waits for others is going to need, as things are.
    pub(crate) fn look_ahead(&self, command: &BusCommand) -> Missing {
        let mut missing = Missing::default();
        self.ask_for(command, &mut missing);
        missing
    }

    /// Carries out due things while their records are in memory.
    fn do_due_here(
        &mut self,
        queue: Incarnation,
        (budget, by): (u32, By),
        spent: &mut u32,
        missing: &mut Missing,
    ) {
        while *spent < budget {
            let left = budget - *spent;
            let due = self.missing_for_due(queue, left, by);
            if !due.is_empty() {
                missing.add_messages(due);
                return;
            }
            match self.do_next_due(queue, left, by) {
                DueStep::Done(cost) | DueStep::Last(cost) => *spent = spent.saturating_add(cost),
                DueStep::TooLarge | DueStep::InBatch | DueStep::Nothing => return,
            }
        }
    }

    /// What the next due thing of an entity needs, and those of its kind that come after it, as many as the budget
    /// allows.
    pub(crate) fn missing_for_due(&self, entity: Incarnation, budget: u32, by: By) -> Missing {
        let mut missing = Missing::default();
        let queue = self.queues().get(&entity);
        let Some(queue) = queue.filter(|queue| queue.backlog.table().has_cold()) else {
            return missing;
        };
        // Mostly it is there, and nobody has to look at the others.
        self.ask_due(entity, queue, 1, by, &mut missing);
        if !missing.is_empty() {
            self.ask_due(entity, queue, budget as usize, by, &mut missing);
        }
        missing
    }

    /// Asks for what so many due things need, of the kind that comes first.
    fn ask_due(
        &self,
        entity: Incarnation,
        queue: &BusQueue,
        count: usize,
        by: By,
        missing: &mut Missing,
    ) {
        let (backlog, now) = (&queue.backlog, self.now());
        if let Some(session) = backlog.sessions.ended_lock(now) {
            let session = backlog.sessions.get(session);
            let locked = session.into_iter().flat_map(|it| it.messages.locked());
            for number in locked.take(count) {
                backlog.ask(entity, number, missing);
            }
            return;
        }
        if backlog.ask_if_far_is_due(entity, now, missing) {
            return;
        }
        let timed = backlog.timed().iter();
        let mut due = timed.take_while(|(at, _)| at.has_passed(now)).peekable();
        if due.peek().is_some() {
            for (_, number) in due.take(count) {
                backlog.ask(entity, *number, missing);
            }
            return;
        }
        if queue.role == Role::Topic {
            // Its ready messages do not expire.
            let first = backlog.table().first_ready();
            if let Some(number) = first.filter(|_| by == By::Tick) {
                // The next ones are copied next.
                backlog.table().ask_near(entity, number, missing);
            }
            return;
        }
        if let Some(run) = backlog.table().run_to_expire(now) {
            let messages = backlog.table().seen_of(run);
            Walk::for_count(count).ask(backlog, entity, messages, missing, |(_, entry)| {
                entry.map(|entry| message::expiry(entry.record).has_passed(now))
            });
            return;
        }
        if self.forwards(queue, by).is_some() {
            self.ask_ready(entity, queue, 0, count, missing);
            // Messages without a session come first.
            if missing.is_empty()
                && let Some(session) = backlog.sessions.next_available()
            {
                self.ask_ready(entity, queue, session, count, missing);
            }
        }
    }

    /// What the decision needs, after what is due.
    fn ask_for(&self, command: &BusCommand, missing: &mut Missing) {
        match command {
            BusCommand::Receive {
                queue,
                count,
                mode,
                session,
            } => self.ask_received(queue, (*count, *mode), *session, missing),
            BusCommand::Settle { queue, settlements } => {
                self.ask_locked(queue, settlements.iter().map(|(lock, _)| *lock), missing);
            }
            BusCommand::RenewLocks { queue, locks } => {
                self.ask_locked(queue, locks.iter().copied(), missing);
            }
            BusCommand::ReadLocked { queue, lock } => {
                self.ask_locked(queue, [*lock].into_iter(), missing);
            }
            BusCommand::Peek {
                queue,
                from,
                count,
                session,
            } => {
                let walk = Walk::for_count(ITEMS_MAX.min(*count as usize));
                let range = Asking {
                    from: *from,
                    ..Asking::default()
                };
                self.ask_walk(queue, session.as_deref(), range, walk, missing, |_| {
                    Some(true)
                });
            }
            BusCommand::CancelScheduled { queue, numbers } => {
                self.ask_numbers(queue, numbers.iter().copied(), missing);
            }
            BusCommand::ReceiveDeferred { read } => {
                self.ask_numbers(&read.queue, read.numbers.iter().copied(), missing);
            }
            BusCommand::DeleteBatch {
                queue,
                from,
                before,
                count,
                session,
            } => self.ask_batch(queue, (*from, *before, *count), session.as_deref(), missing),
            BusCommand::Purge { queue, purge } => self.ask_purged(queue, purge, missing),
            BusCommand::TakeMessage { queue, number, .. }
            | BusCommand::DeleteMessage { queue, number, .. }
            | BusCommand::BreakLock {
                queue,
                target: BreakTarget::Message(number),
            } => self.ask_numbers(queue, [*number].into_iter(), missing),
            BusCommand::BreakLock {
                queue,
                target: BreakTarget::Session(id),
            } => self.ask_released(queue, missing, |sessions| {
                sessions.find(id).map(|(number, _)| number)
            }),
            BusCommand::ReleaseSession { queue, session } => {
                let held = self.catalogue().find(queue).and_then(|queue| {
                    self.queues().get(&queue)?;
                    self.held_session(queue, *session).ok()
                });
                self.ask_released(queue, missing, |_| held);
            }
            BusCommand::Resubmit { queue, resubmit } => {
                let numbers = resubmit.messages.iter().map(|it| it.sequence_number);
                self.ask_numbers(queue, numbers, missing);
                self.ask_resubmitted_ids(queue, resubmit, missing);
            }
            BusCommand::Send { queue, messages }
            | BusCommand::Deposit { queue, messages }
            | BusCommand::SendVia {
                to: queue,
                messages,
                ..
            } => self.ask_ids_of(queue, messages, missing),
            BusCommand::Transact { parts } => self.ask_parts(parts, missing),
            // Bits, counts and sessions are enough.
            BusCommand::CreateQueue { .. }
            | BusCommand::CreateTopic { .. }
            | BusCommand::ListTopics { .. }
            | BusCommand::ListSubscriptions { .. }
            | BusCommand::AddRule { .. }
            | BusCommand::SetRule { .. }
            | BusCommand::RemoveRule { .. }
            | BusCommand::ReadRule { .. }
            | BusCommand::ListRules { .. }
            | BusCommand::CreateSubscription { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::DeleteQueue { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::AcceptSession { .. }
            | BusCommand::RenewSession { .. }
            | BusCommand::ReadSessionState { .. }
            | BusCommand::SetSessionState { .. }
            | BusCommand::ListSessions { .. } => {}
        }
    }

    /// The entity of that name, if records of it may not be in memory.
    fn cold(&self, name: &EntityName) -> Option<Asked<'_>> {
        let entity = self.catalogue().find(name)?;
        let queue = self.queues().get(&entity)?;
        let is_cold = queue.backlog.table().has_cold();
        is_cold.then_some(Asked { entity, queue })
    }

    /// Asks for the remembered ids that are looked at when these messages are sent.
    fn ask_ids_of(&self, queue: &EntityName, messages: &[BusMessage], missing: &mut Missing) {
        if let Some(entity) = self.catalogue().find(queue) {
            let ids = messages.iter().map(|it| it.message_id.as_deref());
            self.ask_ids(entity, ids, missing);
        }
    }

    /// The same for messages that are sent again.
    fn ask_resubmitted_ids(&self, queue: &EntityName, resubmit: &Resubmit, missing: &mut Missing) {
        let queue = self.catalogue().find(queue);
        let queue = queue.filter(|queue| self.queues().contains_key(queue));
        if let Some(queue) = queue
            && let Some(to) = self.destination(queue, resubmit.to.as_deref())
        {
            let messages = resubmit.messages.iter();
            self.ask_ids(to, messages.map(|it| it.message_id.as_deref()), missing);
        }
    }

    /// Asks for the blocks of remembered ids that a look-up of each of these reads.
    fn ask_ids<'a>(
        &self,
        entity: Incarnation,
        ids: impl Iterator<Item = Option<&'a str>>,
        missing: &mut Missing,
    ) {
        let queue = self.queues().get(&entity);
        if queue.is_some_and(|queue| queue.duplicates.has_cold()) {
            for id in ids.flatten() {
                self.ask_id(entity, self.cipher().hash(id.as_bytes()), missing);
            }
        }
    }

    /// Asks for the blocks of remembered ids that a look-up of this one reads.
    pub(super) fn ask_id(&self, entity: Incarnation, hash: u128, missing: &mut Missing) {
        let Some(queue) = self.queues().get(&entity) else {
            return;
        };
        if let Some(window_ms) = queue.options.duplicate_window_ms {
            let blocks = queue.duplicates.missing_for(hash, window_ms, self.now());
            for block in blocks {
                missing.add(Group::of_block(entity, block), ALL_SLOTS);
            }
        }
    }

    fn ask_numbers(
        &self,
        queue: &EntityName,
        numbers: impl Iterator<Item = SequenceNumber>,
        missing: &mut Missing,
    ) {
        if let Some(Asked { entity, queue }) = self.cold(queue) {
            for number in numbers {
                queue.backlog.ask(entity, number, missing);
            }
        }
    }

    /// Messages by their locks.
    fn ask_locked(
        &self,
        queue: &EntityName,
        locks: impl Iterator<Item = Token>,
        missing: &mut Missing,
    ) {
        if let Some(Asked { entity, queue }) = self.cold(queue) {
            for lock in locks {
                let place = self.cipher().open(TokenKind::BusLock, lock);
                if let Some(place) = place.filter(|place| place.incarnation == entity) {
                    queue.backlog.ask(entity, place.sequence_number, missing);
                }
            }
        }
    }

    /// Who receives messages from a queue with the command, if their records may not be in memory.
    pub(crate) fn receiving(&self, command: &BusCommand) -> Option<Receiving> {
        let (name, count, session) = match command {
            BusCommand::Receive {
                queue,
                count,
                session,
                ..
            } => (queue, *count, *session),
            BusCommand::CreateQueue { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::CreateTopic { .. }
            | BusCommand::CreateSubscription { .. }
            | BusCommand::DeleteQueue { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::ListTopics { .. }
            | BusCommand::ListSubscriptions { .. }
            | BusCommand::AddRule { .. }
            | BusCommand::SetRule { .. }
            | BusCommand::RemoveRule { .. }
            | BusCommand::ReadRule { .. }
            | BusCommand::ListRules { .. }
            | BusCommand::Send { .. }
            | BusCommand::Deposit { .. }
            | BusCommand::SendVia { .. }
            | BusCommand::Settle { .. }
            | BusCommand::RenewLocks { .. }
            | BusCommand::Peek { .. }
            | BusCommand::ReadLocked { .. }
            | BusCommand::CancelScheduled { .. }
            | BusCommand::ReceiveDeferred { .. }
            | BusCommand::AcceptSession { .. }
            | BusCommand::RenewSession { .. }
            | BusCommand::ReleaseSession { .. }
            | BusCommand::ReadSessionState { .. }
            | BusCommand::SetSessionState { .. }
            | BusCommand::ListSessions { .. }
            | BusCommand::Purge { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::TakeMessage { .. }
            | BusCommand::DeleteMessage { .. }
            | BusCommand::BreakLock { .. }
            | BusCommand::Resubmit { .. }
            | BusCommand::Transact { .. }
            | BusCommand::DeleteBatch { .. } => return None,
        };
        let Asked { entity, .. } = self.cold(name)?;
        self.check_receivable(entity).ok()?;
        let session = self.session_of_receiver(entity, session).ok()?;
        Some(Receiving {
            entity,
            session,
            count: ITEMS_MAX.min(count as usize),
        })
    }

    fn ask_received(
        &self,
        name: &EntityName,
        (count, mode): (u32, ReceiveMode),
        session: Option<Token>,
        missing: &mut Missing,
    ) {
        if let Some(Asked { entity, queue }) = self.cold(name)
            && self.check_receivable(entity).is_ok()
            && let Ok(session) = self.session_of_receiver(entity, session)
        {
            let mut count = ITEMS_MAX.min(count as usize);
            if mode == ReceiveMode::ReceiveAndDelete && !self.buries(entity) {
                count += PASSED_OVER_MAX;
            }
            self.ask_ready(entity, queue, session, count, missing);
        }
    }

    /// Messages that can be received, of a session or without one.
    fn ask_ready(
        &self,
        entity: Incarnation,
        queue: &BusQueue,
        session: u32,
        count: usize,
        missing: &mut Missing,
    ) {
        let (backlog, now) = (&queue.backlog, self.now());
        let ready = backlog.ready_seen(session, now);
        let walk = match session {
            0 => Walk::for_count(count),
            _ => Walk::for_count(count).scattered(),
        };
        walk.ask(backlog, entity, ready, missing, |(_, entry)| {
            entry.map(|entry| !entry.record.expires_at.has_passed(now))
        });
    }

    /// Messages in a range, of a session or all.
    fn ask_walk(
        &self,
        name: &EntityName,
        session: Option<&str>,
        range: Asking,
        walk: Walk,
        missing: &mut Missing,
        is_taken: impl FnMut(&Seen<'_>) -> Option<bool>,
    ) {
        let Some(Asked { entity, queue }) = self.cold(name) else {
            return;
        };
        let backlog = &queue.backlog;
        let session = session.map(|id| backlog.sessions.find(id));
        let session = match session {
            // There is no such session.
            Some(None) => return,
            Some(Some((number, _))) => Some(number),
            None => None,
        };
        let walk = match session {
            Some(_) => walk.scattered(),
            None => walk,
        };
        // The decision looks at the one at which it ends.
        let messages = backlog.walk_seen(session, range.from);
        let messages = messages.take_while(|(number, _)| range.may_have(backlog, *number));
        let messages = messages.take(LOOKED_AT_MAX + 1);
        walk.ask(backlog, entity, messages, missing, is_taken);
    }

    fn ask_batch(
        &self,
        queue: &EntityName,
        (from, before, count): (SequenceNumber, Timestamp, u32),
        session: Option<&str>,
        missing: &mut Missing,
    ) {
        let now = self.now();
        // And the one at which it ends.
        let walk = Walk::for_count(1 + ITEMS_MAX.min(count as usize));
        let range = Asking {
            from,
            before: Some(before),
            ..Asking::default()
        };
        self.ask_walk(queue, session, range, walk, missing, |(_, entry)| {
            let message = entry.map(Message::from)?;
            let is_there = !message.expires_at.has_passed(now);
            let is_taken = message.state == BusMessageState::Ready && is_there;
            (message.enqueued_at < before).then_some(is_taken)
        });
    }

    fn ask_purged(&self, queue: &EntityName, purge: &Purge, missing: &mut Missing) {
        let walk = Walk::for_count(1 + ITEMS_MAX.min(purge.count as usize));
        let range = Asking {
            from: purge.from,
            until: purge.until,
            before: purge.before,
        };
        self.ask_walk(queue, None, range, walk, missing, |(_, entry)| {
            let message = entry.map(Message::from)?;
            let is_over = purge.before.is_some_and(|it| message.enqueued_at >= it);
            let is_locked = matches!(message.state, BusMessageState::Locked { .. });
            (!is_over).then_some(!is_locked || purge.with_locked)
        });
    }

    /// The messages that are released with a session.
    fn ask_released(
        &self,
        queue: &EntityName,
        missing: &mut Missing,
        session: impl FnOnce(&Sessions) -> Option<u32>,
    ) {
        if let Some(Asked { entity, queue }) = self.cold(queue) {
            let sessions = &queue.backlog.sessions;
            let session = session(sessions).and_then(|number| sessions.get(number));
            let locked = session.into_iter().flat_map(|it| it.messages.locked());
            for number in locked.take(released_at_once(self.due_budget())) {
                queue.backlog.ask(entity, number, missing);
            }
        }
    }

    fn ask_parts(&self, parts: &[TransactionPart], missing: &mut Missing) {
        for part in parts {
            match &part.work {
                TransactionWork::Send(messages) | TransactionWork::Transfer(_, messages) => {
                    self.ask_ids_of(&part.queue, messages, missing);
                }
                TransactionWork::SendVia(to, messages) => self.ask_ids_of(to, messages, missing),
                TransactionWork::Settle(lock, _) => {
                    self.ask_locked(&part.queue, [*lock].into_iter(), missing);
                }
                TransactionWork::CancelScheduled(numbers) => {
                    self.ask_numbers(&part.queue, numbers.iter().copied(), missing);
                }
            }
        }
    }
}
