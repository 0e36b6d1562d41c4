//! Settlements: what becomes of messages that a client has locked.
//!
//! The client tells its outcome without settling; the answer is the same outcome if it had its
//! effect, and a rejection if the lock was lost.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Value};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{DeliveryState, Outcome, Rejected};
use kew_amqp::{DeliveryId, LinkId};
use kew_broker::{Answered, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, Disposition, ITEMS_MAX, Verdict};
use kew_engine::{EntityName, Outcome as EngineOutcome, Token};

use super::Client;
use super::under_way::UnderWay;
use crate::outbound::overlaid;
use crate::refusal::{error_of, error_of_verdict};

/// A message that a client has locked.
pub(super) struct Held {
    pub(super) link: LinkId,
    pub(super) entity: Arc<EntityName>,
    pub(super) lock: Token,
}

/// A settlement that is under way.
pub(crate) struct Settlement {
    delivery: DeliveryId,
    lock: Token,
    disposition: Disposition,
    /// What is answered if it has its effect; nothing if the client has settled.
    reply: Option<DeliveryState>,
}

impl Client {
    pub(super) fn on_disposition(
        &mut self,
        delivery: DeliveryId,
        is_settled: bool,
        state: Option<DeliveryState>,
    ) {
        if let Some(DeliveryState::Received(_)) = state {
            return;
        }
        let Some(held) = self.held.remove(&delivery) else {
            // An answer of a node, which needs no verdict.
            if !is_settled {
                self.connection.settle(delivery, state);
            }
            return;
        };
        let (disposition, reply) = match &state {
            Some(DeliveryState::Outcome(outcome)) => match disposition_of(outcome) {
                Some(meant) => meant,
                None => return self.refuse_settlement(delivery, held, is_settled),
            },
            Some(_) => return self.refuse_settlement(delivery, held, is_settled),
            // Settled without an outcome: the lock runs out.
            None => return,
        };
        self.settlements
            .entry(held.entity)
            .or_default()
            .push(Settlement {
                delivery,
                lock: held.lock,
                disposition,
                reply: (!is_settled).then_some(reply),
            });
    }

    /// The lock stays as it is.
    fn refuse_settlement(&mut self, delivery: DeliveryId, held: Held, is_settled: bool) {
        if is_settled {
            return;
        }
        drop(held);
        let text = "Transactions are not supported.";
        let error = Error::new(condition::NOT_IMPLEMENTED, text);
        let state = DeliveryState::rejected(error);
        self.connection.settle(delivery, Some(state));
    }

    /// Hands over what was settled in this turn: a disposition can be of more deliveries than one
    /// command takes.
    pub(super) fn flush_settlements(&mut self) {
        for (queue, mut settlements) in std::mem::take(&mut self.settlements) {
            while settlements.len() > ITEMS_MAX {
                let rest = settlements.split_off(ITEMS_MAX);
                self.settle_together(&queue, settlements);
                settlements = rest;
            }
            self.settle_together(&queue, settlements);
        }
    }

    fn settle_together(&mut self, queue: &EntityName, settlements: Vec<Settlement>) {
        let settle = BusCommand::Settle {
            queue: queue.clone(),
            settlements: settlements
                .iter()
                .map(|it| (it.lock, it.disposition.clone()))
                .collect(),
        };
        self.submit(settle, UnderWay::Settle(settlements));
    }

    pub(super) fn on_settled(
        &mut self,
        settlements: Vec<Settlement>,
        reply: Result<Answered, Rejection>,
    ) {
        let verdicts = reply.map(|answered| match answered.outcome {
            EngineOutcome::Bus(BusOutcome::Settled(verdicts)) => verdicts,
            _ => Vec::new(),
        });
        for (index, settlement) in settlements.into_iter().enumerate() {
            let Some(reply) = settlement.reply else {
                continue;
            };
            let error = match &verdicts {
                Ok(verdicts) => {
                    let verdict = verdicts.get(index).copied().unwrap_or(Verdict::LockLost);
                    error_of_verdict(verdict)
                }
                Err(rejection) => Some(error_of(rejection)),
            };
            let state = error.map_or(reply, DeliveryState::rejected);
            self.connection.settle(settlement.delivery, Some(state));
        }
    }
}

/// What an outcome means for a message, and what is answered to it.
fn disposition_of(outcome: &Outcome) -> Option<(Disposition, DeliveryState)> {
    let disposition = match outcome {
        Outcome::Accepted => Disposition::Complete,
        Outcome::Released => Disposition::Release,
        Outcome::Modified(modified) => {
            let overlay = modified.message_annotations.as_ref().and_then(overlay_of);
            if modified.undeliverable_here == Some(true) {
                Disposition::Defer { overlay }
            } else {
                Disposition::Abandon { overlay }
            }
        }
        Outcome::Rejected(rejected) => {
            let info = rejected
                .error
                .as_ref()
                .and_then(|error| error.info.as_ref());
            let overlay = info.and_then(overlay_of);
            let reply = Outcome::Rejected(Rejected { error: None });
            return Some((Disposition::DeadLetter { overlay }, reply.into()));
        }
        Outcome::Declared(_) => return None,
    };
    Some((disposition, outcome.clone().into()))
}

/// A change to a message's application properties: a map, encoded. Keys of any other type than text
/// are left out: no application property has such a one.
pub(crate) fn overlay_of(properties: &Map) -> Option<Bytes> {
    let named = Map::build(|map| {
        for (key, value) in properties.iter() {
            if matches!(key.value(), Value::String(_) | Value::Symbol(_))
                && value.value() != Value::Null
            {
                map.entry(&key, &value);
            }
        }
    });
    if named.is_empty() {
        return None;
    }
    let mut out = BytesMut::new();
    overlaid(&Map::default(), &named).encode(&mut out);
    Some(out.freeze())
}
