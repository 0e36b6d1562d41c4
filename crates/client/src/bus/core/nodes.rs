//! Requests to nodes, and their answers: `$management` of an entity, and `$cbs`.
//!
//! A node has a link for each direction. Requests carry numbers that are never used again, so an answer that comes too
//! late belongs to nobody.

use std::sync::Arc;

use bytes::Bytes;
use kew_amqp::message::Message;
use kew_amqp::performative::{Attach, DeliveryState, Role};
use kew_amqp::{Delivery, LinkId, Outgoing};

use super::node::{Asked, End, Node, Waiting};
use super::requests::{
    Content, Request, attach_for_answers, attach_for_requests, number_answered, result_of,
};
use super::wire::ANSWER_OVERHEAD;
use super::{Core, Owner, Token};
use crate::error::{Effect, Error};

/// The node that takes tokens.
pub(super) const CBS: &str = "$cbs";

/// How many answers may be on their way.
const ANSWERS_MAX: u32 = 64;

impl Core {
    pub(super) fn request(
        &mut self,
        node: Arc<str>,
        audience: Option<Arc<str>>,
        request: Request,
        waiting: Waiting,
    ) {
        // What it is about may be over.
        let over = request.link.and_then(|link| self.over(link));
        let content = Content::Request(request);
        let asked = Asked { content, waiting };
        match over {
            Some(error) => asked.fail(&error),
            None => self.ask(node, audience, asked),
        }
    }

    /// Shows the service a token.
    pub(super) fn put_token(&mut self, audience: Arc<str>, token: Token) {
        let audience_url = self.url_of(&audience);
        let asked = Asked {
            content: Content::Token {
                audience_url,
                token,
            },
            waiting: Waiting::Token(audience),
        };
        self.ask(CBS.into(), None, asked);
    }

    /// What a token for an entity names.
    pub(in crate::bus) fn url_of(&self, audience: &str) -> String {
        format!("sb://{}/{audience}", self.settings.host)
    }

    fn ask(&mut self, node: Arc<str>, audience: Option<Arc<str>>, asked: Asked) {
        let own = self
            .nodes
            .entry(node.clone())
            .or_insert_with(|| Node::new(audience));
        own.used_at = self.now;
        own.queue.push_back(asked);
        self.stir_node(&node);
    }

    /// Does for a node what can be done now.
    pub(super) fn stir_node(&mut self, name: &Arc<str>) {
        if !self.is_ready() {
            return;
        }
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        node.queue.retain(|asked| !asked.is_withdrawn());
        match (node.requests, node.answers) {
            (End::Attached(requests), End::Attached(_)) => self.send_requests(name, requests),
            (End::Detached, End::Detached) if node.is_needed() && !node.awaits_token => {
                self.attach_node(name);
            }
            (End::Detached | End::Attaching(_) | End::Attached(_), _) => {}
        }
    }

    fn attach_node(&mut self, name: &Arc<str>) {
        let audience = self.nodes.get(name).and_then(|node| node.audience.clone());
        if let Some(audience) = audience
            && !self.has_token(&audience)
        {
            if let Some(node) = self.nodes.get_mut(name) {
                node.awaits_token = true;
            }
            self.want_token(audience);
            return;
        }
        let number = self.number();
        let own = format!("{}-{number}", self.settings.name);
        let answer_size_max = self
            .settings
            .message_size_max
            .saturating_add(ANSWER_OVERHEAD);
        let (Some(wire), Some(node)) = (&mut self.wire, self.nodes.get_mut(name)) else {
            return;
        };
        node.reply_to.clone_from(&own);
        let attaches = [
            (
                attach_for_requests(name, &own),
                Owner::Requests(name.clone()),
            ),
            (
                attach_for_answers(name, &own, answer_size_max),
                Owner::Answers(name.clone()),
            ),
        ];
        for (attach, owner) in attaches {
            let id = wire
                .session
                .and_then(|session| wire.amqp.attach(session, attach));
            let Some(id) = id else {
                let error = Error::later("the connection takes no more links");
                self.fail_node(name, &error);
                return;
            };
            match &owner {
                Owner::Requests(_) => node.requests = End::Attaching(id),
                Owner::Answers(_) | Owner::Link(_) => node.answers = End::Attaching(id),
            }
            self.owners.insert(id, owner);
        }
    }

    pub(super) fn on_node_attached(&mut self, owner: &Owner, id: LinkId, answer: &Attach) {
        let (Owner::Requests(name) | Owner::Answers(name)) = owner else {
            return;
        };
        let is_refusal = match answer.role {
            Role::Sender => answer.source.is_none(),
            Role::Receiver => answer.target.is_none(),
        };
        let (Some(node), Some(wire)) = (self.nodes.get_mut(name), &mut self.wire) else {
            return;
        };
        if is_refusal {
            return;
        }
        match owner {
            Owner::Requests(_) | Owner::Link(_) => node.requests = End::Attached(id),
            Owner::Answers(_) => {
                node.answers = End::Attached(id);
                wire.amqp.grant(id, ANSWERS_MAX);
            }
        }
        let name = name.clone();
        self.stir_node(&name);
    }

    fn send_requests(&mut self, name: &Arc<str>, link: LinkId) {
        loop {
            let number = self.number();
            let (Some(node), Some(wire)) = (self.nodes.get_mut(name), &mut self.wire) else {
                return;
            };
            if node.queue.is_empty() || node.pending.len() >= ANSWERS_MAX as usize {
                return;
            }
            if !wire.amqp.can_send_or_await(link) {
                self.blocked.insert(Owner::Requests(name.clone()));
                return;
            }
            let reply_to = node.reply_to.clone();
            let Some(asked) = node.queue.pop_front() else {
                return;
            };
            let Some((asked, payload)) = self.encode(asked, number, &reply_to) else {
                continue;
            };
            self.send_request(name, link, number, asked, payload);
        }
    }

    /// Writes a request, unless it was withdrawn or cannot be made.
    fn encode(&self, asked: Asked, number: u64, reply_to: &str) -> Option<(Asked, Bytes)> {
        let link = match &asked.content {
            Content::Request(request) => request.link,
            Content::Token { .. } => None,
        };
        let name = match link.map(|link| self.name_of(link)).transpose() {
            Ok(name) => name,
            Err(error) => {
                asked.fail(&error);
                return None;
            }
        };
        let payload = asked.content.encode(number, reply_to, name);
        let starts = match &asked.waiting {
            Waiting::Caller(job) => job.start(),
            Waiting::Token(_) => true,
        };
        starts.then_some((asked, payload))
    }

    fn send_request(
        &mut self,
        name: &Arc<str>,
        link: LinkId,
        number: u64,
        asked: Asked,
        payload: Bytes,
    ) {
        let (Some(node), Some(wire)) = (self.nodes.get_mut(name), &mut self.wire) else {
            return;
        };
        let outgoing = Outgoing {
            tag: super::transfers::tag_of(number),
            message_format: 0,
            is_settled: true,
            state: None,
        };
        match wire.amqp.send(link, outgoing, [payload, Bytes::new()]) {
            Ok(_) => {
                node.pending.insert(number, asked);
            }
            Err(refusal) => match asked.waiting {
                Waiting::Caller(job) => job.finish(Err(super::transfers::error_of(&refusal))),
                Waiting::Token(_) => wire.fail("the service takes no tokens"),
            },
        }
    }

    pub(super) fn on_answer(&mut self, name: &Arc<str>, delivery: &Delivery) {
        let (Some(node), Some(wire)) = (self.nodes.get_mut(name), &mut self.wire) else {
            return;
        };
        if !delivery.is_settled {
            let accepted = Some(DeliveryState::ACCEPTED);
            wire.amqp.settle(delivery.delivery, accepted);
        }
        if wire.amqp.credit(delivery.link) <= ANSWERS_MAX / 2 {
            wire.amqp.grant(delivery.link, ANSWERS_MAX);
        }
        node.used_at = self.now;
        let message = Message::scan(Bytes::copy_from_slice(&delivery.payload)).ok();
        let number = message.as_ref().and_then(number_answered);
        let asked = number.and_then(|number| node.pending.remove(&number));
        if let (Some(message), Some(asked)) = (message, asked) {
            match asked.waiting {
                Waiting::Caller(job) => {
                    let result = result_of(&message, job.effect());
                    job.finish(result);
                }
                Waiting::Token(audience) => {
                    let result = result_of(&message, Effect::Read);
                    self.on_token_answer(&audience, result.map(drop));
                }
            }
        }
        self.stir_node(name);
    }

    /// The token of an audience is there.
    pub(super) fn stir_nodes_of(&mut self, audience: &str) {
        for name in self.nodes_waiting_for_token(audience) {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.awaits_token = false;
            }
            self.stir_node(&name);
        }
    }

    /// There is no token for an audience.
    pub(super) fn fail_nodes_of(&mut self, audience: &str, error: &Error) {
        for name in self.nodes_waiting_for_token(audience) {
            self.fail_node(&name, error);
        }
    }

    fn nodes_waiting_for_token(&self, audience: &str) -> Vec<Arc<str>> {
        let waits = |node: &Node| node.awaits_token && node.audience() == Some(audience);
        let nodes = self.nodes.iter().filter(|(_, node)| waits(node));
        nodes.map(|(name, _)| name.clone()).collect()
    }

    /// A node is gone, or could not be attached: what was asked of it fails. It is attached again when it is
    /// needed. Without its node for tokens a connection is of no use.
    pub(super) fn fail_node(&mut self, name: &Arc<str>, error: &Error) {
        let Some(node) = self.nodes.remove(name) else {
            return;
        };
        if let Some(wire) = &mut self.wire {
            for end in [node.requests, node.answers] {
                if let End::Attaching(id) | End::Attached(id) = end {
                    wire.amqp.detach(id, true, None);
                    self.owners.remove(&id);
                }
            }
            if **name == *CBS {
                wire.end.get_or_insert_with(|| error.clone());
                wire.fail("the node for tokens is gone");
            }
        }
        self.blocked.remove(&Owner::Requests(name.clone()));
        node.fail(error);
    }

    /// Gives up the links of nodes that nobody has used for a while.
    pub(super) fn give_up_idle_nodes(&mut self) {
        let now = self.now;
        let is_due = |node: &Node| node.given_up_at().is_some_and(|at| at <= now);
        let due = self.nodes.iter().filter(|(_, node)| is_due(node));
        let due: Vec<Arc<str>> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.fail_node(&name, &Error::later("nobody uses the node"));
        }
    }

    /// An answer to a token is no longer waited for. Others may have waited for its place.
    pub(super) fn forget_shown_token(&mut self, audience: &Arc<str>) {
        let Some(node) = self.nodes.get_mut(CBS) else {
            return;
        };
        let is_other =
            |asked: &Asked| !matches!(&asked.waiting, Waiting::Token(name) if name == audience);
        node.queue.retain(is_other);
        node.pending.retain(|_, asked| is_other(asked));
        self.stir_node(&CBS.into());
    }

    /// Drops requests whose callers have given up.
    pub(super) fn forget_abandoned_requests(&mut self) {
        for node in self.nodes.values_mut() {
            node.queue.retain(|asked| !asked.is_withdrawn());
            node.pending.retain(|_, asked| !asked.is_abandoned());
        }
    }
}
