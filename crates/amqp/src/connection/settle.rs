//! The states and outcomes of deliveries (AMQP 1.0, 2.6.12 and 2.7.6).

use super::deliveries::{Range, Unsettled, Wanted};
use super::link::Link;
use super::session::channel_of;
use super::steps::steps_to_look_at;
use super::{Connection, DeliveryId, Direction, Event, Fault, LinkId, SessionId};
use crate::error::{Error, condition};
use crate::performative::{DeliveryState, Disposition, Role};

/// Two serial numbers cannot be further apart.
const SPAN_MAX: u32 = 0x7fff_ffff;

/// A peer's disposition for a range of deliveries, some of which are still to visit.
#[derive(Debug)]
pub(super) struct Told {
    session: SessionId,
    direction: Direction,
    range: Option<Range>,
    is_settled: bool,
    state: Option<DeliveryState>,
    /// How many of the range were not found so far.
    unmatched: u64,
}

impl Told {
    /// The event for one delivery, unless its caller does not know the delivery yet.
    fn event(&self, delivery: u32, own: Unsettled, link: &mut Link) -> Option<Event> {
        if let Some(partial) = link.partial.as_mut().filter(|it| it.id == delivery) {
            // It is reported with the complete delivery.
            partial.is_settled |= self.is_settled;
            // As in the parts of a transfer, a missing state does not revoke an earlier one.
            if self.state.is_some() {
                partial.state.clone_from(&self.state);
            }
            return None;
        }
        Some(Event::Disposition {
            delivery: DeliveryId {
                session: self.session,
                direction: self.direction,
                id: delivery,
            },
            link: LinkId {
                session: self.session,
                key: own.link,
            },
            tag: own.tag,
            is_settled: self.is_settled,
            state: self.state.clone(),
        })
    }
}

impl Direction {
    /// Our role in it.
    fn role(self) -> Role {
        match self {
            Self::Incoming => Role::Receiver,
            Self::Outgoing => Role::Sender,
        }
    }
}

impl Connection {
    /// Settles a delivery with a state: an incoming one, or an outgoing one whose outcome the peer
    /// has reported without settling it. That state may differ from the outcome.
    ///
    /// Returns whether it was unsettled. If its link is detached, it is not.
    pub fn settle(&mut self, delivery: DeliveryId, state: Option<DeliveryState>) -> bool {
        let role = delivery.direction.role();
        let Some(session) = self.session(delivery.session) else {
            return false;
        };
        let (deliveries, links) = session.unsettled(role);
        let Some(settled) = deliveries.take(delivery.id, links) else {
            return false;
        };
        if let Some(link) = links.get_mut(settled.link) {
            link.unsettled -= 1;
        }
        let channel = channel_of(delivery.session);
        let id = delivery.id;
        self.output.disposition(channel, role, id, true, state);
        if role == Role::Sender {
            self.resume_if_awaited(delivery.session);
        }
        true
    }

    /// The link of a delivery. `None` if it is settled, or its link is detached.
    pub fn link_of(&mut self, delivery: DeliveryId) -> Option<LinkId> {
        let role = delivery.direction.role();
        let (deliveries, links) = self.session(delivery.session)?.unsettled(role);
        let key = deliveries.link_of(delivery.id, links)?;
        Some(LinkId {
            session: delivery.session,
            key,
        })
    }

    /// Sends the peer the state of a delivery, which stays unsettled: a receiver's outcome that the
    /// sender must settle. Returns whether it was unsettled.
    pub fn update(&mut self, delivery: DeliveryId, state: DeliveryState) -> bool {
        let role = delivery.direction.role();
        let Some(session) = self.session(delivery.session) else {
            return false;
        };
        let (deliveries, links) = session.unsettled(role);
        if !deliveries.has(delivery.id, links) {
            return false;
        }
        let channel = channel_of(delivery.session);
        let (id, state) = (delivery.id, Some(state));
        self.output.disposition(channel, role, id, false, state);
        true
    }

    /// Unknown deliveries of the range are skipped: they were settled on this side, or their link
    /// is detached. So are deliveries with an earlier outcome, unless they are settled now: an
    /// outcome does not change (AMQP 1.0, 3.4).
    pub(super) fn on_disposition(
        &mut self,
        id: SessionId,
        disposition: Disposition,
    ) -> Result<(), Fault> {
        let Disposition {
            role: peers_role,
            first,
            last,
            settled,
            state,
            ..
        } = disposition;
        let last = last.unwrap_or(first);
        if last.wrapping_sub(first) > SPAN_MAX {
            let text = format!(
                "a disposition must not end before it begins: it is from {first} to {last}"
            );
            let error = Error::new(condition::INVALID_FIELD, text);
            return Err(Fault::Session(id, error));
        }
        if !settled && !is_outcome(state.as_ref()) {
            return Ok(());
        }
        let unmatched = u64::from(last.wrapping_sub(first)) + 1;
        let range = Range { next: first, last };
        let (direction, range) = match peers_role {
            Role::Receiver => {
                let next_id = self.session(id).map(|session| session.next_delivery_id);
                let range = next_id.and_then(|next_id| range.before(next_id));
                (Direction::Outgoing, range)
            }
            Role::Sender => (Direction::Incoming, Some(range)),
        };
        self.told = Some(Told {
            session: id,
            direction,
            range,
            is_settled: settled,
            state,
            unmatched,
        });
        Ok(())
    }

    /// Visits one delivery of the last disposition. Returns whether there was one, or an event
    /// about unknown ones.
    pub(super) fn visit_told(&mut self) -> bool {
        let Some(mut told) = self.told.take() else {
            return false;
        };
        let Some(session) = self.sessions.get_mut(told.session.0) else {
            return false;
        };
        let wanted = match told.is_settled {
            true => Wanted::All,
            false => Wanted::Untold,
        };
        let (deliveries, links) = session.unsettled(told.direction.role());
        let Some((delivery, own)) = deliveries.visit(&mut told.range, wanted, links) else {
            if told.unmatched > 0
                && let Some(DeliveryState::Transactional(state)) = told.state
            {
                self.events.push_back(Event::Unmatched { state });
                return true;
            }
            return false;
        };
        if let Some(own) = own
            && let Some(link) = links.get_mut(own.link)
        {
            told.unmatched -= 1;
            if told.is_settled {
                link.unsettled -= 1;
            }
            self.events.extend(told.event(delivery, own, link));
        }
        let (session, frees) = (told.session, told.is_settled);
        let is_more_to_say = told.range.is_some() || told.unmatched > 0;
        self.told = is_more_to_say.then_some(told);
        if frees {
            self.resume_if_awaited(session);
        }
        true
    }

    /// Subtracts a link from the totals of its session.
    pub(super) fn forget_deliveries(&mut self, id: LinkId) {
        let Some(session) = self.sessions.get_mut(id.session.0) else {
            return;
        };
        let Some(link) = session.links.get_mut(id.key) else {
            return;
        };
        self.reassembly_size -= link.partial_size();
        link.partial = None;
        link.credit = 0;
        let (count, role) = (std::mem::take(&mut link.unsettled), link.role);
        if count > 0 {
            let (deliveries, links) = session.unsettled(role);
            self.visited += steps_to_look_at(deliveries.orphan(count, links));
        }
        if let Some(sending) = session.sending.take_if(|sending| sending.link == id.key) {
            self.sending_size -= sending.size();
        }
        // Other links may wait for the message that was being sent.
        self.resume(id.session);
    }

    /// Lets the name of a link be used again.
    pub(super) fn forget_name(&mut self, id: LinkId) {
        let Some(session) = self.sessions.get_mut(id.session.0) else {
            return;
        };
        let Some(link) = session.links.get(id.key) else {
            return;
        };
        let name = (link.role, link.name.clone());
        if session.names.get(&name) == Some(&id.key) {
            session.names.remove(&name);
        }
    }

    /// Forgets a link that both ends have detached.
    pub(super) fn remove_link(&mut self, id: LinkId) {
        self.forget_name(id);
        let Some(session) = self.sessions.get_mut(id.session.0) else {
            return;
        };
        let Some(link) = session.links.remove(id.key) else {
            return;
        };
        if let Some(handle) = link.remote_handle {
            session.handles.remove(&handle);
        }
        self.link_count -= 1;
        self.links_size -= link.held_size();
    }
}

/// Whether a state is an outcome. How much a peer has received is not.
fn is_outcome(state: Option<&DeliveryState>) -> bool {
    match state {
        None | Some(DeliveryState::Received(_)) => false,
        Some(DeliveryState::Outcome(_) | DeliveryState::Transactional(_)) => true,
    }
}
