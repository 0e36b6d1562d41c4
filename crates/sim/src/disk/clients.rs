//! Clients of a partition, and their knowledge: the history that the checker judges.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use kew_broker::{Rejection, Reply};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, Timestamp, Token};

use super::answers::{Buried, Contents, Damaged, Owner, read};
use super::bus::Known;
use crate::bus;
use crate::bus::checker::life::Entity;
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
    /// Messages whose bodies were reported as damaged, and those that were set aside.
    damaged: Vec<Token>,
    /// Messages that were set aside.
    aside: HashSet<Token>,
    /// Where the messages of bus entities were before pages were damaged.
    stored: Arc<HashMap<Token, StoredMessage>>,
    damage: Vec<Damaged>,
    buried: u64,
    /// What the files held before they were damaged.
    once: Arc<Contents>,
    unread: u64,
    busy: u64,
    stopped: u64,
    /// Every answer as text, if a test compares them.
    transcript: Option<Vec<String>>,
}

/// A message of a bus entity: its place there, and the number by which the checker knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredMessage {
    pub(super) at: (Entity, u64),
    pub(super) message: u64,
}

#[derive(Clone, Debug)]
struct InFlight {
    ticket: u64,
    operation: Operation,
    is_answered: bool,
    /// Messages that the answer should have shown, but with damaged bodies.
    damaged: Vec<Token>,
    /// Messages that it has shown, and that no rule can look at.
    buried: Vec<Buried>,
}

impl Clients {
    /// Clients of a partition in which a command makes so many copies of messages at once.
    pub(super) fn new(copies_at_once: Option<u64>) -> Self {
        Self {
            checker: Checker::new(),
            bus: bus::checker::Checker::new(copies_at_once),
            bus_known: Known::default(),
            in_flight: VecDeque::new(),
            next_ticket: 0,
            held: Vec::new(),
            damaged: Vec::new(),
            aside: HashSet::new(),
            stored: Arc::default(),
            damage: Vec::new(),
            buried: 0,
            once: Arc::default(),
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
            buried: Vec::new(),
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
                let read = read(&one.operation.command, answered, &self.once);
                for damaged in read.damaged {
                    if let Owner::Message(message) = damaged.of {
                        one.damaged.push(message);
                    }
                    self.damage.push(damaged);
                }
                one.buried = read.buried;
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

    /// Where messages of bus entities are. Pages are damaged after this.
    pub(super) fn know_stored(&mut self, stored: Arc<HashMap<Token, StoredMessage>>) {
        self.stored = stored;
    }

    /// These messages are set aside: nobody sees them from now on. Those of a run, which has so many numbers, end
    /// together.
    pub(super) fn are_set_aside(
        &mut self,
        messages: &[Token],
        run_length: u64,
        now: Timestamp,
    ) -> Result<(), Violation> {
        for message in messages {
            if !self.aside.insert(*message) {
                continue;
            }
            match self.stored.get(message) {
                Some(stored) => self.bus.set_aside(stored.at, stored.message)?,
                None => {
                    self.checker.excuse(0, *message);
                    self.damaged.push(*message);
                }
            }
        }
        let listed = self.places_of(messages);
        self.bus.lost_may_expire(&listed, run_length, now);
        Ok(())
    }

    /// Whether these are all messages of bus entities that are to be set aside.
    pub(super) fn are_all_lost(&self, messages: &[Token]) -> bool {
        self.places_of(messages).iter().eq(self.bus.lost())
    }

    fn places_of(&self, messages: &[Token]) -> BTreeSet<(Entity, u64)> {
        let stored = messages.iter().filter_map(|it| self.stored.get(it));
        stored.map(|it| it.at).collect()
    }

    /// How often something rare happened to messages of bus entities.
    pub(super) fn occurred(&self, what: &str) -> u64 {
        self.bus.occurred.get(what).copied().unwrap_or(0)
    }

    /// Whether a message may be there, or was there when it expired.
    pub(super) fn may_exist(&self, message: Token) -> bool {
        self.checker.may_exist(0, message)
    }

    /// Each damaged body that was reported, as often as it was.
    pub(super) fn damage(&self) -> &[Damaged] {
        &self.damage
    }

    /// How many messages were shown that no rule can look at.
    pub(super) fn buried(&self) -> u64 {
        self.buried
    }

    /// What the files hold. They are damaged after this.
    pub(super) fn know_contents(&mut self, contents: Arc<Contents>) {
        self.once = contents;
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

    /// A damaged message of a storage queue cannot be shown, and the client got an error. The checker still checks all
    /// others.
    fn check_one(&mut self, one: InFlight) -> Result<(), Violation> {
        let InFlight {
            mut operation,
            damaged,
            buried,
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
        for message in buried {
            self.check_buried(&message, operation.until)?;
        }
        if matches!(operation.command, Command::Bus(_)) {
            return self.bus.check(&operation);
        }
        self.checker.check(&operation)
    }

    fn check_buried(&mut self, message: &Buried, now: Timestamp) -> Result<(), Violation> {
        if !message.is_damaged {
            return Err(Violation {
                promise: "only a damaged body keeps a message from its subscriptions",
                seen: format!("{:?} can be read", message.body.first_chunk::<8>()),
            });
        }
        let is_new = self.bus.bury(bus::topics::GATHERING, &message.body, now)?;
        self.buried += u64::from(is_new);
        Ok(())
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
