//! The liveness phase of bus queues: no message is locked or scheduled any more, and every message
//! is received.

use kew_engine::bus::{
    BusCommand, BusMessageState, BusOutcome, BusQueueCounts, DeferredRead, DeliveredMessage,
    Disposition, ReceiveMode, SessionChoice, Verdict,
};
use kew_engine::{Command, EntityName, Outcome, SequenceNumber, Token};

use super::checker::life::Part;
use super::workload::plain_options;
use super::{BusSwarm, named, queue_name};
use crate::checker::{Violation, promise, violated};
use crate::world::World;

/// Longer than any lock, schedule or life of a message.
const REST_MS: u64 = 61_000;
/// So many rests that each ends between the ends of some locks, schedules and lives.
const SHORT_RESTS: u64 = 20;
const SHORT_REST_MS: u64 = 3_000;
/// More requests than any queue needs until it is empty.
const REQUESTS_MAX: u32 = 2_000;

impl World {
    pub(crate) fn drain_bus(&mut self, swarm: &BusSwarm) -> Result<(), Violation> {
        let topics = swarm.topics.as_ref();
        let subscriptions = topics.map_or(&[][..], |topics| &topics.subscriptions[..]);
        let queues: Vec<_> = (0..swarm.queues).collect();
        // Nothing stays due beside what is still locked or scheduled.
        for _ in 0..SHORT_RESTS {
            self.rest(SHORT_REST_MS)?;
        }
        // Twice: messages that are dead-lettered or activated in one rest may be forwarded after
        // it.
        for _ in 0..3 {
            self.rest(REST_MS)?;
        }
        for queue in queues.iter().chain(subscriptions) {
            self.open_up(*queue)?;
        }
        if !subscriptions.is_empty() {
            // They forward their dead letters still, and a deferred message may become one now.
            self.drain_entities(subscriptions)?;
            self.rest(REST_MS)?;
        }
        if swarm.gather_per_mille() > 0 {
            // They may have forwarded them to a topic.
            self.drain_entities(subscriptions)?;
            self.rest(REST_MS)?;
        }
        self.drain_entities(&queues)?;
        for topic in topics.into_iter().flat_map(|topics| &topics.topics) {
            self.drain_entity(*topic, Part::FailedTransfers)?;
            self.check_empty_topic(*topic)?;
        }
        self.check_bus_drained()
    }

    /// After a rest no message waits to be forwarded. Then the queue delivers its messages.
    fn open_up(&mut self, queue: usize) -> Result<(), Violation> {
        let name = named(queue, Part::Queue);
        let read = BusCommand::ReadQueue {
            queue: name.clone(),
        };
        let Some(BusOutcome::Queue(view)) = self.of_bus(read)? else {
            return Ok(());
        };
        let destinations = [
            (view.options.forward_to, Part::Queue),
            (view.options.forward_dead_letters_to, Part::DeadLetters),
        ];
        for (destination, part) in destinations {
            let peeked = self.peek(&named(queue, part), None)?;
            let waits =
                |message: &&(SequenceNumber, BusMessageState)| message.1 == BusMessageState::Ready;
            if let (Some(destination), Some(message)) = (destination, peeked.iter().find(waits)) {
                return violated!(
                    promise::LIVENESS,
                    "{message:?} of {} waits to go on to {destination}",
                    queue_name(queue)
                );
            }
        }
        let options = plain_options(queue);
        let update = BusCommand::UpdateQueue {
            queue: name.clone(),
            options,
        };
        if self.of_bus(update)?.is_none() && !view.options.status.allows_receive() {
            // A subscription that was created disabled stays so: what it has is shown, and then goes with it.
            for part in [Part::Queue, Part::DeadLetters, Part::FailedTransfers] {
                self.peek(&named(queue, part), None)?;
            }
            self.of_bus(BusCommand::DeleteQueue { queue: name })?;
        }
        Ok(())
    }

    /// A topic counts what its subscriptions have.
    fn check_empty_topic(&mut self, topic: usize) -> Result<(), Violation> {
        let queue = named(topic, Part::Queue);
        let Some(BusOutcome::Queue(view)) = self.of_bus(BusCommand::ReadQueue { queue })? else {
            return Ok(());
        };
        let empty = BusQueueCounts {
            subscriptions: view.counts.subscriptions,
            ..BusQueueCounts::default()
        };
        if view.counts != empty {
            return violated!(
                promise::COUNTS_CONSERVED,
                "{} is empty and counts {:?}",
                queue_name(topic),
                view.counts
            );
        }
        Ok(())
    }

    fn drain_entities(&mut self, entities: &[usize]) -> Result<(), Violation> {
        for entity in entities {
            for part in [Part::Queue, Part::DeadLetters, Part::FailedTransfers] {
                self.drain_entity(*entity, part)?;
            }
            self.check_empty_bus(*entity)?;
        }
        Ok(())
    }

    fn drain_entity(&mut self, queue: usize, part: Part) -> Result<(), Violation> {
        let name = named(queue, part);
        if plain_options(queue).requires_session && part == Part::Queue {
            return self.drain_sessions(&name);
        }
        self.take_all(&name, None)?;
        self.take_deferred(&name, None, None)
    }

    /// Receives and completes ready messages, until there are none.
    fn take_all(&mut self, queue: &EntityName, session: Option<Token>) -> Result<(), Violation> {
        for _ in 0..REQUESTS_MAX {
            let receive = BusCommand::Receive {
                queue: queue.clone(),
                count: 50,
                mode: ReceiveMode::PeekLock,
                session,
            };
            let Some(BusOutcome::Received(messages)) = self.of_bus(receive)? else {
                return Ok(());
            };
            if messages.is_empty() {
                return Ok(());
            }
            self.complete(queue, &messages)?;
        }
        violated!(promise::LIVENESS, "{} is never empty", queue.name)
    }

    fn complete(
        &mut self,
        queue: &EntityName,
        messages: &[DeliveredMessage],
    ) -> Result<(), Violation> {
        let locks = messages.iter().filter_map(|message| message.lock);
        let settlements: Vec<_> = locks.map(|lock| (lock, Disposition::Complete)).collect();
        if settlements.is_empty() {
            return Ok(());
        }
        let settle = BusCommand::Settle {
            queue: queue.clone(),
            settlements,
        };
        match self.of_bus(settle)? {
            Some(BusOutcome::Settled(verdicts))
                if verdicts.iter().all(|verdict| *verdict == Verdict::Settled) =>
            {
                Ok(())
            }
            other => violated!(promise::LIVENESS, "a lock of just now: {other:?}"),
        }
    }

    fn peek(
        &mut self,
        queue: &EntityName,
        session: Option<&str>,
    ) -> Result<Vec<(SequenceNumber, BusMessageState)>, Violation> {
        let peek = BusCommand::Peek {
            queue: queue.clone(),
            from: SequenceNumber::default(),
            count: 5000,
            session: session.map(Into::into),
        };
        let Some(BusOutcome::Peeked(messages)) = self.of_bus(peek)? else {
            return Ok(Vec::new());
        };
        let all = messages.iter();
        Ok(all.map(|it| (it.sequence_number, it.state)).collect())
    }

    /// Takes messages that only their number returns.
    fn take_deferred(
        &mut self,
        queue: &EntityName,
        id: Option<&str>,
        session: Option<Token>,
    ) -> Result<(), Violation> {
        for (number, state) in self.peek(queue, id)? {
            if state != BusMessageState::Deferred {
                continue;
            }
            let receive = BusCommand::ReceiveDeferred {
                read: DeferredRead {
                    queue: queue.clone(),
                    numbers: vec![number],
                    mode: ReceiveMode::PeekLock,
                    session,
                },
            };
            // It may have expired, which only receiving it shows.
            if let Some(BusOutcome::Received(messages)) = self.of_bus(receive)? {
                self.complete(queue, &messages)?;
            }
        }
        Ok(())
    }

    fn drain_sessions(&mut self, queue: &EntityName) -> Result<(), Violation> {
        let list = BusCommand::ListSessions {
            queue: queue.clone(),
            from: "".into(),
            state_set_after: None,
            skip: 0,
            limit: 1000,
        };
        let Some(BusOutcome::Sessions(sessions)) = self.of_bus(list)? else {
            return Ok(());
        };
        for id in sessions.ids {
            let accept = BusCommand::AcceptSession {
                queue: queue.clone(),
                session: SessionChoice::Named(id.clone()),
            };
            let Some(BusOutcome::SessionAccepted(accepted)) = self.of_bus(accept)? else {
                return violated!(promise::LIVENESS, "session {id} cannot be had");
            };
            let session = accepted.lock;
            self.take_all(queue, Some(session))?;
            self.take_deferred(queue, Some(&id), Some(session))?;
            let queue = queue.clone();
            let read = BusCommand::ReadSessionState {
                queue: queue.clone(),
                session,
            };
            let clear = BusCommand::SetSessionState {
                queue: queue.clone(),
                session,
                state: None,
            };
            let leave = BusCommand::ReleaseSession { queue, session };
            for command in [read, clear, leave] {
                self.of_bus(command)?;
            }
        }
        Ok(())
    }

    /// After everything was taken, nothing is shown or counted.
    fn check_empty_bus(&mut self, queue: usize) -> Result<(), Violation> {
        for part in [Part::Queue, Part::DeadLetters, Part::FailedTransfers] {
            let left = self.peek(&named(queue, part), None)?;
            if !left.is_empty() {
                return violated!(promise::LIVENESS, "{left:?} stays in {queue}, {part:?}");
            }
        }
        let read = BusCommand::ReadQueue {
            queue: named(queue, Part::Queue),
        };
        match self.of_bus(read)? {
            Some(BusOutcome::Queue(view)) if view.counts != BusQueueCounts::default() => {
                violated!(
                    promise::COUNTS_CONSERVED,
                    "an empty queue counts {:?}",
                    view.counts
                )
            }
            _ => Ok(()),
        }
    }

    /// The answer of a bus queue, unless it refuses.
    fn of_bus(&mut self, command: BusCommand) -> Result<Option<BusOutcome>, Violation> {
        match self.ask_until_answered(0, Command::Bus(command))? {
            Some(Outcome::Bus(outcome)) => Ok(Some(outcome)),
            _ => Ok(None),
        }
    }
}
