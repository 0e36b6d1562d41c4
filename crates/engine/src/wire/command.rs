//! Commands, except those of the two services.

use super::bus_command::{bus_command, put_bus_command};
use super::received::{Received, put_flag, put_list};
use super::storage::{put_storage_command, storage_command};
use crate::catalogue::account::{account, put_account};
use crate::command::Command;
use crate::moves::{BodyToMove, Holder, MovedBody, Source};
use crate::table::Group;
use crate::table::codec::run_length;
use crate::vocabulary::codec::{DecodeError, put_bytes, put_str, put_varint};
use crate::vocabulary::elements::{incarnation, location, put_location, put_service, service};
use crate::vocabulary::{PageNumber, Place};

pub(super) fn put_command(out: &mut Vec<u8>, command: &Command) {
    match command {
        Command::Initialize { secret, run_length } => {
            out.push(1);
            out.extend_from_slice(secret);
            put_varint(out, run_length.as_u64());
        }
        Command::SetServiceProperties {
            service,
            account,
            properties,
        } => {
            out.push(2);
            put_service(out, *service);
            put_str(out, account);
            put_bytes(out, properties);
        }
        Command::ReadServiceProperties { service, account } => {
            out.push(3);
            put_service(out, *service);
            put_str(out, account);
        }
        Command::PutAccount { account, is_new } => {
            out.push(4);
            put_account(out, account);
            put_flag(out, *is_new);
        }
        Command::RemoveAccount {
            account,
            with_queues,
        } => {
            out.push(5);
            put_str(out, account);
            put_flag(out, *with_queues);
        }
        Command::ListAccounts => out.push(6),
        Command::MoveBodies { bodies } => {
            out.push(7);
            put_list(out, bodies, put_body_to_move);
        }
        Command::Quarantine { group, page } => {
            out.push(10);
            put_varint(out, group.entity.as_u64());
            put_varint(out, group.run);
            put_varint(out, group.index as u64);
            put_varint(out, page.as_u64());
        }
        Command::Storage(command) => {
            out.push(8);
            put_storage_command(out, command);
        }
        Command::Bus(command) => {
            out.push(9);
            put_bus_command(out, command);
        }
    }
}

pub(super) fn command(r: &mut Received<'_>) -> Result<Command, DecodeError> {
    Ok(match r.u8()? {
        1 => Command::Initialize {
            secret: r.array()?,
            run_length: run_length(r)?,
        },
        2 => Command::SetServiceProperties {
            service: service(r)?,
            account: r.text()?,
            properties: r.body()?,
        },
        3 => Command::ReadServiceProperties {
            service: service(r)?,
            account: r.text()?,
        },
        4 => Command::PutAccount {
            account: account(r)?,
            is_new: r.flag()?,
        },
        5 => Command::RemoveAccount {
            account: r.text()?,
            with_queues: r.flag()?,
        },
        6 => Command::ListAccounts,
        7 => Command::MoveBodies {
            bodies: r.list(body_to_move)?,
        },
        8 => Command::Storage(storage_command(r)?),
        9 => Command::Bus(bus_command(r)?),
        10 => Command::Quarantine {
            group: Group {
                entity: incarnation(r)?,
                run: r.varint()?,
                index: r.size()?,
            },
            page: PageNumber::new(r.varint()?),
        },
        _ => return Err(r.error("command that is not known")),
    })
}

/// The tag says what has the body, and where its bytes are.
fn put_body_to_move(out: &mut Vec<u8>, body: &BodyToMove) {
    let of_source = match &body.source {
        Source::Bytes(_) => 0,
        Source::SameAs(_) => 2,
    };
    match &body.holder {
        Holder::Message(place) => {
            out.push(1 + of_source);
            put_varint(out, place.entity.as_u64());
            put_varint(out, place.number.as_u64());
        }
        Holder::Session { queue, session } => {
            out.push(2 + of_source);
            put_varint(out, queue.as_u64());
            put_str(out, session);
        }
    }
    put_location(out, body.from);
    match &body.source {
        Source::Bytes(bytes) => put_bytes(out, bytes),
        Source::SameAs(moved) => put_moved_body(out, moved),
    }
    put_varint(out, body.event_size_bytes);
}

fn body_to_move(r: &mut Received<'_>) -> Result<BodyToMove, DecodeError> {
    let tag = r.u8()?;
    Ok(BodyToMove {
        holder: match tag {
            1 | 3 => Holder::Message(Place {
                entity: incarnation(r)?,
                number: r.sequence_number()?,
            }),
            2 | 4 => Holder::Session {
                queue: incarnation(r)?,
                session: r.text()?,
            },
            _ => return Err(r.error("holder of a body that is not known")),
        },
        from: location(r)?,
        source: match tag {
            1 | 2 => Source::Bytes(r.body()?),
            _ => Source::SameAs(moved_body(r)?),
        },
        event_size_bytes: r.varint()?,
    })
}

pub(super) fn put_moved_body(out: &mut Vec<u8>, moved: &MovedBody) {
    put_varint(out, moved.holder.entity.as_u64());
    put_varint(out, moved.holder.number.as_u64());
    put_location(out, moved.at);
}

pub(super) fn moved_body(r: &mut Received<'_>) -> Result<MovedBody, DecodeError> {
    Ok(MovedBody {
        holder: Place {
            entity: incarnation(r)?,
            number: r.sequence_number()?,
        },
        at: location(r)?,
    })
}
