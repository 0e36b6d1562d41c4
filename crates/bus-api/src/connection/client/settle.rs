//! Settlements: what becomes of messages that a client has locked.
//!
//! The client tells its outcome without settling; the answer is the same outcome if it had its
//! effect, and a rejection if the lock was lost. In a transaction it is told at once, and has its effect
//! with the commit.

use std::time::Duration;

use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{DeliveryState, Modified, Outcome, Rejected};
use kew_amqp::{DeliveryId, Direction, LinkId};
use kew_broker::Rejection;
use kew_engine::bus::{
    BusCommand, BusOutcome, Disposition, ITEMS_MAX, TransactionPart, TransactionWork, Verdict,
};
use kew_engine::{EntityName, Incarnation, Outcome as EngineOutcome, Token};
use tokio::time::Instant;

use super::transaction::{Noted, gone, state_in};
use super::turn::steps_to_change;
use super::under_way::Purpose;
use super::{Client, Done, Link, submit_again};
use crate::ground::refusal::{claimed, error_of, error_of_verdict};
use crate::messages::overlay::overlay_of;
use crate::metrics::Settled;

/// About how many bytes of changes to properties one command brings, unless one message's are more. A full disk
/// takes a command of such a size.
const CHANGES_SIZE_BYTES_MAX: u64 = 64 * 1024;

/// What one command settles.
pub(crate) struct Settlements {
    queue: EntityName,
    each: Vec<Settlement>,
}

impl Settlements {
    pub(super) fn new(queue: EntityName, each: Vec<Settlement>) -> Self {
        Self { queue, each }
    }

    fn command(&self) -> BusCommand {
        let settlements = self.each.iter();
        BusCommand::Settle {
            queue: self.queue.clone(),
            settlements: settlements
                .map(|it| (it.lock, it.disposition.clone()))
                .collect(),
        }
    }
}

/// A settlement that is under way.
pub(crate) struct Settlement {
    delivery: DeliveryId,
    lock: Token,
    disposition: Disposition,
    settled: Settled,
    /// What is answered if it has its effect; nothing if the client has settled.
    reply: Option<DeliveryState>,
}

/// What a client has told of a delivery whose message it has locked.
struct Told {
    delivery: DeliveryId,
    is_settled: bool,
    queue: EntityName,
    incarnation: Incarnation,
    lock: Token,
}

impl Client {
    pub(super) fn on_disposition(
        &mut self,
        link: LinkId,
        delivery: DeliveryId,
        is_settled: bool,
        state: Option<DeliveryState>,
    ) {
        // How far a client has read is nothing that becomes of a message.
        let state = state.filter(|it| !matches!(it, DeliveryState::Received(_)));
        if state.is_none() && !is_settled {
            return;
        }
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            self.fail_if_transactional(state.as_ref(), gone);
            // An answer of a node, which needs no verdict. What the client has sent gets its own.
            if !is_settled && delivery.direction() == Direction::Outgoing {
                self.connection.settle(delivery, state);
            }
            return;
        };
        // What was told before has its answer, or will.
        let Some(lock) = receiver.held.take(delivery) else {
            return self.fail_if_transactional(state.as_ref(), gone);
        };
        // Settled without an outcome: the lock runs out.
        let Some(state) = state else {
            return;
        };
        let told = Told {
            delivery,
            is_settled,
            queue: receiver.attached.entity.clone(),
            incarnation: receiver.attached.incarnation,
            lock,
        };
        let Some(meaning) = state.outcome().and_then(meaning_of) else {
            let text = "No message is settled with this state.";
            let error = Error::new(condition::NOT_ALLOWED, text);
            self.fail_if_transactional(Some(&state), || error.clone());
            return self.refuse_settlement(&told, error);
        };
        let changes = overlay_size_bytes(&meaning.disposition);
        self.steps.charge(steps_to_change(changes));
        match state {
            DeliveryState::Transactional(state) => {
                self.settle_in_transaction(told, &state.txn_id, meaning);
            }
            _ if self.shared.claims.has(lock) => self.refuse_settlement(&told, claimed()),
            _ => self.settle_now(told, meaning),
        }
    }

    fn settle_now(&mut self, told: Told, meaning: Meaning) {
        // Each of a range has its own copy of what is to be changed.
        self.sending_size_bytes += overlay_size_bytes(&meaning.disposition);
        self.settlements
            .entry(told.queue)
            .or_default()
            .push(Settlement {
                delivery: told.delivery,
                lock: told.lock,
                disposition: meaning.disposition,
                settled: meaning.settled,
                reply: (!told.is_settled).then_some(meaning.reply.into()),
            });
    }

    /// The lock ends when the transaction is committed. The delivery is settled at once, as the service
    /// does it: the .NET SDK grants credit for more only then.
    fn settle_in_transaction(&mut self, told: Told, transaction: &[u8], meaning: Meaning) {
        let part = TransactionPart {
            queue: told.queue.clone(),
            incarnation: Some(told.incarnation),
            work: TransactionWork::Settle(told.lock, meaning.disposition),
        };
        match self.enlist(transaction, part, Noted::Settled(meaning.settled)) {
            Ok(()) if told.is_settled => {}
            Ok(()) => {
                let state = state_in(transaction, meaning.reply);
                self.connection.settle(told.delivery, Some(state));
            }
            Err(error) => self.refuse_settlement(&told, error),
        }
    }

    /// The lock stays as it is.
    fn refuse_settlement(&mut self, told: &Told, error: Error) {
        if !told.is_settled {
            let state = DeliveryState::rejected(error);
            self.connection.settle(told.delivery, Some(state));
        }
    }

    /// Hands over what was settled in this turn: a disposition can be of more deliveries than one
    /// command takes. A full disk has little room for changes to properties, and a command is refused as a
    /// whole: what brings none goes by itself.
    pub(super) fn flush_settlements(&mut self) {
        for (queue, settlements) in std::mem::take(&mut self.settlements) {
            let (changing, plain): (Vec<_>, Vec<_>) = settlements
                .into_iter()
                .partition(|it| it.disposition.overlay_size_bytes() > 0);
            self.settle_all(&queue, plain);
            self.settle_all(&queue, changing);
        }
    }

    fn settle_all(&mut self, queue: &EntityName, mut settlements: Vec<Settlement>) {
        while let Some(count) = too_many(&settlements) {
            let rest = settlements.split_off(count);
            self.settle_together(queue.clone(), settlements);
            settlements = rest;
        }
        self.settle_together(queue.clone(), settlements);
    }

    fn settle_together(&mut self, queue: EntityName, each: Vec<Settlement>) {
        if each.is_empty() {
            return;
        }
        let settlements = Settlements::new(queue, each);
        self.submit(settlements.command(), Purpose::Settle(settlements));
    }

    /// The broker was busy. The work on these messages is done, and who hears that they were not settled may
    /// not say it again: the delivery is over with the verdict.
    pub(super) fn settle_patiently(&mut self, settlements: Settlements, began: Instant) {
        self.requests += 1;
        let broker = self.shared.broker.clone();
        self.tasks.spawn(async move {
            let reply = submit_again(&broker, settlements.command()).await;
            Done::Settled(settlements, reply.map(|answer| answer.outcome), began)
        });
    }

    pub(super) fn on_settled(
        &mut self,
        settlements: Settlements,
        reply: Result<EngineOutcome, Rejection>,
        took: Duration,
    ) {
        let verdicts = reply.map(|outcome| match outcome {
            EngineOutcome::Bus(BusOutcome::Settled(verdicts)) => verdicts,
            _ => Vec::new(),
        });
        self.shared.observer.instruments.note_settle_time(took);
        self.steps.charge(settlements.each.len());
        for (index, settlement) in settlements.each.into_iter().enumerate() {
            let size_bytes = overlay_size_bytes(&settlement.disposition);
            self.sending_size_bytes = self.sending_size_bytes.saturating_sub(size_bytes);
            let error = match &verdicts {
                Ok(verdicts) => {
                    let verdict = verdicts.get(index).copied().unwrap_or(Verdict::LockLost);
                    error_of_verdict(verdict)
                }
                Err(rejection) => Some(error_of(rejection)),
            };
            let code = error.as_ref().map(|error| error.condition.as_str());
            let instruments = &self.shared.observer.instruments;
            instruments.note_settlement(settlement.settled, code);
            if let Some(reply) = settlement.reply {
                let state = error.map_or(reply, DeliveryState::rejected);
                self.connection.settle(settlement.delivery, Some(state));
            }
        }
    }
}

/// How many of these are one command's, if it cannot take all: at least one.
fn too_many(settlements: &[Settlement]) -> Option<usize> {
    let mut size_bytes = 0;
    let taken = settlements.iter().take(ITEMS_MAX).take_while(|it| {
        size_bytes += it.disposition.overlay_size_bytes();
        size_bytes <= CHANGES_SIZE_BYTES_MAX
    });
    let count = taken.count().max(1);
    (count < settlements.len()).then_some(count)
}

fn overlay_size_bytes(disposition: &Disposition) -> usize {
    usize::try_from(disposition.overlay_size_bytes()).unwrap_or(usize::MAX)
}

/// What an outcome means for a message, and what is answered to it.
struct Meaning {
    disposition: Disposition,
    reply: Outcome,
    settled: Settled,
}

fn meaning_of(outcome: &Outcome) -> Option<Meaning> {
    let (disposition, settled, reply) = match outcome {
        Outcome::Accepted => (Disposition::Complete, Settled::Complete, Outcome::Accepted),
        Outcome::Released => (Disposition::Release, Settled::Release, Outcome::Released),
        Outcome::Modified(modified) => {
            let overlay = modified.message_annotations.as_ref().and_then(overlay_of);
            let (disposition, settled) = if modified.undeliverable_here == Some(true) {
                (Disposition::Defer { overlay }, Settled::Defer)
            } else {
                (Disposition::Abandon { overlay }, Settled::Abandon)
            };
            // Its changes are not said again: they may be more than a frame that the client takes.
            let reply = Modified {
                message_annotations: None,
                ..*modified
            };
            (disposition, settled, Outcome::Modified(reply))
        }
        Outcome::Rejected(rejected) => {
            let info = rejected
                .error
                .as_ref()
                .and_then(|error| error.info.as_ref());
            let overlay = info.and_then(overlay_of);
            let letter = Disposition::DeadLetter { overlay };
            let reply = Outcome::Rejected(Rejected { error: None });
            (letter, Settled::DeadLetter, reply)
        }
        Outcome::Declared(_) => return None,
    };
    Some(Meaning {
        disposition,
        reply,
        settled,
    })
}
