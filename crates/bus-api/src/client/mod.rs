//! One client: its links, and what of its is under way.

mod attach;
mod node;
mod receiver;
mod sender;
mod settle;
mod tokens;
mod under_way;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use kew_amqp::codec::Symbol;
use kew_amqp::error::{Error, condition};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{Config, Connection, DeliveryId, Event, Limits as WireLimits, LinkId, Millis, Sasl};
use kew_broker::{Answers, Rejection, Reply};
use kew_engine::EntityName;
use kew_engine::bus::BusCommand;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::api::Shared;
use crate::authorize::Grant;
use crate::cbs::{Credential, Grants};
use crate::client::attach::Opened;
use crate::client::node::{Replies, Requests};
use crate::client::receiver::{Receiver, Taken};
use crate::client::sender::Sender;
use crate::client::settle::{Held, Settlement};
use crate::client::tokens::Judged;
use crate::client::under_way::UnderWay;
use crate::origin::Origin;
use crate::request::Request;
use crate::rights::Right;
pub(crate) use receiver::{Batch, batch_of};
pub(crate) use settle::overlay_of;

use crate::submit::Submitted;

/// What a link of the client is to us.
enum Link {
    /// It was attached, and we are still to answer.
    Opening(attach::Opening),
    /// The client sends messages to an entity.
    Sender(Sender),
    /// The client receives messages from an entity.
    Receiver(Box<Receiver>),
    /// The client sends requests to a node.
    Requests(Requests),
    /// The client receives a node's answers.
    Replies(Replies),
}

/// What a task of the client comes to.
pub(crate) enum Done {
    Opened(LinkId, Result<Opened, Error>),
    Received(LinkId, Arc<EntityName>, Result<Taken, Rejection>),
    Answered(LinkId, node::Reply),
    Judged(Judged),
    JudgedAgain(Credential, Option<Grant>),
    /// Nobody waits for it.
    Released,
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) tasks: JoinSet<Done>,
    /// Tells that tokens are to be judged again.
    pub(crate) rule_changes: watch::Receiver<u64>,
    shared: Arc<Shared>,
    origin: Origin,
    grants: Grants,
    /// Tokens that were put and are not judged yet, in order. The first one is under way.
    putting: VecDeque<(LinkId, Request)>,
    links: BTreeMap<LinkId, Link>,
    /// Receivers and replies that may have something to do.
    stirred: BTreeSet<LinkId>,
    held: HashMap<DeliveryId, Held>,
    /// Of this turn, by entity.
    settlements: BTreeMap<Arc<EntityName>, Vec<Settlement>>,
    /// Answers to what is under way come here.
    pub(crate) answers: Arc<Answers>,
    under_way: HashMap<u64, UnderWay>,
    next_key: u64,
    /// Kept for its room.
    came: Vec<(u64, Reply)>,
    /// Messages whose send is under way, in bytes.
    sending_size_bytes: usize,
    /// Requests to the broker that are under way.
    requests: usize,
    /// When a first token is due.
    token_due: Option<Millis>,
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, origin: Origin, now: Millis) -> Self {
        let mechanisms = ["ANONYMOUS", "MSSBCBS", "PLAIN", "EXTERNAL"];
        let config = Config {
            sasl: Sasl::Server {
                mechanisms: mechanisms.map(Symbol::from_static).to_vec(),
                is_optional: true,
            },
            ..Config::default()
        };
        let timeout = shared.limits.token_timeout.as_millis();
        let timeout = u64::try_from(timeout).unwrap_or(u64::MAX);
        Self {
            connection: Connection::server(config, WireLimits::before_trust(), now),
            tasks: JoinSet::new(),
            rule_changes: shared.rules.watch(),
            shared,
            origin,
            grants: Grants::default(),
            putting: VecDeque::new(),
            links: BTreeMap::new(),
            stirred: BTreeSet::new(),
            held: HashMap::new(),
            settlements: BTreeMap::new(),
            answers: Arc::default(),
            under_way: HashMap::new(),
            next_key: 0,
            came: Vec::new(),
            sending_size_bytes: 0,
            requests: 0,
            token_due: Some(Millis(now.0.saturating_add(timeout))),
        }
    }

    /// Does all that can be done now.
    pub(crate) fn turn(&mut self) {
        while self.has_room()
            && let Some(event) = self.connection.poll_event()
        {
            self.on_event(event);
        }
        self.flush_settlements();
        while let Some(link) = self.stirred.pop_first() {
            match self.links.get(&link) {
                Some(Link::Receiver(_)) => self.pump(link),
                Some(Link::Replies(_)) => self.pump_replies(link),
                _ => {}
            }
        }
    }

    /// Whether more may be under way.
    fn has_room(&self) -> bool {
        let limits = &self.shared.limits;
        self.sending_size_bytes < limits.sending_size_bytes_max
            && self.requests < limits.requests_max
    }

    pub(crate) fn wants_input(&self) -> bool {
        self.has_room() && self.connection.wants_input()
    }

    pub(crate) fn next_timeout(&self, now: Millis) -> Option<Millis> {
        let expiry = self.grants.next_expiry_s().map(|at_s| {
            let left_ms = at_s
                .saturating_sub(self.shared.now_s())
                .saturating_mul(1000);
            Millis(now.0.saturating_add(left_ms.clamp(100, 3_600_000)))
        });
        let timeouts = [self.connection.next_timeout(), expiry, self.token_due];
        timeouts.into_iter().flatten().min()
    }

    pub(crate) fn on_time(&mut self, now: Millis) {
        self.connection.on_time(now);
        if self.token_due.is_some_and(|due| due <= now) {
            self.token_due = None;
            let seconds = self.shared.limits.token_timeout.as_secs();
            let text = format!("The connection was closed: no token was put within {seconds} s.");
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, text);
            self.connection.close(Some(error));
        }
        if self.grants.expire(self.shared.now_s()) {
            self.detach_what_is_not_allowed();
        }
    }

    /// Tells the client to come back later.
    pub(crate) fn stop(&mut self) {
        let text = "The server is stopping. Please connect again.";
        self.connection
            .close(Some(Error::new(condition::CONNECTION_FORCED, text)));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit {
                mechanism,
                response,
                ..
            } => self.on_sasl(mechanism.as_str(), response.as_deref()),
            Event::SaslResponse { .. } => self.connection.sasl_outcome(SaslCode::Auth),
            Event::Attach { link, attach } => self.on_attach(link, attach),
            Event::Delivery(delivery) => match self.links.get(&delivery.link) {
                Some(Link::Sender(_)) => self.on_message(&delivery),
                Some(Link::Requests(_)) => self.on_request(&delivery),
                _ => {}
            },
            Event::Disposition {
                delivery,
                link,
                is_settled,
                state,
                ..
            } => {
                self.stirred.insert(link);
                self.on_disposition(delivery, is_settled, state);
            }
            Event::Credit { link, is_drain, .. } => self.on_credit(link, is_drain),
            Event::Writable { session } => {
                let links = self.links.keys().copied();
                self.stirred
                    .extend(links.filter(|link| link.session() == session));
            }
            Event::Detached { link, .. } => self.forget(link),
            Event::Ended { session, .. } => {
                let links = self.links.keys().copied();
                for link in links
                    .filter(|link| link.session() == session)
                    .collect::<Vec<_>>()
                {
                    self.forget(link);
                }
            }
            Event::Closed { .. } => {
                for link in self.links.keys().copied().collect::<Vec<_>>() {
                    self.forget(link);
                }
            }
            // The connection has answered these.
            Event::Opened(_) | Event::Begun { .. } | Event::Available { .. } => {}
            // A server asks for none of these.
            Event::SaslChallenge { .. } | Event::Attached { .. } | Event::Drained { .. } => {}
        }
    }

    fn on_sasl(&mut self, mechanism: &str, response: Option<&[u8]>) {
        let code = match mechanism {
            "ANONYMOUS" | "MSSBCBS" => SaslCode::Ok,
            "PLAIN" if self.take_password(response.unwrap_or_default()) => SaslCode::Ok,
            // Who comes with EXTERNAL would have shown a certificate.
            _ => SaslCode::Auth,
        };
        self.connection.sasl_outcome(code);
    }

    /// The client has shown who it is: it may have more.
    fn trust(&mut self) {
        if self.token_due.take().is_none() {
            return;
        }
        let limits = &self.shared.limits;
        self.connection.set_limits(WireLimits {
            links_max: limits.links_max,
            unsettled_max: limits.unsettled_max,
            ..WireLimits::default()
        });
    }

    pub(crate) fn on_done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Opened(link, opened)) => self.on_opened(link, opened),
            Ok(Done::Received(link, entity, taken)) => self.on_received(link, entity, taken),
            Ok(Done::Answered(link, reply)) => {
                self.requests = self.requests.saturating_sub(1);
                self.reply(link, reply);
            }
            Ok(Done::Judged(judged)) => self.on_judged(judged),
            Ok(Done::JudgedAgain(credential, grant)) => self.on_judged_again(&credential, grant),
            Ok(Done::Released) => {}
            Err(error) => {
                tracing::error!(%error, "a request of a Service Bus client panicked, which is a bug");
                let text = "The server was unable to process the request.";
                self.connection
                    .close(Some(Error::new(condition::INTERNAL_ERROR, text)));
            }
        }
    }

    /// Detaches a link on our own account.
    fn detach(&mut self, link: LinkId, error: Error) {
        self.connection.detach(link, true, Some(error));
        self.forget(link);
    }

    /// A link is gone. Locks of messages hold on, as the service's do; that of a session ends.
    fn forget(&mut self, link: LinkId) {
        self.stirred.remove(&link);
        self.held.retain(|_, held| held.link != link);
        match self.links.remove(&link) {
            Some(Link::Receiver(receiver)) => self.close_receiver(*receiver),
            Some(Link::Opening(opening)) => opening.give_up(),
            _ => {}
        }
    }

    fn detach_what_is_not_allowed(&mut self) {
        let refused: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(_, link)| match link {
                Link::Sender(it) => !self.grants.allow(&it.entity, Right::Send),
                Link::Receiver(it) => !self.grants.allow(&it.entity, Right::Listen),
                _ => false,
            })
            .map(|(id, _)| *id)
            .collect();
        for link in refused {
            let text = "The token has expired or its rule was changed, and no other was put.";
            self.detach(link, Error::new(condition::UNAUTHORIZED_ACCESS, text));
        }
    }

    /// Has a command carried out whose answer nobody waits for.
    fn submit_and_forget(&mut self, command: BusCommand) {
        let submitted = Submitted::new(&self.shared.broker, command);
        self.tasks.spawn(async move {
            let _ = submitted.answer().await;
            Done::Released
        });
    }

    /// The connection is gone: what its tasks still bring is given back.
    pub(crate) async fn leave(mut self) {
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.forget(link);
        }
        while let Some(done) = self.tasks.join_next().await {
            self.on_done(done);
        }
    }
}
