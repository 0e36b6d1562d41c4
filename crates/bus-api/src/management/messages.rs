//! Operations on messages.

use bytes::Bytes;
use kew_amqp::codec::{Array, Map, Value, write_list, write_map};
use kew_amqp::error::Error;
use kew_amqp::message::Message;
use kew_bus_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, overlaid, overlay_of};
use kew_engine::bus::{
    BusCommand, BusOutcome, DeferredRead, Disposition, ITEMS_MAX, PeekedBusMessage, ReceiveMode,
};
use kew_engine::{Outcome, SequenceNumber, Token};

use super::context::{Answered, Context, unexpected};
use super::fields::{self, wrong};
use crate::ground::refusal::{bus_condition, claimed, error_of_verdict};
use crate::messages::batch::batch_of;
use crate::messages::inbound::message_of;
use crate::messages::outbound::{Facts, encode, uuid, wire_timestamp};
use crate::metrics::Lock;

pub(super) async fn renew_locks(context: &Context, body: &Map) -> Result<Answered, Error> {
    let renew = BusCommand::RenewLocks {
        queue: context.entity.clone(),
        locks: fields::tokens(body, "lock-tokens")?,
    };
    match context.submit(renew).await?.outcome {
        Outcome::Bus(BusOutcome::LocksRenewed(until)) => {
            let instruments = &context.shared.observer.instruments;
            instruments.note_renewals(Lock::Message, until.len());
            let until = Array::timestamps(until.into_iter().map(wire_timestamp));
            Answered::map(|map| map.entry("expirations", &Value::Array(until)))
        }
        _ => Err(unexpected()),
    }
}

pub(super) async fn peek(context: &Context, body: &Map) -> Result<Answered, Error> {
    let omits_body = match fields::value(body, "omit-message-body") {
        None => false,
        Some(Value::Boolean(omits_body)) => omits_body,
        Some(_) => return Err(wrong("omit-message-body", "a boolean")),
    };
    // A client begins at 0 or, as some do, below.
    let from = fields::value(body, "from-sequence-number").and_then(|value| value.as_integer());
    let from = from.ok_or_else(|| wrong("from-sequence-number", "a whole number"))?;
    let peek = BusCommand::Peek {
        queue: context.entity.clone(),
        from: SequenceNumber::named(u64::try_from(from).unwrap_or_default()),
        count: fields::count(body, "message-count")?,
        session: fields::text(body, "session-id")?,
    };
    let answer = context.submit(peek).await?;
    let Outcome::Bus(BusOutcome::Peeked(messages)) = answer.outcome else {
        return Err(unexpected());
    };
    let mut bodies = answer.bodies.into_iter();
    let encoded = messages.iter().filter_map(|message: &PeekedBusMessage| {
        let body = bodies.next()?;
        let overlays: Vec<Bytes> = bodies.by_ref().take(message.overlays.len()).collect();
        let parts = encode(&Facts::from(message), body, &overlays)?;
        let parts = if omits_body {
            without_body(&parts)?
        } else {
            parts
        };
        Some((None, parts))
    });
    answered_messages(encoded.collect())
}

fn without_body(parts: &[Bytes; 2]) -> Option<[Bytes; 2]> {
    let message = Message::scan(Bytes::from(parts.concat())).ok()?;
    Some([message.before_body(), Bytes::new()])
}

type Encoded = (Option<kew_amqp::codec::Uuid>, [Bytes; 2]);

fn answered_messages(messages: Vec<Encoded>) -> Result<Answered, Error> {
    if messages.is_empty() {
        return Ok(Answered::Nothing);
    }
    Answered::map(|map| {
        map.entry_with("messages", |out| {
            write_list(out, |list| {
                for (lock, [head, rest]) in &messages {
                    list.with(|out| {
                        write_map(out, |map| {
                            if let Some(lock) = lock {
                                map.entry("lock-token", lock);
                            }
                            let message = [head.as_ref(), rest.as_ref()].concat();
                            map.entry("message", &Bytes::from(message));
                        });
                    });
                }
            });
        });
    })
}

pub(super) async fn schedule(context: &Context, body: &Map) -> Result<Answered, Error> {
    let messages = fields::elements(body, "messages")?
        .into_iter()
        .map(|entry| {
            let Value::Map(entry) = entry else {
                return Err(wrong("messages", "a list of maps"));
            };
            let message = fields::value(&entry, "message").unwrap_or(Value::Null);
            message_of(&fields::binary(message, "message")?)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let send = BusCommand::Send {
        queue: context.entity.clone(),
        messages,
    };
    match context.submit(send).await?.outcome {
        Outcome::Bus(BusOutcome::Sent(numbers)) => {
            // A duplicate was dropped, and has no number.
            let number = |number: Option<SequenceNumber>| {
                number.map_or(0, |it| i64::try_from(it.as_u64()).unwrap_or(i64::MAX))
            };
            let numbers = Value::Array(Array::longs(numbers.into_iter().map(number)));
            Answered::map(|map| map.entry("sequence-numbers", &numbers))
        }
        _ => Err(unexpected()),
    }
}

pub(super) async fn cancel(context: &Context, body: &Map) -> Result<Answered, Error> {
    let cancel = BusCommand::CancelScheduled {
        queue: context.entity.clone(),
        numbers: numbers_to_cancel(body)?,
    };
    context.submit(cancel).await?;
    Answered::map(|_| {})
}

pub(super) fn numbers_to_cancel(body: &Map) -> Result<Vec<SequenceNumber>, Error> {
    fields::sequence_numbers(body, "sequence-numbers")
}

pub(super) async fn receive_deferred(context: &Context, body: &Map) -> Result<Answered, Error> {
    let mode = match fields::number(body, "receiver-settle-mode")? {
        0 => ReceiveMode::ReceiveAndDelete,
        1 => ReceiveMode::PeekLock,
        _ => return Err(wrong("receiver-settle-mode", "0 or 1")),
    };
    let read = DeferredRead {
        queue: context.entity.clone(),
        numbers: fields::sequence_numbers(body, "sequence-numbers")?,
        mode,
        session: context.session,
    };
    let answer = context.submit(BusCommand::ReceiveDeferred { read }).await?;
    let encoded = batch_of(answer)
        .into_iter()
        .filter_map(|(message, mut bytes)| {
            if bytes.is_empty() {
                return None;
            }
            let overlays = bytes.split_off(1);
            let parts = encode(&Facts::from(&message), bytes.pop()?, &overlays)?;
            // A message without a lock has a token too: zero, which no lock has.
            let lock = message.lock.map_or(kew_amqp::codec::Uuid([0; 16]), uuid);
            Some((Some(lock), parts))
        });
    answered_messages(encoded.collect())
}

pub(super) async fn update(context: &Context, body: &Map) -> Result<Answered, Error> {
    let settlements = settlements_of(body)?;
    if settlements
        .iter()
        .any(|(lock, _)| context.shared.claims.has(*lock))
    {
        return Err(claimed());
    }
    let settle = BusCommand::Settle {
        queue: context.entity.clone(),
        settlements,
    };
    match context.submit(settle).await?.outcome {
        Outcome::Bus(BusOutcome::Settled(verdicts)) => {
            let mut errors = verdicts.into_iter().filter_map(error_of_verdict);
            errors.next().map_or_else(|| Answered::map(|_| {}), Err)
        }
        _ => Err(unexpected()),
    }
}

/// The locks in a request that ends some, and the disposition of their messages.
pub(super) fn settlements_of(body: &Map) -> Result<Vec<(Token, Disposition)>, Error> {
    let changes = match fields::value(body, "properties-to-modify") {
        None => Map::default(),
        Some(Value::Map(changes)) => changes,
        Some(_) => return Err(wrong("properties-to-modify", "a map")),
    };
    let status = fields::text(body, "disposition-status")?;
    let disposition = match status.as_deref() {
        Some("completed") => Disposition::Complete,
        Some("abandoned") => Disposition::Abandon {
            overlay: overlay_of(&changes),
        },
        Some("defered") => Disposition::Defer {
            overlay: overlay_of(&changes),
        },
        Some("suspended") => {
            let reason = fields::text(body, "deadletter-reason")?;
            let description = fields::text(body, "deadletter-description")?;
            let why = Map::build(|map| {
                if let Some(reason) = &reason {
                    map.entry(DEAD_LETTER_REASON, &**reason);
                }
                if let Some(description) = &description {
                    map.entry(DEAD_LETTER_DESCRIPTION, &**description);
                }
            });
            Disposition::DeadLetter {
                overlay: overlay_of(&overlaid(&changes, &why)),
            }
        }
        _ => {
            let allowed = "'completed', 'abandoned', 'defered' or 'suspended'";
            return Err(wrong("disposition-status", allowed));
        }
    };
    let locks = fields::tokens(body, "lock-tokens")?.into_iter();
    Ok(locks.map(|lock| (lock, disposition.clone())).collect())
}

pub(super) async fn delete(context: &Context, body: &Map) -> Result<Answered, Error> {
    let before = fields::time(body, "enqueued-time-utc")?;
    let most = u32::try_from(ITEMS_MAX).unwrap_or(u32::MAX);
    let count = fields::count(body, "message-count")?.min(most);
    let session = fields::text(body, "session-id")?;
    let mut deleted = 0;
    let mut next = Some(SequenceNumber::default());
    // The broker reads a part of the messages at once.
    while let Some(from) = next
        && deleted < count
    {
        let delete = BusCommand::DeleteBatch {
            queue: context.entity.clone(),
            from,
            before,
            count: count - deleted,
            session: session.clone(),
        };
        match context.submit(delete).await.map(|answer| answer.outcome) {
            Ok(Outcome::Bus(BusOutcome::BatchDeleted(part))) => {
                deleted += part.count;
                next = part.next;
            }
            Ok(_) => return Err(unexpected()),
            // The client learns how many were deleted, unless that is not known.
            Err(error) if deleted > 0 && error.condition.as_str() != bus_condition::TIMEOUT => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    match i32::try_from(deleted).unwrap_or(i32::MAX) {
        0 => Ok(Answered::Nothing),
        count => Answered::map(|map| map.entry("message-count", &count)),
    }
}
