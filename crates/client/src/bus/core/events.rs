//! What the service says, and which handle it concerns.

use kew_amqp::error::{Error as AmqpError, condition};
use kew_amqp::{By, Direction, Event, LinkId, SessionId};

use super::link::Link;
use super::{Core, Owner};
use crate::error::Error;

impl Core {
    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Opened(_) => self.on_opened(),
            Event::Begun { session, .. } => self.on_begun(session),
            Event::Ended { error, by, .. } => {
                self.on_end(&Error::of_end(error.as_ref(), by, "session"));
                self.fail_wire("the session is gone");
            }
            Event::Closed { error, by } => {
                self.on_end(&Error::of_end(error.as_ref(), by, "connection"));
            }
            Event::Attach { link, attach } => {
                let text = "a client takes no links of the service";
                let error = AmqpError::new(condition::NOT_ALLOWED, text);
                if let Some(wire) = &mut self.wire {
                    wire.amqp.refuse(link, &attach, error);
                }
            }
            Event::Attached { link, attach } => match self.owners.get(&link).cloned() {
                Some(Owner::Link(key)) => self.on_link_attached(key, link, &attach),
                Some(owner @ (Owner::Requests(_) | Owner::Answers(_))) => {
                    self.on_node_attached(&owner, link, &attach);
                }
                None => {}
            },
            Event::Detached {
                link, error, by, ..
            } => self.on_detached(link, by, error.as_ref()),
            Event::Credit { link, is_drain, .. } => {
                if is_drain && let Some(wire) = &mut self.wire {
                    wire.amqp.drained(link);
                }
                if let Some(owner) = self.owners.get(&link).cloned() {
                    self.stir(&owner);
                }
            }
            Event::Drained { link } => {
                if let Some(&Owner::Link(key)) = self.owners.get(&link) {
                    self.on_drained(key);
                }
            }
            Event::Delivery(delivery) => match self.owners.get(&delivery.link).cloned() {
                Some(Owner::Link(key)) => self.on_link_delivery(key, delivery),
                Some(Owner::Answers(node)) => self.on_answer(&node, &delivery),
                Some(Owner::Requests(_)) | None => {}
            },
            Event::Oversized(oversized) => {
                if let Some(owner) = self.owners.get(&oversized.link).cloned() {
                    self.on_oversized(&owner, &oversized);
                }
            }
            Event::Disposition {
                delivery,
                is_settled,
                state,
                ..
            } => match delivery.direction() {
                Direction::Outgoing => self.on_send_outcome(delivery, is_settled, state.as_ref()),
                Direction::Incoming => {
                    self.on_settlement_answer(delivery, is_settled, state.as_ref());
                }
            },
            Event::Writable { .. } => {
                for owner in std::mem::take(&mut self.blocked) {
                    self.stir(&owner);
                }
            }
            Event::SaslChallenge { .. } => {
                self.fail_wire("the service asks for more than an anonymous greeting");
            }
            // The first two are for servers, and the others say nothing that is asked for.
            Event::SaslInit { .. }
            | Event::SaslResponse { .. }
            | Event::Available { .. }
            | Event::Unmatched { .. } => {}
        }
    }

    fn stir(&mut self, owner: &Owner) {
        match owner {
            Owner::Link(key) => self.stir_link(*key),
            Owner::Requests(node) | Owner::Answers(node) => self.stir_node(node),
        }
    }

    fn on_opened(&mut self) {
        let Some(wire) = &mut self.wire else {
            return;
        };
        wire.session = wire.amqp.begin();
        if wire.session.is_none() {
            wire.fail("the service takes no session");
        }
    }

    fn on_begun(&mut self, session: SessionId) {
        let Some(wire) = &mut self.wire else {
            return;
        };
        if wire.session != Some(session) {
            wire.fail("the service began a session of its own");
            return;
        }
        wire.is_ready = true;
        let links: Vec<_> = self.links.keys().copied().collect();
        for link in links {
            self.stir_link(link);
        }
        let nodes: Vec<_> = self.nodes.keys().cloned().collect();
        for node in nodes {
            self.stir_node(&node);
        }
    }

    fn on_detached(&mut self, id: LinkId, by: By, error: Option<&AmqpError>) {
        let Some(owner) = self.owners.remove(&id) else {
            return;
        };
        let mut why = Error::of_end(error, by, "link");
        let is_denied = error.is_some_and(|it| it.condition == condition::UNAUTHORIZED_ACCESS);
        match owner {
            Owner::Link(key) => {
                // It was attached by a token that has ended since: the next one may open it.
                let audience = self.links.get(&key).filter(|link| link.is_attached());
                let audience = audience.map(|link| link.audience().to_owned());
                if let Some(audience) = audience.filter(|_| is_denied) {
                    self.distrust_token(&audience);
                    why = Error::later(why.text());
                }
                let is_too_large =
                    error.is_some_and(|it| it.condition == condition::MESSAGE_SIZE_EXCEEDED);
                if is_too_large && self.links.get(&key).is_some_and(Link::receives) {
                    let limit = self.settings.message_size_max;
                    why = why.followed_by(&format!("message_size_max is {limit} bytes"));
                }
                self.fail_link(key, &why);
            }
            Owner::Requests(node) | Owner::Answers(node) => {
                let audience = self.nodes.get(&node).and_then(|node| node.audience());
                let audience = audience.map(str::to_owned);
                if let Some(audience) = audience.filter(|_| is_denied) {
                    self.distrust_token(&audience);
                }
                self.fail_node(&node, &why);
            }
        }
    }

    /// The connection is over, or will be soon. The first reason counts.
    fn on_end(&mut self, error: &Error) {
        if let Some(wire) = &mut self.wire {
            wire.end.get_or_insert_with(|| error.clone());
        }
    }

    fn fail_wire(&mut self, text: &str) {
        if let Some(wire) = &mut self.wire {
            wire.fail(text);
        }
    }
}
