//! Outcomes about bus queues.

use super::received::{Received, put_list, put_locations, put_number, put_token};
use crate::bus::event::codec::{cause, options, put_cause, put_flags, put_options, with_flags};
use crate::bus::{
    BatchDeleted, BusMessageState, BusOutcome, BusQueueCounts, BusQueueView, BusRuleView,
    ClearedStates, DeliveredMessage, EntityKind, ListedSessions, PeekedBusMessage, Purged,
    ResubmitVerdict, SessionLock, Verdict,
};
use crate::vocabulary::codec::{DecodeError, put_bytes, put_optional, put_str, put_varint};
use crate::vocabulary::elements::{incarnation, location, put_location, put_time};

pub(super) fn put_bus_outcome(out: &mut Vec<u8>, outcome: &BusOutcome) {
    match outcome {
        BusOutcome::QueueCreated(view) => put_any_view(out, (1, 25), view),
        BusOutcome::QueueUpdated(view) => put_any_view(out, (2, 26), view),
        BusOutcome::QueueDeleted => out.push(3),
        BusOutcome::Queue(view) => put_any_view(out, (4, 27), view),
        BusOutcome::Queues(views) if views.iter().all(|it| it.kind == EntityKind::Queue) => {
            out.push(5);
            put_list(out, views, put_view);
        }
        BusOutcome::Queues(views) => {
            out.push(28);
            put_list(out, views, put_other_view);
        }
        BusOutcome::Sent(numbers) => {
            out.push(6);
            put_list(out, numbers, |out, number| {
                put_optional(out, *number, put_number);
            });
        }
        BusOutcome::Received(messages) => {
            out.push(7);
            put_list(out, messages, put_delivered);
        }
        BusOutcome::Settled(verdicts) => {
            out.push(8);
            put_list(out, verdicts, |out, verdict| put_verdict(out, *verdict));
        }
        BusOutcome::LocksRenewed(times) => {
            out.push(9);
            put_list(out, times, |out, time| put_time(out, *time));
        }
        BusOutcome::Peeked(messages) => {
            out.push(10);
            put_list(out, messages, put_peeked);
        }
        BusOutcome::Cancelled => out.push(11),
        BusOutcome::SessionAccepted(lock) => {
            out.push(12);
            put_str(out, &lock.session);
            put_token(out, lock.lock);
            put_time(out, lock.locked_until);
        }
        BusOutcome::SessionRenewed(until) => {
            out.push(13);
            put_time(out, *until);
        }
        BusOutcome::SessionReleased => out.push(14),
        BusOutcome::SessionState(state) => {
            out.push(15);
            put_optional(out, *state, put_location);
        }
        BusOutcome::SessionStateSet => out.push(16),
        BusOutcome::Sessions(listed) => {
            out.push(17);
            put_list(out, &listed.ids, |out, id| put_str(out, id));
            put_varint(out, u64::from(listed.skipped));
            put_optional(out, listed.next.as_deref(), put_str);
        }
        BusOutcome::BatchDeleted(deleted) => {
            out.push(18);
            put_varint(out, u64::from(deleted.count));
            put_optional(out, deleted.next, put_number);
        }
        BusOutcome::Purged(purged) => {
            out.push(19);
            put_varint(out, u64::from(purged.count));
            put_varint(out, u64::from(purged.locked_count));
            put_optional(out, purged.next, put_number);
            put_number(out, purged.until);
        }
        BusOutcome::SessionStatesCleared(cleared) => {
            out.push(20);
            put_varint(out, u64::from(cleared.count));
            put_optional(out, cleared.next.as_deref(), put_str);
        }
        BusOutcome::MessageDeleted => out.push(21),
        BusOutcome::LockBroken => out.push(22),
        BusOutcome::Resubmitted(verdicts) => {
            out.push(23);
            put_list(out, verdicts, |out, verdict| put_resubmitted(out, *verdict));
        }
        BusOutcome::Transacted => out.push(24),
        BusOutcome::RuleAdded(rule) => {
            out.push(29);
            put_rule(out, rule);
        }
        BusOutcome::RuleReplaced(rule) => {
            out.push(30);
            put_rule(out, rule);
        }
        BusOutcome::RuleRemoved => out.push(31),
        BusOutcome::Rule(rule) => {
            out.push(32);
            put_rule(out, rule);
        }
        BusOutcome::Rules(rules) => {
            out.push(33);
            put_list(out, rules, put_rule);
        }
    }
}

/// Puts the view of a queue behind the first tag, and that of a topic or subscription behind the second one.
fn put_any_view(out: &mut Vec<u8>, (queue, other): (u8, u8), view: &BusQueueView) {
    match view.kind {
        EntityKind::Queue => {
            out.push(queue);
            put_view(out, view);
        }
        EntityKind::Topic | EntityKind::Subscription => {
            out.push(other);
            put_other_view(out, view);
        }
    }
}

/// Puts a view with what only those of topics and subscriptions have.
fn put_other_view(out: &mut Vec<u8>, view: &BusQueueView) {
    put_view(out, view);
    out.push(match (view.kind, view.is_suspended) {
        (EntityKind::Queue, _) => 0,
        (EntityKind::Topic, _) => 1,
        (EntityKind::Subscription, false) => 2,
        (EntityKind::Subscription, true) => 3,
    });
    put_flags(out, &view.options);
    put_varint(out, view.counts.subscriptions);
}

/// Reads a view with what only those of topics and subscriptions have.
fn other_view(r: &mut Received<'_>) -> Result<BusQueueView, DecodeError> {
    let mut view = view(r)?;
    (view.kind, view.is_suspended) = match r.u8()? {
        0 => (EntityKind::Queue, false),
        1 => (EntityKind::Topic, false),
        2 => (EntityKind::Subscription, false),
        3 => (EntityKind::Subscription, true),
        _ => return Err(r.error("kind of an entity that is not known")),
    };
    let options = with_flags(view.options.clone(), r)?;
    view.counts.subscriptions = r.varint()?;
    // In a list, it may be beside topics. It has nothing of what these have.
    let is_more_than_a_queue = options != view.options || view.counts.subscriptions > 0;
    if view.kind == EntityKind::Queue && is_more_than_a_queue {
        return Err(r.error("a queue with what only topics have"));
    }
    view.options = options;
    Ok(view)
}

pub(super) fn bus_outcome(r: &mut Received<'_>) -> Result<BusOutcome, DecodeError> {
    Ok(match r.u8()? {
        1 => BusOutcome::QueueCreated(Box::new(view(r)?)),
        2 => BusOutcome::QueueUpdated(Box::new(view(r)?)),
        3 => BusOutcome::QueueDeleted,
        4 => BusOutcome::Queue(Box::new(view(r)?)),
        5 => BusOutcome::Queues(r.list(view)?),
        6 => BusOutcome::Sent(r.list(|r| r.optional(Received::sequence_number))?),
        7 => BusOutcome::Received(r.list(delivered)?),
        8 => BusOutcome::Settled(r.list(verdict)?),
        9 => BusOutcome::LocksRenewed(r.list(Received::time)?),
        10 => BusOutcome::Peeked(r.list(peeked)?),
        11 => BusOutcome::Cancelled,
        12 => BusOutcome::SessionAccepted(SessionLock {
            session: r.text()?,
            lock: r.token()?,
            locked_until: r.time()?,
        }),
        13 => BusOutcome::SessionRenewed(r.time()?),
        14 => BusOutcome::SessionReleased,
        15 => BusOutcome::SessionState(r.optional(|r| location(r))?),
        16 => BusOutcome::SessionStateSet,
        17 => BusOutcome::Sessions(ListedSessions {
            ids: r.list(Received::text)?,
            skipped: r.varint_u32()?,
            next: r.optional_text()?,
        }),
        18 => BusOutcome::BatchDeleted(BatchDeleted {
            count: r.varint_u32()?,
            next: r.optional(Received::sequence_number)?,
        }),
        19 => BusOutcome::Purged(Purged {
            count: r.varint_u32()?,
            locked_count: r.varint_u32()?,
            next: r.optional(Received::sequence_number)?,
            until: r.sequence_number()?,
        }),
        20 => BusOutcome::SessionStatesCleared(ClearedStates {
            count: r.varint_u32()?,
            next: r.optional_text()?,
        }),
        21 => BusOutcome::MessageDeleted,
        22 => BusOutcome::LockBroken,
        23 => BusOutcome::Resubmitted(r.list(resubmitted)?),
        24 => BusOutcome::Transacted,
        25 => BusOutcome::QueueCreated(Box::new(other_view(r)?)),
        26 => BusOutcome::QueueUpdated(Box::new(other_view(r)?)),
        27 => BusOutcome::Queue(Box::new(other_view(r)?)),
        28 => BusOutcome::Queues(r.list(other_view)?),
        29 => BusOutcome::RuleAdded(rule(r)?),
        30 => BusOutcome::RuleReplaced(rule(r)?),
        31 => BusOutcome::RuleRemoved,
        32 => BusOutcome::Rule(rule(r)?),
        33 => BusOutcome::Rules(r.list(rule)?),
        _ => return Err(r.error("outcome about bus queues that is not known")),
    })
}

fn put_view(out: &mut Vec<u8>, view: &BusQueueView) {
    put_varint(out, view.incarnation.as_u64());
    put_str(out, &view.name);
    put_options(out, &view.options);
    put_time(out, view.created_at);
    put_time(out, view.updated_at);
    put_time(out, view.used_at);
    let counts = &view.counts;
    put_varint(out, counts.active);
    put_varint(out, counts.ready);
    put_varint(out, counts.scheduled);
    put_varint(out, counts.dead_letters);
    put_varint(out, counts.failed_transfers);
    put_varint(out, counts.size_bytes);
}

fn view(r: &mut Received<'_>) -> Result<BusQueueView, DecodeError> {
    Ok(BusQueueView {
        kind: EntityKind::Queue,
        incarnation: incarnation(r)?,
        name: r.text()?,
        options: options(r)?,
        created_at: r.time()?,
        updated_at: r.time()?,
        used_at: r.time()?,
        is_suspended: false,
        counts: BusQueueCounts {
            active: r.varint()?,
            ready: r.varint()?,
            scheduled: r.varint()?,
            dead_letters: r.varint()?,
            failed_transfers: r.varint()?,
            size_bytes: r.varint()?,
            subscriptions: 0,
        },
    })
}

fn put_rule(out: &mut Vec<u8>, rule: &BusRuleView) {
    put_str(out, &rule.name);
    put_bytes(out, &rule.definition);
    put_time(out, rule.created_at);
}

fn rule(r: &mut Received<'_>) -> Result<BusRuleView, DecodeError> {
    Ok(BusRuleView {
        name: r.text()?,
        definition: r.bytes()?.into(),
        created_at: r.time()?,
    })
}

fn put_delivered(out: &mut Vec<u8>, message: &DeliveredMessage) {
    put_number(out, message.sequence_number);
    put_number(out, message.first_sequence_number);
    put_optional(out, message.lock, put_token);
    put_time(out, message.locked_until);
    put_time(out, message.enqueued_at);
    put_time(out, message.expires_at);
    put_varint(out, u64::from(message.delivery_count));
    put_state(out, message.state);
    put_optional(out, message.cause, put_cause);
    put_optional(out, message.dead_letter_source.as_deref(), put_str);
    put_location(out, message.body);
    put_locations(out, &message.overlays);
}

fn delivered(r: &mut Received<'_>) -> Result<DeliveredMessage, DecodeError> {
    Ok(DeliveredMessage {
        sequence_number: r.sequence_number()?,
        first_sequence_number: r.sequence_number()?,
        lock: r.optional(Received::token)?,
        locked_until: r.time()?,
        enqueued_at: r.time()?,
        expires_at: r.time()?,
        delivery_count: r.varint_u32()?,
        state: state(r)?,
        cause: r.optional(|r| cause(r))?,
        dead_letter_source: r.optional_text()?,
        body: location(r)?,
        overlays: r.list(|r| location(r))?,
    })
}

fn put_peeked(out: &mut Vec<u8>, message: &PeekedBusMessage) {
    put_number(out, message.sequence_number);
    put_number(out, message.first_sequence_number);
    put_time(out, message.enqueued_at);
    put_time(out, message.expires_at);
    put_time(out, message.due_at);
    put_varint(out, u64::from(message.delivery_count));
    put_state(out, message.state);
    put_optional(out, message.cause, put_cause);
    put_optional(out, message.dead_letter_source.as_deref(), put_str);
    put_location(out, message.body);
    put_locations(out, &message.overlays);
}

fn peeked(r: &mut Received<'_>) -> Result<PeekedBusMessage, DecodeError> {
    Ok(PeekedBusMessage {
        sequence_number: r.sequence_number()?,
        first_sequence_number: r.sequence_number()?,
        enqueued_at: r.time()?,
        expires_at: r.time()?,
        due_at: r.time()?,
        delivery_count: r.varint_u32()?,
        state: state(r)?,
        cause: r.optional(|r| cause(r))?,
        dead_letter_source: r.optional_text()?,
        body: location(r)?,
        overlays: r.list(|r| location(r))?,
    })
}

fn put_state(out: &mut Vec<u8>, state: BusMessageState) {
    out.push(match state {
        BusMessageState::Ready => 1,
        BusMessageState::Locked { deferred: false } => 2,
        BusMessageState::Locked { deferred: true } => 3,
        BusMessageState::Scheduled => 4,
        BusMessageState::Deferred => 5,
    });
}

fn state(r: &mut Received<'_>) -> Result<BusMessageState, DecodeError> {
    Ok(match r.u8()? {
        1 => BusMessageState::Ready,
        2 => BusMessageState::Locked { deferred: false },
        3 => BusMessageState::Locked { deferred: true },
        4 => BusMessageState::Scheduled,
        5 => BusMessageState::Deferred,
        _ => return Err(r.error("state of a message that is not known")),
    })
}

pub(super) fn put_verdict(out: &mut Vec<u8>, verdict: Verdict) {
    out.push(match verdict {
        Verdict::Settled => 1,
        Verdict::LockLost => 2,
        Verdict::SessionLockLost => 3,
        Verdict::NotAllowed => 4,
        Verdict::TooManyChanges => 5,
        Verdict::QuotaExceeded => 6,
    });
}

pub(super) fn verdict(r: &mut Received<'_>) -> Result<Verdict, DecodeError> {
    Ok(match r.u8()? {
        1 => Verdict::Settled,
        2 => Verdict::LockLost,
        3 => Verdict::SessionLockLost,
        4 => Verdict::NotAllowed,
        5 => Verdict::TooManyChanges,
        6 => Verdict::QuotaExceeded,
        _ => return Err(r.error("result of a settlement that is not known")),
    })
}

fn put_resubmitted(out: &mut Vec<u8>, verdict: ResubmitVerdict) {
    match verdict {
        ResubmitVerdict::Resubmitted(number) => {
            out.push(1);
            put_number(out, number);
        }
        ResubmitVerdict::NotFound => out.push(2),
        ResubmitVerdict::Locked => out.push(3),
        ResubmitVerdict::Changed => out.push(4),
        ResubmitVerdict::Duplicate => out.push(5),
        ResubmitVerdict::TooLarge => out.push(6),
        ResubmitVerdict::SessionRequired => out.push(7),
        ResubmitVerdict::Full => out.push(8),
        ResubmitVerdict::Unselected => out.push(9),
        ResubmitVerdict::NotCompared => out.push(10),
    }
}

fn resubmitted(r: &mut Received<'_>) -> Result<ResubmitVerdict, DecodeError> {
    Ok(match r.u8()? {
        1 => ResubmitVerdict::Resubmitted(r.sequence_number()?),
        2 => ResubmitVerdict::NotFound,
        3 => ResubmitVerdict::Locked,
        4 => ResubmitVerdict::Changed,
        5 => ResubmitVerdict::Duplicate,
        6 => ResubmitVerdict::TooLarge,
        7 => ResubmitVerdict::SessionRequired,
        8 => ResubmitVerdict::Full,
        9 => ResubmitVerdict::Unselected,
        10 => ResubmitVerdict::NotCompared,
        _ => return Err(r.error("result of a resubmission that is not known")),
    })
}
