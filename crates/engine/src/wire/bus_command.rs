//! Commands about bus queues.

use kew_filter::Definition;

use super::received::{
    Received, put_flag, put_list, put_number, put_numbers, put_optional_time, put_token,
};
use crate::bus::event::codec::{flagged_options, options, put_flags, put_options};
use crate::bus::{
    BreakTarget, BusCommand, BusMessage, DeferredRead, Disposition, NewRule, Purge, ReceiveMode,
    Resubmission, Resubmit, SessionChoice, TransactionPart, TransactionWork,
};
use crate::vocabulary::codec::{DecodeError, Reader, put_bytes, put_optional, put_str, put_varint};
use crate::vocabulary::elements::{incarnation, name, put_name, put_time};

/// New settings with flags, which only those of topics and subscriptions have.
const UPDATE_WITH_FLAGS: u8 = 32;

/// A new subscription with another rule than `$Default`.
const CREATE_WITH_RULE: u8 = 38;

pub(super) fn put_bus_command(out: &mut Vec<u8>, command: &BusCommand) {
    match command {
        BusCommand::CreateQueue { queue, options } => {
            out.push(1);
            put_name(out, queue);
            put_options(out, options);
        }
        BusCommand::UpdateQueue { queue, options } => {
            let has_flags =
                options.filters_before_publishing || options.dead_letters_filter_failures;
            out.push(if has_flags { UPDATE_WITH_FLAGS } else { 2 });
            put_name(out, queue);
            put_options(out, options);
            if has_flags {
                put_flags(out, options);
            }
        }
        BusCommand::DeleteQueue { queue } => {
            out.push(3);
            put_name(out, queue);
        }
        BusCommand::ReadQueue { queue } => {
            out.push(4);
            put_name(out, queue);
        }
        BusCommand::ListQueues {
            namespace,
            from,
            skip,
            limit,
        } => {
            out.push(5);
            put_str(out, namespace);
            put_str(out, from);
            put_varint(out, u64::from(*skip));
            put_varint(out, u64::from(*limit));
        }
        BusCommand::Send { queue, messages } => {
            out.push(6);
            put_name(out, queue);
            put_list(out, messages, put_message);
        }
        BusCommand::Deposit { queue, messages } => {
            out.push(40);
            put_name(out, queue);
            put_list(out, messages, put_message);
        }
        BusCommand::Receive {
            queue,
            count,
            mode,
            session,
        } => {
            out.push(7);
            put_name(out, queue);
            put_varint(out, u64::from(*count));
            put_mode(out, *mode);
            put_optional(out, *session, put_token);
        }
        BusCommand::Settle { queue, settlements } => {
            out.push(8);
            put_name(out, queue);
            put_list(out, settlements, |out, (lock, disposition)| {
                put_token(out, *lock);
                put_disposition(out, disposition);
            });
        }
        BusCommand::RenewLocks { queue, locks } => {
            out.push(9);
            put_name(out, queue);
            put_list(out, locks, |out, lock| put_token(out, *lock));
        }
        BusCommand::Peek {
            queue,
            from,
            count,
            session,
        } => {
            out.push(10);
            put_name(out, queue);
            put_number(out, *from);
            put_varint(out, u64::from(*count));
            put_optional(out, session.as_deref(), put_str);
        }
        BusCommand::ReadLocked { queue, lock } => {
            out.push(11);
            put_name(out, queue);
            put_token(out, *lock);
        }
        BusCommand::CancelScheduled { queue, numbers } => {
            out.push(12);
            put_name(out, queue);
            put_numbers(out, numbers);
        }
        BusCommand::ReceiveDeferred { read } => {
            out.push(13);
            put_name(out, &read.queue);
            put_numbers(out, &read.numbers);
            put_mode(out, read.mode);
            put_optional(out, read.session, put_token);
        }
        BusCommand::AcceptSession { queue, session } => {
            out.push(14);
            put_name(out, queue);
            match session {
                SessionChoice::Named(session) => {
                    out.push(1);
                    put_str(out, session);
                }
                SessionChoice::Next => out.push(2),
            }
        }
        BusCommand::RenewSession { queue, session } => {
            out.push(15);
            put_name(out, queue);
            put_token(out, *session);
        }
        BusCommand::ReleaseSession { queue, session } => {
            out.push(16);
            put_name(out, queue);
            put_token(out, *session);
        }
        BusCommand::ReadSessionState { queue, session } => {
            out.push(17);
            put_name(out, queue);
            put_token(out, *session);
        }
        BusCommand::SetSessionState {
            queue,
            session,
            state,
        } => {
            out.push(18);
            put_name(out, queue);
            put_token(out, *session);
            put_optional(out, state.as_deref(), put_bytes);
        }
        BusCommand::ListSessions {
            queue,
            from,
            state_set_after,
            skip,
            limit,
        } => {
            out.push(19);
            put_name(out, queue);
            put_str(out, from);
            put_optional_time(out, *state_set_after);
            put_varint(out, u64::from(*skip));
            put_varint(out, u64::from(*limit));
        }
        BusCommand::Purge { queue, purge } => {
            out.push(20);
            put_name(out, queue);
            put_purge(out, purge);
        }
        BusCommand::ClearSessionStates {
            queue,
            from,
            count,
            is_dry_run,
        } => {
            out.push(21);
            put_name(out, queue);
            put_str(out, from);
            put_varint(out, u64::from(*count));
            put_flag(out, *is_dry_run);
        }
        BusCommand::TakeMessage {
            queue,
            number,
            mode,
        } => {
            out.push(22);
            put_name(out, queue);
            put_number(out, *number);
            put_mode(out, *mode);
        }
        BusCommand::DeleteMessage {
            queue,
            number,
            with_locked,
        } => {
            out.push(23);
            put_name(out, queue);
            put_number(out, *number);
            put_flag(out, *with_locked);
        }
        BusCommand::BreakLock { queue, target } => {
            out.push(24);
            put_name(out, queue);
            match target {
                BreakTarget::Message(number) => {
                    out.push(1);
                    put_number(out, *number);
                }
                BreakTarget::Session(session) => {
                    out.push(2);
                    put_str(out, session);
                }
            }
        }
        BusCommand::Resubmit { queue, resubmit } => {
            out.push(25);
            put_name(out, queue);
            put_optional(out, resubmit.to.as_deref(), put_str);
            put_list(out, &resubmit.messages, put_resubmission);
        }
        BusCommand::Transact { parts } => {
            out.push(26);
            put_list(out, parts, put_part);
        }
        BusCommand::SendVia { via, to, messages } => {
            out.push(39);
            put_name(out, via);
            put_name(out, to);
            put_list(out, messages, put_message);
        }
        BusCommand::DeleteBatch {
            queue,
            from,
            before,
            count,
            session,
        } => {
            out.push(27);
            put_name(out, queue);
            put_number(out, *from);
            put_time(out, *before);
            put_varint(out, u64::from(*count));
            put_optional(out, session.as_deref(), put_str);
        }
        BusCommand::CreateTopic { topic, options } => {
            out.push(28);
            put_name(out, topic);
            put_options(out, options);
            put_flags(out, options);
        }
        BusCommand::CreateSubscription {
            topic,
            subscription,
            options,
            rule,
        } => {
            out.push(if rule.is_some() { CREATE_WITH_RULE } else { 29 });
            put_name(out, topic);
            put_name(out, subscription);
            put_options(out, options);
            put_flags(out, options);
            if let Some(rule) = rule {
                put_new_rule(out, rule);
            }
        }
        BusCommand::ListTopics {
            namespace,
            skip,
            limit,
        } => {
            out.push(30);
            put_str(out, namespace);
            put_varint(out, u64::from(*skip));
            put_varint(out, u64::from(*limit));
        }
        BusCommand::ListSubscriptions { topic, skip, limit } => {
            out.push(31);
            put_name(out, topic);
            put_varint(out, u64::from(*skip));
            put_varint(out, u64::from(*limit));
        }
        BusCommand::AddRule {
            topic,
            subscription,
            rule,
        } => {
            out.push(33);
            put_name(out, topic);
            put_name(out, subscription);
            put_new_rule(out, rule);
        }
        BusCommand::SetRule {
            topic,
            subscription,
            rule,
        } => {
            out.push(34);
            put_name(out, topic);
            put_name(out, subscription);
            put_new_rule(out, rule);
        }
        BusCommand::RemoveRule {
            topic,
            subscription,
            name,
        } => {
            out.push(35);
            put_name(out, topic);
            put_name(out, subscription);
            put_str(out, name);
        }
        BusCommand::ReadRule { subscription, name } => {
            out.push(36);
            put_name(out, subscription);
            put_str(out, name);
        }
        BusCommand::ListRules {
            subscription,
            skip,
            limit,
        } => {
            out.push(37);
            put_name(out, subscription);
            put_varint(out, u64::from(*skip));
            put_varint(out, u64::from(*limit));
        }
    }
}

pub(super) fn bus_command(r: &mut Received<'_>) -> Result<BusCommand, DecodeError> {
    Ok(match r.u8()? {
        1 => BusCommand::CreateQueue {
            queue: name(r)?,
            options: options(r)?,
        },
        2 => BusCommand::UpdateQueue {
            queue: name(r)?,
            options: options(r)?,
        },
        3 => BusCommand::DeleteQueue { queue: name(r)? },
        4 => BusCommand::ReadQueue { queue: name(r)? },
        5 => BusCommand::ListQueues {
            namespace: r.text()?,
            from: r.text()?,
            skip: r.varint_u32()?,
            limit: r.varint_u32()?,
        },
        6 => BusCommand::Send {
            queue: name(r)?,
            messages: r.list(message)?,
        },
        7 => BusCommand::Receive {
            queue: name(r)?,
            count: r.varint_u32()?,
            mode: mode(r)?,
            session: r.optional(Received::token)?,
        },
        8 => BusCommand::Settle {
            queue: name(r)?,
            settlements: r.list(|r| Ok((r.token()?, disposition(r)?)))?,
        },
        9 => BusCommand::RenewLocks {
            queue: name(r)?,
            locks: r.list(Received::token)?,
        },
        10 => BusCommand::Peek {
            queue: name(r)?,
            from: r.sequence_number()?,
            count: r.varint_u32()?,
            session: r.optional_text()?,
        },
        11 => BusCommand::ReadLocked {
            queue: name(r)?,
            lock: r.token()?,
        },
        12 => BusCommand::CancelScheduled {
            queue: name(r)?,
            numbers: r.list(Received::sequence_number)?,
        },
        13 => BusCommand::ReceiveDeferred {
            read: DeferredRead {
                queue: name(r)?,
                numbers: r.list(Received::sequence_number)?,
                mode: mode(r)?,
                session: r.optional(Received::token)?,
            },
        },
        14 => BusCommand::AcceptSession {
            queue: name(r)?,
            session: match r.u8()? {
                1 => SessionChoice::Named(r.text()?),
                2 => SessionChoice::Next,
                _ => return Err(r.error("choice of a session that is not known")),
            },
        },
        15 => BusCommand::RenewSession {
            queue: name(r)?,
            session: r.token()?,
        },
        16 => BusCommand::ReleaseSession {
            queue: name(r)?,
            session: r.token()?,
        },
        17 => BusCommand::ReadSessionState {
            queue: name(r)?,
            session: r.token()?,
        },
        18 => BusCommand::SetSessionState {
            queue: name(r)?,
            session: r.token()?,
            state: r.optional(Received::body)?,
        },
        19 => BusCommand::ListSessions {
            queue: name(r)?,
            from: r.text()?,
            state_set_after: r.optional(Received::time)?,
            skip: r.varint_u32()?,
            limit: r.varint_u32()?,
        },
        20 => BusCommand::Purge {
            queue: name(r)?,
            purge: purge(r)?,
        },
        21 => BusCommand::ClearSessionStates {
            queue: name(r)?,
            from: r.text()?,
            count: r.varint_u32()?,
            is_dry_run: r.flag()?,
        },
        22 => BusCommand::TakeMessage {
            queue: name(r)?,
            number: r.sequence_number()?,
            mode: mode(r)?,
        },
        23 => BusCommand::DeleteMessage {
            queue: name(r)?,
            number: r.sequence_number()?,
            with_locked: r.flag()?,
        },
        24 => BusCommand::BreakLock {
            queue: name(r)?,
            target: match r.u8()? {
                1 => BreakTarget::Message(r.sequence_number()?),
                2 => BreakTarget::Session(r.text()?),
                _ => return Err(r.error("lock to break that is not known")),
            },
        },
        25 => BusCommand::Resubmit {
            queue: name(r)?,
            resubmit: Resubmit {
                to: r.optional_text()?,
                messages: r.list(resubmission)?,
            },
        },
        26 => BusCommand::Transact {
            parts: r.list(part)?,
        },
        27 => BusCommand::DeleteBatch {
            queue: name(r)?,
            from: r.sequence_number()?,
            before: r.time()?,
            count: r.varint_u32()?,
            session: r.optional_text()?,
        },
        28 => BusCommand::CreateTopic {
            topic: name(r)?,
            options: flagged_options(r)?,
        },
        29 => BusCommand::CreateSubscription {
            topic: name(r)?,
            subscription: name(r)?,
            options: flagged_options(r)?,
            rule: None,
        },
        30 => BusCommand::ListTopics {
            namespace: r.text()?,
            skip: r.varint_u32()?,
            limit: r.varint_u32()?,
        },
        31 => BusCommand::ListSubscriptions {
            topic: name(r)?,
            skip: r.varint_u32()?,
            limit: r.varint_u32()?,
        },
        UPDATE_WITH_FLAGS => BusCommand::UpdateQueue {
            queue: name(r)?,
            options: flagged_options(r)?,
        },
        33 => BusCommand::AddRule {
            topic: name(r)?,
            subscription: name(r)?,
            rule: Box::new(new_rule(r)?),
        },
        34 => BusCommand::SetRule {
            topic: name(r)?,
            subscription: name(r)?,
            rule: Box::new(new_rule(r)?),
        },
        35 => BusCommand::RemoveRule {
            topic: name(r)?,
            subscription: name(r)?,
            name: r.text()?,
        },
        36 => BusCommand::ReadRule {
            subscription: name(r)?,
            name: r.text()?,
        },
        40 => BusCommand::Deposit {
            queue: name(r)?,
            messages: r.list(message)?,
        },
        39 => BusCommand::SendVia {
            via: name(r)?,
            to: name(r)?,
            messages: r.list(message)?,
        },
        37 => BusCommand::ListRules {
            subscription: name(r)?,
            skip: r.varint_u32()?,
            limit: r.varint_u32()?,
        },
        CREATE_WITH_RULE => BusCommand::CreateSubscription {
            topic: name(r)?,
            subscription: name(r)?,
            options: flagged_options(r)?,
            rule: Some(Box::new(new_rule(r)?)),
        },
        _ => return Err(r.error("command about bus queues that is not known")),
    })
}

fn put_new_rule(out: &mut Vec<u8>, rule: &NewRule) {
    put_str(out, &rule.name);
    put_bytes(out, rule.definition.bytes());
}

fn new_rule(r: &mut Received<'_>) -> Result<NewRule, DecodeError> {
    let name = r.text()?;
    let definition = Definition::decode(r.bytes()?);
    let definition = definition.map_err(|_| r.error("definition of a rule that cannot be read"))?;
    Ok(NewRule { name, definition })
}

fn put_message(out: &mut Vec<u8>, message: &BusMessage) {
    put_bytes(out, &message.body);
    put_optional(out, message.message_id.as_deref(), put_str);
    put_optional(out, message.session.as_deref(), put_str);
    put_optional(out, message.time_to_live_ms, put_varint);
    put_optional_time(out, message.scheduled_at);
}

fn message(r: &mut Received<'_>) -> Result<BusMessage, DecodeError> {
    Ok(BusMessage {
        body: r.body()?,
        message_id: r.optional_text()?,
        session: r.optional_text()?,
        time_to_live_ms: r.optional(|r| r.varint())?,
        scheduled_at: r.optional(Received::time)?,
    })
}

fn put_mode(out: &mut Vec<u8>, mode: ReceiveMode) {
    out.push(match mode {
        ReceiveMode::PeekLock => 1,
        ReceiveMode::ReceiveAndDelete => 2,
    });
}

fn mode(r: &mut Reader<'_>) -> Result<ReceiveMode, DecodeError> {
    Ok(match r.u8()? {
        1 => ReceiveMode::PeekLock,
        2 => ReceiveMode::ReceiveAndDelete,
        _ => return Err(r.error("mode of a receive that is not known")),
    })
}

fn put_disposition(out: &mut Vec<u8>, disposition: &Disposition) {
    let (tag, overlay) = match disposition {
        Disposition::Complete => (1, None),
        Disposition::Abandon { overlay } => (2, Some(overlay)),
        Disposition::Defer { overlay } => (3, Some(overlay)),
        Disposition::DeadLetter { overlay } => (4, Some(overlay)),
        Disposition::Release => (5, None),
    };
    out.push(tag);
    if let Some(overlay) = overlay {
        put_optional(out, overlay.as_deref(), put_bytes);
    }
}

fn disposition(r: &mut Received<'_>) -> Result<Disposition, DecodeError> {
    Ok(match r.u8()? {
        1 => Disposition::Complete,
        2 => Disposition::Abandon {
            overlay: r.optional(Received::body)?,
        },
        3 => Disposition::Defer {
            overlay: r.optional(Received::body)?,
        },
        4 => Disposition::DeadLetter {
            overlay: r.optional(Received::body)?,
        },
        5 => Disposition::Release,
        _ => return Err(r.error("settlement that is not known")),
    })
}

fn put_purge(out: &mut Vec<u8>, purge: &Purge) {
    put_number(out, purge.from);
    put_optional(out, purge.until, put_number);
    put_optional_time(out, purge.before);
    put_varint(out, u64::from(purge.count));
    put_flag(out, purge.with_locked);
    put_flag(out, purge.is_dry_run);
}

fn purge(r: &mut Received<'_>) -> Result<Purge, DecodeError> {
    Ok(Purge {
        from: r.sequence_number()?,
        until: r.optional(Received::sequence_number)?,
        before: r.optional(Received::time)?,
        count: r.varint_u32()?,
        with_locked: r.flag()?,
        is_dry_run: r.flag()?,
    })
}

fn put_resubmission(out: &mut Vec<u8>, message: &Resubmission) {
    put_number(out, message.sequence_number);
    put_varint(out, u64::from(message.overlay_count));
    put_bytes(out, &message.body);
    put_optional(out, message.message_id.as_deref(), put_str);
    put_optional(out, message.session.as_deref(), put_str);
    put_optional(out, message.time_to_live_ms, put_varint);
}

fn resubmission(r: &mut Received<'_>) -> Result<Resubmission, DecodeError> {
    Ok(Resubmission {
        sequence_number: r.sequence_number()?,
        overlay_count: r.varint_u32()?,
        body: r.body()?,
        message_id: r.optional_text()?,
        session: r.optional_text()?,
        time_to_live_ms: r.optional(|r| r.varint())?,
    })
}

fn put_part(out: &mut Vec<u8>, part: &TransactionPart) {
    put_name(out, &part.queue);
    put_optional(out, part.incarnation, |out, incarnation| {
        put_varint(out, incarnation.as_u64());
    });
    match &part.work {
        TransactionWork::Send(messages) => {
            out.push(1);
            put_list(out, messages, put_message);
        }
        TransactionWork::SendVia(to, messages) => {
            out.push(4);
            put_name(out, to);
            put_list(out, messages, put_message);
        }
        TransactionWork::Transfer(via, messages) => {
            out.push(5);
            put_name(out, via);
            put_list(out, messages, put_message);
        }
        TransactionWork::Settle(lock, disposition) => {
            out.push(2);
            put_token(out, *lock);
            put_disposition(out, disposition);
        }
        TransactionWork::CancelScheduled(numbers) => {
            out.push(3);
            put_numbers(out, numbers);
        }
    }
}

fn part(r: &mut Received<'_>) -> Result<TransactionPart, DecodeError> {
    Ok(TransactionPart {
        queue: name(r)?,
        incarnation: r.optional(|r| incarnation(r))?,
        work: match r.u8()? {
            1 => TransactionWork::Send(r.list(message)?),
            2 => TransactionWork::Settle(r.token()?, disposition(r)?),
            3 => TransactionWork::CancelScheduled(r.list(Received::sequence_number)?),
            4 => TransactionWork::SendVia(name(r)?, r.list(message)?),
            5 => TransactionWork::Transfer(name(r)?, r.list(message)?),
            _ => return Err(r.error("work of a transaction that is not known")),
        },
    })
}
