//! The bytes of facts about bus queues, and the parts that snapshots share with them.

use super::BusFact;
use super::effects::{effects, put_effects, put_session, session};
use super::moves::{moves, put_moves};
use crate::bus::rules::{added, put_added, retired};
use crate::bus::{BusQueueOptions, DeadLetterCause, EntityStatus};
use crate::vocabulary::codec::{
    DecodeError, Reader, optional, put_bytes, put_optional, put_str, put_varint,
};
use crate::vocabulary::elements::{
    incarnation, location, name, put_location, put_name, put_time, sequence_number, time,
};
use crate::vocabulary::{Incarnation, LeaseGeneration, Timestamp};

mod kind {
    pub(super) const QUEUE_CREATED: u8 = 64;
    // 65 and the others that are missing are events of earlier versions: `migrate` reads them.
    pub(super) const QUEUE_DELETED: u8 = 66;
    pub(super) const SESSION_RENEWED: u8 = 75;
    pub(super) const USED: u8 = 78;
    pub(super) const QUEUE_UPDATED: u8 = 81;
    pub(super) const MESSAGES: u8 = 82;
    pub(super) const SESSION_LOCKED: u8 = 83;
    pub(super) const SESSION_STATE_SET: u8 = 84;
    pub(super) const BODIES_MOVED: u8 = 85;
    pub(super) const TOPIC_CREATED: u8 = 86;
    pub(super) const SUBSCRIPTION_CREATED: u8 = 87;
    pub(super) const RULES_CHANGED: u8 = 88;
    pub(super) const ENTITY_UPDATED: u8 = 89;
}

impl BusFact {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Messages { .. } => kind::MESSAGES,
            Self::QueueCreated { .. } => kind::QUEUE_CREATED,
            Self::TopicCreated { .. } => kind::TOPIC_CREATED,
            Self::SubscriptionCreated { .. } => kind::SUBSCRIPTION_CREATED,
            Self::RulesChanged { .. } => kind::RULES_CHANGED,
            Self::QueueUpdated { .. } => kind::QUEUE_UPDATED,
            Self::EntityUpdated { .. } => kind::ENTITY_UPDATED,
            Self::QueueDeleted { .. } => kind::QUEUE_DELETED,
            Self::SessionLocked { .. } => kind::SESSION_LOCKED,
            Self::SessionRenewed { .. } => kind::SESSION_RENEWED,
            Self::SessionStateSet { .. } => kind::SESSION_STATE_SET,
            Self::Used { .. } => kind::USED,
            Self::BodiesMoved { .. } => kind::BODIES_MOVED,
        }
    }

    /// Appends the bytes of a fact of an event at `at`, after its head.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, at: Timestamp) {
        if let Some(entity) = self.entity() {
            put_varint(out, entity.as_u64());
        }
        match self {
            Self::Messages { effects } => put_effects(out, at, effects),
            Self::BodiesMoved { moves } => put_moves(out, at, moves),
            Self::QueueCreated { name, options, .. } => {
                put_name(out, name);
                put_options(out, options);
            }
            Self::TopicCreated { name, options, .. } => {
                put_name(out, name);
                put_options(out, options);
                put_flags(out, options);
            }
            Self::SubscriptionCreated {
                name, options, of, ..
            } => {
                put_name(out, name);
                put_options(out, options);
                put_flags(out, options);
                put_varint(out, of.as_u64());
                out.push(DEFAULT_RULE);
            }
            Self::QueueUpdated {
                options, ids_from, ..
            } => {
                put_options(out, options);
                put_time(out, *ids_from);
            }
            Self::EntityUpdated {
                options, ids_from, ..
            } => {
                put_options(out, options);
                put_flags(out, options);
                put_time(out, *ids_from);
            }
            Self::RulesChanged {
                subscription,
                from,
                retired,
                added,
                ..
            } => {
                put_varint(out, subscription.as_u64());
                put_varint(out, from.as_u64());
                put_varint(out, retired.len() as u64);
                retired.iter().for_each(|id| put_varint(out, *id));
                put_varint(out, added.len() as u64);
                added.iter().for_each(|rule| put_added(out, rule));
            }
            Self::QueueDeleted { .. } | Self::Used { .. } => {}
            Self::SessionLocked {
                session,
                generation,
                until,
                ..
            } => {
                put_session(out, session.as_of_message());
                put_varint(out, u64::from(generation.as_u32()));
                put_time(out, *until);
            }
            Self::SessionRenewed { session, until, .. } => {
                put_str(out, session);
                put_time(out, *until);
            }
            Self::SessionStateSet {
                session,
                was,
                state,
                ..
            } => {
                put_session(out, session.as_of_message());
                put_optional(out, *was, put_location);
                put_optional(out, *state, put_location);
            }
        }
    }

    /// Reads a fact of this kind, of an event at `at`, after its head.
    pub(crate) fn decode(kind: u8, r: &mut Reader<'_>, at: Timestamp) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::MESSAGES => Self::Messages {
                effects: effects(r, at)?,
            },
            kind::BODIES_MOVED => Self::BodiesMoved {
                moves: moves(r, at)?,
            },
            kind::QUEUE_CREATED => Self::QueueCreated {
                queue: incarnation(r)?,
                name: name(r)?,
                options: options(r)?,
            },
            kind::TOPIC_CREATED => Self::TopicCreated {
                topic: incarnation(r)?,
                name: name(r)?,
                options: flagged_options(r)?,
            },
            kind::SUBSCRIPTION_CREATED => Self::SubscriptionCreated {
                subscription: incarnation(r)?,
                name: name(r)?,
                options: flagged_options(r)?,
                of: rule_of(r)?,
            },
            kind::RULES_CHANGED => Self::RulesChanged {
                topic: incarnation(r)?,
                subscription: incarnation(r)?,
                from: sequence_number(r)?,
                retired: list(r, retired)?,
                added: list(r, added)?,
            },
            kind::QUEUE_UPDATED => Self::QueueUpdated {
                queue: incarnation(r)?,
                options: options(r)?,
                ids_from: time(r)?,
            },
            kind::ENTITY_UPDATED => Self::EntityUpdated {
                entity: incarnation(r)?,
                options: flagged_options(r)?,
                ids_from: time(r)?,
            },
            kind::QUEUE_DELETED => Self::QueueDeleted {
                queue: incarnation(r)?,
            },
            kind::SESSION_LOCKED => Self::SessionLocked {
                queue: incarnation(r)?,
                session: session(r)?,
                generation: LeaseGeneration::new(r.varint_u32()?),
                until: time(r)?,
            },
            kind::SESSION_RENEWED => Self::SessionRenewed {
                queue: incarnation(r)?,
                session: r.str()?.into(),
                until: time(r)?,
            },
            kind::SESSION_STATE_SET => Self::SessionStateSet {
                queue: incarnation(r)?,
                session: session(r)?,
                was: optional(r, location)?,
                state: optional(r, location)?,
            },
            kind::USED => Self::Used {
                queue: incarnation(r)?,
            },
            _ => return Err(r.error("event kind that is not known")),
        })
    }
}

/// A list of values, each of which takes at least one byte.
fn list<'a, T>(
    r: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = r.varint()?;
    // Collecting through a `Result` takes no capacity from `count`, which is not checked yet.
    (0..count).map(|_| read(r)).collect()
}

/// The rule of a new subscription: `$Default`, which matches all messages. Other values are for rules that are given.
const DEFAULT_RULE: u8 = 0;

/// Reads the topic of a new subscription, and its rule.
fn rule_of(r: &mut Reader<'_>) -> Result<Incarnation, DecodeError> {
    let topic = incarnation(r)?;
    match r.u8()? {
        DEFAULT_RULE => Ok(topic),
        _ => Err(r.error("rule of a subscription that is not known")),
    }
}

pub(crate) fn put_cause(out: &mut Vec<u8>, cause: DeadLetterCause) {
    out.push(match cause {
        DeadLetterCause::MaxDeliveryCountExceeded => 1,
        DeadLetterCause::Expired => 2,
        DeadLetterCause::MaxTransferHopCountExceeded => 3,
        DeadLetterCause::SessionIdIsNull => 4,
        DeadLetterCause::ByReceiver => 5,
        DeadLetterCause::DestinationUnavailable => 6,
        DeadLetterCause::FilterFailed => 7,
        DeadLetterCause::BodyDamaged => 8,
        DeadLetterCause::TransferFailed => 9,
        DeadLetterCause::TransferNeedsSession => 10,
    });
}

pub(crate) fn cause(r: &mut Reader<'_>) -> Result<DeadLetterCause, DecodeError> {
    Ok(match r.u8()? {
        1 => DeadLetterCause::MaxDeliveryCountExceeded,
        2 => DeadLetterCause::Expired,
        3 => DeadLetterCause::MaxTransferHopCountExceeded,
        4 => DeadLetterCause::SessionIdIsNull,
        5 => DeadLetterCause::ByReceiver,
        6 => DeadLetterCause::DestinationUnavailable,
        7 => DeadLetterCause::FilterFailed,
        8 => DeadLetterCause::BodyDamaged,
        9 => DeadLetterCause::TransferFailed,
        10 => DeadLetterCause::TransferNeedsSession,
        _ => return Err(r.error("cause of a dead letter that is not known")),
    })
}

pub(crate) fn put_options(out: &mut Vec<u8>, options: &BusQueueOptions) {
    put_varint(out, options.lock_duration_ms);
    put_varint(out, u64::from(options.max_delivery_count));
    put_varint(out, options.default_time_to_live_ms);
    out.push(u8::from(options.requires_session));
    put_optional(out, options.duplicate_window_ms, put_varint);
    out.push(u8::from(options.dead_letters_expired));
    put_varint(out, options.auto_delete_on_idle_ms);
    put_optional(out, options.forward_to.as_deref(), put_str);
    put_optional(out, options.forward_dead_letters_to.as_deref(), put_str);
    out.push(match options.status {
        EntityStatus::Active => 1,
        EntityStatus::Disabled => 2,
        EntityStatus::SendDisabled => 3,
        EntityStatus::ReceiveDisabled => 4,
    });
    put_varint(out, options.size_bytes_max);
    put_varint(out, options.message_size_bytes_max);
    put_bytes(out, &options.description);
}

mod flag {
    pub(super) const FILTERS_BEFORE_PUBLISHING: u8 = 1;
    pub(super) const DEAD_LETTERS_FILTER_FAILURES: u8 = 2;
    pub(super) const ALL: u8 = FILTERS_BEFORE_PUBLISHING | DEAD_LETTERS_FILTER_FAILURES;
}

/// Puts the settings that only topics and subscriptions have.
pub(crate) fn put_flags(out: &mut Vec<u8>, options: &BusQueueOptions) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(
            options.filters_before_publishing,
            flag::FILTERS_BEFORE_PUBLISHING,
        ) | flag(
            options.dead_letters_filter_failures,
            flag::DEAD_LETTERS_FILTER_FAILURES,
        ),
    );
}

/// The same settings, with those that only topics and subscriptions have.
pub(crate) fn with_flags(
    options: BusQueueOptions,
    r: &mut Reader<'_>,
) -> Result<BusQueueOptions, DecodeError> {
    let flags = r.u8()?;
    if flags & !flag::ALL != 0 {
        return Err(r.error("flag of a topic or subscription that is not known"));
    }
    Ok(BusQueueOptions {
        filters_before_publishing: flags & flag::FILTERS_BEFORE_PUBLISHING != 0,
        dead_letters_filter_failures: flags & flag::DEAD_LETTERS_FILTER_FAILURES != 0,
        ..options
    })
}

pub(crate) fn flagged_options(r: &mut Reader<'_>) -> Result<BusQueueOptions, DecodeError> {
    let options = options(r)?;
    with_flags(options, r)
}

pub(crate) fn options(r: &mut Reader<'_>) -> Result<BusQueueOptions, DecodeError> {
    Ok(BusQueueOptions {
        lock_duration_ms: r.varint()?,
        max_delivery_count: r.varint_u32()?,
        default_time_to_live_ms: r.varint()?,
        requires_session: r.flag()?,
        duplicate_window_ms: optional(r, Reader::varint)?,
        dead_letters_expired: r.flag()?,
        auto_delete_on_idle_ms: r.varint()?,
        forward_to: optional(r, |r| Ok(r.str()?.into()))?,
        forward_dead_letters_to: optional(r, |r| Ok(r.str()?.into()))?,
        status: match r.u8()? {
            1 => EntityStatus::Active,
            2 => EntityStatus::Disabled,
            3 => EntityStatus::SendDisabled,
            4 => EntityStatus::ReceiveDisabled,
            _ => return Err(r.error("status that is not known")),
        },
        size_bytes_max: r.varint()?,
        message_size_bytes_max: r.varint()?,
        description: r.bytes()?.into(),
        filters_before_publishing: false,
        dead_letters_filter_failures: false,
    })
}
