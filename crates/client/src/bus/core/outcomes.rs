//! What became of what went over links, as the service tells it.

use bytes::Bytes;
use kew_amqp::DeliveryId;
use kew_amqp::performative::{DeliveryState, Outcome};

use super::settlements::Settled;
use super::transfers::Sent;
use super::{Core, LinkKey};
use crate::error::{Effect, Error};

impl Core {
    /// The service has answered a message that we sent.
    pub(super) fn on_send_outcome(
        &mut self,
        delivery: DeliveryId,
        is_settled: bool,
        state: Option<&DeliveryState>,
    ) {
        if !is_settled && let Some(wire) = &mut self.wire {
            wire.amqp.settle(delivery, None);
        }
        let Some(sending) = self.sending.remove(&delivery) else {
            return;
        };
        let link = sending.link;
        let result = result_of_send(state, sending.is_in_transaction);
        sending.job.finish(result);
        // One less is unsettled, which may be what others wait for.
        self.stir_link(link);
        self.one_ended(link);
    }

    /// The service has answered the settlement of a message that it sent.
    pub(super) fn on_settlement_answer(
        &mut self,
        delivery: DeliveryId,
        is_settled: bool,
        state: Option<&DeliveryState>,
    ) {
        if !is_settled && let Some(wire) = &mut self.wire {
            wire.amqp.settle(delivery, None);
        }
        let Some(settling) = self.settling.remove(&delivery) else {
            return;
        };
        let link = settling.link;
        let refusal = match state.and_then(DeliveryState::outcome) {
            Some(Outcome::Rejected(rejected)) => rejected.error.as_ref(),
            Some(
                Outcome::Accepted | Outcome::Released | Outcome::Modified(_) | Outcome::Declared(_),
            )
            | None => None,
        };
        let outcome = match refusal {
            Some(error) => Err(Error::of_condition(error, Effect::Change)),
            None if settling.is_in_transaction && !is_transactional(state) => Err(outside()),
            None => Ok(Settled::Done),
        };
        settling.finish(outcome);
        self.one_ended(link);
    }

    /// Something that was under way on a link has its outcome.
    fn one_ended(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        link.under_way = link.under_way.saturating_sub(1);
        link.progress_at = self.now;
        if link.is_leaving && link.under_way == 0 {
            self.remove_link(key);
        }
    }

    pub(super) fn on_drained(&mut self, key: LinkKey) {
        let link = self.links.get_mut(&key);
        if let Some(job) = link.and_then(|link| link.draining.take()) {
            job.finish(Ok(()));
        }
    }
}

fn is_transactional(state: Option<&DeliveryState>) -> bool {
    matches!(state, Some(DeliveryState::Transactional(_)))
}

/// The service carried out at once what was to be part of a transaction.
fn outside() -> Error {
    Error::unknown("the service answered as if there were no transaction: it may be done already")
}

fn result_of_send(state: Option<&DeliveryState>, is_in_transaction: bool) -> Result<Sent, Error> {
    match state.and_then(DeliveryState::outcome) {
        Some(Outcome::Accepted) if is_in_transaction && !is_transactional(state) => Err(outside()),
        Some(Outcome::Accepted) => Ok(Sent { declared: None }),
        Some(Outcome::Declared(declared)) => Ok(Sent {
            // It shares the buffer of the input.
            declared: Some(Bytes::copy_from_slice(&declared.txn_id)),
        }),
        Some(Outcome::Rejected(rejected)) => Err(match &rejected.error {
            Some(error) => Error::of_condition(error, Effect::Change),
            None => Error::refused("the service rejected the message and did not say why"),
        }),
        Some(Outcome::Released | Outcome::Modified(_)) => {
            Err(Error::later("the service gave the message back"))
        }
        None => Err(Error::unknown(
            "the service forgot the message without an outcome",
        )),
    }
}
