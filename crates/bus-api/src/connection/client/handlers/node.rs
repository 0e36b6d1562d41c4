//! Nodes that answer requests: `$cbs` and `$management`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{DeliveryState, Outcome, Tag};
use kew_amqp::{Delivery, LinkId, Outgoing, SendRefusal};
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusQueueView, TransactionPart, TransactionWork};
use kew_engine::{EntityName, SequenceNumber};
use tokio::time::Instant;

use crate::connection::client::Client;
use crate::connection::client::links::attached::view_of;
use crate::connection::client::links::link::Link;
use crate::connection::client::links::requests::{Asker, Reply, Requests};
use crate::connection::client::parts::asked::{Asked, Cancelling};
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::transactions::{Failure, Noted, state_in};
use crate::connection::client::parts::turn::{REQUEST_STEPS, steps_to_look_at};
use crate::ground::address::Node;
use crate::ground::refusal::{bus_condition, error_of, not_found, too_large_for_link};
use crate::ground::submit::Submitted;
use crate::management::{self, InTransaction};
use crate::memory::account::Sum;
use crate::messages::request::Request;
use crate::metrics::{Answered, Offered};

impl Client {
    pub(super) fn on_request(&mut self, delivery: &Delivery) {
        let Some(Link::Requests(requests)) = self.links.get(&delivery.link) else {
            return;
        };
        let asker = self.links.asker(delivery.link, requests.node.clone());
        self.renew_credit(delivery.link, Requests::CREDIT);
        self.turn.steps.charge(REQUEST_STEPS);
        let request = match Request::read(&delivery.payload) {
            Ok(request) => request,
            Err(error) => {
                let error = Error::from(error);
                self.transactions
                    .fail_if_meant(delivery.state.as_ref(), || error.clone());
                let state = DeliveryState::rejected(error);
                self.connection.settle(delivery.delivery, Some(state));
                return;
            }
        };
        if let Some(DeliveryState::Transactional(state)) = &delivery.state {
            return self.request_in_transaction(delivery, asker, request, &state.txn_id);
        }
        self.connection
            .settle(delivery.delivery, Some(DeliveryState::ACCEPTED));
        match &asker.node {
            Node::Management(entity) => {
                let context = self.context_of(entity.clone(), &request);
                self.manage(asker, context, request, delivery.payload.len());
            }
            _ => self.put_token(asker, &request, delivery.payload.len()),
        }
    }

    /// A request to `$cbs` was answered.
    pub(super) fn note_token(&self, operation: &str, status: i32, took: Duration) {
        let code = match status {
            200..300 => None,
            401 => Some(condition::UNAUTHORIZED_ACCESS),
            403 => Some(condition::RESOURCE_LIMIT_EXCEEDED),
            _ => Some(bus_condition::ARGUMENT_ERROR),
        };
        let answered = Answered {
            operation,
            status,
            code,
            took,
        };
        self.shared
            .observer
            .note_request(&self.peer.origin, "$cbs", &answered);
        if status == 401 {
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, "the token was refused");
            self.shared
                .observer
                .note_denied(&self.peer.origin, Offered::Token, &error);
        }
    }

    /// Handles a request in a transaction: it takes effect with the commit, or at once if none of
    /// it can be rolled back. In both cases it is answered at once.
    fn request_in_transaction(
        &mut self,
        delivery: &Delivery,
        asker: Asker,
        request: Request,
        transaction: &[u8],
    ) {
        let Node::Management(entity) = &asker.node else {
            let text = "A request that puts a token cannot be part of a transaction.";
            let error = Error::new(condition::NOT_ALLOWED, text);
            self.transactions.fail(transaction, error.clone());
            let state = DeliveryState::rejected(error);
            self.connection.settle(delivery.delivery, Some(state));
            return;
        };
        let state = state_in(transaction, Outcome::Accepted);
        self.connection.settle(delivery.delivery, Some(state));
        let began = Instant::now();
        let context = self.context_of(entity.clone(), &request);
        let timeout = self.shared.limits.transaction_timeout;
        let checked = self.transactions.check(transaction, timeout);
        let checked = checked.map_err(Failure::of_operation);
        let asked = Asked {
            asker,
            transaction: transaction.to_vec().into(),
            context,
            request,
            began,
        };
        let size_bytes = delivery.payload.len();
        let in_transaction = || management::in_transaction(&asked.context, &asked.request);
        match checked.and_then(|()| in_transaction()) {
            Ok(InTransaction::Now) => {
                let Asked {
                    asker,
                    context,
                    request,
                    ..
                } = asked;
                self.manage(asker, context, request, size_bytes);
            }
            Ok(InTransaction::Settle(settlements)) => {
                let queue = &asked.context.entity;
                self.turn.steps.charge(settlements.len());
                let result = settlements.into_iter().try_for_each(|(lock, disposition)| {
                    let noted = Noted::Settled(management::settled(&disposition));
                    let part = TransactionPart {
                        queue: queue.clone(),
                        // Locks name it themselves.
                        incarnation: None,
                        work: TransactionWork::Settle(lock, disposition),
                    };
                    self.enlist(transaction, part, noted)
                });
                self.answer_in_transaction(asked, result);
            }
            Ok(InTransaction::Cancel(numbers)) => self.cancel(asked, numbers, size_bytes),
            Err(error) => self.answer_in_transaction(asked, Err(error)),
        }
    }

    fn answer_in_transaction(&mut self, asked: Asked, result: Result<(), Error>) {
        let Asked {
            asker,
            transaction,
            context,
            request,
            began,
        } = asked;
        if let Err(why) = &result {
            self.transactions.fail(&transaction, why.clone());
        }
        let reply = Reply {
            answer: management::answer_in_transaction(&context, &request, result, began),
            reply_to: request.asked.reply_to,
            renewed: None,
            room: None,
        };
        self.reply(&asker, reply);
    }

    /// Cancels scheduled messages in a transaction: those of the queue that has this name now. If
    /// another queue has the name at the commit, its numbers belong to other messages.
    fn cancel(&mut self, asked: Asked, numbers: Vec<SequenceNumber>, size_bytes: usize) {
        self.load.begin_request();
        // They may have been sent before.
        self.hand_over();
        self.transactions.look_for(&asked.transaction);
        let queue = asked.context.entity.clone();
        let read = Submitted::new(&self.broker, BusCommand::ReadQueue { queue });
        let cancelling = Box::new(Cancelling {
            asked,
            numbers,
            _size: self.load.account.fixed(Sum::RequestBytes, size_bytes),
        });
        self.tasks.spawn(async move {
            let view = read.answer().await.map(view_of);
            Done::Cancelling(cancelling, view)
        });
    }

    pub(super) fn on_cancelling(
        &mut self,
        cancelling: Cancelling,
        view: Result<Option<Box<BusQueueView>>, Rejection>,
    ) {
        self.load.end_request();
        let Cancelling { asked, numbers, .. } = cancelling;
        let transaction = asked.transaction.clone();
        let queue = asked.context.entity.clone();
        let discharge = self.transactions.found(&transaction);
        let result = match view {
            Ok(Some(view)) => {
                let part = TransactionPart {
                    queue,
                    incarnation: Some(view.incarnation),
                    work: TransactionWork::CancelScheduled(numbers),
                };
                self.enlist(&transaction, part, Noted::Cancelled)
            }
            Ok(None) => Err(not_found(&queue.name)),
            Err(rejection) => Err(error_of(&rejection)),
        };
        self.answer_in_transaction(asked, result);
        if let Some(discharge) = discharge
            && !self.transactions.put_off(&transaction, discharge)
        {
            self.commit(discharge, &transaction);
        }
    }

    fn context_of(&mut self, entity: EntityName, request: &Request) -> management::Context {
        // The session may belong to any link.
        self.turn.steps.charge(steps_to_look_at(self.links.len()));
        management::Context {
            shared: Arc::clone(&self.shared),
            broker: Arc::clone(&self.broker),
            origin: self.peer.origin,
            is_busy: !self.has_room_beside_others(),
            rights: self.credentials.grants.rights_of_requests(&entity),
            session: self.links.session_named(&entity, request),
            entity,
            renewed_until: OnceLock::new(),
        }
    }

    fn manage(
        &mut self,
        asker: Asker,
        context: management::Context,
        request: Request,
        size_bytes: usize,
    ) {
        let request_part = self.load.account.fixed(Sum::RequestBytes, size_bytes);
        self.load.begin_request();
        // The request may refer to messages that were sent before it.
        self.hand_over();
        self.tasks.spawn(async move {
            let reply_to = request.asked.reply_to.clone();
            let (answer, room) = management::answer(&context, request).await;
            drop(request_part);
            let until = context.renewed_until.get().copied();
            let reply = Reply {
                reply_to,
                answer,
                renewed: context.session.zip(until),
                room,
            };
            Done::Answered(asker, reply)
        });
    }

    /// Sends an answer to a request.
    pub(super) fn reply(&mut self, asker: &Asker, reply: Reply) {
        let steps = steps_to_look_at(self.links.replies().len());
        self.turn.steps.charge(steps);
        let Some(id) = self.links.for_answer(asker, &reply.reply_to) else {
            tracing::debug!("there is no link for an answer");
            return;
        };
        // Answers of this turn that have credit need not wait longer.
        self.pump_replies(id);
        let limits = &self.shared.limits;
        let size_bytes = self.load.account.value(Sum::ReplyBytes) + reply.answer.len();
        let is_over = size_bytes > limits.replies_size_bytes_max;
        let part = self.load.account.fixed(Sum::ReplyBytes, reply.answer.len());
        drop(reply.room);
        if let Some(Link::Replies(replies)) = self.links.get_mut(id) {
            let count = replies.waiting.len();
            if count >= limits.replies_max || (is_over && count > 0) {
                let text = format!(
                    "{count} answers wait for credit, which is the maximum: give credit to this \
                     link"
                );
                let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
                return self.detach(id, error);
            }
            replies.waiting.push_back((reply.answer, part));
            self.stirred.links.insert(id);
        }
    }

    pub(super) fn pump_replies(&mut self, link: LinkId) {
        let Some(Link::Replies(replies)) = self.links.get_mut(link) else {
            return;
        };
        while let Some((answer, _)) = replies.waiting.front() {
            let mut tag = [0; 16];
            for (place, byte) in tag.iter_mut().zip(replies.next_tag.to_be_bytes()) {
                *place = byte;
            }
            let outgoing = Outgoing {
                tag: Tag::from(tag),
                message_format: 0,
                is_settled: replies.is_settled,
                state: None,
            };
            let parts = [answer.clone(), Bytes::new()];
            self.turn.steps.charge(1);
            match self.connection.send(link, outgoing, parts) {
                Ok(_) => {}
                Err(refusal @ SendRefusal::TooLarge { .. }) => {
                    return self.detach(link, too_large_for_link(&refusal));
                }
                Err(refusal) => {
                    self.stirred.note_refused(link, &refusal);
                    return;
                }
            }
            replies.next_tag += 1;
            replies.waiting.pop_front();
        }
    }
}
