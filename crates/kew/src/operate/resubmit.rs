//! Dead letters that are sent again by the public protocols, where Kew's own interface cannot be used.
//!
//! Each message is received under a lock, sent and completed, in a transaction if the service takes one. If it does not,
//! the message is sent first and completed afterwards: it is never lost, and a failure between the two leaves it in both
//! queues. Messages that do not match stay under their locks until the end, so that they do not come again at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use kew_client::{Encoded, ErrorKind, Locked, ReceiverOptions, Sender, Value};
use serde::Serialize;

use super::browse::{Look, browse};
use super::export::record;
use super::filter::Filter;
use super::send::value_of;
use super::{DEAD_LETTERS, Doors, Session};
use crate::operate_args::ResubmitArgs;
use crate::portable::{Edit, message_of, new_id};
use crate::queue_command::{Failure, note, printable};

/// How long to wait for a message that is there, unless another receiver has locked it.
const QUIET: Duration = Duration::from_secs(2);

/// How many messages are locked at once.
const BATCH_COUNT: u32 = 50;

/// How long to wait for more messages that come with a first one.
const TOGETHER: Duration = Duration::from_millis(20);

/// How many messages that do not match are kept under locks.
const KEPT_MAX: usize = 10_000;

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
    let doors = &it.doors;
    let mut wanted = BTreeSet::new();
    browse(doors, entity, &filter, |message| {
        wanted.extend(message.sequence_number());
        Ok(Look::On)
    })?;
    let mut report = Report {
        act: "resubmit",
        entity,
        dry_run: args.caution.dry_run,
        matched: wanted.len() as u64,
        done: 0,
        skipped: BTreeMap::new(),
        in_transactions: true,
    };
    if report.dry_run {
        report.done = report.matched;
    } else if !wanted.is_empty() {
        let to = args.to.clone().unwrap_or_else(|| queue_of(entity));
        let sender = doors.over_amqp(doors.bus.sender(&to))?;
        let mover = Mover {
            doors,
            entity,
            sender: &sender,
            edit: &edit,
        };
        mover.move_all(wanted, &mut report)?;
    }
    if it.output.json {
        return Ok(it.output.object(&report)?);
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

/// The queue that dead letters belong to.
fn queue_of(entity: &str) -> String {
    let at = entity.len().saturating_sub(DEAD_LETTERS.len());
    match entity.is_char_boundary(at) && entity[at..].eq_ignore_ascii_case(DEAD_LETTERS) {
        true => entity[..at].to_owned(),
        false => entity.to_owned(),
    }
}

fn edit_of(args: &ResubmitArgs) -> Result<Edit, Failure> {
    let mut set: Vec<(String, Value)> = Vec::new();
    for (name, text) in &args.set {
        set.push((name.clone(), value_of(name, text)?));
    }
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

/// Moves messages from one entity to another.
struct Mover<'a> {
    doors: &'a Doors,
    entity: &'a str,
    sender: &'a Sender,
    edit: &'a Edit,
}

/// What became of a message.
enum Moved {
    Done,
    /// It stays, for this reason.
    Refused(String),
}

impl Mover<'_> {
    fn move_all(&self, mut wanted: BTreeSet<i64>, report: &mut Report<'_>) -> Result<(), Failure> {
        let doors = self.doors;
        let options = ReceiverOptions::default();
        let mut receiver = doors.over_amqp(doors.bus.receiver(self.entity, options))?;
        let mut kept: BTreeMap<i64, Locked> = BTreeMap::new();
        let moved = loop {
            if wanted.is_empty() || kept.len() >= KEPT_MAX {
                break Ok(());
            }
            let batch = receiver.receive_batch(BATCH_COUNT, TOGETHER);
            let batch = match doors.over_amqp_within(QUIET, batch) {
                Ok(Some(batch)) => batch,
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure),
            };
            // A lock has ended: everything would come again.
            let is_again = batch.iter().any(|it| {
                it.sequence_number()
                    .is_some_and(|it| kept.contains_key(&it))
            });
            let done = self.move_batch(batch, &mut wanted, &mut kept, report);
            if done.is_err() || is_again {
                break done;
            }
        };
        let left = wanted.len() as u64;
        if left > 0 {
            // Another receiver has locked them, or locks ended before they were reached.
            *report.skipped.entry("not_received".to_owned()).or_default() += left;
        }
        let kept: Vec<Locked> = kept.into_values().collect();
        let given_back = self.give_back(kept);
        let closed = doors.over_amqp(receiver.close());
        let done = report.done;
        moved
            .map_err(|failure| failure.after(format!("{done} messages were resubmitted before")))?;
        given_back.and(closed)
    }

    fn move_batch(
        &self,
        batch: Vec<Locked>,
        wanted: &mut BTreeSet<i64>,
        kept: &mut BTreeMap<i64, Locked>,
        report: &mut Report<'_>,
    ) -> Result<(), Failure> {
        for message in batch {
            let number = message.sequence_number().unwrap_or_default();
            if !wanted.remove(&number) {
                kept.insert(number, message);
                continue;
            }
            match self.move_one(&message, report)? {
                Moved::Done => report.done += 1,
                Moved::Refused(why) => {
                    *report.skipped.entry(why).or_default() += 1;
                    kept.insert(number, message);
                }
            }
        }
        Ok(())
    }

    fn move_one(&self, message: &Locked, report: &mut Report<'_>) -> Result<Moved, Failure> {
        let sent = self.edited(message)?;
        let doors = self.doors;
        if report.in_transactions {
            match doors.wait(self.in_transaction(message, &sent)) {
                Ok(()) => return Ok(Moved::Done),
                Err(error) if error.kind() == ErrorKind::Refused && report.done == 0 => {
                    // Without a transaction it will be seen why.
                    report.in_transactions = false;
                    note(&format!(
                        "the service takes no transaction here ({}): each message is sent first and completed \
                         afterwards, so a failure between the two leaves it in both queues",
                        error.text()
                    ));
                }
                Err(error) if error.kind() == ErrorKind::Refused => {
                    return Ok(Moved::Refused(error.code().unwrap_or("refused").to_owned()));
                }
                Err(error) => {
                    let known = match error.kind() {
                        ErrorKind::OutcomeUnknown => "is in one of the two queues",
                        ErrorKind::TryAgainLater | ErrorKind::Refused => "was not moved",
                    };
                    return Err(self.failed(&error, message, known));
                }
            }
        }
        match doors.wait(self.sender.send_encoded(&sent)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Refused => {
                return Ok(Moved::Refused(error.code().unwrap_or("refused").to_owned()));
            }
            Err(error) => {
                let known = match error.kind() {
                    ErrorKind::OutcomeUnknown => "may be in both queues",
                    ErrorKind::TryAgainLater | ErrorKind::Refused => "was not moved",
                };
                return Err(self.failed(&error, message, known));
            }
        }
        let completed = doors.wait(message.complete());
        completed.map_err(|error| self.failed(&error, message, "is in both queues"))?;
        Ok(Moved::Done)
    }

    async fn in_transaction(
        &self,
        message: &Locked,
        sent: &Encoded,
    ) -> Result<(), kew_client::Error> {
        let transaction = self.doors.bus.begin().await?;
        transaction.send_encoded(self.sender, sent).await?;
        transaction.complete(message).await?;
        transaction.commit().await
    }

    /// The message as it is sent.
    fn edited(&self, message: &Locked) -> Result<Encoded, Failure> {
        let number = message.sequence_number().unwrap_or_default();
        let wrong = |what: String| Failure::Refused {
            message: format!("message {number} cannot be sent again: {what}"),
            code: None,
        };
        let mut record = record(self.entity, message)?;
        record.edit(self.edit);
        if self.edit.has_new_id {
            record.set_message_id(new_id().map_err(wrong)?);
        }
        let bytes = message_of(&record, SystemTime::now()).map_err(wrong)?;
        Encoded::new(bytes).map_err(|error| wrong(error.text().to_owned()))
    }

    fn failed(&self, error: &kew_client::Error, message: &Locked, known: &str) -> Failure {
        let number = message.sequence_number().unwrap_or_default();
        let failure = self.doors.failed_over_amqp(error);
        failure.after(format!("message {number} {known}"))
    }

    fn give_back(&self, kept: Vec<Locked>) -> Result<(), Failure> {
        let mut given_back = Ok(());
        for message in kept {
            let done = self.doors.over_amqp(message.abandon(Vec::new()));
            // The lock may have ended, which is as good.
            let done = match done {
                Err(failure) if failure.is_temporary() => Err(failure),
                Ok(()) | Err(_) => Ok(()),
            };
            given_back = given_back.and(done);
        }
        given_back
    }
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
        }
    }
}
