//! Clients' commands for bus queues.

mod known;
mod settings;
mod topics;
mod transact;

use std::collections::VecDeque;

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, DeferredRead, Disposition, ReceiveMode, SessionChoice,
};
use kew_engine::{EntityName, SequenceNumber, Timestamp};

use super::checker::life::Part;
use super::operator::Operator;
use super::{BusSwarm, NAMESPACE, entity, named};
use crate::random::Stream;
use known::{Held, Known};
use settings::{WITH_DUPLICATES, options};

pub(super) use known::remember;
pub(crate) use settings::plain_options;
pub(super) use settings::{CHAIN_QUEUES, WITH_SESSIONS};

/// How many queues there are at most.
pub(crate) const QUEUES: usize = 7;
/// The longest schedule.
const SCHEDULE_MS_MAX: u64 = 40_000;

/// Kinds of requests, each with a weight.
pub(crate) const KINDS: usize = 17;

pub(crate) fn weights(r: &mut Stream) -> [u64; KINDS] {
    let mut maybe = |max: u64| {
        if r.happens(200) { 0 } else { 1 + r.below(max) }
    };
    let mut weights = [
        0,
        0,
        0,
        maybe(4),
        maybe(3),
        maybe(4),
        maybe(2),
        maybe(4),
        maybe(4),
        maybe(3),
        maybe(2),
        maybe(2),
        maybe(2),
        maybe(1),
        maybe(1),
        maybe(2),
        maybe(1),
    ];
    weights[0] = 4 + r.below(8);
    weights[1] = 4 + r.below(8);
    weights[2] = 4 + r.below(12);
    weights
}

/// Chooses what clients do.
#[derive(Debug)]
pub(crate) struct Workload {
    random: Stream,
    operator: Operator,
    bodies: u64,
    overlays: u64,
    known: Known,
    /// Chooses the parts of transactions.
    transact: Stream,
    /// Topics and subscriptions that are made again.
    again: VecDeque<BusCommand>,
}

impl Workload {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Stream::new(seed, "bus workload"),
            operator: Operator::new(seed),
            bodies: 0,
            overlays: 0,
            known: Known::default(),
            transact: Stream::new(seed, "bus transactions"),
            again: VecDeque::new(),
        }
    }

    /// Commands that create the queues.
    pub(crate) fn create_all(&mut self, swarm: &BusSwarm) -> Vec<BusCommand> {
        // A destination must exist before its source.
        let create = |queue| BusCommand::CreateQueue {
            queue: named(queue, Part::Queue),
            options: plain_options(queue),
        };
        let queues = (0..swarm.queues).map(create);
        let topics = swarm.topics.iter().flat_map(topics::create_all);
        queues.chain(topics).chain(settings::chain(swarm)).collect()
    }

    pub(crate) fn next(&mut self, swarm: &BusSwarm, now: Timestamp) -> BusCommand {
        if let Some(act) = self.operator.next(swarm, now) {
            return act;
        }
        if let Some(transaction) = self.transact(swarm, now) {
            return transaction;
        }
        let queue = swarm.pick(&mut self.random);
        if let Some(topics) = &swarm.topics
            && let Some(command) = self.next_of_topics(queue, topics, swarm)
        {
            return command;
        }
        let name = named(queue, Part::Queue);
        let chosen = self.choose(&swarm.weights);
        if let Some(command) = self.of_subscription(queue, chosen, swarm, now) {
            return command;
        }
        match chosen {
            0 => self.send(queue, swarm, now),
            1 => self.receive(queue),
            2 => self.settle(swarm).unwrap_or_else(|| self.receive(queue)),
            3 => self.renew(swarm),
            4 => BusCommand::Peek {
                from: SequenceNumber::named([0, 0, self.random.below(40)][self.random.index(3)]),
                count: 1 + self.random.below_u32(40),
                session: self.random.happens(200).then(|| self.session_id()),
                queue: self.part(queue),
            },
            5 => self.receive_deferred(queue, swarm),
            6 => self.cancel(queue),
            7 => self.accept(swarm),
            8 => self.receive_of_session(swarm),
            9 => self.use_session(swarm),
            10 => BusCommand::ListSessions {
                queue: named(swarm.pick_with_sessions(&mut self.random), Part::Queue),
                from: "".into(),
                state_set_after: None,
                skip: 0,
                limit: 100,
            },
            11 => BusCommand::ReadQueue {
                queue: self.part(queue),
            },
            12 => BusCommand::UpdateQueue {
                options: options(&mut self.random, queue, swarm),
                queue: name,
            },
            13 if self.random.happens(400) && queue >= swarm.queues_lasting => {
                BusCommand::DeleteQueue { queue: name }
            }
            13 | 14 => BusCommand::CreateQueue {
                options: options(&mut self.random, queue, swarm),
                queue: name,
            },
            15 => BusCommand::DeleteBatch {
                queue: self.part(queue),
                from: SequenceNumber::default(),
                before: now.plus_ms(1),
                count: 1 + self.random.below_u32(6),
                session: self.random.happens(200).then(|| self.session_id()),
            },
            _ => BusCommand::ListQueues {
                namespace: NAMESPACE.into(),
                from: "".into(),
                skip: 0,
                limit: 100,
            },
        }
    }

    fn choose(&mut self, weights: &[u64]) -> usize {
        let mut left = self.random.below(weights.iter().sum::<u64>().max(1));
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }

    fn part(&mut self, queue: usize) -> EntityName {
        named(
            queue,
            match self.random.below(10) {
                0 | 1 => Part::DeadLetters,
                2 => Part::FailedTransfers,
                _ => Part::Queue,
            },
        )
    }

    fn session_id(&mut self) -> Box<str> {
        session_name(&mut self.random)
    }

    fn send(&mut self, queue: usize, swarm: &BusSwarm, now: Timestamp) -> BusCommand {
        let count = if self.random.happens(250) {
            2 + self.random.below(4)
        } else {
            1
        };
        let scheduled = self.random.happens(swarm.schedule_per_mille);
        let due = now.plus_ms(self.random.below(SCHEDULE_MS_MAX));
        // A message to another queue may have a session id as well: it keeps it when it is
        // forwarded.
        let in_session = queue == WITH_SESSIONS || self.random.happens(300);
        let in_session = in_session && !(queue == WITH_SESSIONS && self.random.happens(20));
        let messages = (0..count).map(|_| BusMessage {
            body: {
                let size = self.random.below(swarm.body_size_max);
                self.body(size)
            },
            message_id: (queue == WITH_DUPLICATES || self.random.happens(100))
                .then(|| self.random.below(12).to_string().into()),
            session: in_session.then(|| self.session_id()),
            time_to_live_ms: self
                .random
                .happens(swarm.time_to_live_per_mille)
                .then(|| 1 + self.random.below(60_000)),
            scheduled_at: scheduled.then_some(due),
        });
        BusCommand::Send {
            messages: messages.collect(),
            queue: named(
                queue,
                if self.random_is_odd() {
                    Part::DeadLetters
                } else {
                    Part::Queue
                },
            ),
        }
    }

    /// Hardly ever.
    fn random_is_odd(&mut self) -> bool {
        self.random.happens(5)
    }

    /// A body like no other: a number, then filling.
    fn body(&mut self, filling_size: u64) -> Bytes {
        self.bodies += 1;
        let mut body = self.bodies.to_be_bytes().to_vec();
        let mut filling = Stream::new(self.bodies, "bus body");
        for _ in 0..filling_size.div_ceil(8) {
            body.extend(filling.next().to_be_bytes());
        }
        body.into()
    }

    fn receive(&mut self, queue: usize) -> BusCommand {
        BusCommand::Receive {
            queue: self.part(queue),
            count: 1 + self.random.below_u32(8),
            mode: self.mode(),
            session: None,
        }
    }

    fn mode(&mut self) -> ReceiveMode {
        if self.random.happens(120) {
            ReceiveMode::ReceiveAndDelete
        } else {
            ReceiveMode::PeekLock
        }
    }

    fn settle(&mut self, swarm: &BusSwarm) -> Option<BusCommand> {
        let held = self
            .known
            .pick_lock(&mut self.random, swarm.stale_lock_per_mille)?;
        let mut settlements = vec![(held.lock, self.disposition())];
        while self.random.happens(200) {
            let same = self.known.held.iter().position(|it| it.queue == held.queue);
            let Some(other) = same else { break };
            let other = self.known.held.swap_remove(other);
            settlements.push((other.lock, self.disposition()));
            remember(&mut self.known.stale, other);
        }
        Some(BusCommand::Settle {
            queue: held.queue,
            settlements,
        })
    }

    fn disposition(&mut self) -> Disposition {
        let kind = self.random.below(12);
        let is_changed = self.random.happens(300);
        self.disposition_of(kind, is_changed)
    }

    fn disposition_of(&mut self, kind: u64, is_changed: bool) -> Disposition {
        let overlay = is_changed.then(|| {
            self.overlays += 1;
            Bytes::copy_from_slice(&self.overlays.to_be_bytes())
        });
        match kind {
            0..=4 => Disposition::Complete,
            5..=7 => Disposition::Abandon { overlay },
            8 => Disposition::DeadLetter { overlay },
            9 => Disposition::Release,
            _ => Disposition::Defer { overlay },
        }
    }

    fn renew(&mut self, swarm: &BusSwarm) -> BusCommand {
        let is_stale = self.random.happens(swarm.stale_lock_per_mille);
        let from = if is_stale {
            &self.known.stale
        } else {
            &self.known.held
        };
        if from.is_empty() {
            return self.receive(0);
        }
        let held = from[self.random.index(from.len())].clone();
        let same = from.iter().filter(|it| it.queue == held.queue);
        let locks: Vec<_> = same.map(|it| it.lock).take(3).collect();
        BusCommand::RenewLocks {
            locks: if self.random.happens(300) {
                locks
            } else {
                vec![held.lock]
            },
            queue: held.queue,
        }
    }

    fn receive_deferred(&mut self, queue: usize, swarm: &BusSwarm) -> BusCommand {
        if self.known.deferred.is_empty() {
            return self.settle(swarm).unwrap_or_else(|| self.receive(queue));
        }
        let known = self
            .known
            .deferred
            .swap_remove(self.random.index(self.known.deferred.len()));
        let mut numbers = vec![known.number];
        if self.random.happens(200) {
            let same = self
                .known
                .deferred
                .iter()
                .find(|it| it.queue == known.queue);
            numbers.extend(same.map(|it| it.number));
        }
        let mut sessions = self.known.sessions.iter().rev();
        let of_session = sessions.find(|held| held.queue == known.queue);
        let of_session = of_session.map(|held| held.lock);
        let entity = entity(&known.queue);
        let wants_session =
            plain_options(entity.queue).requires_session && entity.part == Part::Queue;
        let session = if wants_session {
            of_session.or(known.session)
        } else {
            None
        };
        BusCommand::ReceiveDeferred {
            read: DeferredRead {
                queue: known.queue,
                numbers,
                mode: self.mode(),
                session,
            },
        }
    }

    fn cancel(&mut self, queue: usize) -> BusCommand {
        if self.known.scheduled.is_empty() {
            return self.receive(queue);
        }
        let index = self.random.index(self.known.scheduled.len());
        let known = self.known.scheduled[index].clone();
        if self.random.happens(700) {
            self.known.scheduled.swap_remove(index);
        }
        BusCommand::CancelScheduled {
            queue: known.queue,
            numbers: vec![known.number],
        }
    }

    fn accept(&mut self, swarm: &BusSwarm) -> BusCommand {
        let session = if self.random.happens(500) {
            SessionChoice::Next
        } else {
            SessionChoice::Named(self.session_id())
        };
        BusCommand::AcceptSession {
            queue: named(swarm.pick_with_sessions(&mut self.random), Part::Queue),
            session,
        }
    }

    fn session(&mut self, swarm: &BusSwarm) -> Option<Held> {
        let is_stale = self.random.happens(swarm.stale_lock_per_mille / 2);
        let from = if is_stale {
            &self.known.stale_sessions
        } else {
            &self.known.sessions
        };
        if from.is_empty() {
            return None;
        }
        Some(from[self.random.index(from.len())].clone())
    }

    fn receive_of_session(&mut self, swarm: &BusSwarm) -> BusCommand {
        let Some(held) = self.session(swarm) else {
            return self.accept(swarm);
        };
        BusCommand::Receive {
            queue: held.queue,
            count: 1 + self.random.below_u32(4),
            mode: self.mode(),
            session: Some(held.lock),
        }
    }

    fn use_session(&mut self, swarm: &BusSwarm) -> BusCommand {
        let Some(Held { queue, lock }) = self.session(swarm) else {
            return self.accept(swarm);
        };
        let session = lock;
        match self.random.below(6) {
            0 => BusCommand::RenewSession { queue, session },
            1 => {
                self.known.forget_session(session);
                BusCommand::ReleaseSession { queue, session }
            }
            2 | 3 => BusCommand::ReadSessionState { queue, session },
            _ => {
                self.overlays += 1;
                let state = self.random.happens(850);
                BusCommand::SetSessionState {
                    queue,
                    session,
                    state: state.then(|| self.overlays.to_string().into()),
                }
            }
        }
    }

    /// Remembers the facts in an answer.
    pub(crate) fn learn(&mut self, command: &BusCommand, outcome: &BusOutcome, bodies: &[Bytes]) {
        self.operator.learn(command, outcome, bodies);
        self.known.learn(command, outcome);
    }
}

/// One of the few session ids in use.
pub(super) fn session_name(r: &mut Stream) -> Box<str> {
    format!("session-{}", r.below(4)).into()
}
