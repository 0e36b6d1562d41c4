//! What becomes of deliveries (AMQP 1.0, 2.6.12 and 2.7.6).

use std::collections::BTreeMap;

use super::session::{Unsettled, channel_of};
use super::{Connection, DeliveryId, Direction, Event, Fault, LinkId, SessionId};
use crate::error::{Error, condition};
use crate::performative::{DeliveryState, Disposition, Role};

/// More deliveries than that cannot lie between two serial numbers.
const SPAN_MAX: u32 = 0x7fff_ffff;

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
    /// Settles a delivery with a verdict: one that came in, or one that went out and of which the
    /// peer has told its outcome without settling it. The verdict on that may be another one.
    ///
    /// Says whether it was unsettled. It is not when its link is gone.
    pub fn settle(&mut self, delivery: DeliveryId, state: Option<DeliveryState>) -> bool {
        let role = delivery.direction.role();
        let Some(session) = self.session(delivery.session) else {
            return false;
        };
        let Some(settled) = session.unsettled(role).remove(&delivery.id) else {
            return false;
        };
        if let Some(link) = session.links.get_mut(settled.link) {
            link.unsettled -= 1;
        }
        let channel = channel_of(delivery.session);
        let id = delivery.id;
        self.output.disposition(channel, role, id, true, state);
        true
    }

    /// Tells the peer of the state of a delivery, which stays unsettled: a receiver's outcome
    /// which the sender is to settle. Says whether it was unsettled.
    pub fn update(&mut self, delivery: DeliveryId, state: DeliveryState) -> bool {
        let role = delivery.direction.role();
        let Some(session) = self.session(delivery.session) else {
            return false;
        };
        if !session.unsettled(role).contains_key(&delivery.id) {
            return false;
        }
        let channel = channel_of(delivery.session);
        let (id, state) = (delivery.id, Some(state));
        self.output.disposition(channel, role, id, false, state);
        true
    }

    /// Deliveries of the range that nobody knows (any more) are passed over: they were settled on
    /// this side, or their link is gone.
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
            let text = format!("a disposition from {first} back to {last}");
            let error = Error::new(condition::INVALID_FIELD, text);
            return Err(Fault::Session(id, error));
        }
        let (role, direction) = match peers_role {
            Role::Receiver => (Role::Sender, Direction::Outgoing),
            Role::Sender => (Role::Receiver, Direction::Incoming),
        };
        let Some(session) = self.sessions.get_mut(id.0) else {
            return Ok(());
        };
        let found = if settled {
            take_range(session.unsettled(role), first, last)
        } else {
            in_range(session.unsettled(role), first, last)
        };
        let count = u64::from(last.wrapping_sub(first)) + 1;
        if let Some(DeliveryState::Transactional(state)) = &state
            && (found.len() as u64) < count
        {
            let state = state.clone();
            self.events.push_back(Event::Unmatched { state });
        }
        for (delivery, own) in found {
            let Some(link) = session.links.get_mut(own.link) else {
                continue;
            };
            if settled {
                link.unsettled -= 1;
            }
            if let Some(partial) = link.partial.as_mut().filter(|p| p.id == delivery) {
                // The caller does not know of it yet: it will come with this.
                partial.is_settled |= settled;
                // As in the parts of a transfer, no state does not take back one.
                if state.is_some() {
                    partial.state.clone_from(&state);
                }
                continue;
            }
            self.events.push_back(Event::Disposition {
                delivery: DeliveryId {
                    session: id,
                    direction,
                    id: delivery,
                },
                link: LinkId {
                    session: id,
                    key: own.link,
                },
                tag: own.tag,
                is_settled: settled,
                state: state.clone(),
            });
        }
        Ok(())
    }

    /// Takes a link out of the accounts of its session.
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
        if std::mem::take(&mut link.unsettled) > 0 {
            let role = link.role;
            session.unsettled(role).retain(|_, own| own.link != id.key);
        }
        if let Some(sending) = session.sending.take_if(|sending| sending.link == id.key) {
            self.sending_size -= sending.size();
        }
        // Others may wait for the message that was on its way.
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

/// The deliveries from `first` to `last`, whose numbers may begin again in between.
fn in_range(unsettled: &BTreeMap<u32, Unsettled>, first: u32, last: u32) -> Vec<(u32, Unsettled)> {
    let (until_end, from_start) = if first <= last {
        (unsettled.range(first..=last), None)
    } else {
        (unsettled.range(first..), Some(unsettled.range(..=last)))
    };
    let found = until_end.chain(from_start.into_iter().flatten());
    found.map(|(&delivery, &own)| (delivery, own)).collect()
}

fn take_range(
    unsettled: &mut BTreeMap<u32, Unsettled>,
    first: u32,
    last: u32,
) -> Vec<(u32, Unsettled)> {
    let found = in_range(unsettled, first, last);
    for (delivery, _) in &found {
        unsettled.remove(delivery);
    }
    found
}
