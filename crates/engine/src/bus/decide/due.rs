//! Due things of a bus queue: locks and schedules end, messages expire or are forwarded, idle queues are
//! deleted.

use super::super::backlog::{Backlog, Expiring};
use super::super::message::Message;
use super::super::role::Role;
use super::super::room::{DELETED_SIZE_BYTES, DUE_SIZE_BYTES_MAX, moved_size_bytes_max};
use super::super::session::RELEASING;
use super::super::{BusCommand, BusMessageState, DeadLetterCause, Release};
use super::Turn;
use crate::bus::{Effect, OwnEffect};
use crate::catalogue::LOOKS_PER_UNIT;
use crate::vocabulary::{BodyLocation, Incarnation, SequenceNumber};

/// How often a message is forwarded. The next time it becomes a dead letter.
///
/// Source: Service Bus, *Moving messages to the dead-letter queue* (four hops).
const HOPS_MAX: u8 = 4;

/// How many steps of rules, or of reading a message, take a unit of the budget.
pub(super) const STEPS_PER_UNIT: u64 = 200;

/// A due thing of a bus queue.
pub(super) enum Due {
    /// A lock has ended: the delivery has failed.
    Lock(SequenceNumber),
    /// A message is locked in a session that is being released.
    Release(SequenceNumber),
    /// A session's lock has ended, and those of its messages.
    Session(u32),
    Schedule(SequenceNumber),
    Expiry(Expiring),
    /// A message goes on to an entity, or cannot for this reason.
    Forward(SequenceNumber, Result<Incarnation, DeadLetterCause>),
    /// A message of a topic waits for its copies.
    FanOut(SequenceNumber),
    /// Ids are older than their window.
    Ids,
    /// The queue is idle.
    Deletion,
}

impl Due {
    /// How many messages were, or will be, looked at in vain.
    fn looks(&self) -> u32 {
        let Self::Expiry(expiring) = self else {
            return 0;
        };
        match *expiring {
            Expiring::Message { looks, .. } => looks,
            // They are looked at again, to correct the bound.
            Expiring::Bound { looks, .. } => 2 * looks,
            Expiring::Lost { .. } => 0,
        }
    }
}

/// Who carries out what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A command, before it is decided. Copies of a topic's messages are not made then: they may need bodies, and a command
    /// need not wait for them, because what it sends is stored behind them. While a topic has messages that wait for
    /// their copies, none is forwarded to it: commands would do that faster than ticks make copies.
    Command,
    /// A command that deletes an entity or changes its settings. What it forwards goes on before that.
    Change,
    /// A tick.
    Tick,
}

impl By {
    /// How a command carries out what is due before it.
    pub(super) fn of(command: &BusCommand) -> Self {
        match command {
            BusCommand::DeleteQueue { .. } | BusCommand::UpdateQueue { .. } => Self::Change,
            BusCommand::CreateQueue { .. }
            | BusCommand::CreateTopic { .. }
            | BusCommand::CreateSubscription { .. }
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
            | BusCommand::Receive { .. }
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
            | BusCommand::DeleteBatch { .. } => Self::Command,
        }
    }
}

/// What came of a due thing.
pub(crate) enum DueStep {
    /// It was done, and took so much of the budget.
    Done(u32),
    /// The same, and others come before the entity's next one: a topic makes copies of what was forwarded to it before
    /// it gets more.
    Last(u32),
    /// It takes more than the budget.
    TooLarge,
    /// It looks at what was written in this batch. The next tick finds it in the log.
    InBatch,
    /// Nothing was due.
    Nothing,
}

impl Turn<'_> {
    /// Turns due things of an entity into effects and facts, within a budget.
    pub(crate) fn do_due(&mut self, queue: Incarnation, budget: u32, by: By) {
        let mut left = budget;
        while left > 0
            && let DueStep::Done(cost) | DueStep::Last(cost) = self.do_next_due(queue, left, by)
        {
            left = left.saturating_sub(cost);
        }
    }

    /// Carries out one due thing, if there is one and the budget is enough for it.
    pub(crate) fn do_next_due(&mut self, queue: Incarnation, budget: u32, by: By) -> DueStep {
        let Some(due) = self.next_due(queue, by) else {
            return DueStep::Nothing;
        };
        if let Due::FanOut(number) = due {
            return self.fan_out(queue, number, budget);
        }
        let cost = self.cost(queue, &due);
        if cost > budget {
            return DueStep::TooLarge;
        }
        let looks = due.looks();
        match due {
            Due::Lock(number) => self.fail_delivery(queue, number, None),
            Due::Release(number) => self.release_unseen(queue, number),
            Due::Session(session) => {
                let session = self.session_id(queue, session);
                self.emit_bus_effect(Effect::Own(OwnEffect::SessionFreed { queue, session }));
            }
            Due::Schedule(number) => self.activate(queue, number),
            Due::Expiry(Expiring::Message { number, .. }) => self.expire(queue, number),
            Due::Expiry(Expiring::Bound { run, .. }) => self.0.raise_expiry(queue, run),
            Due::Expiry(Expiring::Lost { run }) => self.0.end_lost(queue, run),
            Due::Forward(number, to) => return self.forward_or_bury(queue, (number, to), cost),
            Due::FanOut(_) => {}
            Due::Ids => self.0.forget_ids(queue),
            Due::Deletion => self.end_idle(queue),
        }
        DueStep::Done(cost + looks / LOOKS_PER_UNIT)
    }

    /// What is due next. It reads the records that [`Turn::missing_for_due`] asks for, and no others.
    pub(super) fn next_due(&self, queue: Incarnation, by: By) -> Option<Due> {
        let now = self.now();
        let entity = self.queues().get(&queue)?;
        let backlog = &entity.backlog;
        if let Some(session) = backlog.sessions.ended_lock(now) {
            return Some(next_to_free(backlog, session));
        }
        if let Some(message) = backlog.due(now) {
            let number = message.number();
            return Some(match message.state {
                BusMessageState::Scheduled => Due::Schedule(number),
                // Only locked and scheduled messages can be due.
                BusMessageState::Locked { .. }
                | BusMessageState::Ready
                | BusMessageState::Deferred => Due::Lock(number),
            });
        }
        // A topic's ready messages do not expire: their copies do.
        if entity.role == Role::Topic {
            let waiting = match by {
                By::Command | By::Change => None,
                By::Tick => backlog.table().first_ready(),
            };
            if let Some(number) = waiting {
                return Some(Due::FanOut(number));
            }
        } else if let Some(expiring) = backlog.expiring(now) {
            return Some(Due::Expiry(expiring));
        }
        if entity.destination().is_some()
            && backlog.has_to_forward()
            && let Some(to) = self.forwards(entity, by)
            && let Some(number) = backlog.next_to_forward(now)
        {
            return Some(Due::Forward(number, to));
        }
        let deadline = entity.ids_deadline();
        if deadline.is_some_and(|deadline| deadline.has_passed(now)) {
            return Some(Due::Ids);
        }
        let deadline = entity.idle_deadline();
        let is_idle = deadline.is_some_and(|deadline| deadline.has_passed(now));
        is_idle.then_some(Due::Deletion)
    }

    /// How much of the budget a due thing takes: a unit for each [`DUE_SIZE_BYTES_MAX`] that it may write.
    fn cost(&self, queue: Incarnation, due: &Due) -> u32 {
        let number = match due {
            Due::Lock(number)
            | Due::Schedule(number)
            | Due::Expiry(Expiring::Message { number, .. })
            | Due::Forward(number, _) => number,
            Due::Expiry(Expiring::Bound { .. } | Expiring::Lost { .. })
            | Due::Release(_)
            | Due::Session(_)
            // It counts what it does.
            | Due::FanOut(_)
            | Due::Ids => {
                return 1;
            }
            Due::Deletion => {
                let subscriptions = self.catalogue().subscription_count(queue);
                let size_bytes = (1 + subscriptions) * DELETED_SIZE_BYTES;
                return u32::try_from(size_bytes.div_ceil(DUE_SIZE_BYTES_MAX)).unwrap_or(u32::MAX);
            }
        };
        let more_bytes = match due {
            Due::Forward(_, to) => self.forwarded_size_bytes_max(queue, *to),
            Due::Lock(_)
            | Due::Schedule(_)
            | Due::Expiry(_)
            | Due::Release(_)
            | Due::Session(_)
            | Due::FanOut(_)
            | Due::Ids
            | Due::Deletion => 0,
        };
        self.cost_of_move(queue, *number, more_bytes)
    }

    /// How much of the budget a message takes that may move, with so many bytes more.
    pub(super) fn cost_of_move(
        &self,
        queue: Incarnation,
        number: SequenceNumber,
        more_bytes: u64,
    ) -> u32 {
        let Some(message) = self.bus_backlog(queue).get(number) else {
            return 1;
        };
        match self.failed_size_bytes_max(queue, &message) + more_bytes {
            ..=DUE_SIZE_BYTES_MAX => 1,
            _ => 2,
        }
    }

    /// The most bytes of the effects of a failed delivery: the message may move.
    pub(super) fn failed_size_bytes_max(&self, queue: Incarnation, message: &Message<'_>) -> u64 {
        let session = self.bus_backlog(queue).sessions.get(message.session);
        moved_size_bytes_max(message) + session.map_or(0, |session| session.id.len() as u64)
    }

    /// Fails a delivery: the message is ready again, or a dead letter if it failed too often.
    pub(super) fn fail_delivery(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        overlay: Option<BodyLocation>,
    ) {
        let entity = self.bus(queue);
        let max = entity.options.max_delivery_count;
        let message = entity.backlog.get(sequence_number);
        let is_last = message.is_some_and(|message| message.deliveries.saturating_add(1) >= max);
        if is_last && self.buries(queue) {
            let cause = DeadLetterCause::MaxDeliveryCountExceeded;
            self.bury(queue, sequence_number, cause, overlay);
        } else {
            self.release(queue, sequence_number, Release::Failed, overlay);
        }
    }

    /// Whether messages that cannot be delivered become dead letters. Those of sub-queues stay.
    pub(super) fn buries(&self, queue: Incarnation) -> bool {
        self.bus(queue).role.is_first()
    }

    /// Ends a message's time to live.
    pub(super) fn expire(&mut self, queue: Incarnation, sequence_number: SequenceNumber) {
        let entity = self.bus(queue);
        if entity.options.dead_letters_expired && self.buries(queue) {
            self.bury(queue, sequence_number, DeadLetterCause::Expired, None);
        } else {
            self.remove(queue, sequence_number);
        }
    }

    /// The reason why a message is not forwarded there, whatever room there is.
    pub(super) fn check_is_open(
        &self,
        to: Result<Incarnation, DeadLetterCause>,
        from: Incarnation,
        number: SequenceNumber,
    ) -> Result<Incarnation, DeadLetterCause> {
        let Some(message) = self.bus_backlog(from).get(number) else {
            return Err(DeadLetterCause::DestinationUnavailable);
        };
        if message.hops >= HOPS_MAX {
            return Err(DeadLetterCause::MaxTransferHopCountExceeded);
        }
        let entity = self.bus(to?);
        match entity.role.accepts_forwards() && entity.options.status.allows_send() {
            true => to,
            false => Err(DeadLetterCause::DestinationUnavailable),
        }
    }

    /// The reason why a destination does not accept a message, if there is one. The number is how many subscriptions were
    /// looked at to find that out.
    pub(super) fn check_room_at(
        &mut self,
        to: Incarnation,
        from: Incarnation,
        number: SequenceNumber,
    ) -> (Result<Incarnation, DeadLetterCause>, u64) {
        let Some(message) = self.bus_backlog(from).get(number) else {
            return (Err(DeadLetterCause::DestinationUnavailable), 0);
        };
        let entity = self.bus(to);
        let own_bytes = message.size_bytes();
        let id_bytes = match entity.role {
            Role::Topic => entity.remembered_size_bytes(Some("")),
            Role::Queue
            | Role::Subscription { .. }
            | Role::DeadLetters { .. }
            | Role::FailedTransfers { .. } => 0,
        };
        let needs_session = entity.requires_session() && message.session == 0;
        let limit_bytes = entity.options.size_bytes_max;
        // A message that is forwarded to its own queue frees the room it takes. One that comes from a subscription to its
        // topic does not: it becomes a copy in each of them.
        let frees = entity.role != Role::Topic && self.charged(from) == to;
        let looked_at = if frees {
            0
        } else {
            let more_bytes = own_bytes + id_bytes;
            let room_at = limit_bytes.saturating_sub(more_bytes);
            let (size_bytes, looked_at) = self.size_bytes_above(to, room_at);
            if size_bytes.saturating_add(more_bytes) > limit_bytes {
                return (Err(DeadLetterCause::DestinationUnavailable), looked_at);
            }
            looked_at
        };
        match needs_session {
            true => (Err(DeadLetterCause::SessionIdIsNull), looked_at),
            false => (Ok(to), looked_at),
        }
    }
}

/// The next step towards freeing a session whose lock has ended. Each step ends one of its deliveries; the last
/// one frees the session.
fn next_to_free(backlog: &Backlog, number: u32) -> Due {
    let session = backlog.sessions.get(number);
    let locked = session.and_then(|session| session.messages.locked().next());
    let is_releasing = session.is_some_and(|session| session.locked_until == RELEASING);
    match locked {
        Some(locked) if is_releasing => Due::Release(locked),
        Some(locked) => Due::Lock(locked),
        None => Due::Session(number),
    }
}
