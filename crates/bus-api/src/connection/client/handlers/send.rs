//! Sending: messages that come from a client.

use std::time::Duration;

use kew_amqp::error::Error;
use kew_amqp::performative::{DeliveryState, Outcome};
use kew_amqp::{Delivery, DeliveryId, LinkId, Oversized};
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusMessage, TransactionPart, TransactionWork};
use kew_engine::{EntityName, Incarnation};

use super::coordinator;
use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::links::requests::Requests;
use crate::connection::client::links::sender::Sender;
use crate::connection::client::parts::orders::Purpose;
use crate::connection::client::parts::transactions::{Noted, state_in};
use crate::ground::refusal::error_of;
use crate::messages::inbound::messages_of;
use crate::metrics::{Scope, Sent};

/// Where a link sends messages in a transaction.
struct To {
    queue: EntityName,
    /// `None` for whatever has that name: the link stays when its entity is deleted.
    incarnation: Option<Incarnation>,
    destination: Option<EntityName>,
    /// What gets failed transfers.
    first: Option<EntityName>,
}

impl To {
    fn part(self, messages: Vec<BusMessage>) -> TransactionPart {
        let work = match (self.destination, self.first) {
            (Some(to), _) => TransactionWork::SendVia(to, messages),
            (None, Some(first)) => TransactionWork::Transfer(first, messages),
            (None, None) => TransactionWork::Send(messages),
        };
        TransactionPart {
            queue: self.queue,
            incarnation: self.incarnation,
            work,
        }
    }
}

impl Client {
    pub(super) fn on_message(&mut self, delivery: &Delivery) {
        let Some(Link::Sender(sender)) = self.links.get(&delivery.link) else {
            return;
        };
        let queue = sender.attached.entity.clone();
        let incarnation = sender.attached.incarnation;
        let (destination, is_after_first) = (sender.destination.clone(), sender.is_after_first);
        self.renew_credit(delivery.link, Sender::CREDIT);
        if let Some(DeliveryState::Transactional(state)) = &delivery.state {
            let to = To {
                incarnation: (!is_after_first).then_some(incarnation),
                first: self.first_for(delivery.link, &queue, is_after_first),
                queue,
                destination,
            };
            return self.send_in_transaction(delivery, to, &state.txn_id);
        }
        let messages = match messages_of(&delivery.payload, delivery.message_format) {
            Ok(messages) => messages,
            Err(error) => return self.reject(delivery.delivery, error),
        };
        let sent = sent_of(&messages);
        self.turn.steps.charge(sent.messages);
        let send = match destination {
            None => BusCommand::Send { queue, messages },
            Some(to) => BusCommand::SendVia {
                via: queue,
                to,
                messages,
            },
        };
        let delivery = delivery.delivery;
        self.load.begin_sending(sent.size_bytes);
        self.load.sends += 1;
        self.submit(send, Purpose::Send { delivery, sent });
    }

    /// What gets the failed transfers of a link to another entity. Its messages become those, so the client needs a right
    /// on it when it sends them. Without that, what its own entity does not accept rolls the transaction back.
    fn first_for(
        &self,
        link: LinkId,
        entity: &EntityName,
        is_after_first: bool,
    ) -> Option<EntityName> {
        let first = self.links.first_before(link, entity);
        let first = first.filter(|first| is_after_first && first.is_open());
        let first = first.filter(|first| self.credentials.allow_failed_transfers(first));
        first.map(|first| first.whole.clone())
    }

    /// The messages are sent when the transaction is committed. The outcome accepted means that the
    /// transaction contains them.
    fn send_in_transaction(&mut self, delivery: &Delivery, to: To, transaction: &[u8]) {
        let messages = messages_of(&delivery.payload, delivery.message_format);
        let enlisted = match messages {
            Ok(messages) => {
                self.turn.steps.charge(messages.len());
                let noted = Noted::Sent(sent_of(&messages));
                self.enlist(transaction, to.part(messages), noted)
            }
            Err(error) => {
                self.transactions.fail(transaction, error.clone());
                Err(error)
            }
        };
        match enlisted {
            Ok(()) => {
                let state = state_in(transaction, Outcome::Accepted);
                self.connection.settle(delivery.delivery, Some(state));
            }
            Err(error) => self.reject(delivery.delivery, error),
        }
    }

    /// Renews a link's credit when half of it is used.
    pub(super) fn renew_credit(&mut self, link: LinkId, credit: u32) {
        if self.connection.credit(link) <= credit / 2 {
            self.connection.grant(link, credit);
        }
    }

    /// Rejects a message that is larger than its link allows. The link stays attached: clients look
    /// at the outcome of their message, and take a detached link for a fault of the connection.
    pub(super) fn on_oversized(&mut self, oversized: Oversized) {
        let Oversized {
            link,
            delivery,
            state,
            error,
        } = oversized;
        self.transactions
            .fail_if_meant(state.as_ref(), || error.clone());
        match self.links.get(&link) {
            Some(Link::Sender(_)) => {
                self.renew_credit(link, Sender::CREDIT);
                self.reject(delivery, error);
            }
            Some(Link::Requests(_)) => {
                self.renew_credit(link, Requests::CREDIT);
                self.reject_oversized(delivery, error);
            }
            Some(Link::Coordinator) => {
                self.renew_credit(link, coordinator::CREDIT);
                self.reject_oversized(delivery, error);
            }
            // No messages arrive over these.
            Some(Link::Opening(_) | Link::Receiver(_) | Link::Replies(_)) | None => {}
        }
    }

    /// If the link is not to an entity, the message counts as a broken rule of the link.
    fn reject_oversized(&mut self, delivery: DeliveryId, error: Error) {
        self.shared
            .observer
            .note_refusal(&self.peer.origin, Scope::Link, &error);
        self.reject_sent(delivery, error);
    }

    /// Rejects a transfer that does not reach the broker.
    fn reject(&mut self, delivery: DeliveryId, error: Error) {
        let nothing = Sent {
            messages: 0,
            size_bytes: 0,
        };
        let code = Some(error.condition.as_str());
        self.shared
            .observer
            .instruments
            .note_send(nothing, code, Duration::ZERO);
        self.reject_sent(delivery, error);
    }

    fn reject_sent(&mut self, delivery: DeliveryId, error: Error) {
        let state = DeliveryState::rejected(error);
        self.connection.settle(delivery, Some(state));
    }

    /// The messages are durable, or were refused. A transfer that was sent settled gets no answer.
    pub(super) fn on_sent(
        &mut self,
        delivery: DeliveryId,
        sent: Sent,
        took: Duration,
        result: Result<(), Rejection>,
    ) {
        self.load.end_sending(sent.size_bytes);
        self.load.sends = self.load.sends.saturating_sub(1);
        let is_unknown = matches!(result, Err(Rejection::Unknown));
        let error = result.err().map(|rejection| error_of(&rejection));
        let code = error.as_ref().map(|error| error.condition.as_str());
        self.shared.observer.instruments.note_send(sent, code, took);
        self.shared.observer.note_busy(code.unwrap_or_default());
        match error {
            None => {
                self.connection
                    .settle(delivery, Some(DeliveryState::ACCEPTED));
            }
            Some(error) if is_unknown => self.leave_unsettled(delivery, error),
            Some(error) => self.reject_sent(delivery, error),
        }
    }
}

fn sent_of(messages: &[BusMessage]) -> Sent {
    Sent {
        messages: messages.len(),
        size_bytes: messages.iter().map(|message| message.body.len()).sum(),
    }
}
