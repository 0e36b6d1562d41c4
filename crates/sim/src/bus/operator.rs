//! An operator's commands for bus queues, besides those of clients.

use bytes::Bytes;
use kew_engine::bus::{
    BreakTarget, BusCommand, BusMessageState, BusOutcome, Purge, ReceiveMode, Resubmission,
    Resubmit,
};
use kew_engine::{BodyLocation, EntityName, SequenceNumber, Timestamp};

use super::checker::life::{Entity, Part};
use super::topics::{BEFORE, FORWARDING, GATHERING, Kind, SHORT_LIVED, is_before, kind};
use super::workload::{QUEUES, plain_options, remember, session_name};
use super::{BusSwarm, entity, named, queue_name};
use crate::random::Stream;

/// A message that was shown.
#[derive(Clone, Debug)]
struct Known {
    queue: EntityName,
    number: SequenceNumber,
    /// The first bytes of its body, which identify it.
    body: [u8; 8],
    overlay_count: u32,
    is_locked: bool,
}

/// Chooses what an operator does.
#[derive(Debug)]
pub(crate) struct Operator {
    random: Stream,
    known: Vec<Known>,
    /// The next part of a purge.
    purge: Option<(EntityName, Purge)>,
}

impl Operator {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Stream::new(seed, "bus operator"),
            known: Vec::new(),
            purge: None,
        }
    }

    /// The next act, if it is the operator's turn.
    pub(crate) fn next(&mut self, swarm: &BusSwarm, now: Timestamp) -> Option<BusCommand> {
        if !self.random.happens(swarm.operator_per_mille) {
            return None;
        }
        let queue = swarm.pick(&mut self.random);
        let name = self.part(queue);
        Some(match self.random.below(20) {
            0..=3 => self.purge(name, now),
            4 => BusCommand::ClearSessionStates {
                queue: named(
                    if self.random.happens(900) {
                        swarm.pick_with_sessions(&mut self.random)
                    } else {
                        queue
                    },
                    Part::Queue,
                ),
                from: Box::default(),
                count: 1 + self.random.below_u32(3),
                is_dry_run: self.random.happens(200),
            },
            5..=7 => {
                let (queue, number) = self.pick(name);
                BusCommand::TakeMessage {
                    queue,
                    number,
                    mode: if self.random.happens(200) {
                        ReceiveMode::ReceiveAndDelete
                    } else {
                        ReceiveMode::PeekLock
                    },
                }
            }
            8..=9 => {
                let (queue, number) = self.pick(name);
                BusCommand::DeleteMessage {
                    queue,
                    number,
                    with_locked: self.random.happens(300),
                }
            }
            10..=12 => self.break_lock(name, swarm),
            _ => self.resubmit(swarm),
        })
    }

    fn part(&mut self, queue: usize) -> EntityName {
        let part = match self.random.below(10) {
            0..=3 => Part::DeadLetters,
            4 => Part::FailedTransfers,
            _ => Part::Queue,
        };
        named(queue, part)
    }

    fn purge(&mut self, queue: EntityName, now: Timestamp) -> BusCommand {
        if let Some((queue, purge)) = self.purge.take() {
            return BusCommand::Purge { queue, purge };
        }
        let r = &mut self.random;
        let number = |r: &mut Stream| SequenceNumber::named(r.below(40));
        let purge = Purge {
            from: if r.happens(700) {
                SequenceNumber::named(0)
            } else {
                number(r)
            },
            until: r.happens(100).then(|| number(r)),
            before: [
                None,
                None,
                None,
                Some(Timestamp::ZERO),
                Some(now.plus_ms(1)),
                Some(Timestamp::NEVER),
            ][r.index(6)],
            count: [1, 2, 4, 10, 5000][r.index(5)],
            with_locked: r.happens(300),
            is_dry_run: r.happens(300),
        };
        BusCommand::Purge { queue, purge }
    }

    /// A message that was shown or, sometimes, any number.
    fn pick(&mut self, queue: EntityName) -> (EntityName, SequenceNumber) {
        if self.known.is_empty() || self.random.happens(100) {
            return (queue, SequenceNumber::named(1 + self.random.below(40)));
        }
        let known = &self.known[self.random.index(self.known.len())];
        (known.queue.clone(), known.number)
    }

    fn break_lock(&mut self, queue: EntityName, swarm: &BusSwarm) -> BusCommand {
        if self.random.happens(300) {
            let session = session_name(&mut self.random);
            return BusCommand::BreakLock {
                queue: named(swarm.pick_with_sessions(&mut self.random), Part::Queue),
                target: BreakTarget::Session(session),
            };
        }
        let locked: Vec<_> = self.known.iter().filter(|known| known.is_locked).collect();
        let (queue, number) = if locked.is_empty() || self.random.happens(200) {
            self.pick(queue)
        } else {
            let known = locked[self.random.index(locked.len())];
            (known.queue.clone(), known.number)
        };
        BusCommand::BreakLock {
            queue,
            target: BreakTarget::Message(number),
        }
    }

    /// Resubmits messages that were shown, of an entity that is never deleted: so no number is ever
    /// reused for another message with another body.
    fn resubmit(&mut self, swarm: &BusSwarm) -> BusCommand {
        let is_lasting = |known: &&Known| is_lasting(entity(&known.queue).queue, swarm);
        let lasting: Vec<_> = self.known.iter().filter(is_lasting).collect();
        if lasting.is_empty() || self.random.happens(150) {
            let queue = self.random.index(swarm.queues_lasting.max(1));
            let subscription = (swarm.topics.as_ref()).filter(|it| it.delete_per_mille == 0);
            let subscription = subscription.and_then(|it| it.pick(&mut self.random));
            return BusCommand::Peek {
                queue: named(subscription.unwrap_or(queue), Part::DeadLetters),
                from: SequenceNumber::named(0),
                count: 20,
                session: None,
            };
        }
        let first = lasting[self.random.index(lasting.len())];
        let from = first.queue.clone();
        let others = lasting.iter().filter(|known| known.queue == from);
        let others = others.take(self.random.index(3)).copied();
        let all: Vec<Known> = [first].into_iter().chain(others).cloned().collect();
        let Entity { queue, part } = entity(&from);
        let mut to = self.random.index(swarm.queues);
        let mut is_back = self.random.happens(500) || is_bound(queue);
        if swarm.gather_per_mille() > 0 {
            if !is_before(queue) {
                is_back |= to == BEFORE;
            } else if part == Part::FailedTransfers {
                // It may have been sent to that topic, and its copies would have the numbers of those that never were.
                (to, is_back) = (to.max(BEFORE + 1), false);
            } else if self.random.happens(700) {
                to = GATHERING;
            }
        }
        let destination = if is_back { queue } else { to };
        let messages = all.into_iter();
        BusCommand::Resubmit {
            resubmit: Resubmit {
                to: (!is_back).then(|| queue_name(to).into()),
                messages: messages
                    .map(|known| self.resubmission(&known, destination, swarm))
                    .collect(),
            },
            queue: from,
        }
    }

    fn resubmission(&mut self, known: &Known, to: usize, swarm: &BusSwarm) -> Resubmission {
        let r = &mut self.random;
        let mut body = known.body.to_vec();
        for _ in 0..r.below(swarm.body_size_max).div_ceil(8) {
            body.extend(r.next().to_be_bytes());
        }
        let is_stale = r.happens(50);
        let in_session = match plain_options(to).requires_session {
            true => 950,
            false => 200,
        };
        Resubmission {
            sequence_number: known.number,
            overlay_count: known.overlay_count + u32::from(is_stale),
            body: body.into(),
            message_id: r.happens(400).then(|| r.below(12).to_string().into()),
            session: r.happens(in_session).then(|| session_name(r)),
            time_to_live_ms: r
                .happens(swarm.time_to_live_per_mille)
                .then(|| 1 + r.below(60_000)),
        }
    }

    /// Remembers the messages in an answer.
    pub(crate) fn learn(&mut self, command: &BusCommand, outcome: &BusOutcome, bodies: &[Bytes]) {
        let mut bodies = bodies.iter();
        match (command, outcome) {
            (BusCommand::Peek { queue, .. }, BusOutcome::Peeked(messages)) => {
                for message in messages {
                    let is_locked = matches!(message.state, BusMessageState::Locked { .. });
                    let shown = (message.sequence_number, is_locked);
                    self.learn_one(queue, shown, &message.overlays, &mut bodies);
                }
            }
            (
                BusCommand::Receive { queue, .. } | BusCommand::TakeMessage { queue, .. },
                BusOutcome::Received(messages),
            ) => {
                for message in messages {
                    let shown = (message.sequence_number, message.lock.is_some());
                    self.learn_one(queue, shown, &message.overlays, &mut bodies);
                }
            }
            (BusCommand::Purge { queue, purge }, BusOutcome::Purged(purged)) => {
                self.purge = purged.next.map(|from| {
                    let next = Purge {
                        from,
                        until: Some(purged.until),
                        ..purge.clone()
                    };
                    (queue.clone(), next)
                });
            }
            _ => {}
        }
    }

    fn learn_one<'a>(
        &mut self,
        queue: &EntityName,
        (number, is_locked): (SequenceNumber, bool),
        overlays: &[BodyLocation],
        bodies: &mut impl Iterator<Item = &'a Bytes>,
    ) {
        let own = bodies.next().and_then(|body| body.first_chunk::<8>());
        bodies.take(overlays.len()).for_each(drop);
        let Some(body) = own.copied() else { return };
        self.known
            .retain(|known| known.number != number || known.queue != *queue);
        let known = Known {
            queue: queue.clone(),
            number,
            body,
            overlay_count: u32::try_from(overlays.len()).expect("a message has few changes"),
            is_locked,
        };
        remember(&mut self.known, known);
    }
}

/// Whether an entity is never deleted.
fn is_lasting(queue: usize, swarm: &BusSwarm) -> bool {
    let topics = swarm.topics.as_ref();
    match kind(queue) {
        Kind::Queue => queue < swarm.queues_lasting,
        Kind::Topic => false,
        Kind::Subscription { nth, .. } => {
            nth != SHORT_LIVED && topics.is_some_and(|it| it.delete_per_mille == 0)
        }
    }
}

/// Whether its messages are known by a number that they cannot have elsewhere.
fn is_bound(queue: usize) -> bool {
    matches!(kind(queue), Kind::Subscription { nth, .. } if nth != FORWARDING)
}

/// How many queues are never deleted in a world with resubmissions: at least one, and not the one
/// that deletes itself.
pub(crate) fn draw_lasting(r: &mut Stream, queues: usize) -> usize {
    1 + r.index(queues.min(QUEUES - 1))
}
