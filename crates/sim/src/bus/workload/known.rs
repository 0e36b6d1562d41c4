//! What clients remember for their next commands.

use std::collections::BTreeMap;

use kew_engine::bus::{
    BusCommand, BusMessageState, BusOutcome, DeliveredMessage, Disposition, TransactionWork,
};
use kew_engine::{EntityName, Incarnation, SequenceNumber, Token};

use crate::random::Stream;

/// How much of each kind is remembered.
const REMEMBERED_MAX: usize = 60;

/// A lock that a client has, or once had.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) queue: EntityName,
    pub(super) lock: Token,
}

/// A message that a client knows by its number.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    pub(super) queue: EntityName,
    pub(super) number: SequenceNumber,
    pub(super) session: Option<Token>,
}

/// Everything that clients know. The latest is last.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) held: Vec<Held>,
    pub(super) stale: Vec<Held>,
    pub(super) sessions: Vec<Held>,
    pub(super) stale_sessions: Vec<Held>,
    pub(super) scheduled: Vec<Numbered>,
    /// Scheduled messages that were peeked at: the numbers of some were unknown before.
    pub(super) shown_scheduled: Vec<Numbered>,
    pub(super) deferred: Vec<Numbered>,
    /// Of messages that clients hold, with their locks.
    numbers: Vec<(Token, Numbered)>,
    /// The incarnations of each entity that were shown.
    pub(super) lives: BTreeMap<EntityName, Vec<Incarnation>>,
}

impl Known {
    /// A lock to use: usually one that is probably valid, sometimes one that is known to be stale.
    pub(super) fn pick_lock(&mut self, r: &mut Stream, stale_per_mille: u32) -> Option<Held> {
        if r.happens(stale_per_mille) && !self.stale.is_empty() {
            let index = r.index(self.stale.len());
            return self.stale.get(index).cloned();
        }
        if self.held.is_empty() {
            return None;
        }
        let held = self.held.swap_remove(r.index(self.held.len()));
        remember(&mut self.stale, held.clone());
        Some(held)
    }

    pub(super) fn forget_session(&mut self, session: Token) {
        let place = self.sessions.iter().position(|held| held.lock == session);
        if let Some(place) = place {
            let held = self.sessions.swap_remove(place);
            remember(&mut self.stale_sessions, held);
        }
    }

    /// Remembers the facts in an answer.
    pub(super) fn learn(&mut self, command: &BusCommand, outcome: &BusOutcome) {
        match (command, outcome) {
            (BusCommand::Send { queue, messages }, BusOutcome::Sent(numbers)) => {
                for (message, number) in messages.iter().zip(numbers) {
                    if let (Some(_), Some(number)) = (message.scheduled_at, number) {
                        let known = Numbered {
                            queue: queue.clone(),
                            number: *number,
                            session: None,
                        };
                        remember(&mut self.scheduled, known);
                    }
                }
            }
            (BusCommand::Receive { queue, session, .. }, BusOutcome::Received(messages)) => {
                self.learn_received(queue, *session, messages);
            }
            (BusCommand::TakeMessage { queue, .. }, BusOutcome::Received(messages)) => {
                self.learn_received(queue, None, messages);
            }
            (BusCommand::ReceiveDeferred { read }, BusOutcome::Received(messages)) => {
                self.learn_received(&read.queue, read.session, messages);
            }
            (BusCommand::Settle { settlements, .. }, _) => {
                for (lock, disposition) in settlements {
                    self.learn_settled(*lock, disposition);
                }
            }
            (BusCommand::Transact { parts }, _) => {
                for part in parts {
                    if let TransactionWork::Settle(lock, disposition) = &part.work {
                        self.learn_settled(*lock, disposition);
                    }
                }
            }
            (BusCommand::AcceptSession { queue, .. }, BusOutcome::SessionAccepted(accepted)) => {
                let held = Held {
                    queue: queue.clone(),
                    lock: accepted.lock,
                };
                if self.sessions.len() > 4 {
                    let oldest = self.sessions.remove(0);
                    remember(&mut self.stale_sessions, oldest);
                }
                self.sessions.push(held);
            }
            (BusCommand::Peek { queue, .. }, BusOutcome::Peeked(messages)) => {
                for message in messages {
                    let known = Numbered {
                        queue: queue.clone(),
                        number: message.sequence_number,
                        session: None,
                    };
                    match message.state {
                        BusMessageState::Deferred => remember(&mut self.deferred, known),
                        BusMessageState::Scheduled => remember(&mut self.shown_scheduled, known),
                        _ => {}
                    }
                }
            }
            (
                BusCommand::CreateQueue { queue, .. }
                | BusCommand::CreateSubscription {
                    subscription: queue,
                    ..
                }
                | BusCommand::ReadQueue { queue },
                BusOutcome::QueueCreated(view) | BusOutcome::Queue(view),
            ) => self.learn_life(queue, view.incarnation),
            _ => {}
        }
    }

    fn learn_settled(&mut self, lock: Token, disposition: &Disposition) {
        let place = self.numbers.iter().position(|(own, _)| *own == lock);
        let Some(place) = place else { return };
        let (_, known) = self.numbers.swap_remove(place);
        if matches!(disposition, Disposition::Defer { .. }) {
            remember(&mut self.deferred, known);
        }
    }

    fn learn_life(&mut self, queue: &EntityName, incarnation: Incarnation) {
        let lives = self.lives.entry(queue.clone()).or_default();
        if lives.last() != Some(&incarnation) {
            lives.push(incarnation);
        }
    }

    fn learn_received(
        &mut self,
        queue: &EntityName,
        session: Option<Token>,
        messages: &[DeliveredMessage],
    ) {
        for message in messages {
            let Some(lock) = message.lock else { continue };
            let held = Held {
                queue: queue.clone(),
                lock,
            };
            remember(&mut self.held, held);
            let known = Numbered {
                queue: queue.clone(),
                number: message.sequence_number,
                session,
            };
            remember(&mut self.numbers, (lock, known));
        }
    }
}

/// Keeps the latest few.
pub(in crate::bus) fn remember<T>(all: &mut Vec<T>, one: T) {
    if all.len() >= REMEMBERED_MAX {
        all.remove(0);
    }
    all.push(one);
}
