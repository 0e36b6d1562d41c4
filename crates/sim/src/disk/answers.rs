//! The content of answers, as clients read it.
//!
//! Bytes that are damaged cannot be read. The clients of a damaged disk know what its files held before, so the checker
//! sees a damaged message of a bus entity with the body that it should have: it must be where it was, with all that
//! belongs to it. A damaged message of a storage queue is left out, and excused.

use std::collections::BTreeMap;

use bytes::Bytes;
use kew_broker::{AnswerBodies, Answered};
use kew_engine::bus::{BusCommand, BusOutcome, DeadLetterCause};
use kew_engine::storage::StorageOutcome;
use kew_engine::{BodyLocation, Command, EntityName, Outcome, SequenceNumber, Token};
use kew_log::{Body, BodyError};

/// Files by their names.
pub(super) type Contents = BTreeMap<String, Vec<u8>>;

/// Bytes that an answer should have shown, and that were reported as damaged.
#[derive(Clone, Debug)]
pub(super) struct Damaged {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) of: Owner,
}

/// Whose bytes they are.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// A message of a storage queue.
    Message(Token),
    /// A message of a bus entity: its body, or a change to its properties.
    BusMessage {
        entity: EntityName,
        number: SequenceNumber,
        is_change: bool,
        is_dead: bool,
    },
    /// The state of a session.
    Session,
}

/// A message that a rule could not look at.
#[derive(Clone, Debug)]
pub(super) struct Buried {
    pub(super) body: Bytes,
    pub(super) is_damaged: bool,
}

/// The content of an answer.
pub(super) struct Read {
    pub(super) outcome: Outcome,
    pub(super) bodies: Vec<Bytes>,
    pub(super) damaged: Vec<Damaged>,
    pub(super) buried: Vec<Buried>,
    pub(super) has_failed: bool,
}

/// The result of reading one body, and its length.
type BodyResult = (u64, Result<Bytes, BodyError>);

/// Reads the bodies of an answer.
pub(super) fn read(command: &Command, answered: Answered, once: &Contents) -> Read {
    // Each by itself: if a read of several fails, they are read again one by one, and nobody notices.
    let results: Vec<BodyResult> = match answered.bodies {
        AnswerBodies::Read(bodies) => {
            let whole = |body: Bytes| (body.len() as u64, Ok(body));
            bodies.into_iter().map(whole).collect()
        }
        AnswerBodies::Stored(bodies) => {
            let read = |body: &Body| (body.len_bytes(), body.read());
            bodies.iter().map(read).collect()
        }
    };
    let mut read = Read {
        outcome: answered.outcome,
        bodies: Vec::new(),
        damaged: Vec::new(),
        buried: Vec::new(),
        has_failed: false,
    };
    match command {
        Command::Bus(command) => read.take_bus(command, results, once),
        _ => read.take_storage(results),
    }
    read
}

impl Read {
    /// Removes the messages with damaged bodies.
    fn take_storage(&mut self, results: Vec<BodyResult>) {
        let Self {
            bodies,
            damaged,
            has_failed,
            ..
        } = self;
        let mut results = results.into_iter();
        let mut keep = |token: Token| match results.next() {
            Some((_, Ok(body))) => {
                bodies.push(body);
                true
            }
            Some((length, Err(BodyError::Damaged { file, offset }))) => {
                damaged.push(Damaged {
                    file,
                    offset,
                    length,
                    of: Owner::Message(token),
                });
                false
            }
            Some((_, Err(BodyError::Io(_) | BodyError::Gone(_)))) => {
                *has_failed = true;
                false
            }
            None => true,
        };
        match &mut self.outcome {
            Outcome::Storage(StorageOutcome::Received(messages)) => {
                messages.retain(|message| keep(message.message));
            }
            Outcome::Storage(StorageOutcome::Peeked(messages)) => {
                messages.retain(|message| keep(message.message));
            }
            _ => {}
        }
    }

    /// Puts what the files held before in the place of damaged bytes.
    fn take_bus(&mut self, command: &BusCommand, results: Vec<BodyResult>, once: &Contents) {
        let mut owners = owners(command, &self.outcome).into_iter();
        for (length, result) in results {
            let of = owners.next().unwrap_or(Owner::Session);
            match result {
                Ok(body) => self.bodies.push(body),
                Err(BodyError::Damaged { file, offset }) => {
                    match part(once, &file, offset, length) {
                        Some(body) => self.bodies.push(Bytes::copy_from_slice(body)),
                        None => self.has_failed = true,
                    }
                    self.damaged.push(Damaged {
                        file,
                        offset,
                        length,
                        of,
                    });
                }
                Err(BodyError::Io(_) | BodyError::Gone(_)) => self.has_failed = true,
            }
        }
        if !self.has_failed {
            self.take_buried();
        }
    }

    /// Takes out the messages that no rule can look at: none of their copies is made.
    fn take_buried(&mut self) {
        let Outcome::Bus(BusOutcome::Peeked(messages)) = &mut self.outcome else {
            return;
        };
        let is_buried =
            |cause: Option<DeadLetterCause>| cause == Some(DeadLetterCause::BodyDamaged);
        if !messages.iter().any(|message| is_buried(message.cause)) {
            return;
        }
        let mut bodies = std::mem::take(&mut self.bodies).into_iter();
        messages.retain(|message| {
            let own: Vec<Bytes> = bodies.by_ref().take(1 + message.overlays.len()).collect();
            if !is_buried(message.cause) {
                self.bodies.extend(own);
                return true;
            }
            let is_own = |damaged: &Damaged| match &damaged.of {
                Owner::BusMessage { number, .. } => *number == message.sequence_number,
                Owner::Message(_) | Owner::Session => false,
            };
            self.buried.push(Buried {
                body: own.into_iter().next().unwrap_or_default(),
                is_damaged: self.damaged.iter().any(is_own),
            });
            false
        });
    }
}

/// Whose bytes an answer has, in its order.
fn owners(command: &BusCommand, outcome: &Outcome) -> Vec<Owner> {
    let of =
        |entity: &EntityName, number: SequenceNumber, is_dead: bool, changes: &[BodyLocation]| {
            let owner = |is_change: bool| Owner::BusMessage {
                entity: entity.clone(),
                number,
                is_change,
                is_dead,
            };
            let mut all = vec![owner(false)];
            all.resize(1 + changes.len(), owner(true));
            all
        };
    match (command, outcome) {
        (BusCommand::Peek { queue, .. }, Outcome::Bus(BusOutcome::Peeked(messages))) => messages
            .iter()
            .flat_map(|it| of(queue, it.sequence_number, it.cause.is_some(), &it.overlays))
            .collect(),
        (BusCommand::Receive { queue, .. }, Outcome::Bus(BusOutcome::Received(messages))) => {
            messages
                .iter()
                .flat_map(|it| of(queue, it.sequence_number, it.cause.is_some(), &it.overlays))
                .collect()
        }
        (BusCommand::ReceiveDeferred { read }, Outcome::Bus(BusOutcome::Received(messages))) => {
            messages
                .iter()
                .flat_map(|it| {
                    of(
                        &read.queue,
                        it.sequence_number,
                        it.cause.is_some(),
                        &it.overlays,
                    )
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Some bytes of a file.
fn part<'a>(contents: &'a Contents, file: &str, offset: u64, length: u64) -> Option<&'a [u8]> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(usize::try_from(length).ok()?)?;
    contents.get(file)?.get(begin..end)
}
