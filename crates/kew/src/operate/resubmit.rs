//! Dead letters that are sent again by the public protocols, where Kew's own interface cannot be used.
//!
//! The command browses for the messages that match, and `mover` moves them. A destination that detects duplicates is
//! refused unless each message gets a new id: it would drop a message that the command then deletes.

use std::collections::{BTreeMap, BTreeSet};

use kew_client::{Entity, EntityDescription, ErrorKind, MessageState, Value};
use serde::Serialize;

use super::browse::{Look, browse};
use super::filter::Filter;
use super::mover::{DEFERRED, Mover, Tally};
use super::send::values_of;
use super::{DEAD_LETTERS, Doors, Session};
use crate::operate_args::ResubmitArgs;
use crate::portable::Edit;
use crate::queue_command::{Failure, printable};

/// What was done, in the form of a job of Kew.
#[derive(Debug, Serialize)]
struct Report<'a> {
    act: &'static str,
    entity: &'a str,
    dry_run: bool,
    matched: u64,
    done: u64,
    /// How many stayed, by the reason.
    skipped: BTreeMap<String, u64>,
    in_transactions: bool,
}

pub(super) fn resubmit(it: &mut Session, args: &ResubmitArgs, entity: &str) -> Result<(), Failure> {
    let filter = Filter::new(&args.filter)?;
    let edit = edit_of(args)?;
    let to = match &args.to {
        Some(to) => to.clone(),
        None => origin_of(entity)?,
    };
    let doors = &it.doors;
    let mut wanted = BTreeSet::new();
    let mut tally = Tally::default();
    browse(doors, entity, &filter, |message| {
        match message.state() {
            // They come by their numbers only, and cannot be completed in a transaction.
            MessageState::Deferred => tally.skip(DEFERRED, 1),
            MessageState::Active | MessageState::Scheduled => {
                wanted.extend(message.sequence_number());
            }
        }
        Ok(Look::On)
    })?;
    let matched = wanted.len() as u64 + tally.skipped.values().sum::<u64>();
    if !wanted.is_empty() {
        check_destination(doors, &to, args.new_ids)?;
        if args.caution.dry_run {
            tally.done = wanted.len() as u64;
        } else {
            let sender = doors.over_amqp(doors.bus.sender(&to))?;
            let mover = Mover {
                doors,
                entity,
                sender: &sender,
                edit: &edit,
            };
            mover.move_all(wanted, &mut tally)?;
        }
    }
    let not_reached = tally.not_reached(entity);
    let report = Report {
        act: "resubmit",
        entity,
        dry_run: args.caution.dry_run,
        matched,
        done: tally.done,
        skipped: tally.skipped,
        in_transactions: !tally.is_without_transactions,
    };
    tell(it, &report)?;
    not_reached
}

fn tell(it: &mut Session, report: &Report<'_>) -> Result<(), Failure> {
    if it.output.json {
        return Ok(it.output.object(report)?);
    }
    let would = if report.dry_run { "would be " } else { "" };
    let mut line = format!(
        "{} of {} messages {would}resubmitted",
        report.done, report.matched
    );
    for (why, count) in &report.skipped {
        line += &format!(", {count} left ({})", printable(why));
    }
    Ok(it.output.line(&line)?)
}

/// Refuses a destination that may drop messages: a topic, if no rule selects them; and one that may take them for
/// duplicates of earlier ones, unless they get new ids. It accepts such a message like any other, so the dead letter
/// would be completed and nothing would be left of it.
fn check_destination(doors: &Doors, to: &str, has_new_ids: bool) -> Result<(), Failure> {
    let why = match doors.wait(doors.admin.entity(to)) {
        Ok(EntityDescription::Topic(_)) => {
            return Err(Failure::Refused {
                message: format!(
                    "{to} is a topic, and may drop resubmitted messages that no rule selects, which would lose them: name \
                     a queue with --to, or use a rule with Manage of the namespace at Kew, which keeps such messages"
                ),
                code: None,
            });
        }
        _ if has_new_ids => return Ok(()),
        Ok(entity) => {
            let (detects, forward_to) = match entity {
                EntityDescription::Queue(it) => {
                    let it = it.settings;
                    (it.requires_duplicate_detection, it.forward_to)
                }
                _ => (None, None),
            };
            let forwards = forward_to.is_some_and(|to| !to.is_empty());
            match (detects, forwards) {
                (Some(false), false) => return Ok(()),
                (Some(true), _) => "it detects duplicates".to_owned(),
                (None, _) => "it does not say whether it detects duplicates".to_owned(),
                (Some(false), true) => "it forwards messages to another queue or topic".to_owned(),
            }
        }
        Err(error) if error.kind() == ErrorKind::Refused => {
            format!("its settings cannot be read: {}", error.text())
        }
        Err(error) => return Err(doors.failed_over_http(&error)),
    };
    Err(Failure::Refused {
        message: format!(
            "{to} may drop resubmitted messages as duplicates, which would lose them ({why}): use --new-ids to give \
             each a new message id"
        ),
        code: None,
    })
}

/// Where dead letters came from, if messages can be sent there.
fn origin_of(entity: &str) -> Result<String, Failure> {
    match Entity::new(entity).subscription_names() {
        None => Ok(queue_of(entity)),
        Some((topic, name)) => Err(Failure::Usage(format!(
            "messages cannot be sent to the subscription {topic}/subscriptions/{name}: name a queue with --to QUEUE, or use \
             a rule with Manage of the namespace at Kew, which puts them back"
        ))),
    }
}

/// The queue that dead letters belong to.
fn queue_of(entity: &str) -> String {
    let at = entity.len().saturating_sub(DEAD_LETTERS.len());
    match entity.is_char_boundary(at) && entity[at..].eq_ignore_ascii_case(DEAD_LETTERS) {
        true => entity[..at].to_owned(),
        false => entity.to_owned(),
    }
}

fn edit_of(args: &ResubmitArgs) -> Result<Edit, Failure> {
    let set: Vec<(String, Value)> = values_of("--set", &args.set)?;
    Ok(Edit {
        set,
        remove: args.remove.clone(),
        subject: args.set_subject.clone(),
        content_type: args.set_content_type.clone(),
        session_id: args.set_session.clone(),
        body: args.set_body.clone(),
        has_new_id: args.new_ids,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_belong_to_their_queue() {
        for (entity, queue) in [
            ("orders/$deadletterqueue", "orders"),
            ("a/b/$DeadLetterQueue", "a/b"),
            ("orders", "orders"),
            ("ä", "ä"),
        ] {
            assert_eq!(queue_of(entity), queue);
            assert_eq!(origin_of(entity).unwrap(), queue);
        }
        let refused = origin_of("t/Subscriptions/s/$deadletterqueue").unwrap_err();
        assert!(refused.message().contains("--to"), "{}", refused.message());
    }
}
