//! Settlements of messages that a client has locked.
//!
//! The client reports its outcome without settling. The answer is the same outcome if it took
//! effect, and a rejection if the lock was lost. In a transaction the answer comes at once, and the
//! effect with the commit.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::error::{Error, condition};
use kew_amqp::performative::DeliveryState;
use kew_amqp::{DeliveryId, Direction, LinkId};
use kew_broker::Rejection;
use kew_engine::bus::{BusOutcome, TransactionPart, TransactionWork, Verdict};
use kew_engine::{EntityName, Incarnation, Outcome as EngineOutcome, Token};
use tokio::time::Instant;

use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::orders::Purpose;
use crate::connection::client::parts::settlements::{
    Meaning, Settlement, Settlements, meaning_of, overlay_size_bytes, too_many,
};
use crate::connection::client::parts::transactions::{Noted, gone, state_in};
use crate::connection::client::parts::turn::steps_to_change;
use crate::connection::client::patience::submit_again;
use crate::ground::refusal::{claimed, error_of, error_of_verdict};

/// A client's outcome for a delivery whose message it has locked.
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
        // How much a client has received is not an outcome.
        let state = state.filter(|it| !matches!(it, DeliveryState::Received(_)));
        if state.is_none() && !is_settled {
            return;
        }
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            self.transactions.fail_if_meant(state.as_ref(), gone);
            // An answer of a node needs no settlement by us. A transfer from the client gets its
            // own outcome.
            if !is_settled && delivery.direction() == Direction::Outgoing {
                self.connection.settle(delivery, state);
            }
            return;
        };
        // An earlier outcome has its answer, or will get it.
        let Some(lock) = receiver.held.take(delivery) else {
            return self.transactions.fail_if_meant(state.as_ref(), gone);
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
            let text = "Messages cannot be settled with this state.";
            let error = Error::new(condition::NOT_ALLOWED, text);
            self.transactions
                .fail_if_meant(Some(&state), || error.clone());
            return self.refuse_settlement(&told, error);
        };
        let changes = overlay_size_bytes(&meaning.disposition);
        self.turn.steps.charge(steps_to_change(changes));
        match state {
            DeliveryState::Transactional(state) => {
                self.settle_in_transaction(told, &state.txn_id, meaning);
            }
            _ if self.shared.claims.has(lock) => self.refuse_settlement(&told, claimed()),
            _ => self.settle_now(told, meaning),
        }
    }

    fn settle_now(&mut self, told: Told, meaning: Meaning) {
        // Each delivery of a range has its own copy of the changes.
        self.load
            .begin_sending(overlay_size_bytes(&meaning.disposition));
        let settlement = Settlement {
            delivery: told.delivery,
            lock: told.lock,
            disposition: meaning.disposition,
            settled: meaning.settled,
            reply: (!told.is_settled).then_some(meaning.reply.into()),
        };
        self.orders.settle(told.queue, settlement);
    }

    /// The lock ends when the transaction is committed. The delivery is settled at once, as in
    /// Azure: only then does the .NET SDK grant more credit.
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

    /// The lock stays unchanged.
    fn refuse_settlement(&mut self, told: &Told, error: Error) {
        if !told.is_settled {
            let state = DeliveryState::rejected(error);
            self.connection.settle(told.delivery, Some(state));
        }
    }

    /// Submits the settlements of this turn. A disposition can name more deliveries than one
    /// command accepts. A full disk has little room for changes to properties, and a command is
    /// refused as a whole, so settlements without changes go in commands of their own.
    pub(super) fn flush_settlements(&mut self) {
        for (queue, settlements) in self.orders.take_settlements() {
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

    /// The broker was busy. The client has processed these messages, and may not repeat a refused
    /// settlement: the delivery is over with its outcome. So the settlement is retried.
    pub(super) fn settle_patiently(&mut self, settlements: Settlements, began: Instant) {
        self.load.begin_request();
        let broker = Arc::clone(&self.broker);
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
        self.turn.steps.charge(settlements.each.len());
        let is_unknown = matches!(verdicts, Err(Rejection::Unknown));
        for (index, settlement) in settlements.each.into_iter().enumerate() {
            let size_bytes = overlay_size_bytes(&settlement.disposition);
            self.load.end_sending(size_bytes);
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
            match (settlement.reply, error) {
                (Some(_), Some(error)) if is_unknown => {
                    self.leave_unsettled(settlement.delivery, error);
                }
                (Some(reply), error) => {
                    let state = error.map_or(reply, DeliveryState::rejected);
                    self.connection.settle(settlement.delivery, Some(state));
                }
                (None, _) => {}
            }
        }
    }
}
