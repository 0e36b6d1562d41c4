//! Commands on bus queues and what comes of them; that a replay and a snapshot give the same state,
//! and that no message is ever in two places or in none.

mod cold;
mod damaged;
mod effects;
mod flow;
mod forwarding;
mod lines;
mod messages;
mod operate;
mod orders;
mod overview;
mod queues;
mod quota;
mod random;
mod releases;
mod rules;
mod sizes;
mod topics;
mod transact;
mod turns;
mod walks;

use std::collections::BTreeSet;

use bytes::Bytes;

pub(crate) use self::lines::Lines;
use super::*;
use crate::command::Command;
use crate::describe::tests::Promise;
use crate::event::Event;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use crate::table::RunLength;
use crate::turn::Journal;
use crate::turn::missing::tests::{Cold, USUAL};
use crate::turn::{Tries, Turn};
use crate::vocabulary::{
    BodyLocation, BodyRead, EntityName, SequenceNumber, Service, Timestamp, Token,
};

#[derive(Default)]
struct Log {
    bodies: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
    damaged: BTreeSet<BodyLocation>,
    /// How many bodies there were before the batch of a tick: the others cannot be read in it.
    written: Option<usize>,
}

impl Log {
    /// What a batch would take, with a tag, a length and a checksum for each.
    fn size_bytes(&self) -> u64 {
        let bodies = self.bodies.iter().map(|body| body.len() + 10);
        let events = self.events.iter().map(|event| event.len() + 6);
        bodies.chain(events).sum::<usize>() as u64
    }
}

impl Journal for Log {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.bodies.push(body.to_vec());
        BodyLocation::new(
            self.bodies.len() as u64 - 1,
            0,
            u32::try_from(body.len()).unwrap(),
        )
    }

    fn record(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.events.push(bytes);
    }

    fn body(&mut self, body: BodyLocation) -> BodyRead {
        match self.damaged.contains(&body) {
            true => BodyRead::Damaged,
            false => BodyRead::Whole,
        }
    }

    fn bytes(&mut self, body: BodyLocation) -> Option<Bytes> {
        let written = self.written.unwrap_or(self.bodies.len());
        let bytes = self.bodies[..written].get(usize::try_from(body.record).ok()?)?;
        Some(Bytes::copy_from_slice(bytes))
    }
}

/// A partition with a log in memory, and a clock that the test sets.
struct Partition {
    state: State,
    now: Timestamp,
    log: Log,
    /// The same with nothing in memory, unless the test changes the state by itself.
    cold: Option<Cold>,
    /// How many copies a command makes at once.
    copies_at_once: u64,
}

fn entity(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

fn jobs() -> EntityName {
    entity("jobs")
}

fn dead() -> EntityName {
    entity("jobs/$deadletterqueue")
}

fn text(body: &str) -> BusMessage {
    BusMessage {
        body: Bytes::copy_from_slice(body.as_bytes()),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn of_session(body: &str, session: &str) -> BusMessage {
    BusMessage {
        session: Some(session.into()),
        ..text(body)
    }
}

impl Partition {
    fn new() -> Self {
        let mut partition = Self {
            state: State::new(),
            now: Timestamp::from_ms(1_000_000),
            log: Log::default(),
            cold: Some(Cold::new()),
            copies_at_once: u64::MAX,
        };
        let initialize = Command::Initialize {
            secret: [42; 16],
            run_length: RunLength::TINY,
        };
        partition.decide(initialize, USUAL).unwrap();
        partition
    }

    fn with(options: BusQueueOptions) -> Self {
        let mut partition = Self::new();
        partition.create(&jobs(), options).unwrap();
        partition
    }

    fn ask(&mut self, command: BusCommand) -> Result<BusOutcome, BusRefusal> {
        let command = Command::Bus(command);
        let promise = Promise::of(&command, &self.state, self.now);
        let (before, events_before) = (self.log.size_bytes(), self.log.events.len());
        let result = self.decide(command, USUAL);
        let written_bytes = self.log.size_bytes() - before;
        promise.check(
            &self.state,
            &self.log.events[events_before..],
            written_bytes,
        );
        match result {
            Ok(Outcome::Bus(outcome)) => Ok(outcome),
            Err(Refusal::Bus(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Decides a command, with nothing in memory too.
    fn decide(&mut self, command: Command, due_budget: u32) -> Result<Outcome, Refusal> {
        let before = self.log.events.len();
        let turn = Turn::new(&mut self.state, self.now, &mut self.log);
        let turn = turn.with_due_budget(due_budget).with_format(&Lines);
        let mut turn = turn.with_copies_at_once(self.copies_at_once);
        assert!(turn.prepare(&command, &mut Tries::default()).is_empty());
        let decision = turn.decide(command.clone());
        if let Some(cold) = &mut self.cold {
            let (events, state) = (&self.log.events[before..], &self.state);
            cold.copies_at_once = self.copies_at_once;
            cold.decide(self.now, command, due_budget, &decision, events, state);
        }
        decision.result
    }

    /// Changes the state without an event.
    fn change(&mut self, change: impl Fn(&mut State)) {
        change(&mut self.state);
        if let Some(cold) = &mut self.cold {
            cold.change(change);
        }
    }

    /// The state with nothing in memory has all of its records on pages next.
    fn leave_memory(&mut self) {
        if let Some(cold) = &mut self.cold {
            cold.leave_memory();
        }
    }

    fn create(
        &mut self,
        queue: &EntityName,
        options: BusQueueOptions,
    ) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::CreateQueue {
            queue: queue.clone(),
            options,
        })
    }

    fn send(&mut self, message: BusMessage) -> Result<Option<u64>, BusRefusal> {
        let outcome = self.ask(BusCommand::Send {
            queue: jobs(),
            messages: vec![message],
        })?;
        let BusOutcome::Sent(numbers) = outcome else {
            panic!("{outcome:?}")
        };
        Ok(numbers[0].map(SequenceNumber::as_u64))
    }

    fn receive_from(
        &mut self,
        queue: &EntityName,
        session: Option<Token>,
    ) -> Vec<DeliveredMessage> {
        let outcome = self.ask(BusCommand::Receive {
            queue: queue.clone(),
            count: 10,
            mode: ReceiveMode::PeekLock,
            session,
        });
        match outcome {
            Ok(BusOutcome::Received(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self) -> Vec<DeliveredMessage> {
        self.receive_from(&jobs(), None)
    }

    fn settle(&mut self, lock: Token, disposition: Disposition) -> Verdict {
        self.settle_in(&jobs(), lock, disposition)
    }

    fn settle_in(&mut self, queue: &EntityName, lock: Token, disposition: Disposition) -> Verdict {
        let outcome = self.ask(BusCommand::Settle {
            queue: queue.clone(),
            settlements: vec![(lock, disposition)],
        });
        match outcome {
            Ok(BusOutcome::Settled(verdicts)) => verdicts[0],
            other => panic!("{other:?}"),
        }
    }

    fn counts(&mut self) -> BusQueueCounts {
        match self.ask(BusCommand::ReadQueue { queue: jobs() }) {
            Ok(BusOutcome::Queue(view)) => view.counts,
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, choice: SessionChoice) -> Result<SessionLock, BusRefusal> {
        match self.ask(BusCommand::AcceptSession {
            queue: jobs(),
            session: choice,
        })? {
            BusOutcome::SessionAccepted(lock) => Ok(lock),
            other => panic!("{other:?}"),
        }
    }

    fn body(&self, message: &DeliveredMessage) -> &str {
        let bytes = &self.log.bodies[usize::try_from(message.body.record).unwrap()];
        std::str::from_utf8(bytes).unwrap()
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    fn tick(&mut self) {
        while self.tick_once(7) {}
    }

    /// Returns whether more is due.
    fn tick_once(&mut self, budget: u32) -> bool {
        let before = self.log.events.len();
        self.log.written = Some(self.log.bodies.len());
        let turn = Turn::new(&mut self.state, self.now, &mut self.log);
        let ticked = turn.with_format(&Lines).tick(budget);
        self.log.written = None;
        if let Some(cold) = &mut self.cold {
            let events = &self.log.events[before..];
            cold.tick(self.now, budget, &ticked, events, &self.state);
        }
        ticked.more_is_due
    }

    fn replayed(&self) -> State {
        let mut state = State::new();
        for event in &self.log.events {
            state.apply(Event::decode(event).unwrap());
        }
        state
    }

    fn restored(&self) -> State {
        let mut parts = Vec::new();
        self.state.snapshot(|part| parts.push(part.to_vec()));
        let mut state = State::new();
        for part in &parts {
            state.restore(part).unwrap();
        }
        state
    }
}

fn locks(messages: &[DeliveredMessage]) -> Vec<Token> {
    messages
        .iter()
        .map(|message| message.lock.unwrap())
        .collect()
}
