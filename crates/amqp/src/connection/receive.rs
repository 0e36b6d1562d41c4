//! Incoming messages (AMQP 1.0, 2.6.12 to 2.6.14).

use bytes::{Bytes, BytesMut};

use super::deliveries::Unsettled;
use super::flow::ahead;
use super::link::{LinkState, Partial};
use super::{
    Connection, Delivery, DeliveryId, Direction, Event, Fault, LinkId, Oversized, SessionId,
};
use crate::error::{Error, condition};
use crate::performative::{Role, Transfer};

impl Connection {
    pub(super) fn on_transfer(
        &mut self,
        id: SessionId,
        transfer: Transfer,
        payload: Bytes,
    ) -> Result<(), Fault> {
        let Some(session) = self.session(id) else {
            return Ok(());
        };
        let Some(window) = session.incoming_window.checked_sub(1) else {
            let text = "a transfer arrived while the window was closed";
            let error = Error::new(condition::WINDOW_VIOLATION, text);
            return Err(Fault::Session(id, error));
        };
        session.incoming_window = window;
        session.next_incoming_id = session.next_incoming_id.wrapping_add(1);
        let key = session.by_handle(id, transfer.handle)?;
        self.refresh_window(id);
        let link = LinkId { session: id, key };
        let Some(own) = self.link(link) else {
            return Ok(());
        };
        match (own.state, own.role) {
            (LinkState::DetachSent { .. }, _) => Ok(()),
            (_, Role::Sender) => {
                let text = "a transfer arrived on a link that cannot receive";
                Err(Fault::Session(id, Error::new(condition::NOT_ALLOWED, text)))
            }
            _ => self.on_link_transfer(link, transfer, payload),
        }
    }

    fn on_link_transfer(
        &mut self,
        id: LinkId,
        transfer: Transfer,
        payload: Bytes,
    ) -> Result<(), Fault> {
        if transfer.resume {
            let text = "resuming deliveries of an earlier link is not supported";
            let error = Error::new(condition::NOT_IMPLEMENTED, text);
            return Err(Fault::Link(id, error));
        }
        let begun = self.link_mut(id).and_then(|link| link.partial.take());
        let kept = begun.as_ref().map_or(0, |begun| begun.payload.len() as u64);
        self.reassembly_size -= kept;
        let partial = match begun {
            Some(begun) => continued(id.session, begun, &transfer)?,
            None => self.first_part(id, &transfer)?,
        };
        if transfer.aborted || partial.is_settled {
            self.uncount(id, partial.id);
        }
        if transfer.aborted {
            return Ok(());
        }
        let limit = self.link(id).map_or(0, |link| link.message_size_max);
        if partial.size() + payload.len() as u64 > limit {
            return self.discard_part(id, partial, &payload, transfer.more);
        }
        if transfer.more {
            self.keep_part(id, partial, &payload)
        } else {
            self.deliver(id, partial, payload);
            Ok(())
        }
    }

    /// The first transfer of a delivery, which uses credit.
    fn first_part(&mut self, id: LinkId, transfer: &Transfer) -> Result<Partial, Fault> {
        let (Some(delivery_id), Some(tag)) = (transfer.delivery_id, transfer.delivery_tag) else {
            let text = "the first transfer of a delivery must have an id and a tag";
            let error = Error::new(condition::INVALID_FIELD, text);
            return Err(Fault::Session(id.session, error));
        };
        let unsettled_max = self.limits.unsettled_max;
        let Some(session) = self.session(id.session) else {
            return Err(gone(id.session));
        };
        if session.incoming.has(delivery_id, &session.links) {
            let text = format!("delivery {delivery_id} was sent again before it was settled");
            let error = Error::new(condition::INVALID_FIELD, text);
            return Err(Fault::Session(id.session, error));
        }
        let unsettled = session.incoming.len();
        let Some(link) = session.links.get_mut(id.key) else {
            return Err(gone(id.session));
        };
        if link.credit == 0 && ahead(link.granted, link.delivery_count) == 0 {
            let text = "a delivery arrived without credit";
            let error = Error::new(condition::TRANSFER_LIMIT_EXCEEDED, text);
            return Err(Fault::Link(id, error));
        }
        if unsettled >= unsettled_max && transfer.settled != Some(true) {
            let text =
                format!("at most {unsettled_max} unsettled deliveries are allowed in a session");
            let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            return Err(Fault::Link(id, error));
        }
        link.credit = link.credit.saturating_sub(1);
        link.delivery_count = link.delivery_count.wrapping_add(1);
        let is_settled = transfer.settled == Some(true);
        if !is_settled {
            let delivery = Unsettled { link: id.key, tag };
            session.incoming.insert(delivery_id, delivery);
            link.unsettled += 1;
        }
        Ok(Partial {
            id: delivery_id,
            tag,
            message_format: transfer.message_format.unwrap_or(0),
            is_settled,
            state: transfer.state.clone(),
            payload: BytesMut::new(),
            discarded_size: 0,
        })
    }

    /// A part of a message that is larger than its link allows: it is discarded. The caller learns
    /// of it when it is complete, because its sender expects an outcome only then.
    fn discard_part(
        &mut self,
        id: LinkId,
        mut partial: Partial,
        payload: &Bytes,
        has_more: bool,
    ) -> Result<(), Fault> {
        let size = partial.size() + payload.len() as u64;
        partial.payload = BytesMut::new();
        partial.discarded_size = size;
        let limit = self.link(id).map_or(0, |link| link.message_size_max);
        let text = format!(
            "The received message (delivery-id:{}, size:{size} bytes) exceeds the limit ({limit} bytes) \
             currently allowed on the link.",
            partial.id
        );
        let error = Error::new(condition::MESSAGE_SIZE_EXCEEDED, text);
        if size > self.limits.discarded_size_max {
            return Err(Fault::Link(id, error));
        }
        if has_more {
            if let Some(link) = self.link_mut(id) {
                link.partial = Some(partial);
            }
            return Ok(());
        }
        self.events.push_back(Event::Oversized(Oversized {
            link: id,
            delivery: incoming(id, partial.id),
            state: partial.state,
            error,
        }));
        Ok(())
    }

    fn keep_part(
        &mut self,
        id: LinkId,
        mut partial: Partial,
        payload: &Bytes,
    ) -> Result<(), Fault> {
        let size = partial.payload.len() as u64 + payload.len() as u64;
        let limit = self.limits.reassembly_size_max;
        if self.reassembly_size.saturating_add(size) > limit {
            let text = format!("unfinished messages can have at most {limit} bytes in all");
            let error = Error::new(self.limits.reassembly_condition, text);
            return Err(Fault::Link(id, error));
        }
        partial.payload.extend_from_slice(payload);
        if let Some(link) = self.link_mut(id) {
            link.partial = Some(partial);
            self.reassembly_size += size;
        }
        Ok(())
    }

    fn deliver(&mut self, link: LinkId, partial: Partial, last: Bytes) {
        let Partial {
            id,
            tag,
            message_format,
            is_settled,
            state,
            mut payload,
            discarded_size: _,
        } = partial;
        let payload = if payload.is_empty() {
            last
        } else {
            payload.extend_from_slice(&last);
            payload.freeze()
        };
        self.events.push_back(Event::Delivery(Delivery {
            link,
            delivery: incoming(link, id),
            tag,
            message_format,
            is_settled,
            state,
            payload,
        }));
    }

    /// A delivery that the sender settles before it is complete no longer counts. A delivery that
    /// arrived settled never counted, and another link may have its number by now.
    fn uncount(&mut self, id: LinkId, delivery: u32) {
        let Some(session) = self.session(id.session) else {
            return;
        };
        if session.incoming.take_of(delivery, id.key)
            && let Some(link) = session.links.get_mut(id.key)
        {
            link.unsettled -= 1;
        }
    }
}

/// Another transfer of a delivery that has begun.
fn continued(
    session: SessionId,
    mut begun: Partial,
    transfer: &Transfer,
) -> Result<Partial, Fault> {
    if transfer.delivery_id.is_some_and(|id| id != begun.id) {
        let text = format!("delivery {} continues with another id", begun.id);
        let error = Error::new(condition::INVALID_FIELD, text);
        return Err(Fault::Session(session, error));
    }
    begun.is_settled |= transfer.settled == Some(true);
    if transfer.state.is_some() {
        begun.state.clone_from(&transfer.state);
    }
    Ok(begun)
}

fn incoming(link: LinkId, id: u32) -> DeliveryId {
    DeliveryId {
        session: link.session,
        direction: Direction::Incoming,
        id,
    }
}

fn gone(session: SessionId) -> Fault {
    let text = "the link was detached";
    Fault::Session(session, Error::new(condition::UNATTACHED_HANDLE, text))
}
