//! Refusals about bus queues.

use super::bus_answer::{put_verdict, verdict};
use super::received::Received;
use crate::bus::{BusRefusal, FixedOption, InvalidOption, NotSupported, PartRefusal, RangedOption};
use crate::vocabulary::codec::{DecodeError, put_str, put_varint};
use crate::vocabulary::elements::put_time;

pub(super) fn put_bus_refusal(out: &mut Vec<u8>, refusal: &BusRefusal) {
    let with_queue = |out: &mut Vec<u8>, tag, queue: &str| {
        out.push(tag);
        put_str(out, queue);
    };
    let with_sizes = |out: &mut Vec<u8>, tag, size: u64, limit: u64| {
        out.push(tag);
        put_varint(out, size);
        put_varint(out, limit);
    };
    match refusal {
        BusRefusal::QueueNotFound { queue } => with_queue(out, 1, queue),
        BusRefusal::QueueAlreadyExists { queue } => with_queue(out, 2, queue),
        BusRefusal::InvalidOption(invalid) => {
            out.push(3);
            put_ranged_option(out, invalid.option);
            put_varint(out, invalid.value);
        }
        BusRefusal::UnchangeableOption { option } => {
            out.push(4);
            out.push(match option {
                FixedOption::RequiresSession => 1,
                FixedOption::RequiresDuplicateDetection => 2,
            });
        }
        BusRefusal::Disabled { queue } => with_queue(out, 5, queue),
        BusRefusal::QuotaExceeded {
            size_bytes,
            limit_bytes,
        } => with_sizes(out, 6, *size_bytes, *limit_bytes),
        BusRefusal::MessageTooLarge {
            size_bytes,
            limit_bytes,
        } => with_sizes(out, 7, *size_bytes, *limit_bytes),
        BusRefusal::NotSendable { queue } => with_queue(out, 8, queue),
        BusRefusal::Forwards { queue } => with_queue(out, 9, queue),
        BusRefusal::DestinationNotFound { queue } => with_queue(out, 10, queue),
        BusRefusal::SessionRequired => out.push(11),
        BusRefusal::SessionsNotSupported => out.push(12),
        BusRefusal::SessionCannotBeLocked { session } => with_queue(out, 13, session),
        BusRefusal::NoSessionAvailable => out.push(14),
        BusRefusal::LockLost => out.push(15),
        BusRefusal::SessionLockLost => out.push(16),
        BusRefusal::MessageNotFound { sequence_number } => {
            out.push(17);
            put_varint(out, *sequence_number);
        }
        BusRefusal::MessageLocked {
            sequence_number,
            until,
        } => {
            out.push(18);
            put_varint(out, *sequence_number);
            put_time(out, *until);
        }
        BusRefusal::MessageScheduled { sequence_number } => {
            out.push(19);
            put_varint(out, *sequence_number);
        }
        BusRefusal::NotLocked => out.push(20),
        BusRefusal::TooMany { count, limit } => with_sizes(out, 21, *count, *limit),
        BusRefusal::SessionIdTooLong {
            size_bytes,
            limit_bytes,
        } => with_sizes(out, 22, *size_bytes, *limit_bytes),
        BusRefusal::Transaction { part, queue, why } => {
            out.push(TRANSACTION);
            put_varint(out, *part);
            put_str(out, queue);
            match &**why {
                PartRefusal::Refused(refusal) => {
                    out.push(1);
                    put_bus_refusal(out, refusal);
                }
                PartRefusal::Unsettled(verdict) => {
                    out.push(2);
                    put_verdict(out, *verdict);
                }
            }
        }
        BusRefusal::SessionStateTooLarge {
            size_bytes,
            limit_bytes,
        } => with_sizes(out, 24, *size_bytes, *limit_bytes),
        BusRefusal::MessageDamaged { sequence_number } => {
            out.push(25);
            put_varint(out, *sequence_number);
        }
        BusRefusal::NotSendableSubscription { queue } => with_queue(out, 26, queue),
        BusRefusal::NotReceivable { queue } => with_queue(out, 27, queue),
        BusRefusal::TooManySubscriptions { queue, limit } => {
            with_queue(out, 28, queue);
            put_varint(out, *limit);
        }
        BusRefusal::TooManyCopies { copies, limit } => with_sizes(out, 29, *copies, *limit),
        BusRefusal::NotSupportedYet { queue, what } => {
            with_queue(out, 30, queue);
            put_not_supported(out, *what);
        }
        BusRefusal::RuleNotFound { rule } => with_queue(out, 31, rule),
        BusRefusal::RuleAlreadyExists { rule } => with_queue(out, 32, rule),
        BusRefusal::InvalidRule { why } => with_queue(out, 33, why),
        BusRefusal::TooManyRules { queue, limit } => {
            with_queue(out, 34, queue);
            put_varint(out, *limit);
        }
        BusRefusal::RulesBusy { queue } => with_queue(out, 35, queue),
        BusRefusal::RulesTooLarge { queue, limit_bytes } => {
            with_queue(out, 36, queue);
            put_varint(out, *limit_bytes);
        }
        BusRefusal::RulesTakeLong { limit } => {
            out.push(37);
            put_varint(out, *limit);
        }
        BusRefusal::NotAMessage => out.push(39),
        BusRefusal::NoMatchingSubscription { queue, message } => {
            with_queue(out, 40, queue);
            put_varint(out, *message);
        }
        BusRefusal::CopiesTooLarge { limit_bytes } => {
            out.push(38);
            put_varint(out, *limit_bytes);
        }
        BusRefusal::TransferFull {
            queue,
            size_bytes,
            limit_bytes,
            to,
            why,
        } => {
            with_queue(out, 41, queue);
            put_varint(out, *size_bytes);
            put_varint(out, *limit_bytes);
            put_str(out, to);
            put_str(out, why);
        }
    }
}

const TRANSACTION: u8 = 23;

pub(super) fn bus_refusal(r: &mut Received<'_>) -> Result<BusRefusal, DecodeError> {
    match r.u8()? {
        TRANSACTION => Ok(BusRefusal::Transaction {
            part: r.varint()?,
            queue: r.text()?,
            why: Box::new(match r.u8()? {
                1 => {
                    let tag = r.u8()?;
                    PartRefusal::Refused(of_one_command(r, tag)?)
                }
                2 => PartRefusal::Unsettled(verdict(r)?),
                _ => return Err(r.error("refusal of a part that is not known")),
            }),
        }),
        tag => of_one_command(r, tag),
    }
}

/// All but the refusal of a transaction. No part of a transaction is one, so decoding needs no more of the stack.
fn of_one_command(r: &mut Received<'_>, tag: u8) -> Result<BusRefusal, DecodeError> {
    Ok(match tag {
        1 => BusRefusal::QueueNotFound { queue: r.text()? },
        2 => BusRefusal::QueueAlreadyExists { queue: r.text()? },
        3 => BusRefusal::InvalidOption(InvalidOption {
            option: ranged_option(r)?,
            value: r.varint()?,
        }),
        4 => BusRefusal::UnchangeableOption {
            option: match r.u8()? {
                1 => FixedOption::RequiresSession,
                2 => FixedOption::RequiresDuplicateDetection,
                _ => return Err(r.error("fixed setting that is not known")),
            },
        },
        5 => BusRefusal::Disabled { queue: r.text()? },
        6 => BusRefusal::QuotaExceeded {
            size_bytes: r.varint()?,
            limit_bytes: r.varint()?,
        },
        7 => BusRefusal::MessageTooLarge {
            size_bytes: r.varint()?,
            limit_bytes: r.varint()?,
        },
        8 => BusRefusal::NotSendable { queue: r.text()? },
        9 => BusRefusal::Forwards { queue: r.text()? },
        10 => BusRefusal::DestinationNotFound { queue: r.text()? },
        11 => BusRefusal::SessionRequired,
        12 => BusRefusal::SessionsNotSupported,
        13 => BusRefusal::SessionCannotBeLocked { session: r.text()? },
        14 => BusRefusal::NoSessionAvailable,
        15 => BusRefusal::LockLost,
        16 => BusRefusal::SessionLockLost,
        17 => BusRefusal::MessageNotFound {
            sequence_number: r.varint()?,
        },
        18 => BusRefusal::MessageLocked {
            sequence_number: r.varint()?,
            until: r.time()?,
        },
        19 => BusRefusal::MessageScheduled {
            sequence_number: r.varint()?,
        },
        20 => BusRefusal::NotLocked,
        21 => BusRefusal::TooMany {
            count: r.varint()?,
            limit: r.varint()?,
        },
        22 => BusRefusal::SessionIdTooLong {
            size_bytes: r.varint()?,
            limit_bytes: r.varint()?,
        },
        24 => BusRefusal::SessionStateTooLarge {
            size_bytes: r.varint()?,
            limit_bytes: r.varint()?,
        },
        25 => BusRefusal::MessageDamaged {
            sequence_number: r.varint()?,
        },
        26 => BusRefusal::NotSendableSubscription { queue: r.text()? },
        27 => BusRefusal::NotReceivable { queue: r.text()? },
        28 => BusRefusal::TooManySubscriptions {
            queue: r.text()?,
            limit: r.varint()?,
        },
        29 => BusRefusal::TooManyCopies {
            copies: r.varint()?,
            limit: r.varint()?,
        },
        30 => BusRefusal::NotSupportedYet {
            queue: r.text()?,
            what: not_supported(r)?,
        },
        31 => BusRefusal::RuleNotFound { rule: r.text()? },
        32 => BusRefusal::RuleAlreadyExists { rule: r.text()? },
        33 => BusRefusal::InvalidRule { why: r.text()? },
        34 => BusRefusal::TooManyRules {
            queue: r.text()?,
            limit: r.varint()?,
        },
        35 => BusRefusal::RulesBusy { queue: r.text()? },
        36 => BusRefusal::RulesTooLarge {
            queue: r.text()?,
            limit_bytes: r.varint()?,
        },
        37 => BusRefusal::RulesTakeLong { limit: r.varint()? },
        39 => BusRefusal::NotAMessage,
        40 => BusRefusal::NoMatchingSubscription {
            queue: r.text()?,
            message: r.varint()?,
        },
        38 => BusRefusal::CopiesTooLarge {
            limit_bytes: r.varint()?,
        },
        41 => BusRefusal::TransferFull {
            queue: r.text()?,
            size_bytes: r.varint()?,
            limit_bytes: r.varint()?,
            to: r.text()?,
            why: r.text()?,
        },
        _ => return Err(r.error("refusal about bus queues that is not known")),
    })
}

fn put_not_supported(out: &mut Vec<u8>, what: NotSupported) {
    out.push(match what {
        NotSupported::DuplicateDetection => 1,
        NotSupported::ScheduledMessage => 2,
        NotSupported::Transaction => 3,
        NotSupported::ForwardToTopic => 4,
        NotSupported::ResubmitToTopic => 5,
        NotSupported::Update => 6,
        NotSupported::FiltersBeforePublishing => 7,
        NotSupported::AutoDeleteOnIdle => 8,
        NotSupported::Status => 9,
    });
}

fn not_supported(r: &mut Received<'_>) -> Result<NotSupported, DecodeError> {
    Ok(match r.u8()? {
        1 => NotSupported::DuplicateDetection,
        2 => NotSupported::ScheduledMessage,
        3 => NotSupported::Transaction,
        4 => NotSupported::ForwardToTopic,
        5 => NotSupported::ResubmitToTopic,
        6 => NotSupported::Update,
        7 => NotSupported::FiltersBeforePublishing,
        8 => NotSupported::AutoDeleteOnIdle,
        9 => NotSupported::Status,
        _ => return Err(r.error("thing without support that is not known")),
    })
}

fn put_ranged_option(out: &mut Vec<u8>, option: RangedOption) {
    out.push(match option {
        RangedOption::LockDuration => 1,
        RangedOption::MaxDeliveryCount => 2,
        RangedOption::DefaultTimeToLive => 3,
        RangedOption::DuplicateWindow => 4,
        RangedOption::AutoDeleteOnIdle => 5,
        RangedOption::Size => 6,
        RangedOption::MessageSize => 7,
        RangedOption::Description => 8,
        RangedOption::NameLength => 9,
        RangedOption::RuleNameLength => 10,
    });
}

fn ranged_option(r: &mut Received<'_>) -> Result<RangedOption, DecodeError> {
    Ok(match r.u8()? {
        1 => RangedOption::LockDuration,
        2 => RangedOption::MaxDeliveryCount,
        3 => RangedOption::DefaultTimeToLive,
        4 => RangedOption::DuplicateWindow,
        5 => RangedOption::AutoDeleteOnIdle,
        6 => RangedOption::Size,
        7 => RangedOption::MessageSize,
        8 => RangedOption::Description,
        9 => RangedOption::NameLength,
        10 => RangedOption::RuleNameLength,
        _ => return Err(r.error("setting that is not known")),
    })
}
