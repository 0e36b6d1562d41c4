//! Credit, in both directions (AMQP 1.0, 2.6.7).

use super::link::{Early, LinkState};
use super::session::channel_of;
use super::{Connection, Event, Fault, LinkId, SessionId};
use crate::codec::{Map, Symbol, Value};
use crate::performative::{Flow, Role};

/// Half of the serial numbers lie ahead of one, half behind.
const AHEAD_MAX: u32 = 0x7fff_ffff;

/// How far `later` is ahead of `earlier`; 0 if it is behind.
pub(super) fn ahead(later: u32, earlier: u32) -> u32 {
    match later.wrapping_sub(earlier) {
        distance if distance <= AHEAD_MAX => distance,
        _ => 0,
    }
}

/// The property of a flow that names the transaction for which it gives credit (AMQP 1.0, 4.4.3).
const TRANSACTION: &str = "txn-id";

/// The longest transaction name that is kept, in bytes. The specification allows 32.
const TRANSACTION_SIZE_MAX: usize = 64;

/// The part of a flow's properties to keep until its link is attached: properties can be as large
/// as a frame. Of an impossible name, only the fact that there was one is kept.
fn transaction_of(properties: &Map) -> Option<Map> {
    let id = properties.get(TRANSACTION)?;
    Some(Map::build(|map| {
        let key = Symbol::from_static(TRANSACTION);
        match id.as_bytes().len() <= TRANSACTION_SIZE_MAX {
            true => map.entry(&key, &id),
            false => map.entry(&key, &Value::Null),
        }
    }))
}

impl Connection {
    /// How many deliveries may be sent, or may arrive, on a link.
    pub fn credit(&self, id: LinkId) -> u32 {
        self.link(id).map_or(0, |link| link.credit)
    }

    /// How many deliveries of a link are not settled.
    pub fn unsettled(&self, id: LinkId) -> usize {
        self.link(id).map_or(0, |link| link.unsettled)
    }

    /// Sets how many more deliveries may arrive on a link, regardless of earlier grants; 2^31 - 1
    /// at most. Returns whether the link is attached and a receiver.
    pub fn grant(&mut self, id: LinkId, credit: u32) -> bool {
        match self.attached(id, Role::Receiver) {
            Some(link) => {
                let credit = credit.min(AHEAD_MAX);
                let until = link.delivery_count.wrapping_add(credit);
                link.granted = link.granted.wrapping_add(ahead(until, link.granted));
                link.credit = credit;
            }
            None => return false,
        }
        self.write_flow(id, false, None, None);
        true
    }

    /// Asks the peer to send what is available and to return the remaining credit: `Event::Drained`
    /// reports when it has. Returns whether the link is attached and a receiver.
    pub fn drain(&mut self, id: LinkId) -> bool {
        match self.attached(id, Role::Receiver) {
            Some(link) => link.is_drain = true,
            None => return false,
        }
        self.write_flow(id, false, None, None);
        true
    }

    /// Answers a drain: uses up the remaining credit and informs the peer. Returns whether there
    /// was a drain. Without one it does nothing.
    pub fn drained(&mut self, id: LinkId) -> bool {
        match self.attached(id, Role::Sender) {
            Some(link) if link.is_drain => {
                link.delivery_count = link.delivery_count.wrapping_add(link.credit);
                link.credit = 0;
            }
            _ => return false,
        }
        self.write_flow(id, false, None, None);
        if let Some(link) = self.link_mut(id) {
            link.is_drain = false;
        }
        true
    }

    /// Sends the peer the state of a link, and how many deliveries wait. With `echo` the peer must
    /// answer. Returns whether the link is attached.
    pub fn tell(
        &mut self,
        id: LinkId,
        echo: bool,
        available: Option<u32>,
        properties: Option<Map>,
    ) -> bool {
        let state = self.link(id).map(|link| link.state);
        if state != Some(LinkState::Attached) {
            return false;
        }
        self.write_flow(id, echo, available, properties);
        true
    }

    fn attached(&mut self, id: LinkId, role: Role) -> Option<&mut super::Link> {
        let link = self.link_mut(id);
        link.filter(|link| link.role == role && link.state == LinkState::Attached)
    }

    fn write_flow(
        &mut self,
        id: LinkId,
        echo: bool,
        available: Option<u32>,
        properties: Option<Map>,
    ) {
        let Some(session) = self.sessions.get_mut(id.session.0) else {
            return;
        };
        let Some(link) = session.links.get(id.key) else {
            return;
        };
        let flow = Flow {
            handle: Some(id.key.index),
            delivery_count: Some(link.delivery_count),
            link_credit: Some(link.credit),
            drain: link.is_drain,
            available,
            echo,
            properties,
            ..session.flow()
        };
        self.output.frame(channel_of(id.session), &flow);
    }

    pub(super) fn on_flow(&mut self, id: SessionId, flow: Flow) -> Result<(), Fault> {
        let first_id = self.config.first_id;
        let Some(session) = self.session(id) else {
            return Ok(());
        };
        // Transfers that the peer had not seen when it sent this have already used part of the
        // window.
        let seen = flow.next_incoming_id.unwrap_or(first_id);
        let on_the_way = ahead(session.next_outgoing_id, seen);
        session.outgoing_window = flow.incoming_window.saturating_sub(on_the_way);
        let key = match flow.handle {
            Some(handle) => Some(session.by_handle(id, handle)?),
            None => None,
        };
        match key {
            Some(key) => self.on_link_flow(LinkId { session: id, key }, flow),
            None if flow.echo => {
                let own = session.flow();
                self.output.frame(channel_of(id), &own);
            }
            None => {}
        }
        self.resume(id);
        Ok(())
    }

    fn on_link_flow(&mut self, id: LinkId, flow: Flow) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        match (link.state, link.role) {
            (LinkState::Attached, Role::Sender) => self.on_credit(id, flow),
            (LinkState::Attached, Role::Receiver) => self.on_available(id, flow),
            (LinkState::Answering, _) => {
                let before = link.early.take().unwrap_or_default();
                let transaction = flow.properties.as_ref().and_then(transaction_of);
                link.early = Some(Early {
                    credit: flow.link_credit.unwrap_or(before.credit),
                    is_drain: flow.drain,
                    wants_echo: flow.echo || before.wants_echo,
                    transaction: transaction.or(before.transaction),
                });
            }
            _ => {}
        }
    }

    /// Applies the flows that the peer sent before its attach was answered.
    pub(super) fn after_answer(&mut self, id: LinkId, role: Role, early: Early) {
        let is_drain = role == Role::Sender && early.is_drain;
        // A drain is answered when it is done.
        if early.wants_echo && !is_drain {
            self.write_flow(id, false, None, None);
        }
        if role == Role::Sender {
            self.events.push_back(Event::Credit {
                link: id,
                credit: early.credit,
                is_drain,
                properties: early.transaction,
            });
        }
    }

    /// The peer's credit counts from the deliveries that it has seen.
    fn on_credit(&mut self, id: LinkId, flow: Flow) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        if let Some(credit) = flow.link_credit {
            // A peer that does not know our count yet counts from the beginning. That equals our
            // count as long as nothing was sent.
            let seen = flow.delivery_count.unwrap_or(link.delivery_count);
            let on_the_way = ahead(link.delivery_count, seen);
            link.credit = credit.saturating_sub(on_the_way);
        }
        link.is_drain = flow.drain;
        let (credit, is_drain) = (link.credit, link.is_drain);
        if flow.echo && !is_drain {
            self.write_flow(id, false, None, None);
        }
        self.events.push_back(Event::Credit {
            link: id,
            credit,
            is_drain,
            properties: flow.properties,
        });
    }

    /// A sender that has drained has advanced its count without sending.
    fn on_available(&mut self, id: LinkId, flow: Flow) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        if let Some(count) = flow.delivery_count {
            let skipped = ahead(count, link.delivery_count);
            link.delivery_count = link.delivery_count.wrapping_add(skipped);
            link.credit = link.credit.saturating_sub(skipped);
        }
        let is_drained = link.is_drain && link.credit == 0;
        if is_drained {
            link.is_drain = false;
        }
        if flow.echo {
            self.write_flow(id, false, None, None);
        }
        self.events.push_back(Event::Available {
            link: id,
            available: flow.available,
            properties: flow.properties,
        });
        if is_drained {
            self.events.push_back(Event::Drained { link: id });
        }
    }
}
