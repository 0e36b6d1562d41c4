//! Moves messages from one entity to another by the public protocols.
//!
//! Each message is received under a lock, sent and completed, in a transaction if the service takes one. If it does not,
//! the message is sent first and completed afterwards: it is never lost, and a failure between the two leaves it in both
//! queues. Messages that are not moved stay under their locks until the end, so that they do not come again at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use kew_client::{Encoded, Error, ErrorKind, Locked, Receiver, ReceiverOptions, Sender};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Doors;
use super::export::record;
use crate::portable::{Edit, message_of, new_id};
use crate::queue_command::{Failure, note};

/// How long to wait for a message that is there, unless another receiver has locked it; and how long to give messages
/// back to a service that has just failed.
const QUIET: Duration = Duration::from_secs(2);

/// How many messages are locked at once.
const BATCH_COUNT: u32 = 50;

/// How long to wait for more messages that come with a first one.
const TOGETHER: Duration = Duration::from_millis(20);

/// How many messages are kept under locks, and how many bytes they may have.
const KEPT_COUNT_MAX: usize = 10_000;
const KEPT_SIZE_BYTES_MAX: usize = 256 << 20;

/// Why messages stay: another receiver has locked them, or received them meanwhile.
const LOCKED: &str = "locked";
/// They are deferred.
pub(super) const DEFERRED: &str = "deferred";
/// The command ended before it came to them.
const NOT_REACHED: &str = "not_reached";
/// They cannot be read, or not be written with the edit.
const UNREADABLE: &str = "unreadable";

/// What came of a move.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) done: u64,
    /// How many stayed, by the reason.
    pub(super) skipped: BTreeMap<String, u64>,
    /// The service took a message without a transaction that it refused in one.
    pub(super) is_without_transactions: bool,
    /// A message has been moved in a transaction.
    has_had_transaction: bool,
    /// The first of those that the command did not come to.
    not_reached_from: Option<i64>,
}

impl Tally {
    pub(super) fn skip(&mut self, why: &str, count: u64) {
        if count > 0 {
            *self.skipped.entry(why.to_owned()).or_default() += count;
        }
    }

    /// A failure if the command did not come to all messages.
    pub(super) fn not_reached(&self, entity: &str) -> Result<(), Failure> {
        let Some(number) = self.not_reached_from else {
            return Ok(());
        };
        let count = self.skipped.get(NOT_REACHED).copied().unwrap_or_default();
        Err(Failure::Refused {
            message: format!(
                "{count} messages that match were not reached, the first with number {number}: {entity} has too many \
                 other messages before them; run the command again, and if it resubmits nothing more, receive those \
                 messages first"
            ),
            code: None,
        })
    }
}

/// Messages that stay, under lock.
#[derive(Default)]
struct Kept {
    messages: BTreeMap<i64, Locked>,
    size_bytes: usize,
}

impl Kept {
    fn has_any(&self, batch: &[Locked]) -> bool {
        batch
            .iter()
            .filter_map(|it| it.sequence_number())
            .any(|number| self.messages.contains_key(&number))
    }

    fn keep(&mut self, number: i64, message: Locked) {
        self.size_bytes += message.raw().bytes().len();
        self.messages.insert(number, message);
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= KEPT_COUNT_MAX || self.size_bytes >= KEPT_SIZE_BYTES_MAX
    }
}

/// Why no more messages are received.
enum End {
    /// All were found.
    All,
    /// No more came.
    Quiet,
    /// Too many have to be kept, or their locks have begun to end.
    Early,
}

/// Moves messages from one entity to another.
pub(super) struct Mover<'a> {
    pub(super) doors: &'a Doors,
    pub(super) entity: &'a str,
    pub(super) sender: &'a Sender,
    pub(super) edit: &'a Edit,
}

/// What became of a message.
enum Moved {
    Done,
    /// It stays, for this reason.
    Refused(String),
}

/// The step of a transaction that failed.
struct Failed {
    step: Step,
    error: Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Send,
    Settle,
    Commit,
}

impl Mover<'_> {
    /// Moves the messages with these numbers.
    pub(super) fn move_all(
        &self,
        mut wanted: BTreeSet<i64>,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let doors = self.doors;
        let options = ReceiverOptions::default();
        let mut receiver = doors.over_amqp(doors.bus.receiver(self.entity, options))?;
        let mut kept = Kept::default();
        let end = self.move_each(&mut receiver, &mut wanted, &mut kept, tally);
        let is_out_of_reach = end.as_ref().is_err_and(Failure::is_temporary);
        let patience = match is_out_of_reach {
            true => QUIET.min(doors.timeout),
            false => doors.timeout,
        };
        self.wind_up(receiver, kept, patience);
        let done = tally.done;
        let end = end
            .map_err(|failure| failure.after(format!("{done} messages were resubmitted before")))?;
        let left = wanted.len() as u64;
        match end {
            End::All => {}
            End::Quiet => tally.skip(LOCKED, left),
            End::Early => {
                tally.skip(NOT_REACHED, left);
                tally.not_reached_from = wanted.first().copied();
            }
        }
        Ok(())
    }

    fn move_each(
        &self,
        receiver: &mut Receiver,
        wanted: &mut BTreeSet<i64>,
        kept: &mut Kept,
        tally: &mut Tally,
    ) -> Result<End, Failure> {
        loop {
            if wanted.is_empty() {
                return Ok(End::All);
            }
            if kept.is_full() {
                return Ok(End::Early);
            }
            let batch = receiver.receive_batch(BATCH_COUNT, TOGETHER);
            let Some(batch) = self.doors.over_amqp_within(QUIET, batch)? else {
                return Ok(End::Quiet);
            };
            // A lock has ended: everything would come again.
            let is_again = kept.has_any(&batch);
            self.move_batch(batch, wanted, kept, tally)?;
            if is_again {
                return Ok(if wanted.is_empty() {
                    End::All
                } else {
                    End::Early
                });
            }
        }
    }

    /// Moves what is wanted, up to a failure, and keeps all others.
    fn move_batch(
        &self,
        batch: Vec<Locked>,
        wanted: &mut BTreeSet<i64>,
        kept: &mut Kept,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let mut moved = Ok(());
        for message in batch {
            let number = message.sequence_number().unwrap_or_default();
            if moved.is_ok() && wanted.remove(&number) {
                match self.move_one(&message, tally) {
                    Ok(Moved::Done) => {
                        tally.done += 1;
                        continue;
                    }
                    Ok(Moved::Refused(why)) => tally.skip(&why, 1),
                    Err(failure) => moved = Err(failure),
                }
            }
            kept.keep(number, message);
        }
        moved
    }

    fn move_one(&self, message: &Locked, tally: &mut Tally) -> Result<Moved, Failure> {
        let sent = match self.edited(message) {
            Ok(sent) => sent,
            Err(what) => {
                let number = message.sequence_number().unwrap_or_default();
                note(&format!("message {number} cannot be sent again: {what}"));
                return Ok(Moved::Refused(UNREADABLE.to_owned()));
            }
        };
        if tally.is_without_transactions {
            return self.move_in_two_steps(message, &sent);
        }
        let Err(Failed { step, error }) = self.doors.wait(self.in_transaction(message, &sent))
        else {
            tally.has_had_transaction = true;
            return Ok(Moved::Done);
        };
        match error.kind() {
            ErrorKind::Refused => {}
            ErrorKind::OutcomeUnknown => {
                return Err(self.failed(&error, message, "is in one of the two queues"));
            }
            ErrorKind::TryAgainLater => {
                return Err(self.failed(&error, message, "was not moved"));
            }
        }
        // What worked before is not what is wrong, and nor is the lock of one message.
        if tally.has_had_transaction || step == Step::Settle && error.is_lock_lost() {
            return Ok(Moved::refused(&error));
        }
        let moved = self.move_in_two_steps(message, &sent)?;
        // What is refused either way has nothing to do with transactions.
        if matches!(moved, Moved::Done) || step == Step::Begin {
            tally.is_without_transactions = true;
            note(&format!(
                "the service takes no transaction here ({}): each message is sent first and completed afterwards, so \
                 a failure between the two leaves it in both queues",
                error.text()
            ));
        }
        Ok(moved)
    }

    fn move_in_two_steps(&self, message: &Locked, sent: &Encoded) -> Result<Moved, Failure> {
        let doors = self.doors;
        match doors.wait(self.sender.send_encoded(sent)) {
            Ok(()) => {}
            Err(error) => {
                let known = match error.kind() {
                    ErrorKind::Refused => return Ok(Moved::refused(&error)),
                    ErrorKind::OutcomeUnknown => "may be in both queues",
                    ErrorKind::TryAgainLater => "was not moved",
                };
                return Err(self.failed(&error, message, known));
            }
        }
        let completed = doors.wait(message.complete());
        completed.map_err(|error| self.failed(&error, message, "is in both queues"))?;
        Ok(Moved::Done)
    }

    async fn in_transaction(&self, message: &Locked, sent: &Encoded) -> Result<(), Failed> {
        let at = |step| move |error| Failed { step, error };
        let transaction = self.doors.bus.begin().await.map_err(at(Step::Begin))?;
        let send = transaction.send_encoded(self.sender, sent).await;
        send.map_err(at(Step::Send))?;
        let settle = transaction.complete(message).await;
        settle.map_err(at(Step::Settle))?;
        transaction.commit().await.map_err(at(Step::Commit))
    }

    /// The message as it is sent, or why it cannot be.
    fn edited(&self, message: &Locked) -> Result<Encoded, String> {
        let mut record = record(self.entity, message).map_err(|failure| failure.message())?;
        record.edit(self.edit);
        if self.edit.has_new_id {
            record.set_message_id(new_id()?);
        }
        let bytes = message_of(&record, SystemTime::now())?;
        Encoded::new(bytes).map_err(|error| error.text().to_owned())
    }

    fn failed(&self, error: &Error, message: &Locked, known: &str) -> Failure {
        let number = message.sequence_number().unwrap_or_default();
        let failure = self.doors.failed_over_amqp(error);
        failure.after(format!("message {number} {known}"))
    }

    /// Gives back what was not moved, as far as that takes no longer than `patience`. Locks end by themselves too.
    fn wind_up(&self, receiver: Receiver, kept: Kept, patience: Duration) {
        let now = SystemTime::now();
        let is_held = |message: &Locked| message.locked_until().is_none_or(|until| until > now);
        let held = kept.messages.into_values().filter(is_held);
        let abandon = |message: Locked| async move { message.abandon(Vec::new()).await };
        let held: Vec<_> = held.map(abandon).collect();
        let done = self.doors.wait(async {
            let given_back = all_of(held, Error::kind);
            timeout(patience, async {
                given_back.await?;
                receiver.close().await
            })
            .await
        });
        let why = match done {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.text().to_owned(),
            Err(_) => "the service did not answer in time".to_owned(),
        };
        note(&format!(
            "messages that were not resubmitted stay locked until their locks end: {why}"
        ));
    }
}

impl Moved {
    fn refused(error: &Error) -> Self {
        Self::Refused(error.code().unwrap_or("refused").to_owned())
    }
}

/// Carries out all operations at the same time, up to the first failure that is no refusal. A message whose lock has
/// ended is as good as abandoned.
async fn all_of<E: Send + 'static>(
    operations: Vec<impl Future<Output = Result<(), E>> + Send + 'static>,
    kind: impl Fn(&E) -> ErrorKind,
) -> Result<(), E> {
    let mut tasks: JoinSet<Result<(), E>> = operations.into_iter().collect();
    while let Some(done) = tasks.join_next().await {
        if let Ok(Err(error)) = done
            && kind(&error) != ErrorKind::Refused
        {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of an operation that ends, or `None` for one that never does.
    async fn operation(end: Option<Result<(), ErrorKind>>) -> Result<(), ErrorKind> {
        match end {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    #[tokio::test]
    async fn one_failure_ends_the_wait_for_all() {
        let done = |ends: Vec<_>| {
            let operations = ends.into_iter().map(operation).collect();
            all_of(operations, |kind: &ErrorKind| *kind)
        };
        let lost = Some(Err(ErrorKind::Refused));
        assert_eq!(done(vec![lost, Some(Ok(())), lost]).await, Ok(()));
        let mut ends = vec![None; 10];
        ends.push(Some(Err(ErrorKind::TryAgainLater)));
        assert_eq!(done(ends).await, Err(ErrorKind::TryAgainLater));
        // All wait at the same time.
        let waited = timeout(Duration::from_millis(1), done(vec![None; 100]));
        assert!(waited.await.is_err());
    }

    #[test]
    fn messages_that_were_not_reached_are_a_failure() {
        let mut tally = Tally::default();
        tally.skip(LOCKED, 0);
        assert!(tally.skipped.is_empty() && tally.not_reached("q").is_ok());
        tally.skip(NOT_REACHED, 2);
        tally.not_reached_from = Some(7);
        let message = tally.not_reached("q").unwrap_err().message();
        assert!(
            message.starts_with("2 messages that match were not reached, the first with number 7")
        );
    }
}
