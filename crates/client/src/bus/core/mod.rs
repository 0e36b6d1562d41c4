//! The step machine of a connection: what links, requests and tokens there are, and what is to happen with them.
//!
//! It knows no socket, no clock and no task: commands, events, tokens and the time come in, and what is to be written
//! and which tokens are to be fetched goes out. The driver around it waits, feeds, drains and writes.
//!
//! Invariants: a job is in one place at a time, and is finished or lost from there; what is in `sending` or
//! `settling` was started; everything of a connection is gone when the connection is.

mod audiences;
mod events;
mod link;
mod links;
mod node;
mod nodes;
mod outcomes;
mod requests;
mod settlements;
mod spec;
mod transfers;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::performative::DeliveryState;
use kew_amqp::{DeliveryId, LinkId, Millis, Steps};

use self::audiences::Audience;
use self::link::Link;
use self::node::{Node, Waiting};
use self::settlements::Settling;
use self::transfers::{Outbound, Sending};
use self::wire::Wire;
use super::job::Job;
use super::nudges::Nudge;
use crate::error::Error;
use crate::retry::Retry;
use crate::secret::Secret;

pub(super) use self::link::{Attached, InboxSender};
pub(super) use self::requests::{Answer, Request};
pub(super) use self::settlements::{Answers, Settled};
pub(super) use self::spec::{LinkSpec, LinkUse};
pub(super) use self::transfers::{DeliveryName, Inbound, Sent, TransactionName};

/// How much of `amqp` is visited before others have their turn.
const TURN_STEPS: u32 = 1_024;

/// A link as its handle knows it. It outlives the links of AMQP, of which it has one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LinkKey(pub(super) u64);

/// What handles ask for.
#[derive(Debug)]
pub(super) enum Command {
    /// A new link, and an answer when it is attached.
    Attach {
        link: LinkKey,
        spec: LinkSpec,
        inbox: Option<InboxSender>,
        job: Job<Attached>,
    },
    /// A message or a batch.
    Send {
        link: LinkKey,
        payload: Bytes,
        message_format: u32,
        transaction: Option<Arc<TransactionName>>,
        job: Job<Sent>,
    },
    /// So many messages, in the inbox and on their way together.
    Want { link: LinkKey, count: u32 },
    /// No more messages: an answer when none is on its way.
    Drain { link: LinkKey, job: Job<()> },
    /// What becomes of a message.
    Settle {
        link: LinkKey,
        delivery: DeliveryName,
        state: DeliveryState,
        transaction: Option<Arc<TransactionName>>,
        job: Job<Settled>,
    },
    /// What becomes of several messages of one link: an answer when each has one.
    SettleAll {
        link: LinkKey,
        deliveries: Vec<DeliveryName>,
        state: DeliveryState,
        answers: Answers,
        job: Job<()>,
    },
    /// A request to a node.
    Request {
        node: Arc<str>,
        audience: Arc<str>,
        request: Request,
        job: Job<Answer>,
    },
}

/// A token that was fetched.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) text: Secret,
    /// As the service calls it.
    pub(super) kind: &'static str,
    /// When it was made, in milliseconds since 1970.
    pub(super) issued_at_ms: i64,
    /// How long it holds from then on.
    pub(super) lifetime: Duration,
    /// Whether there will be another one.
    pub(super) is_renewable: bool,
}

/// What does not change while the machine runs.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Without a port; an address of IPv6 in brackets.
    pub(super) host: String,
    /// Begins the name of the container and of links.
    pub(super) name: String,
    /// The largest message that comes in, in bytes.
    pub(super) message_size_max: u64,
    pub(super) links_max: usize,
    pub(super) retry: Retry,
}

/// The owner of a link of AMQP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Link(LinkKey),
    /// The link of a node that requests go out on.
    Requests(Arc<str>),
    /// The link of a node that answers come in on.
    Answers(Arc<str>),
}

#[derive(Debug)]
pub(super) struct Core {
    settings: Settings,
    now: Millis,
    wire: Option<Wire>,
    links: BTreeMap<LinkKey, Link>,
    nodes: BTreeMap<Arc<str>, Node>,
    audiences: BTreeMap<Arc<str>, Audience>,
    owners: BTreeMap<LinkId, Owner>,
    /// Messages that went out and have no outcome.
    sending: BTreeMap<DeliveryId, Sending>,
    /// Outcomes that went out and have no answer.
    settling: BTreeMap<DeliveryId, Settling>,
    /// Who waits until the session can take a message.
    blocked: BTreeSet<Owner>,
    /// Audiences for which the driver is to fetch a token.
    tokens_wanted: Vec<Arc<str>>,
    /// The last number of a name, a tag or a request.
    last_number: u64,
    /// How many connections there were.
    connection_number: u64,
    /// How many connections were lost, one after the other, before they were ready.
    failures: u32,
    connect_not_before: Millis,
}

impl Core {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Millis(0),
            wire: None,
            links: BTreeMap::new(),
            nodes: BTreeMap::new(),
            audiences: BTreeMap::new(),
            owners: BTreeMap::new(),
            sending: BTreeMap::new(),
            settling: BTreeMap::new(),
            blocked: BTreeSet::new(),
            tokens_wanted: Vec::new(),
            last_number: 0,
            connection_number: 0,
            failures: 0,
            connect_not_before: Millis(0),
        }
    }

    /// Takes what a handle asks for.
    pub(super) fn command(&mut self, command: Command, now: Millis) {
        self.now = now;
        match command {
            Command::Attach {
                link,
                spec,
                inbox,
                job,
            } => self.add_link(link, spec, inbox, job),
            Command::Send {
                link,
                payload,
                message_format,
                transaction,
                job,
            } => {
                let outbound = Outbound {
                    payload,
                    message_format,
                    transaction,
                    job,
                };
                self.send(link, outbound);
            }
            Command::Want { link, count } => self.want(link, count),
            Command::Drain { link, job } => self.drain(link, job),
            Command::Settle {
                link,
                delivery,
                state,
                transaction,
                job,
            } => self.settle(link, delivery, state, transaction.as_ref(), job),
            Command::SettleAll {
                link,
                deliveries,
                state,
                answers,
                job,
            } => self.settle_all(link, &deliveries, &state, answers, job),
            Command::Request {
                node,
                audience,
                request,
                job,
            } => self.request(node, Some(audience), request, Waiting::Caller(job)),
        }
    }

    /// Takes what a handle says in passing.
    pub(super) fn nudge(&mut self, link: LinkKey, nudge: Nudge, now: Millis) {
        self.now = now;
        match nudge {
            Nudge::Tidy => {
                self.stir_link(link);
                self.forget_abandoned_requests();
            }
            Nudge::Stalled => {
                self.replace_if_stuck(link);
                self.stir_link(link);
                self.forget_abandoned_requests();
            }
            Nudge::Replace => {
                self.detach(link, &Error::later("the service did not answer in time"));
                self.forget_abandoned_requests();
            }
            Nudge::Forget => self.forget_link(link),
        }
    }

    /// Whether something waits for a connection, and from when on one may be made.
    pub(super) fn wants_connection(&self) -> Option<Millis> {
        let of_link = self.links.values().any(Link::is_needed);
        let of_node = self.nodes.values().any(Node::is_needed);
        (of_link || of_node).then_some(self.connect_not_before)
    }

    /// A socket is there.
    pub(super) fn connected(&mut self, now: Millis) {
        self.now = now;
        self.connection_number += 1;
        self.wire = Some(Wire::new(&self.settings, now));
    }

    /// The connection is gone, or could not be made: all that was part of it fails.
    pub(super) fn lost(&mut self, error: &Error, now: Millis) {
        self.now = now;
        let was_ready = self.wire.take().is_some_and(|wire| wire.is_ready);
        self.failures = if was_ready { 0 } else { self.failures + 1 };
        let delay = self.settings.retry.reconnect_delay(self.failures);
        self.connect_not_before = after(now, delay);
        self.owners.clear();
        self.blocked.clear();
        self.audiences.clear();
        self.tokens_wanted.clear();
        let links: Vec<LinkKey> = self.links.keys().copied().collect();
        for link in links {
            self.fail_link(link, error);
        }
        for (_, node) in std::mem::take(&mut self.nodes) {
            node.fail(error);
        }
    }

    /// Does what can be done within a turn. Says whether there is more to do.
    pub(super) fn turn(&mut self, now: Millis) -> bool {
        self.now = now;
        let mut steps = Steps::of(TURN_STEPS);
        while let Some(event) = self.next_event(&mut steps) {
            self.on_event(event);
        }
        !steps.are_left()
    }

    /// Does what is due.
    pub(super) fn on_time(&mut self, now: Millis) {
        self.now = now;
        if let Some(wire) = &mut self.wire {
            wire.on_time(now);
        }
        self.give_up_idle_nodes();
        self.give_up_silent_links();
        self.renew_tokens();
    }

    /// When [`Core::on_time`] is to be called next.
    pub(super) fn next_timeout(&self) -> Option<Millis> {
        let of_wire = self.wire.as_ref().and_then(Wire::next_timeout);
        let of_tokens = self.audiences.values().filter_map(Audience::next_timeout);
        let of_nodes = self.nodes.values().filter_map(Node::given_up_at);
        let of_wire = of_wire.into_iter();
        let others = of_tokens.chain(of_nodes).chain(self.leaving_until());
        of_wire.chain(others).min()
    }

    /// Audiences for which a token is to be fetched.
    pub(super) fn tokens_wanted(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.tokens_wanted)
    }

    /// Ends the connection because nobody needs it any more.
    pub(super) fn close(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.amqp.close(None);
        }
    }

    /// What is to be written.
    pub(super) fn take_output(&mut self, now: Millis) -> Bytes {
        match &mut self.wire {
            Some(wire) => wire.amqp.take_output(now),
            None => Bytes::new(),
        }
    }

    /// Where to read into, if anything is to be read.
    pub(super) fn input(&mut self) -> Option<&mut BytesMut> {
        let wire = self.wire.as_mut().filter(|wire| wire.amqp.wants_input())?;
        Some(wire.amqp.input())
    }

    /// Something was read.
    pub(super) fn fed(&mut self, now: Millis) {
        if let Some(wire) = &mut self.wire {
            wire.amqp.fed(now);
        }
    }

    /// Why the connection is over, once it is.
    pub(super) fn end(&self) -> Option<Error> {
        let wire = self.wire.as_ref().filter(|wire| wire.amqp.is_closed())?;
        let unsaid = || Error::later("the connection was closed");
        Some(wire.end.clone().unwrap_or_else(unsaid))
    }

    fn next_event(&mut self, steps: &mut Steps) -> Option<kew_amqp::Event> {
        self.wire.as_mut()?.amqp.poll_event_within(steps)
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn is_ready(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.is_ready)
    }
}

fn after(now: Millis, duration: Duration) -> Millis {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Millis(now.0.saturating_add(ms))
}
