//! What each command on bus queues is: see [`Description`].

use std::collections::BTreeSet;

use bytes::Bytes;

use super::room::{
    BODIES_SIZE_BYTES_MAX, DUE_SIZE_BYTES_MAX, ENDED_SIZE_BYTES, ENDED_SIZE_BYTES_MAX, ITEMS_MAX,
    LEASED_SIZE_BYTES, LOOKED_AT_MAX, MOVED_SIZE_BYTES_MAX, PLACE_SIZE_BYTES,
    STATE_CLEARED_SIZE_BYTES, SUBSCRIPTIONS_MAX, TAKEN_SIZE_BYTES, TRANSFER_FAILED_SIZE_BYTES,
    check_bodies, check_count, check_name, check_session_id,
};
use super::{
    BreakTarget, BusCommand, BusQueueOptions, BusRefusal, Disposition, NewRule, Purge,
    SessionChoice, TransactionPart, TransactionTotals, TransactionWork,
};
use crate::catalogue::description::{
    BODY_OVERHEAD_BYTES, Class, Description, EVENT_SIZE_BYTES, ReceiveMode, Receives, Touches,
    Writes,
};
use crate::vocabulary::EntityName;

impl BusCommand {
    pub(crate) fn describe(&self) -> Description<'_, BusRefusal> {
        use Class::{Consume, Manage, Produce};
        let on = |class, queue, size_bytes| {
            Description::new(class, Touches::Queue(queue), Writes::AtMost(size_bytes))
                .after_due_in(1)
        };
        let reads = |queue| Description::reads(Touches::Queue(queue)).after_due_in(1);
        let each = |queue, count: usize, size_bytes| {
            on(Consume, queue, size_bytes)
                .looking_at(count as u64)
                .refused(refused(check_count(count)))
        };
        match self {
            Self::CreateQueue { queue, options } => {
                let created = Writes::ToCreate(queue, queue_size_bytes(queue, options));
                Description::new(Manage, Touches::Queue(queue), created)
                    .refused(refused(check_name(&queue.name)))
            }
            Self::CreateTopic { topic, options } => {
                let created = Writes::ToCreate(topic, queue_size_bytes(topic, options));
                Description::new(Manage, Touches::Queue(topic), created)
                    .refused(refused(check_name(&topic.name)))
            }
            Self::CreateSubscription {
                topic,
                subscription,
                options,
                rule,
            } => {
                let rule = rule.as_deref();
                let ruled = rule.map_or(0, |rule| {
                    EVENT_SIZE_BYTES + (rule.name.len() + rule.definition.bytes().len()) as u64
                });
                let size_bytes = queue_size_bytes(subscription, options) + ruled;
                let created = Writes::ToCreate(subscription, size_bytes);
                // In order: its name begins with that of its topic.
                let touches = Touches::Queues(vec![topic, subscription]);
                Description::new(Manage, touches, created)
                    .after_due_in(2)
                    .refused(refused(
                        check_name(&subscription.name)
                            .and_then(|()| rule.map_or(Ok(()), NewRule::check_name)),
                    ))
            }
            Self::UpdateQueue { queue, options } => {
                on(Manage, queue, queue_size_bytes(queue, options))
            }
            Self::DeleteQueue { queue } => {
                let deleted = Writes::ToDelete(queue);
                Description::new(Consume, Touches::Queue(queue), deleted).after_due_in(1)
            }
            Self::ReadQueue { queue } | Self::ReadLocked { queue, .. } => reads(queue),
            Self::ReadSessionState { queue, .. } => reads(queue),
            Self::ListQueues { skip, limit, .. } | Self::ListTopics { skip, limit, .. } => {
                Description::reads(Touches::Catalogue)
                    .looking_at(u64::from(*skip) + u64::from(*limit))
            }
            Self::ListSubscriptions { topic, .. } => {
                reads(topic).looking_at(SUBSCRIPTIONS_MAX as u64)
            }
            Self::AddRule {
                topic,
                subscription,
                rule,
            }
            | Self::SetRule {
                topic,
                subscription,
                rule,
            } => {
                let texts = rule.name.len() + rule.definition.bytes().len();
                describe_rules(topic, subscription, texts as u64)
                    .refused(refused(rule.check_name()))
            }
            Self::RemoveRule {
                topic,
                subscription,
                ..
            } => describe_rules(topic, subscription, 0),
            Self::ReadRule { subscription, .. } => reads(subscription),
            Self::ListRules {
                subscription,
                skip,
                limit,
            } => reads(subscription).looking_at(u64::from(*skip) + u64::from(*limit)),
            Self::ListSessions { queue, from, .. } => reads(queue)
                .looking_at(LOOKED_AT_MAX as u64)
                .refused(refused(check_session_id(from.len()))),
            Self::Send { queue, messages } | Self::Deposit { queue, messages } => {
                let sent = Sum::of(messages.iter().map(|it| (&it.body, it.session.as_deref())));
                let writes = Writes::ToSend {
                    to: queue,
                    size_bytes: sent.size_bytes(EVENT_SIZE_BYTES),
                    count: sent.count as u64,
                    copies_size_bytes: sent.copies_size_bytes(),
                };
                Description::new(Produce, Touches::Queue(queue), writes)
                    .after_due_in(1)
                    .with_bodies(sent.bodies_size_bytes)
                    .looking_at(sent.count as u64)
                    .refused(refused(sent.check()))
            }
            Self::SendVia { via, to, messages } => {
                let sent = Sum::of(messages.iter().map(|it| (&it.body, it.session.as_deref())));
                let queues: Vec<_> = BTreeSet::from([via, to]).into_iter().collect();
                let due_in = u32::try_from(queues.len()).unwrap_or(u32::MAX);
                let each = EVENT_SIZE_BYTES + TRANSFER_FAILED_SIZE_BYTES;
                let writes = Writes::AtMost(sent.size_bytes(each));
                Description::new(Produce, Touches::Queues(queues), writes)
                    .after_due_in(due_in)
                    .with_bodies(sent.bodies_size_bytes)
                    .looking_at(sent.count as u64)
                    .refused(refused(sent.check()))
            }
            Self::Resubmit { queue, resubmit } => {
                let messages = resubmit.messages.iter();
                let sent = Sum::of(messages.map(|it| (&it.body, it.session.as_deref())));
                let (from, to) = (queue, resubmit.to.as_deref());
                let size_bytes = sent.size_bytes(EVENT_SIZE_BYTES + ENDED_SIZE_BYTES_MAX);
                let touches = Touches::Transfer { from, to };
                Description::new(Produce, touches, Writes::AtMost(size_bytes))
                    .after_due_in(1)
                    .with_bodies(sent.bodies_size_bytes)
                    .looking_at(sent.count as u64)
                    .refused(refused(sent.check()))
            }
            Self::Receive {
                queue,
                count,
                mode,
                session,
            } => {
                let (queue, session) = (queue, *session);
                each(queue, at_most(*count), received(at_most(*count), *mode))
                    .handing_out(*mode)
                    .receiving(Receives::Messages { queue, session })
            }
            Self::ReceiveDeferred { read } => {
                let taken = match read.mode {
                    ReceiveMode::PeekLock => leased(read.numbers.len()),
                    ReceiveMode::ReceiveAndDelete => {
                        read.numbers.len() as u64 * ENDED_SIZE_BYTES_MAX
                    }
                };
                // One of them may have expired, and becomes a dead letter.
                let size_bytes = taken + MOVED_SIZE_BYTES_MAX;
                on(Consume, &read.queue, size_bytes)
                    .looking_at(read.numbers.len() as u64)
                    .handing_out(read.mode)
                    .refused(refused(check_count(read.numbers.len())))
            }
            Self::Peek { queue, count, .. } => reads(queue).looking_at(at_most(*count) as u64),
            Self::Settle { queue, settlements } => {
                let sizes = settlements.iter().map(|(_, it)| match it {
                    Disposition::Complete => TAKEN_SIZE_BYTES,
                    Disposition::Abandon { .. }
                    | Disposition::Defer { .. }
                    | Disposition::DeadLetter { .. }
                    | Disposition::Release => it.size_bytes_max(),
                });
                let overlays = settlements.iter().map(|(_, it)| it.overlay_size_bytes());
                let overlays_size_bytes = overlays.sum();
                let count = settlements.len();
                let checked = check_count(count).and_then(|()| check_bodies(overlays_size_bytes));
                on(Consume, queue, ENDED_SIZE_BYTES_MAX + sizes.sum::<u64>())
                    .with_changes(overlays_size_bytes)
                    .looking_at(count as u64)
                    .refused(refused(checked))
            }
            Self::RenewLocks { queue, locks } => each(queue, locks.len(), leased(locks.len())),
            Self::CancelScheduled { queue, numbers } => {
                each(queue, numbers.len(), cancelled(numbers.len()))
            }
            Self::TakeMessage { queue, mode, .. } => {
                each(queue, 1, ENDED_SIZE_BYTES_MAX).handing_out(*mode)
            }
            Self::DeleteMessage { queue, .. } => each(queue, 1, ENDED_SIZE_BYTES_MAX),
            Self::AcceptSession {
                queue,
                session: SessionChoice::Next,
            } => on(Consume, queue, DUE_SIZE_BYTES_MAX).receiving(Receives::Session { queue }),
            Self::AcceptSession {
                queue,
                session: SessionChoice::Named(id),
            } => {
                on(Consume, queue, DUE_SIZE_BYTES_MAX).refused(refused(check_session_id(id.len())))
            }
            Self::BreakLock {
                queue,
                target: BreakTarget::Session(id),
            } => on(Consume, queue, DUE_SIZE_BYTES_MAX)
                .releasing()
                .refused(refused(check_session_id(id.len()))),
            Self::BreakLock {
                queue,
                target: BreakTarget::Message(_),
            }
            | Self::RenewSession { queue, .. } => on(Consume, queue, DUE_SIZE_BYTES_MAX),
            Self::ReleaseSession { queue, .. } => {
                on(Consume, queue, DUE_SIZE_BYTES_MAX).releasing()
            }
            Self::SetSessionState { queue, state, .. } => {
                let size_bytes = state.as_ref().map_or(0, Bytes::len) as u64;
                on(
                    Produce,
                    queue,
                    DUE_SIZE_BYTES_MAX + BODY_OVERHEAD_BYTES + size_bytes,
                )
                .with_bodies(size_bytes)
                .refused(refused(check_state(size_bytes)))
            }
            Self::Purge { queue, purge } if purge.is_dry_run => {
                reads(queue).looking_at(LOOKED_AT_MAX as u64)
            }
            Self::Purge { queue, purge } => {
                on(Consume, queue, taken(at_most(purge.count))).looking_at(LOOKED_AT_MAX as u64)
            }
            Self::DeleteBatch { queue, count, .. } => {
                on(Consume, queue, taken(at_most(*count))).looking_at(LOOKED_AT_MAX as u64)
            }
            Self::ClearSessionStates {
                queue,
                from,
                count,
                is_dry_run,
            } => {
                let size_bytes = at_most(*count) as u64 * STATE_CLEARED_SIZE_BYTES;
                let cleared = match is_dry_run {
                    true => reads(queue),
                    false => on(Consume, queue, size_bytes),
                };
                cleared
                    .looking_at(LOOKED_AT_MAX as u64)
                    .refused(refused(check_session_id(from.len())))
            }
            Self::Transact { parts } => describe_transaction(parts),
        }
    }

    /// How many messages are asked for, if a smaller answer is enough: the client asks again for the rest.
    pub(crate) fn asked(&mut self) -> Option<&mut u32> {
        match self {
            Self::Receive { count, .. }
            | Self::DeleteBatch { count, .. }
            | Self::ClearSessionStates { count, .. }
            | Self::Purge {
                purge: Purge { count, .. },
                ..
            } => Some(count),
            Self::ReceiveDeferred { .. }
            | Self::TakeMessage { .. }
            | Self::CreateQueue { .. }
            | Self::CreateTopic { .. }
            | Self::ListTopics { .. }
            | Self::ListSubscriptions { .. }
            | Self::AddRule { .. }
            | Self::SetRule { .. }
            | Self::RemoveRule { .. }
            | Self::ReadRule { .. }
            | Self::ListRules { .. }
            | Self::CreateSubscription { .. }
            | Self::UpdateQueue { .. }
            | Self::DeleteQueue { .. }
            | Self::ReadQueue { .. }
            | Self::ListQueues { .. }
            | Self::Send { .. }
            | Self::Deposit { .. }
            | Self::SendVia { .. }
            | Self::Settle { .. }
            | Self::RenewLocks { .. }
            | Self::Peek { .. }
            | Self::ReadLocked { .. }
            | Self::CancelScheduled { .. }
            | Self::AcceptSession { .. }
            | Self::RenewSession { .. }
            | Self::ReleaseSession { .. }
            | Self::ReadSessionState { .. }
            | Self::SetSessionState { .. }
            | Self::ListSessions { .. }
            | Self::DeleteMessage { .. }
            | Self::BreakLock { .. }
            | Self::Resubmit { .. }
            | Self::Transact { .. } => None,
        }
    }
}

/// Messages to send, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: usize,
    bodies_size_bytes: u64,
    sessions_size_bytes: u64,
    longest_session: usize,
}

impl Sum {
    fn of<'a>(messages: impl Iterator<Item = (&'a Bytes, Option<&'a str>)>) -> Self {
        messages.fold(Self::default(), |sum, (body, session)| {
            let session = session.map_or(0, str::len);
            Self {
                count: sum.count + 1,
                bodies_size_bytes: sum.bodies_size_bytes + body.len() as u64,
                sessions_size_bytes: sum.sessions_size_bytes + session as u64,
                longest_session: sum.longest_session.max(session),
            }
        })
    }

    /// The most bytes of a batch, if each message takes an event of at most `event_size_bytes`.
    fn size_bytes(&self, event_size_bytes: u64) -> u64 {
        let each = event_size_bytes + BODY_OVERHEAD_BYTES;
        self.count as u64 * each + self.bodies_size_bytes + self.sessions_size_bytes
    }

    /// The most bytes of events that put the messages into one more entity.
    fn copies_size_bytes(&self) -> u64 {
        self.count as u64 * EVENT_SIZE_BYTES + self.sessions_size_bytes
    }

    fn check(&self) -> Result<(), BusRefusal> {
        check_count(self.count)?;
        check_session_id(self.longest_session)?;
        check_bodies(self.bodies_size_bytes)
    }
}

/// A change of the rules of a subscription, which lie in its topic.
fn describe_rules<'a>(
    topic: &'a EntityName,
    subscription: &'a EntityName,
    texts: u64,
) -> Description<'a, BusRefusal> {
    // In order: the name of a subscription begins with that of its topic.
    let touches = Touches::Queues(vec![topic, subscription]);
    let writes = Writes::AtMost(EVENT_SIZE_BYTES + texts);
    Description::new(Class::Manage, touches, writes).after_due_in(2)
}

fn describe_transaction(parts: &[TransactionPart]) -> Description<'_, BusRefusal> {
    let queues: BTreeSet<_> = parts.iter().flat_map(TransactionPart::queues).collect();
    let (mut totals, mut size_bytes) = (TransactionTotals::default(), 0);
    let (mut body_size_bytes, mut count, mut longest_session) = (0, 0, 0);
    for TransactionPart { work, .. } in parts {
        totals = totals.with(work);
        body_size_bytes += work.body_size_bytes();
        count += work.sent_count() + work.ended_count();
        size_bytes += match work {
            TransactionWork::Send(messages) => {
                let sent = Sum::of(messages.iter().map(|it| (&it.body, it.session.as_deref())));
                longest_session = sent.longest_session.max(longest_session);
                sent.size_bytes(EVENT_SIZE_BYTES)
            }
            TransactionWork::SendVia(_, messages) | TransactionWork::Transfer(_, messages) => {
                let sent = Sum::of(messages.iter().map(|it| (&it.body, it.session.as_deref())));
                longest_session = sent.longest_session.max(longest_session);
                sent.size_bytes(EVENT_SIZE_BYTES + TRANSFER_FAILED_SIZE_BYTES)
            }
            TransactionWork::Settle(_, disposition) => disposition.size_bytes_max(),
            TransactionWork::CancelScheduled(numbers) => cancelled(numbers.len()),
        };
    }
    let is_any_sent = parts.iter().any(|part| part.work.sent_count() > 0);
    let class = match is_any_sent {
        true => Class::Produce,
        false => Class::Consume,
    };
    let checked = totals.check().map_err(BusRefusal::from);
    let checked = checked.and_then(|()| check_session_id(longest_session));
    Description::new(
        class,
        Touches::Queues(queues.iter().copied().collect()),
        Writes::AtMost(size_bytes),
    )
    .after_due_in(u32::try_from(queues.len()).unwrap_or(u32::MAX))
    .with_changes(body_size_bytes)
    .looking_at(count as u64)
    .refused(refused(checked))
}

impl Disposition {
    fn size_bytes_max(&self) -> u64 {
        match self {
            Self::Complete => ENDED_SIZE_BYTES_MAX,
            Self::Release => LEASED_SIZE_BYTES,
            Self::Defer { .. } => {
                LEASED_SIZE_BYTES
                    + PLACE_SIZE_BYTES
                    + BODY_OVERHEAD_BYTES
                    + self.overlay_size_bytes()
            }
            // The message may become a dead letter.
            Self::Abandon { .. } | Self::DeadLetter { .. } => {
                MOVED_SIZE_BYTES_MAX + BODY_OVERHEAD_BYTES + self.overlay_size_bytes()
            }
        }
    }

    /// The bytes of the change to its message's properties.
    pub fn overlay_size_bytes(&self) -> u64 {
        match self {
            Self::Abandon { overlay } | Self::Defer { overlay } | Self::DeadLetter { overlay } => {
                overlay.as_ref().map_or(0, Bytes::len) as u64
            }
            Self::Complete | Self::Release => 0,
        }
    }
}

/// How many messages a command gets that asks for this many.
fn at_most(count: u32) -> usize {
    ITEMS_MAX.min(count as usize)
}

fn leased(count: usize) -> u64 {
    count as u64 * LEASED_SIZE_BYTES
}

/// Messages that are taken for good, as many as there is room for.
fn taken(count: usize) -> u64 {
    ENDED_SIZE_BYTES_MAX + count as u64 * TAKEN_SIZE_BYTES
}

fn received(count: usize, mode: ReceiveMode) -> u64 {
    match mode {
        ReceiveMode::PeekLock => leased(count),
        // One that is damaged may become a dead letter.
        ReceiveMode::ReceiveAndDelete => MOVED_SIZE_BYTES_MAX + taken(count),
    }
}

/// A scheduled message has no changes yet.
fn cancelled(count: usize) -> u64 {
    count as u64 * ENDED_SIZE_BYTES
}

fn refused(checked: Result<(), BusRefusal>) -> Option<BusRefusal> {
    checked.err()
}

/// No queue accepts a larger state.
fn check_state(size_bytes: u64) -> Result<(), BusRefusal> {
    if size_bytes > BODIES_SIZE_BYTES_MAX {
        return Err(BusRefusal::SessionStateTooLarge {
            size_bytes,
            limit_bytes: BODIES_SIZE_BYTES_MAX,
        });
    }
    Ok(())
}

fn queue_size_bytes(queue: &EntityName, options: &BusQueueOptions) -> u64 {
    if options.check().is_err() {
        return 0;
    }
    let destinations = [&options.forward_to, &options.forward_dead_letters_to];
    let destinations = destinations.into_iter().flatten().map(|name| name.len());
    let texts = queue.account.len() + queue.name.len() + destinations.sum::<usize>();
    2 * EVENT_SIZE_BYTES + (texts + options.description.len()) as u64
}
