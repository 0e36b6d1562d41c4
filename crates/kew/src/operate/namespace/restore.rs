//! Puts messages where no send puts them: among the dead letters, or aside. They are sent, received and settled.

use std::time::{Duration, Instant};

use kew_bus_api::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
use kew_client::{Changes, Locked, Receiver, ReceiverOptions, SessionChoice};

use super::Place;
use super::existing::as_settled;
use crate::operate::Doors;
use crate::operate::export::record;
use crate::portable::Record;
use crate::queue_command::Failure;

/// How long a message that was sent may take to come back. One that was dropped as a duplicate never does.
const PATIENCE: Duration = Duration::from_secs(10);

/// Receives and settles messages of a queue.
pub(super) struct Restorer<'a> {
    doors: &'a Doors,
    queue: String,
    /// Of a queue without sessions.
    receiver: Option<Receiver>,
}

impl<'a> Restorer<'a> {
    pub(super) fn new(doors: &'a Doors, queue: &str) -> Self {
        Self {
            doors,
            queue: queue.to_owned(),
            receiver: None,
        }
    }

    /// Receives these messages, which no other message of their queue is before, and settles each. Returns how many did
    /// not come for a while.
    pub(super) fn restore(
        &mut self,
        place: Place,
        wanted: Vec<Record>,
        has_sessions: bool,
    ) -> Result<u64, Failure> {
        let doors = self.doors;
        let options = ReceiverOptions { prefetch: 0 };
        let Some(first) = wanted.first() else {
            return Ok(0);
        };
        let unsettled = Unsettled {
            doors,
            queue: &self.queue,
            place,
        };
        if let Some(id) = first.session_id().filter(|_| has_sessions) {
            let choice = SessionChoice::named(id);
            let mut session = doors.over_amqp(doors.bus.session(&self.queue, choice, options))?;
            let missing = unsettled.settle_all(wanted, |count| {
                doors.over_amqp_within(PATIENCE, session.receive_batch(count, Duration::ZERO))
            });
            doors.over_amqp(session.close())?;
            return missing;
        }
        if self.receiver.is_none() {
            let receiver = doors.bus.receiver(&self.queue, options);
            self.receiver = Some(doors.over_amqp(receiver)?);
        }
        let receiver = self.receiver.as_mut().expect("it was made just now");
        unsettled.settle_all(wanted, |count| {
            doors.over_amqp_within(PATIENCE, receiver.receive_batch(count, Duration::ZERO))
        })
    }

    /// Gives up the receiver: it would take messages that are to stay.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        match self.receiver.take() {
            Some(receiver) => self.doors.over_amqp(receiver.close()),
            None => Ok(()),
        }
    }
}

/// Messages that were sent to a queue and are to be settled.
struct Unsettled<'a> {
    doors: &'a Doors,
    queue: &'a str,
    place: Place,
}

impl Unsettled<'_> {
    /// They come in the order in which they were sent, without those that were dropped.
    fn settle_all(
        &self,
        mut wanted: Vec<Record>,
        mut receive: impl FnMut(u32) -> Result<Option<Vec<Locked>>, Failure>,
    ) -> Result<u64, Failure> {
        let Self { doors, queue, .. } = self;
        let mut deadline = Instant::now() + PATIENCE;
        while !wanted.is_empty() {
            let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
            let Some(messages) = receive(count)?.filter(|_| Instant::now() < deadline) else {
                return Ok(wanted.len() as u64);
            };
            for message in &messages {
                let found = as_settled(self.place, &record(queue, message)?);
                let same = |it: &Record| as_settled(self.place, it).is_copy_of(&found);
                let Some(index) = wanted.iter().position(same) else {
                    doors.over_amqp(message.abandon(Changes::default()))?;
                    return Err(Failure::Refused {
                        message: format!(
                            "another client sends to {queue}: stop it until the import has succeeded"
                        ),
                        code: None,
                    });
                };
                let wanted = wanted.remove(index);
                doors.over_amqp(settle(self.place, message, &wanted))?;
                deadline = Instant::now() + PATIENCE;
            }
        }
        Ok(0)
    }
}

async fn settle(place: Place, message: &Locked, wanted: &Record) -> Result<(), kew_client::Error> {
    let text = |name| wanted.text_property(name).unwrap_or_default();
    match place {
        Place::FailedTransfer | Place::DeadLetter => {
            let (reason, description) = (text(DEAD_LETTER_REASON), text(DEAD_LETTER_DESCRIPTION));
            message
                .dead_letter(reason, description, Changes::default())
                .await
        }
        Place::Deferred => message.defer(Changes::default()).await,
        Place::Rest => Ok(()),
    }
}
