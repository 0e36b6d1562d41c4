//! Receive and delete: no message is deleted before its bytes were read.
//!
//! If a message's bytes are in memory, it is deleted as it is received. Otherwise the bytes must first be
//! read from the disk, and the partition's thread does not do that. So the message is locked, read, and then
//! completed. If it turns out to be damaged it is abandoned, as by a receiver that fails: the delivery
//! counts, and in the end the message becomes a dead letter.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusOutcome, DeliveredMessage, Disposition, ReceiveMode, Receives, Verdict,
};
use kew_engine::{Command, Description, EntityName, Outcome, SequenceNumber, Timestamp, Token};
use kew_log::Body;

use crate::broker::read_bodies;
use crate::{Answer, Answered, Broker, Rejection};

/// How often a settlement is retried while the broker is busy or the disk is full: for 5 s, while the locks
/// hold.
const SETTLE_TRIES: u32 = 50;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// How to proceed with messages that were locked to be read and deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    queue: EntityName,
    is_all_or_none: bool,
}

impl Unread {
    /// Only for a command that deletes what it has read. An operator's message is read before it is taken:
    /// see [`Broker::check_taken`].
    pub(crate) fn of(command: &Description<'_>) -> Option<Self> {
        let (queue, mode, is_all_or_none) = match command.receives {
            Some(Receives::Messages { queue, mode, .. }) => (queue, mode, false),
            Some(Receives::Deferred { queue, mode }) => (queue, mode, true),
            Some(Receives::Session { .. }) | None => return None,
        };
        (mode == ReceiveMode::DeleteOnceRead).then(|| Self {
            queue: queue.clone(),
            is_all_or_none,
        })
    }
}

/// The same command, changed to delete no message before its bytes were read.
pub(crate) fn careful(mut command: Command) -> Command {
    command.delete_once_read();
    command
}

/// Whether an outcome has messages with locks.
pub(crate) fn has_locks(outcome: &Outcome) -> bool {
    if let Outcome::Bus(BusOutcome::Received(messages)) = outcome {
        messages.iter().any(|message| message.lock.is_some())
    } else {
        false
    }
}

impl Broker {
    /// Reads the bodies that are not in memory, then deletes the messages that were to be deleted once read.
    /// A message whose body turns out to be damaged is left out, and reported with file and offset. If no
    /// other message is left, or the command asked for all or none, the result is [`Rejection::Unreadable`].
    pub async fn read(&self, mut answered: Answered) -> Result<Answer, Rejection> {
        let unread = answered.unread.take();
        let (locks, count) = match &unread {
            Some(_) => locks_of(&answered.outcome),
            None => (Vec::new(), 0),
        };
        let answer = match Answer::at_once(answered) {
            Ok(answer) => answer,
            Err(answered) => {
                let answer = tokio::task::spawn_blocking(|| read_bodies(*answered)).await;
                answer.map_err(|_| Rejection::Stopped)?
            }
        };
        let Some(unread) = unread else {
            return Ok(answer);
        };
        let (whole, whole_count) = locks_of(&answer.outcome);
        let is_any_damaged = whole_count < count;
        if is_any_damaged && unread.is_all_or_none {
            // If they cannot be released, their locks expire.
            let _ = self.settle_patiently(unread.queue, released(locks)).await;
            return Err(Rejection::Unreadable);
        }
        let whole: HashSet<Token> = whole.into_iter().collect();
        let damaged = locks.into_iter().filter(|lock| !whole.contains(lock));
        let damaged = damaged.collect();
        let answer = self.delete_read(unread.queue, answer, damaged).await?;
        let (_, left) = locks_of(&answer.outcome);
        if is_any_damaged && left == 0 {
            return Err(Rejection::Unreadable);
        }
        Ok(answer)
    }

    /// Deletes the messages that are still locked, and leaves out messages whose lock was lost in the meantime.
    /// Damaged messages are abandoned.
    async fn delete_read(
        &self,
        queue: EntityName,
        answer: Answer,
        damaged: Vec<Token>,
    ) -> Result<Answer, Rejection> {
        let (locks, count) = locks_of(&answer.outcome);
        let abandon = Disposition::Abandon { overlay: None };
        let completed = locks.iter().map(|lock| (*lock, Disposition::Complete));
        let abandoned = damaged.into_iter().map(|lock| (lock, abandon.clone()));
        let settlements = completed.chain(abandoned).collect();
        let verdicts = match self.settle_patiently(queue.clone(), settlements).await {
            Ok(verdicts) => verdicts,
            Err(rejection) => {
                let is_all = locks.len() == count;
                // No client has seen these messages. If they cannot be released either, their locks expire.
                let _ = self.settle(queue, released(locks)).await;
                if is_all {
                    return Err(rejection);
                }
                // The messages without a lock are already deleted and exist only in this answer.
                Vec::new()
            }
        };
        let mut verdicts = verdicts.into_iter();
        Ok(retain(answer, |message| {
            message.lock.is_none() || verdicts.next() == Some(Verdict::Settled)
        }))
    }

    /// Settles, and retries for some time while there is no room. The messages stay locked in the meantime.
    async fn settle_patiently(
        &self,
        queue: EntityName,
        settlements: Vec<(Token, Disposition)>,
    ) -> Result<Vec<Verdict>, Rejection> {
        for _ in 0..SETTLE_TRIES {
            match self.settle(queue.clone(), settlements.clone()).await {
                Err(Rejection::Busy | Rejection::Full) => {
                    tokio::time::sleep(SETTLE_PAUSE).await;
                }
                settled @ (Ok(_)
                | Err(
                    Rejection::Refused(_) | Rejection::Stopped | Rejection::Unreadable,
                )) => {
                    return settled;
                }
            }
        }
        self.settle(queue, settlements).await
    }

    async fn settle(
        &self,
        queue: EntityName,
        settlements: Vec<(Token, Disposition)>,
    ) -> Result<Vec<Verdict>, Rejection> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let settle = BusCommand::Settle { queue, settlements };
        let answered = self.ask(Command::Bus(settle)).await?;
        let Outcome::Bus(BusOutcome::Settled(verdicts)) = answered.outcome else {
            return Ok(Vec::new());
        };
        Ok(verdicts)
    }

    /// Reads a message before an operator takes it for good. A scheduled message, and one of a session,
    /// cannot be locked for that.
    pub(crate) async fn check_taken(&self, command: &Command) -> Result<(), Rejection> {
        let Command::Bus(BusCommand::TakeMessage {
            queue,
            number,
            mode: ReceiveMode::ReceiveAndDelete,
        }) = command
        else {
            return Ok(());
        };
        self.check_readable(queue.clone(), *number).await
    }

    async fn check_readable(
        &self,
        queue: EntityName,
        number: SequenceNumber,
    ) -> Result<(), Rejection> {
        let peek = BusCommand::Peek {
            queue,
            from: number,
            count: 1,
            session: None,
        };
        let answered = self.ask(Command::Bus(peek)).await?;
        let first = if let Outcome::Bus(BusOutcome::Peeked(messages)) = &answered.outcome {
            messages.first().map(|message| message.sequence_number)
        } else {
            None
        };
        let is_there = first == Some(number);
        let is_in_memory = |body: &Body| body.in_memory().is_some();
        if !is_there || answered.bodies.iter().all(is_in_memory) {
            return Ok(());
        }
        let are_whole = move || answered.bodies.iter().all(is_whole);
        match tokio::task::spawn_blocking(are_whole).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Rejection::Unreadable),
            Err(_) => Err(Rejection::Stopped),
        }
    }
}

fn is_whole(body: &Body) -> bool {
    match body.read() {
        Ok(_) => true,
        Err(error) => {
            tracing::error!(%error, "a message body is damaged: the message is not deleted");
            false
        }
    }
}

/// The locks of the messages that have one, and the number of all messages.
fn locks_of(outcome: &Outcome) -> (Vec<Token>, usize) {
    let Outcome::Bus(BusOutcome::Received(messages)) = outcome else {
        return (Vec::new(), 0);
    };
    let locks = messages.iter().filter_map(|message| message.lock);
    (locks.collect(), messages.len())
}

/// Releases messages that no client has seen.
fn released(locks: Vec<Token>) -> Vec<(Token, Disposition)> {
    let released = locks.into_iter().map(|lock| (lock, Disposition::Release));
    released.collect()
}

/// Keeps some of the messages, without their locks: they are deleted by now.
fn retain(answer: Answer, mut keep: impl FnMut(&DeliveredMessage) -> bool) -> Answer {
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        return answer;
    };
    let mut parts = answer.bodies.into_iter();
    let (mut kept, mut bodies) = (Vec::new(), Vec::<Bytes>::new());
    for message in messages {
        let own: Vec<_> = parts.by_ref().take(1 + message.overlays.len()).collect();
        if keep(&message) {
            bodies.extend(own);
            kept.push(DeliveredMessage {
                lock: None,
                locked_until: Timestamp::NEVER,
                ..message
            });
        }
    }
    Answer {
        outcome: Outcome::Bus(BusOutcome::Received(kept)),
        bodies,
    }
}
