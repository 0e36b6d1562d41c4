//! Receiving: messages that go to a client.
//!
//! A link with credit receives the available messages, and again when all of them are sent. Only if
//! there are none, it has a task, one at most, that waits.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use kew_amqp::error::Error;
use kew_amqp::{LinkId, Outgoing, SendRefusal};
use kew_broker::{Answer, Answered, Rejection, Watch};
use kew_engine::EntityName;
use kew_engine::bus::{Awaited, BusCommand, Disposition, ReceiveMode};

use crate::connection::client::Client;
use crate::connection::client::links::cancel::Cancel;
use crate::connection::client::links::link::Link;
use crate::connection::client::links::receive::{FirstLook, Looked, Next, Receive, Received};
use crate::connection::client::links::receiver::{Ready, Receiver, ready, size_of};
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::orders::Purpose;
use crate::connection::client::parts::turn::{WAIT_STEPS, steps_to_change, steps_to_copy};
use crate::ground::refusal::{error_of, too_large_for_link};
use crate::memory::account::Sum;
use crate::memory::holdings::Room;
use crate::messages::batch::batch_of;

impl Client {
    pub(super) fn on_credit(&mut self, link: LinkId, is_drain: bool) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(link) {
            receiver.is_drain = is_drain;
            if let (true, Some(cancel)) = (is_drain, &receiver.receiving) {
                cancel.hurry();
            }
        }
        if is_drain && matches!(self.links.get(&link), Some(Link::Replies(_))) {
            self.pump_replies(link);
            self.connection.drained(link);
        }
        self.stirred.links.insert(link);
    }

    /// Sends ready messages, and receives more while there is credit.
    pub(super) fn pump(&mut self, link: LinkId) {
        if let Err(error) = self.send_ready(link) {
            return self.detach(link, error);
        }
        let credit = self.connection.credit(link);
        let may_receive = self.may_receive();
        let count_max = match self.load.room {
            Room::Much => u32::MAX,
            Room::None | Room::Gone => 1,
        };
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            return;
        };
        receiver.credit.set(credit as usize);
        if credit == 0 {
            receiver.is_drain = false;
            if let Some(cancel) = &receiver.receiving {
                cancel.give_up();
            }
            let unwanted = match receiver.mode {
                ReceiveMode::PeekLock => receiver.ready.take(),
                // They are nowhere else: they wait for credit.
                ReceiveMode::ReceiveAndDelete => VecDeque::new(),
            };
            let entity = receiver.attached.entity.clone();
            self.connection.drained(link);
            return self.give_back(entity, unwanted);
        }
        if receiver.receiving.is_none() && receiver.ready.messages.is_empty() {
            let count = credit.min(receiver.count).min(count_max);
            if may_receive {
                self.receive(link, count);
            } else if receiver.is_drain {
                // A client that drains waits for the answer, not for room: there is no message for
                // it now.
                receiver.is_drain = false;
                receiver.credit.set(0);
                self.connection.drained(link);
            } else {
                self.stirred.starved.insert(link);
            }
        }
    }

    fn send_ready(&mut self, link: LinkId) -> Result<(), Error> {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            return Ok(());
        };
        while let Some(ready) = receiver.ready.messages.front() {
            if let Err(refusal) = self.connection.check_send_or_await(link) {
                self.stirred.note_refused(link, &refusal);
                return Ok(());
            }
            let changes = ready.bytes.iter().skip(1).map(Bytes::len).sum();
            self.turn.steps.charge(1 + steps_to_change(changes));
            let Some(parts) = ready.encode() else {
                receiver.ready.pop();
                continue;
            };
            let outgoing = Outgoing {
                tag: ready.tag(),
                message_format: 0,
                is_settled: receiver.mode == ReceiveMode::ReceiveAndDelete,
                state: None,
            };
            let size_bytes = size_of(&parts);
            match self.connection.send(link, outgoing, parts) {
                Ok(delivery) => {
                    let lock = ready.message.lock;
                    let instruments = &self.shared.observer.instruments;
                    instruments.note_delivery(lock.is_some(), size_bytes);
                    if let Some(lock) = lock {
                        receiver.held.insert(delivery, lock);
                    }
                }
                Err(refusal @ SendRefusal::TooLarge { .. }) => {
                    return Err(too_large_for_link(&refusal));
                }
                Err(refusal) => {
                    self.stirred.note_refused(link, &refusal);
                    return Ok(());
                }
            }
            receiver.ready.pop();
        }
        Ok(())
    }

    fn receive(&mut self, link: LinkId, count: u32) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            return;
        };
        let cancel = Arc::<Cancel>::default();
        receiver.receiving = Some(Arc::clone(&cancel));
        let command = BusCommand::Receive {
            queue: receiver.attached.entity.clone(),
            count,
            mode: receiver.mode,
            session: receiver.session.as_ref().map(|session| session.lock),
        };
        let incarnation = receiver.attached.incarnation;
        let awaited = match &receiver.session {
            Some(session) => Awaited::OfSession(session.session.clone()),
            None => Awaited::Message,
        };
        let size_bytes = receiver.largest_size_bytes.saturating_mul(count as usize);
        let may_wait = !receiver.is_drain;
        let receive = Receive {
            shared: Arc::clone(&self.shared),
            broker: Arc::clone(&self.broker),
            queue: receiver.attached.entity.clone(),
            command,
            size_bytes,
            cancel,
        };
        // No message that arrives from now on is missed.
        let watch = may_wait.then(|| self.broker.watch(incarnation, awaited));
        let Some(room) = self.shared.answers.try_for(size_bytes) else {
            return self.receive_later(link, receive, watch, Next::Look);
        };
        let command = receive.command.clone();
        let look = FirstLook {
            link,
            receive,
            watch,
            room,
        };
        let key = self.submit(command, Purpose::Receive(Box::new(look)));
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(link) {
            receiver.looked_as = Some(key);
        }
    }

    fn receive_later(&mut self, link: LinkId, receive: Receive, watch: Option<Watch>, next: Next) {
        self.turn.steps.charge(WAIT_STEPS);
        self.tasks.spawn(async move {
            let queue = receive.queue.clone();
            let received = receive.run(watch, next).await;
            Done::Received(link, queue, received)
        });
    }

    /// The available messages, or a wait if there were none.
    pub(super) fn on_first_look(&mut self, look: FirstLook, reply: Result<Answered, Rejection>) {
        let FirstLook {
            link,
            receive,
            watch,
            room,
        } = look;
        let copied = reply.as_ref().map_or(0, Answered::size_to_copy_bytes);
        self.turn.steps.charge(steps_to_copy(copied));
        let answer = match reply.map(Answer::at_once) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(answered)) => {
                let broker = Arc::clone(&self.broker);
                self.tasks.spawn(async move {
                    let queue = receive.queue.clone();
                    let answer = broker.read(*answered).await;
                    let received = answer.map(|answer| Received {
                        batch: batch_of(answer),
                        room: Some(room),
                    });
                    Done::Received(link, queue, received)
                });
                return;
            }
            Err(rejection) => Err(rejection),
        };
        match Looked::of(answer) {
            Looked::Found(batch) => {
                let room = Some(room);
                self.on_received(link, receive.queue, Ok(Received { batch, room }));
            }
            Looked::Refused(rejection) => self.on_received(link, receive.queue, Err(rejection)),
            Looked::Not(next) => {
                drop(room);
                self.receive_later(link, receive, watch, next);
            }
        }
    }

    pub(super) fn on_received(
        &mut self,
        link: LinkId,
        entity: EntityName,
        received: Result<Received, Rejection>,
    ) {
        let is_full = self.load.account.value(Sum::ReadyBytes)
            >= self.shared.limits.ready_size_bytes_max.saturating_mul(2);
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            // The link went away in the meantime.
            let batch = received.map(|received| received.batch).unwrap_or_default();
            let unwanted = batch.into_iter().map(ready);
            return self.give_back(entity, unwanted.collect());
        };
        let cancel = receiver.receiving.take();
        let Received { batch, room } = match received {
            Ok(received) => received,
            Err(rejection) => return self.detach(link, error_of(&rejection)),
        };
        let is_empty = batch.is_empty();
        self.turn.steps.charge(batch.len());
        receiver.learn_sizes(&batch);
        let batch = batch.into_iter().map(ready);
        if is_full && receiver.mode == ReceiveMode::PeekLock {
            // Other links of the connection were faster. That is harmless, because no client has
            // seen these messages.
            let unwanted = batch.collect();
            self.give_back(entity, unwanted);
            self.stirred.links.insert(link);
            return;
        }
        receiver.ready.extend(batch);
        // From now on the connection's own accounts count these messages.
        drop(room);
        let was_last_look = is_empty && receiver.is_drain;
        let is_stale = cancel.is_none_or(|cancel| cancel.is_given_up());
        if was_last_look && !is_stale {
            receiver.is_drain = false;
            self.connection.drained(link);
        }
        self.stirred.links.insert(link);
    }

    /// Unlocks messages that no client has seen.
    fn give_back(&mut self, queue: EntityName, unwanted: VecDeque<Ready>) {
        self.turn.steps.charge(unwanted.len());
        let locks = unwanted.into_iter().filter_map(|it| it.message.lock);
        let settlements: Vec<_> = locks.map(|lock| (lock, Disposition::Release)).collect();
        if !settlements.is_empty() {
            self.submit_and_forget(BusCommand::Settle { queue, settlements });
        }
    }

    pub(super) fn close_receiver(&mut self, receiver: Receiver) {
        if let Some(cancel) = &receiver.receiving {
            // Its task has one more turn.
            self.turn.steps.charge(WAIT_STEPS);
            cancel.detach();
        }
        let mut receiver = receiver;
        let unwanted = receiver.ready.take();
        let entity = receiver.attached.entity;
        self.give_back(entity.clone(), unwanted);
        if let Some(session) = receiver.session {
            // Settlements from before the detach are carried out before the session is released, if
            // the broker is not busy. After the release its messages may be delivered again.
            self.flush_settlements();
            self.submit_and_forget(BusCommand::ReleaseSession {
                queue: entity,
                session: session.lock,
            });
        }
    }
}
