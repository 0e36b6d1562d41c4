//! Outcomes and refusals, except those of the two services.

use super::bus_answer::{bus_outcome, put_bus_outcome};
use super::bus_refusal::{bus_refusal, put_bus_refusal};
use super::command::{moved_body, put_moved_body};
use super::received::{Received, put_list};
use super::storage::{put_storage_outcome, put_storage_refusal, storage_outcome, storage_refusal};
use crate::catalogue::account::{account, put_account};
use crate::outcome::{BodiesMoved, Outcome, Refusal};
use crate::vocabulary::codec::{DecodeError, put_bytes, put_optional, put_str, put_varint};
use crate::vocabulary::elements::{location, put_location};

pub(super) fn put_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    match outcome {
        Outcome::Initialized => out.push(1),
        Outcome::ServicePropertiesSet => out.push(2),
        Outcome::ServiceProperties(properties) => {
            out.push(3);
            put_optional(out, properties.as_deref(), put_bytes);
        }
        Outcome::AccountPut => out.push(4),
        Outcome::AccountRemoved => out.push(5),
        Outcome::Accounts(accounts) => {
            out.push(6);
            put_list(out, accounts, put_account);
        }
        Outcome::BodiesMoved(moved) if moved.is_count() => {
            out.push(7);
            put_varint(out, moved.count as u64);
        }
        Outcome::BodiesMoved(moved) => {
            out.push(10);
            put_varint(out, moved.count as u64);
            put_varint(out, moved.stored_bytes);
            put_list(out, &moved.first, |out, (from, moved)| {
                put_location(out, *from);
                put_moved_body(out, moved);
            });
            put_list(out, &moved.gone, |out, from| put_location(out, *from));
        }
        Outcome::Quarantined(count) => {
            out.push(11);
            put_varint(out, u64::from(*count));
        }
        Outcome::Storage(outcome) => {
            out.push(8);
            put_storage_outcome(out, outcome);
        }
        Outcome::Bus(outcome) => {
            out.push(9);
            put_bus_outcome(out, outcome);
        }
    }
}

pub(super) fn outcome(r: &mut Received<'_>) -> Result<Outcome, DecodeError> {
    Ok(match r.u8()? {
        1 => Outcome::Initialized,
        2 => Outcome::ServicePropertiesSet,
        3 => Outcome::ServiceProperties(r.optional(Received::body)?),
        4 => Outcome::AccountPut,
        5 => Outcome::AccountRemoved,
        6 => Outcome::Accounts(r.list(|r| account(r))?),
        7 => Outcome::BodiesMoved(BodiesMoved {
            count: r.size()?,
            ..BodiesMoved::default()
        }),
        8 => Outcome::Storage(storage_outcome(r)?),
        9 => Outcome::Bus(bus_outcome(r)?),
        10 => Outcome::BodiesMoved(BodiesMoved {
            count: r.size()?,
            stored_bytes: r.varint()?,
            first: r.list(|r| Ok((location(r)?, moved_body(r)?)))?,
            gone: r.list(|r| location(r))?,
        }),
        11 => Outcome::Quarantined(r.varint_u32()?),
        _ => return Err(r.error("outcome that is not known")),
    })
}

pub(super) fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    match refusal {
        Refusal::AlreadyInitialized => out.push(1),
        Refusal::AccountAlreadyExists { account } => {
            out.push(2);
            put_str(out, account);
        }
        Refusal::AccountNotFound { account } => {
            out.push(3);
            put_str(out, account);
        }
        Refusal::AccountNotEmpty { account, queues } => {
            out.push(4);
            put_str(out, account);
            put_varint(out, *queues);
        }
        Refusal::PropertiesTooLarge {
            size_bytes,
            limit_bytes,
        } => {
            out.push(5);
            put_varint(out, *size_bytes as u64);
            put_varint(out, *limit_bytes as u64);
        }
        Refusal::Storage(refusal) => {
            out.push(6);
            put_storage_refusal(out, refusal);
        }
        Refusal::Bus(refusal) => {
            out.push(7);
            put_bus_refusal(out, refusal);
        }
    }
}

pub(super) fn refusal(r: &mut Received<'_>) -> Result<Refusal, DecodeError> {
    Ok(match r.u8()? {
        1 => Refusal::AlreadyInitialized,
        2 => Refusal::AccountAlreadyExists { account: r.text()? },
        3 => Refusal::AccountNotFound { account: r.text()? },
        4 => Refusal::AccountNotEmpty {
            account: r.text()?,
            queues: r.varint()?,
        },
        5 => Refusal::PropertiesTooLarge {
            size_bytes: r.size()?,
            limit_bytes: r.size()?,
        },
        6 => Refusal::Storage(storage_refusal(r)?),
        7 => Refusal::Bus(bus_refusal(r)?),
        _ => return Err(r.error("refusal that is not known")),
    })
}
