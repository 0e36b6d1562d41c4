//! `kew bus message complete`, `abandon`, `defer`, `dead-letter` and `renew`: by a lock token that `kew bus receive` has
//! printed.

use kew_client::{HeldLock, uuid_of};
use serde_json::json;

use super::browse::message_numbered;
use super::send::values_of;
use super::show::no_message;
use super::view::rfc3339_ms;
use super::{Doors, Session};
use crate::bus_message_args::{ChangeArgs, DeadLetterArgs, LockedArgs};
use crate::queue_command::{Failure, printable};

pub(super) fn complete(it: &mut Session, args: &LockedArgs) -> Result<(), Failure> {
    let lock = lock_of(&it.doors, args)?;
    it.doors.over_amqp(lock.complete())?;
    tell(it, args, "completed")
}

pub(super) fn abandon(it: &mut Session, args: &ChangeArgs) -> Result<(), Failure> {
    let changes = values_of("--set", &args.set)?;
    let lock = lock_of(&it.doors, &args.locked)?;
    it.doors.over_amqp(lock.abandon(changes))?;
    tell(it, &args.locked, "abandoned")
}

pub(super) fn defer(it: &mut Session, args: &ChangeArgs) -> Result<(), Failure> {
    let changes = values_of("--set", &args.set)?;
    let lock = lock_of(&it.doors, &args.locked)?;
    it.doors.over_amqp(lock.defer(changes))?;
    tell(it, &args.locked, "deferred")
}

pub(super) fn dead_letter(it: &mut Session, args: &DeadLetterArgs) -> Result<(), Failure> {
    let changes = values_of("--set", &args.change.set)?;
    let lock = lock_of(&it.doors, &args.change.locked)?;
    let reason = args.reason.as_deref().unwrap_or_default();
    let description = args.description.as_deref().unwrap_or_default();
    it.doors
        .over_amqp(lock.dead_letter(reason, description, changes))?;
    tell(it, &args.change.locked, "dead-lettered")
}

pub(super) fn renew(it: &mut Session, args: &LockedArgs) -> Result<(), Failure> {
    let lock = lock_of(&it.doors, args)?;
    let until = it.doors.over_amqp(lock.renew())?;
    if it.output.json {
        let until = rfc3339_ms(until);
        let report = json!({"message": args.message, "renewed": true, "locked_until": until});
        return Ok(it.output.object(&report)?);
    }
    tell(it, args, "renewed")
}

/// The lock that the command line names. A number must be that of a message: a wrong one is noticed if there is none.
fn lock_of(doors: &Doors, args: &LockedArgs) -> Result<HeldLock, Failure> {
    let token = uuid_of(&args.lock).ok_or_else(|| Failure::Refused {
        message: format!(
            "{} is not a lock token: use the lock_token that kew bus receive prints",
            args.lock
        ),
        code: None,
    })?;
    if let Ok(number) = args.message.parse()
        && message_numbered(doors, &args.queue, number)?.is_none()
    {
        return Err(no_message(&args.queue, number));
    }
    Ok(doors.bus.held(&args.queue, token))
}

fn tell(it: &mut Session, args: &LockedArgs, done: &str) -> Result<(), Failure> {
    if it.output.json {
        let name = done.replace('-', "_");
        return Ok(it
            .output
            .object(&json!({"message": args.message, name: true}))?);
    }
    Ok(it
        .output
        .line(&format!("{done} {}", printable(&args.message)))?)
}
