//! The bytes of facts about bus queues, and the parts that snapshots share with them.

use super::{BusFact, Release};
use crate::bus::{BusQueueOptions, DeadLetterCause, EntityStatus};
use crate::codec::{DecodeError, Reader, optional, put_bytes, put_optional, put_str, put_varint};
use crate::event::codec::{
    incarnation, location, name, put_location, put_name, put_time, sequence_number, time,
};

/// The first kind of a fact about bus queues.
const FIRST_KIND: u8 = 64;

mod kind {
    pub(super) const QUEUE_CREATED: u8 = super::FIRST_KIND;
    pub(super) const QUEUE_DELETED: u8 = super::FIRST_KIND + 2;
    pub(super) const SENT: u8 = super::FIRST_KIND + 3;
    pub(super) const ACTIVATED: u8 = super::FIRST_KIND + 4;
    pub(super) const LOCKED: u8 = super::FIRST_KIND + 5;
    pub(super) const LOCK_RENEWED: u8 = super::FIRST_KIND + 6;
    pub(super) const RELEASED: u8 = super::FIRST_KIND + 7;
    pub(super) const REMOVED: u8 = super::FIRST_KIND + 8;
    pub(super) const MOVED: u8 = super::FIRST_KIND + 9;
    pub(super) const SESSION_LOCKED: u8 = super::FIRST_KIND + 10;
    pub(super) const SESSION_RENEWED: u8 = super::FIRST_KIND + 11;
    pub(super) const SESSION_RELEASED: u8 = super::FIRST_KIND + 12;
    pub(super) const SESSION_STATE_SET: u8 = super::FIRST_KIND + 13;
    pub(super) const USED: u8 = super::FIRST_KIND + 14;
    pub(super) const RESUBMITTED: u8 = super::FIRST_KIND + 16;
    // Kinds that are missing here are events of earlier versions: `migrate` reads them.
    pub(super) const QUEUE_UPDATED: u8 = super::FIRST_KIND + 17;
}

impl BusFact {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::QueueCreated { .. } => kind::QUEUE_CREATED,
            Self::QueueUpdated { .. } => kind::QUEUE_UPDATED,
            Self::QueueDeleted { .. } => kind::QUEUE_DELETED,
            Self::Sent { .. } => kind::SENT,
            Self::Activated { .. } => kind::ACTIVATED,
            Self::Locked { .. } => kind::LOCKED,
            Self::LockRenewed { .. } => kind::LOCK_RENEWED,
            Self::Released { .. } => kind::RELEASED,
            Self::Removed { .. } => kind::REMOVED,
            Self::Moved { .. } => kind::MOVED,
            Self::SessionLocked { .. } => kind::SESSION_LOCKED,
            Self::SessionRenewed { .. } => kind::SESSION_RENEWED,
            Self::SessionReleased { .. } => kind::SESSION_RELEASED,
            Self::SessionStateSet { .. } => kind::SESSION_STATE_SET,
            Self::Used { .. } => kind::USED,
            Self::Resubmitted { .. } => kind::RESUBMITTED,
        }
    }

    /// Appends the bytes after kind, version and time.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.entity().as_u64());
        match self {
            Self::QueueCreated { name, options, .. } => {
                put_name(out, name);
                put_options(out, options);
            }
            Self::QueueUpdated {
                options, ids_from, ..
            } => {
                put_options(out, options);
                put_time(out, *ids_from);
            }
            Self::QueueDeleted { .. } | Self::Used { .. } => {}
            Self::Sent {
                sequence_number,
                expires_at,
                scheduled_at,
                session,
                id_hash,
                body,
                ..
            } => {
                put_varint(out, sequence_number.as_u64());
                put_time(out, *expires_at);
                put_time(out, *scheduled_at);
                put_optional(out, session.as_deref(), put_str);
                put_optional(out, *id_hash, |out, hash| out.extend(hash.to_be_bytes()));
                put_location(out, *body);
            }
            Self::Activated {
                scheduled,
                sequence_number,
                expires_at,
                ..
            } => {
                put_varint(out, scheduled.as_u64());
                put_varint(out, sequence_number.as_u64());
                put_time(out, *expires_at);
            }
            Self::Locked {
                sequence_number,
                until,
                ..
            }
            | Self::LockRenewed {
                sequence_number,
                until,
                ..
            } => {
                put_varint(out, sequence_number.as_u64());
                put_time(out, *until);
            }
            Self::Released {
                sequence_number,
                release,
                overlay,
                ..
            } => {
                put_varint(out, sequence_number.as_u64());
                out.push(match release {
                    Release::Failed => 1,
                    Release::Unseen => 2,
                    Release::Deferred => 3,
                });
                put_optional(out, *overlay, put_location);
            }
            Self::Removed {
                sequence_number, ..
            } => put_varint(out, sequence_number.as_u64()),
            Self::Moved {
                sequence_number,
                to,
                to_sequence_number,
                cause,
                overlay,
                ..
            } => {
                put_varint(out, sequence_number.as_u64());
                put_varint(out, to.as_u64());
                put_varint(out, to_sequence_number.as_u64());
                put_optional(out, *cause, put_cause);
                put_optional(out, *overlay, put_location);
            }
            Self::Resubmitted {
                sequence_number,
                to,
                to_sequence_number,
                expires_at,
                session,
                id_hash,
                body,
                ..
            } => {
                put_varint(out, sequence_number.as_u64());
                put_varint(out, to.as_u64());
                put_varint(out, to_sequence_number.as_u64());
                put_time(out, *expires_at);
                put_optional(out, session.as_deref(), put_str);
                put_optional(out, *id_hash, |out, hash| out.extend(hash.to_be_bytes()));
                put_location(out, *body);
            }
            Self::SessionLocked { session, until, .. }
            | Self::SessionRenewed { session, until, .. } => {
                put_str(out, session);
                put_time(out, *until);
            }
            Self::SessionReleased { session, .. } => put_str(out, session),
            Self::SessionStateSet { session, state, .. } => {
                put_str(out, session);
                put_optional(out, *state, put_location);
            }
        }
    }

    /// Reads the bytes after kind, version and time. Returns `None` if the kind is not a bus queue's.
    pub(crate) fn decode(kind: u8, r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        if !matches!(kind, FIRST_KIND..=kind::QUEUE_UPDATED) {
            return Ok(None);
        }
        let queue = incarnation(r)?;
        let fact = match kind {
            kind::QUEUE_CREATED => Self::QueueCreated {
                queue,
                name: name(r)?,
                options: options(r)?,
            },
            kind::QUEUE_UPDATED => Self::QueueUpdated {
                queue,
                options: options(r)?,
                ids_from: time(r)?,
            },
            kind::QUEUE_DELETED => Self::QueueDeleted { queue },
            kind::SENT => Self::Sent {
                queue,
                sequence_number: sequence_number(r)?,
                expires_at: time(r)?,
                scheduled_at: time(r)?,
                session: optional(r, |r| Ok(r.str()?.into()))?,
                id_hash: optional(r, |r| Ok(u128::from_be_bytes(r.array()?)))?,
                body: location(r)?,
            },
            kind::ACTIVATED => Self::Activated {
                queue,
                scheduled: sequence_number(r)?,
                sequence_number: sequence_number(r)?,
                expires_at: time(r)?,
            },
            kind::LOCKED => Self::Locked {
                queue,
                sequence_number: sequence_number(r)?,
                until: time(r)?,
            },
            kind::LOCK_RENEWED => Self::LockRenewed {
                queue,
                sequence_number: sequence_number(r)?,
                until: time(r)?,
            },
            kind::RELEASED => Self::Released {
                queue,
                sequence_number: sequence_number(r)?,
                release: match r.u8()? {
                    1 => Release::Failed,
                    2 => Release::Unseen,
                    3 => Release::Deferred,
                    _ => return Err(r.error("release that is not known")),
                },
                overlay: optional(r, location)?,
            },
            kind::REMOVED => Self::Removed {
                queue,
                sequence_number: sequence_number(r)?,
            },
            kind::MOVED => Self::Moved {
                queue,
                sequence_number: sequence_number(r)?,
                to: incarnation(r)?,
                to_sequence_number: sequence_number(r)?,
                cause: optional(r, cause)?,
                overlay: optional(r, location)?,
            },
            kind::SESSION_LOCKED => Self::SessionLocked {
                queue,
                session: r.str()?.into(),
                until: time(r)?,
            },
            kind::SESSION_RENEWED => Self::SessionRenewed {
                queue,
                session: r.str()?.into(),
                until: time(r)?,
            },
            kind::SESSION_RELEASED => Self::SessionReleased {
                queue,
                session: r.str()?.into(),
            },
            kind::USED => Self::Used { queue },
            kind::RESUBMITTED => Self::Resubmitted {
                queue,
                sequence_number: sequence_number(r)?,
                to: incarnation(r)?,
                to_sequence_number: sequence_number(r)?,
                expires_at: time(r)?,
                session: optional(r, |r| Ok(r.str()?.into()))?,
                id_hash: optional(r, |r| Ok(u128::from_be_bytes(r.array()?)))?,
                body: location(r)?,
            },
            kind::SESSION_STATE_SET => Self::SessionStateSet {
                queue,
                session: r.str()?.into(),
                state: optional(r, location)?,
            },
            _ => return Ok(None),
        };
        Ok(Some(fact))
    }
}

pub(in crate::bus) fn put_cause(out: &mut Vec<u8>, cause: DeadLetterCause) {
    out.push(match cause {
        DeadLetterCause::MaxDeliveryCountExceeded => 1,
        DeadLetterCause::Expired => 2,
        DeadLetterCause::MaxTransferHopCountExceeded => 3,
        DeadLetterCause::SessionIdIsNull => 4,
        DeadLetterCause::ByReceiver => 5,
        DeadLetterCause::DestinationUnavailable => 6,
    });
}

pub(in crate::bus) fn cause(r: &mut Reader<'_>) -> Result<DeadLetterCause, DecodeError> {
    Ok(match r.u8()? {
        1 => DeadLetterCause::MaxDeliveryCountExceeded,
        2 => DeadLetterCause::Expired,
        3 => DeadLetterCause::MaxTransferHopCountExceeded,
        4 => DeadLetterCause::SessionIdIsNull,
        5 => DeadLetterCause::ByReceiver,
        6 => DeadLetterCause::DestinationUnavailable,
        _ => return Err(r.error("cause of a dead letter that is not known")),
    })
}

pub(in crate::bus) fn put_options(out: &mut Vec<u8>, options: &BusQueueOptions) {
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
    })
}
