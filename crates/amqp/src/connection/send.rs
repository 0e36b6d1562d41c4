//! Outgoing messages (AMQP 1.0, 2.6.12 to 2.6.14).

use bytes::Bytes;

use super::deliveries::Unsettled;
use super::link::{LinkState, Sending};
use super::session::channel_of;
use super::steps::steps_to_look_at;
use super::{Connection, DeliveryId, Direction, Event, LinkId, SendRefusal, SessionId};
use crate::performative::{DeliveryState, Role, Tag, Transfer};

/// The properties of an outgoing message.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Its tag.
    pub tag: Tag,
    /// The format of the payload.
    pub message_format: u32,
    /// Whether it is sent settled. On a link whose sender settles everything, it always is.
    pub is_settled: bool,
    /// The state: that of a transaction.
    pub state: Option<DeliveryState>,
}

impl Connection {
    /// Whether a message can be sent on a link now.
    pub fn can_send(&self, id: LinkId) -> bool {
        self.check_send(id, 0).is_ok()
    }

    /// Whether a message can be sent, before it is made. If only room is missing, `Event::Writable` reports when there is
    /// room.
    pub fn can_send_or_await(&mut self, id: LinkId) -> bool {
        self.check_send_or_await(id).is_ok()
    }

    /// Checks the same, and says why it cannot be sent. If only room is missing,
    /// `Event::Writable` reports when there is room.
    ///
    /// # Errors
    ///
    /// If a message cannot be sent.
    pub fn check_send_or_await(&mut self, id: LinkId) -> Result<(), SendRefusal> {
        let checked = self.check_send(id, 0);
        if let Err(refusal) = &checked
            && refusal.is_of_session()
        {
            self.await_room(id.session);
        }
        checked
    }

    /// Sends a message of two parts: a new head, and the stored rest. If needed, it is split into
    /// several frames. Frames that find no room are sent later.
    ///
    /// The message has a name until it is settled.
    pub fn send(
        &mut self,
        id: LinkId,
        message: Outgoing,
        payload: [Bytes; 2],
    ) -> Result<DeliveryId, SendRefusal> {
        let size = payload.iter().map(|part| part.len() as u64).sum();
        if let Err(refusal) = self.check_send(id, size) {
            if refusal.is_of_session() {
                self.await_room(id.session);
            }
            return Err(refusal);
        }
        let Some(session) = self.sessions.get_mut(id.session.0) else {
            return Err(SendRefusal::NoLink);
        };
        let Some(link) = session.links.get_mut(id.key) else {
            return Err(SendRefusal::NoLink);
        };
        let delivery_id = session.next_delivery_id;
        session.next_delivery_id = delivery_id.wrapping_add(1);
        link.credit -= 1;
        link.delivery_count = link.delivery_count.wrapping_add(1);
        let is_settled = message.is_settled || link.is_settled_mode;
        let tag = message.tag;
        if !is_settled {
            link.unsettled += 1;
            let delivery = Unsettled { link: id.key, tag };
            session.outgoing.insert(delivery_id, delivery);
        }
        let sending = Sending {
            link: id.key,
            transfer: Transfer {
                handle: id.key.index,
                delivery_id: Some(delivery_id),
                delivery_tag: Some(tag),
                message_format: Some(message.message_format),
                settled: Some(is_settled),
                more: false,
                rcv_settle_mode: None,
                state: message.state,
                resume: false,
                aborted: false,
                batchable: false,
            },
            payload,
        };
        self.sending_size += sending.size();
        session.sending = Some(sending);
        self.pump(id.session);
        Ok(DeliveryId {
            session: id.session,
            direction: Direction::Outgoing,
            id: delivery_id,
        })
    }

    fn check_send(&self, id: LinkId, size: u64) -> Result<(), SendRefusal> {
        let session = self.sessions.get(id.session.0).ok_or(SendRefusal::NoLink)?;
        let link = session.links.get(id.key).ok_or(SendRefusal::NoLink)?;
        if link.state != LinkState::Attached || link.role != Role::Sender {
            return Err(SendRefusal::NoLink);
        }
        if link.credit == 0 {
            return Err(SendRefusal::NoCredit);
        }
        let limit = link.message_size_max;
        if limit > 0 && size > limit {
            return Err(SendRefusal::TooLarge { size, limit });
        }
        if session.outgoing.len() >= self.limits.unsettled_max {
            return Err(SendRefusal::Unsettled(self.limits.unsettled_max));
        }
        let is_blocked = session.sending.is_some() || session.outgoing_window == 0;
        if is_blocked || self.is_full() || self.sending_size >= self.limits.sending_size_max {
            return Err(SendRefusal::Blocked);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.output.len() >= self.limits.output_size_max
    }

    fn await_room(&mut self, id: SessionId) {
        if let Some(session) = self.session(id) {
            session.is_awaited = true;
            self.block(id);
        }
    }

    /// A session whose window is closed waits for the peer, and one with too many unsettled deliveries for them to be
    /// settled: not for output to be taken.
    fn block(&mut self, id: SessionId) {
        let unsettled_max = self.limits.unsettled_max;
        let session = self.session(id);
        let waits_for_output = session.is_some_and(|session| {
            let has_more = session.sending.is_some() || session.outgoing.len() < unsettled_max;
            session.outgoing_window > 0 && has_more
        });
        if waits_for_output {
            self.blocked.insert(id);
        }
    }

    /// Sends as much of the current message as there is room for.
    fn pump(&mut self, id: SessionId) {
        loop {
            let is_full = self.is_full();
            let Some(session) = self.sessions.get_mut(id.0) else {
                return;
            };
            let Some(sending) = &mut session.sending else {
                return;
            };
            if is_full || session.outgoing_window == 0 {
                self.block(id);
                return;
            }
            session.outgoing_window -= 1;
            session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
            let size = sending.size();
            let Sending {
                transfer, payload, ..
            } = sending;
            let is_whole = self.output.transfer(channel_of(id), transfer, payload);
            self.sending_size -= size - sending.size();
            if is_whole {
                session.sending = None;
                return;
            }
            if self.output.is_oversized {
                return;
            }
            // The other transfers of a delivery repeat nothing of the first.
            let transfer = &mut sending.transfer;
            *transfer = Transfer {
                delivery_id: None,
                delivery_tag: None,
                message_format: None,
                settled: None,
                state: None,
                ..transfer.clone()
            };
        }
    }

    /// Continues after the window has opened, and notifies a caller that was refused.
    pub(super) fn resume(&mut self, id: SessionId) {
        self.pump(id);
        let is_full = self.is_full() || self.sending_size >= self.limits.sending_size_max;
        let unsettled_max = self.limits.unsettled_max;
        let Some(session) = self.session(id) else {
            return;
        };
        if !session.is_awaited {
            return;
        }
        let has_room = session.sending.is_none()
            && session.outgoing_window > 0
            && session.outgoing.len() < unsettled_max
            && !is_full;
        if has_room {
            session.is_awaited = false;
            self.events.push_back(Event::Writable { session: id });
        } else {
            self.block(id);
        }
    }

    /// Continues after a delivery to the peer was settled.
    pub(super) fn resume_if_awaited(&mut self, id: SessionId) {
        if self.session(id).is_some_and(|session| session.is_awaited) {
            self.resume(id);
        }
    }

    /// Continues after output was taken.
    pub(super) fn unblock(&mut self) {
        if self.blocked.is_empty() {
            return;
        }
        self.visited += steps_to_look_at(self.blocked.len());
        for id in std::mem::take(&mut self.blocked) {
            self.resume(id);
        }
    }
}
