//! Clients of a partition, and their knowledge: the history that the checker judges.

use std::collections::VecDeque;

use bytes::Bytes;
use kew_broker::{AnswerBodies, Answered, Rejection, Reply};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, Timestamp, Token};
use kew_log::{Body, BodyError};

use super::bus::Known;
use crate::bus;
use crate::checker::{Checker, Operation, Seen, Violation};

/// The knowledge of all clients. A clone is their knowledge if the history ended here.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    checker: Checker,
    bus: bus::checker::Checker,
    bus_known: Known,
    in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    /// Ids and receipts that were learned, the latest last.
    held: Vec<(Token, Token)>,
    /// Messages whose bodies were reported as damaged.
    damaged: Vec<Token>,
    damage: Vec<(String, u64)>,
    unread: u64,
    busy: u64,
    stopped: u64,
    /// Every answer as text, if a test compares them.
    transcript: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
struct InFlight {
    ticket: u64,
    operation: Operation,
    is_answered: bool,
    /// Messages that the answer should have shown, but with damaged bodies.
    damaged: Vec<Token>,
}

/// The content of an answer, as a client reads it.
struct Read {
    outcome: Outcome,
    bodies: Vec<Bytes>,
    damaged: Vec<(Token, String, u64)>,
    has_failed: bool,
}

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            checker: Checker::new(),
            bus: bus::checker::Checker::default(),
            bus_known: Known::default(),
            in_flight: VecDeque::new(),
            next_ticket: 0,
            held: Vec::new(),
            damaged: Vec::new(),
            damage: Vec::new(),
            unread: 0,
            busy: 0,
            stopped: 0,
            transcript: None,
        }
    }

    /// Keeps every answer as text from now on.
    pub(super) fn write_transcript(&mut self) {
        self.transcript = Some(Vec::new());
    }

    /// Submits a command, and returns the ticket of its answer.
    pub(super) fn ask(&mut self, command: Command, now: Timestamp) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let operation = Operation {
            queue: 0,
            command,
            from: now,
            until: now,
            had_room: false,
            could_read_due: false,
            seen: Seen::Unknown,
        };
        self.in_flight.push_back(InFlight {
            ticket,
            operation,
            is_answered: false,
            damaged: Vec::new(),
        });
        ticket
    }

    /// Commands without an answer are decided at this time, if they were not decided before.
    pub(super) fn wait_until(&mut self, now: Timestamp) {
        for waiting in self.in_flight.iter_mut().filter(|one| !one.is_answered) {
            waiting.operation.until = now;
        }
    }

    /// Takes an answer, and checks the part of the history that is now settled.
    pub(super) fn answer(&mut self, ticket: u64, reply: Reply) -> Result<(), Violation> {
        let place = self.in_flight.iter_mut().find(|one| one.ticket == ticket);
        let Some(one) = place else {
            return Err(Violation {
                promise: "answers fit",
                seen: format!("operation {ticket} was answered twice"),
            });
        };
        one.is_answered = true;
        one.operation.seen = match reply {
            Ok(answered) => {
                let mut held = Vec::new();
                // A damaged message can still be deleted.
                learn(&mut held, &one.operation.command, &answered.outcome);
                let read = read(answered);
                for (message, file, offset) in read.damaged {
                    one.damaged.push(message);
                    self.damage.push((file, offset));
                }
                if read.has_failed {
                    self.unread += 1;
                    Seen::Unknown
                } else {
                    self.held.append(&mut held);
                    let command = &one.operation.command;
                    self.bus_known.learn(command, &read.outcome, &read.bodies);
                    Seen::Answered(Ok((read.outcome, read.bodies)))
                }
            }
            Err(rejection) => {
                self.busy += u64::from(matches!(rejection, Rejection::Busy | Rejection::Full));
                self.stopped += u64::from(rejection == Rejection::Stopped);
                Seen::Answered(Err(rejection))
            }
        };
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{ticket}: {:?}", one.operation.seen));
        }
        self.check(false)
    }

    /// The commands so far get no answers any more.
    pub(super) fn give_up(&mut self) -> Result<(), Violation> {
        self.check(true)
    }

    /// The id and receipt learned last.
    pub(super) fn last_held(&self) -> Option<(Token, Token)> {
        self.held.last().copied()
    }

    /// The same, for a step that deletes it.
    pub(super) fn take_held(&mut self) -> Option<(Token, Token)> {
        self.held.pop()
    }

    /// Their knowledge of bus queues.
    pub(super) fn bus_known(&mut self) -> &mut Known {
        &mut self.bus_known
    }

    /// The same as [`check_drained`](Self::check_drained), for the bus queue.
    pub(super) fn check_bus_drained(&self) -> Result<(), Violation> {
        self.bus.check_drained()
    }

    /// How much was asked for.
    pub(super) fn asked(&self) -> u64 {
        self.next_ticket
    }

    /// How many answers were lost because the disk could not be read.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// How many commands got the answer "busy".
    pub(super) fn busy(&self) -> u64 {
        self.busy
    }

    /// How many commands got the answer "stopped".
    pub(super) fn stopped(&self) -> u64 {
        self.stopped
    }

    /// From now on the message that was sent or received last may be missing.
    pub(super) fn excuse_last(&mut self) {
        if let Some((message, _)) = self.held.pop() {
            self.checker.excuse(0, message);
        }
    }

    /// File and offset of each damaged body that was reported.
    pub(super) fn damage(&self) -> &[(String, u64)] {
        &self.damage
    }

    pub(super) fn transcript(&self) -> &[String] {
        self.transcript.as_deref().unwrap_or_default()
    }

    /// After everything was received and deleted, every acknowledged message must have been shown.
    pub(super) fn check_drained(&self, now: Timestamp) -> Result<(), Violation> {
        self.checker.check_drained(now)
    }

    fn check(&mut self, all: bool) -> Result<(), Violation> {
        while let Some(one) = self.in_flight.pop_front() {
            if !all && !one.is_answered {
                self.in_flight.push_front(one);
                break;
            }
            self.check_one(one)?;
        }
        Ok(())
    }

    /// A damaged message cannot be shown, and the client got an error. The checker still checks all
    /// others.
    fn check_one(&mut self, one: InFlight) -> Result<(), Violation> {
        let InFlight {
            mut operation,
            damaged,
            ..
        } = one;
        for message in damaged {
            self.checker.excuse(operation.queue, message);
            self.damaged.push(message);
        }
        if let Command::Storage(StorageCommand::Delete { message, .. }) = &operation.command
            && self.damaged.contains(message)
        {
            operation.seen = Seen::Unknown;
        }
        if matches!(operation.command, Command::Bus(_)) {
            return self.bus.check(&operation);
        }
        self.checker.check(&operation)
    }
}

fn learn(held: &mut Vec<(Token, Token)>, command: &Command, outcome: &Outcome) {
    match (command, outcome) {
        (_, Outcome::Storage(StorageOutcome::Sent(sent))) => {
            held.push((sent.message, sent.receipt))
        }
        (_, Outcome::Storage(StorageOutcome::Received(messages))) => {
            held.extend(messages.iter().map(|m| (m.message, m.receipt)));
        }
        (
            Command::Storage(StorageCommand::Update { message, .. }),
            Outcome::Storage(StorageOutcome::Updated { receipt, .. }),
        ) => {
            held.push((*message, *receipt));
        }
        _ => {}
    }
}

/// Reads the bodies of an answer, and removes the messages with damaged bodies.
fn read(answered: Answered) -> Read {
    let mut read = Read {
        outcome: answered.outcome,
        bodies: Vec::new(),
        damaged: Vec::new(),
        has_failed: false,
    };
    // Each by itself: if a read of several fails, they are read again one by one, and nobody notices.
    let results: Vec<_> = match answered.bodies {
        AnswerBodies::Read(bodies) => bodies.into_iter().map(Ok).collect(),
        AnswerBodies::Stored(bodies) => bodies.iter().map(Body::read).collect(),
    };
    let mut results = results.into_iter();
    let mut keep = |token: Token| match results.next() {
        Some(Ok(body)) => {
            read.bodies.push(body);
            true
        }
        Some(Err(BodyError::Damaged { file, offset })) => {
            read.damaged.push((token, file, offset));
            false
        }
        Some(Err(BodyError::Io(_) | BodyError::Gone(_))) => {
            read.has_failed = true;
            false
        }
        None => true,
    };
    match &mut read.outcome {
        Outcome::Storage(StorageOutcome::Received(messages)) => {
            messages.retain(|message| keep(message.message))
        }
        Outcome::Storage(StorageOutcome::Peeked(messages)) => {
            messages.retain(|message| keep(message.message))
        }
        Outcome::Bus(_) => {
            for result in results {
                match result {
                    Ok(body) => read.bodies.push(body),
                    Err(_) => read.has_failed = true,
                }
            }
        }
        _ => {}
    }
    read
}
