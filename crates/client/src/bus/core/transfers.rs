//! What goes over links: messages in both directions.

use std::sync::Arc;

use bytes::Bytes;
use kew_amqp::performative::{DeliveryState, Outcome, Tag, TransactionalState};
use kew_amqp::{Delivery, DeliveryId, LinkId, Outgoing, Oversized, SendRefusal};

use super::link::Phase;
use super::{Core, LinkKey, Owner};
use crate::bus::job::Job;
use crate::error::Error;

/// A message that came in.
#[derive(Clone, Debug)]
pub(in crate::bus) struct Inbound {
    pub(in crate::bus) payload: Bytes,
    pub(in crate::bus) tag: Tag,
    /// Its name, if it waits for a settlement.
    pub(in crate::bus) delivery: Option<DeliveryName>,
}

/// The name of a delivery. Those of `amqp` begin anew with each connection: without the number of its connection, a
/// name that is kept would be that of another message after the next one was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bus) struct DeliveryName {
    pub(super) connection: u64,
    pub(super) id: DeliveryId,
}

/// What the service said of a message that it took.
#[derive(Clone, Debug)]
pub(in crate::bus) struct Sent {
    /// The transaction that a coordinator has made.
    pub(in crate::bus) declared: Option<Bytes>,
}

/// A transaction: its id, and the link that it ends with. Ids begin anew with each connection, and the link does not
/// outlive its own.
#[derive(Clone, Debug)]
pub(in crate::bus) struct TransactionName {
    pub(in crate::bus) coordinator: LinkKey,
    pub(in crate::bus) id: Bytes,
}

impl TransactionName {
    pub(super) fn state(&self, outcome: Option<Outcome>) -> DeliveryState {
        DeliveryState::Transactional(TransactionalState {
            txn_id: self.id.clone(),
            outcome,
        })
    }
}

#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) payload: Bytes,
    pub(super) message_format: u32,
    pub(super) transaction: Option<Arc<TransactionName>>,
    pub(super) job: Job<Sent>,
}

#[derive(Debug)]
pub(super) struct Sending {
    pub(super) link: LinkKey,
    pub(super) is_in_transaction: bool,
    pub(super) job: Job<Sent>,
}

impl Core {
    pub(super) fn send(&mut self, key: LinkKey, outbound: Outbound) {
        let Some(link) = self.links.get_mut(&key) else {
            let closed = Error::refused("the sender was closed");
            outbound.job.finish(Err(closed));
            return;
        };
        link.queue.push_back(outbound);
        self.stir_link(key);
    }

    pub(super) fn want(&mut self, key: LinkKey, count: u32) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        let inbox = link.inbox.as_ref();
        let taken = inbox.map_or(0, |inbox| inbox.max_capacity() - inbox.capacity());
        link.wanted = count.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
        self.stir_link(key);
    }

    pub(super) fn drain(&mut self, key: LinkKey, job: Job<()>) {
        let (Some(link), Some(wire)) = (self.links.get_mut(&key), &mut self.wire) else {
            job.finish(Ok(()));
            return;
        };
        link.wanted = 0;
        match link.phase {
            Phase::Attached(id) if wire.amqp.credit(id) > 0 && job.start() => {
                wire.amqp.drain(id);
                link.draining = Some(job);
            }
            Phase::Attached(_)
            | Phase::Detached
            | Phase::AwaitsToken
            | Phase::Attaching(_)
            | Phase::Over(_) => job.finish(Ok(())),
        }
    }

    pub(super) fn grant(&mut self, key: LinkKey, id: LinkId) {
        let (Some(link), Some(wire)) = (self.links.get(&key), &mut self.wire) else {
            return;
        };
        let is_receiver = link.inbox.is_some() && link.draining.is_none();
        if is_receiver && wire.amqp.credit(id) != link.wanted {
            wire.amqp.grant(id, link.wanted);
        }
    }

    pub(super) fn send_queued(&mut self, key: LinkKey, id: LinkId) {
        loop {
            let next = self.links.get(&key).and_then(|link| link.queue.front());
            let transaction = next.and_then(|next| next.transaction.as_ref());
            let ended = self.end_of(transaction);
            let (Some(link), Some(wire)) = (self.links.get_mut(&key), &mut self.wire) else {
                return;
            };
            let Some(next) = link.queue.front() else {
                return;
            };
            if next.job.is_withdrawn() {
                link.queue.pop_front();
                continue;
            }
            if !wire.amqp.can_send_or_await(id) {
                self.blocked.insert(Owner::Link(key));
                return;
            }
            let Some(next) = link.queue.pop_front() else {
                return;
            };
            if let Some(error) = ended {
                next.job.finish(Err(error));
                continue;
            }
            if !next.job.start() {
                continue;
            }
            self.last_number += 1;
            let outgoing = Outgoing {
                tag: tag_of(self.last_number),
                message_format: next.message_format,
                is_settled: false,
                state: next.transaction.as_ref().map(|it| it.state(None)),
            };
            match wire.amqp.send(id, outgoing, [next.payload, Bytes::new()]) {
                Ok(delivery) => {
                    let sending = Sending {
                        link: key,
                        is_in_transaction: next.transaction.is_some(),
                        job: next.job,
                    };
                    self.sending.insert(delivery, sending);
                    link.begin_one(self.now);
                }
                Err(refusal) => next.job.finish(Err(error_of(&refusal))),
            }
        }
    }

    /// Why nothing more can be done in a transaction, if it is so.
    pub(super) fn end_of(&self, transaction: Option<&Arc<TransactionName>>) -> Option<Error> {
        let coordinator = transaction?.coordinator;
        match self.links.get(&coordinator) {
            Some(link) if link.is_attached() => None,
            Some(_) | None => {
                let ended = || Error::rolled_back("the transaction has ended");
                Some(self.over(coordinator).unwrap_or_else(ended))
            }
        }
    }

    pub(super) fn on_link_delivery(&mut self, key: LinkKey, delivery: Delivery) {
        let inbound = Inbound {
            // It is kept for long, and shares the buffer of the input.
            payload: Bytes::copy_from_slice(&delivery.payload),
            tag: delivery.tag,
            delivery: (!delivery.is_settled).then_some(DeliveryName {
                connection: self.connection_number,
                id: delivery.delivery,
            }),
        };
        let mut is_taken = false;
        if let Some(link) = self.links.get_mut(&key) {
            link.wanted = link.wanted.saturating_sub(1);
            let inbox = link.inbox.as_ref();
            is_taken = inbox.is_some_and(|inbox| inbox.try_send(Ok(inbound)).is_ok());
        }
        if !is_taken && !delivery.is_settled {
            self.release(delivery.delivery);
        }
    }

    /// A message is larger than the client takes: it goes back, and its receiver hears of it.
    pub(super) fn on_oversized(&mut self, owner: &Owner, oversized: &Oversized) {
        self.release(oversized.delivery);
        match owner {
            Owner::Link(key) => {
                let limit = self.settings.message_size_max;
                let text = format!(
                    "a message is larger than message_size_max, which is {limit} bytes: {}",
                    oversized.error
                );
                let link = self.links.get(key);
                if let Some(inbox) = link.and_then(|link| link.inbox.as_ref()) {
                    // If it is full, its receiver has messages to see to, and meets this one again.
                    let _ = inbox.try_send(Err(Error::refused(text)));
                }
            }
            Owner::Answers(node) => {
                let text = format!("an answer is too large: {}", oversized.error);
                self.fail_node(&node.clone(), &Error::later(text));
            }
            Owner::Requests(_) => {}
        }
    }

    /// Gives a message back as it was. Of one without a lock nothing is said.
    fn release(&mut self, delivery: DeliveryId) {
        if let Some(wire) = &mut self.wire {
            let released = DeliveryState::Outcome(Outcome::Released);
            wire.amqp.settle(delivery, Some(released));
        }
    }
}

pub(super) fn error_of(refusal: &SendRefusal) -> Error {
    let text = refusal.to_string();
    match refusal {
        SendRefusal::TooLarge { .. } => Error::refused(text),
        SendRefusal::NoLink
        | SendRefusal::NoCredit
        | SendRefusal::Blocked
        | SendRefusal::Unsettled(_) => Error::later(text),
    }
}

pub(super) fn tag_of(number: u64) -> Tag {
    let mut tag = [0; 16];
    for (place, byte) in tag.iter_mut().zip(number.to_be_bytes()) {
        *place = byte;
    }
    Tag::from(tag)
}
