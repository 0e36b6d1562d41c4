//! Messages that are received and deleted: none is gone before its bytes were read.
//!
//! A message whose bytes are in memory is deleted as it is received. Of any other, whether its bytes are
//! whole is known only when they were read from the disk, which the partition's thread does not do. Such a
//! message is locked, read, and then completed. If it proves damaged, its lock runs out as that of any
//! receiver that fails with it: it is counted, and becomes a dead letter in the end.

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusOutcome, DeliveredMessage, Disposition, ReceiveMode, Verdict,
};
use kew_engine::{Command, EntityName, Outcome, SequenceNumber, Timestamp, Token};
use kew_log::Body;

use crate::broker::read_bodies;
use crate::{Answer, Answered, Broker, Rejection};

/// What is to be done with messages that were locked to be read and deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    queue: EntityName,
    is_all_or_none: bool,
}

impl Unread {
    /// Of a command that deletes what it has read.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Bus(BusCommand::Receive {
                queue,
                mode: ReceiveMode::DeleteOnceRead,
                ..
            }) => Some(Self {
                queue: queue.clone(),
                is_all_or_none: false,
            }),
            Command::Bus(BusCommand::ReceiveDeferred { read })
                if read.mode == ReceiveMode::DeleteOnceRead =>
            {
                Some(Self {
                    queue: read.queue.clone(),
                    is_all_or_none: true,
                })
            }
            _ => None,
        }
    }
}

/// The same command, that deletes nothing before it was read.
pub(crate) fn careful(mut command: Command) -> Command {
    let mode = match &mut command {
        Command::Bus(BusCommand::Receive { mode, .. }) => Some(mode),
        Command::Bus(BusCommand::ReceiveDeferred { read }) => Some(&mut read.mode),
        _ => None,
    };
    if let Some(mode) = mode
        && *mode == ReceiveMode::ReceiveAndDelete
    {
        *mode = ReceiveMode::DeleteOnceRead;
    }
    command
}

/// Whether an outcome has messages with locks.
pub(crate) fn has_locks(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Bus(BusOutcome::Received(messages)) => {
            messages.iter().any(|message| message.lock.is_some())
        }
        _ => false,
    }
}

impl Broker {
    /// Reads the bodies that are not in memory, and deletes what was to be deleted once it was read. A
    /// message whose body proves damaged on the disk is left out, and reported with file and offset. If
    /// there is nothing else, or all were wanted or none, the answer is [`Rejection::Unreadable`].
    pub async fn read(&self, answered: Answered) -> Result<Answer, Rejection> {
        let answered = match Answer::in_memory(answered) {
            Ok(answer) => return Ok(answer),
            Err(answered) => answered,
        };
        let unread = answered.unread.clone();
        let (locks, count) = locks_of(&answered.outcome);
        let answer = tokio::task::spawn_blocking(|| read_bodies(*answered)).await;
        let answer = answer.map_err(|_| Rejection::Stopped)?;
        let Some(unread) = unread else {
            return Ok(answer);
        };
        let is_any_damaged = locks_of(&answer.outcome).1 < count;
        if is_any_damaged && unread.is_all_or_none {
            self.settle(unread.queue, locks, &Disposition::Release)
                .await?;
            return Err(Rejection::Unreadable);
        }
        let answer = self.delete_read(unread.queue, answer).await?;
        match locks_of(&answer.outcome).1 {
            0 if is_any_damaged => Err(Rejection::Unreadable),
            _ => Ok(answer),
        }
    }

    /// Deletes the messages that are still locked, and leaves out those whose lock was lost meanwhile.
    async fn delete_read(&self, queue: EntityName, answer: Answer) -> Result<Answer, Rejection> {
        let (locks, count) = locks_of(&answer.outcome);
        let settled = self.settle(queue, locks.clone(), &Disposition::Complete);
        let verdicts = match settled.await {
            Ok(verdicts) => verdicts,
            Err(rejection) if locks.len() == count => return Err(rejection),
            // The others are gone, and nowhere else.
            Err(_) => Vec::new(),
        };
        let mut verdicts = verdicts.into_iter();
        Ok(retain(answer, |message| {
            message.lock.is_none() || verdicts.next() == Some(Verdict::Settled)
        }))
    }

    async fn settle(
        &self,
        queue: EntityName,
        locks: Vec<Token>,
        disposition: &Disposition,
    ) -> Result<Vec<Verdict>, Rejection> {
        if locks.is_empty() {
            return Ok(Vec::new());
        }
        let settlements = locks.into_iter().map(|lock| (lock, disposition.clone()));
        let settle = BusCommand::Settle {
            queue,
            settlements: settlements.collect(),
        };
        match self.ask(Command::Bus(settle)).await?.outcome {
            Outcome::Bus(BusOutcome::Settled(verdicts)) => Ok(verdicts),
            _ => Ok(Vec::new()),
        }
    }

    /// Reads a message that an operator takes for good, before it is taken: one that is scheduled or of a
    /// session cannot be locked to be read.
    pub(crate) async fn check_taken(&self, command: &Command) -> Result<(), Rejection> {
        match command {
            Command::Bus(BusCommand::TakeMessage {
                queue,
                number,
                mode: ReceiveMode::ReceiveAndDelete,
            }) => self.check_readable(queue.clone(), *number).await,
            _ => Ok(()),
        }
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
        let is_there = match &answered.outcome {
            Outcome::Bus(BusOutcome::Peeked(messages)) => messages
                .first()
                .is_some_and(|message| message.sequence_number == number),
            _ => false,
        };
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
            tracing::error!(%error, "a message body is damaged; the message is not taken");
            false
        }
    }
}

/// The locks of the messages that have one, and how many messages there are.
fn locks_of(outcome: &Outcome) -> (Vec<Token>, usize) {
    match outcome {
        Outcome::Bus(BusOutcome::Received(messages)) => {
            let locks = messages.iter().filter_map(|message| message.lock);
            (locks.collect(), messages.len())
        }
        _ => (Vec::new(), 0),
    }
}

/// The messages that are kept, as messages that are gone: without their locks.
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
