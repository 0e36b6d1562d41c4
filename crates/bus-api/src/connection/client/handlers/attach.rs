//! Attaching links: finding the node, checking rights, answering.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::LinkId;
use kew_amqp::codec::{Described, Map, Raw, Symbol, Text, Value};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{Attach, Role, SenderSettleMode, Target};
use kew_broker::Broker;
use kew_engine::EntityName;
use kew_engine::bus::{BusCommand, BusQueueView, ReceiveMode, SessionChoice};

use crate::authorization::rights::Right;
use crate::connection::client::Client;
use crate::connection::client::links::attached::{Attached, check_is_destination, check_usable};
use crate::connection::client::links::cancel::Cancel;
use crate::connection::client::links::link::Link;
use crate::connection::client::links::opening::{Opened, Opening, find};
use crate::connection::client::links::receiver::Receiver;
use crate::connection::client::links::requests::Requests;
use crate::connection::client::links::sender::{Sender, answered_destination, destination_of};
use crate::connection::client::parts::done::Done;
use crate::ground::address::{Node, entity_named, node_at};
use crate::ground::refusal::{bus_condition, not_found, unauthorized};
use crate::memory::account::Sum;
use crate::metrics::{Offered, Scope};

/// The filter that selects a session.
const SESSION_FILTER: &str = "com.microsoft:session-filter";
/// The property of an attach with the time until which the session is locked.
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";
/// How long the client waits, in milliseconds.
const TIMEOUT: &str = "com.microsoft:timeout";
/// How long a client waits for a session by default.
const SESSION_WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// Where a link that opens will send messages.
struct Sends {
    asked: EntityName,
    destination: Option<EntityName>,
    is_after_first: bool,
}

impl Client {
    pub(super) fn on_attach(&mut self, link: LinkId, attach: Box<Attach>) {
        if let (Role::Sender, Some(Target::Coordinator(asked))) = (attach.role, &attach.target) {
            return self.attach_coordinator(link, &attach, asked);
        }
        match self.node_of(&attach) {
            Ok(Node::Tokens) => self.accept_node(link, &attach, Node::Tokens),
            Ok(Node::Management(entity)) => {
                let node = Node::Management(entity.clone());
                if !self
                    .credentials
                    .grants
                    .rights_of_requests(&entity)
                    .is_empty()
                {
                    // The entity is looked up when a request arrives.
                    self.accept_node(link, &attach, node);
                } else {
                    self.refuse(link, &attach, unauthorized(&entity, Right::Listen));
                }
            }
            Ok(Node::Entity(entity)) => self.open(link, attach, entity),
            Err(error) => self.refuse(link, &attach, error),
        }
    }

    fn refuse(&mut self, link: LinkId, attach: &Attach, error: Error) {
        if error.condition == condition::UNAUTHORIZED_ACCESS {
            let offered = match self.credentials.grants.is_empty() {
                true => Offered::None,
                false => Offered::Token,
            };
            self.shared
                .observer
                .note_denied(&self.peer.origin, offered, &error);
        }
        self.shared
            .observer
            .note_refusal(&self.peer.origin, Scope::Attach, &error);
        self.connection.refuse(link, attach, error);
    }

    fn node_of(&self, attach: &Attach) -> Result<Node, Error> {
        if is_dynamic(attach) {
            let text = "Dynamic nodes are not supported: name an entity that exists.";
            return Err(Error::new(condition::NOT_IMPLEMENTED, text));
        }
        let address = match attach.role {
            Role::Sender => attach.target.as_ref().and_then(Target::address),
            Role::Receiver => attach.source.as_ref().and_then(|it| it.address.as_ref()),
        };
        let address = address.map_or("", Text::as_str);
        if attach.role == Role::Sender && address.is_empty() {
            let text = "The link has no target address: anonymous senders are not supported.";
            return Err(Error::new(condition::NOT_IMPLEMENTED, text));
        }
        node_at(address).ok_or_else(|| not_found(address))
    }

    fn accept_node(&mut self, link: LinkId, attach: &Attach, node: Node) {
        if !self.connection.accept(link, attach.answer()) {
            return;
        }
        match attach.role {
            Role::Sender => {
                self.links.insert(link, Link::Requests(Requests { node }));
                self.connection.grant(link, Requests::CREDIT);
            }
            Role::Receiver => self.links.insert_replies(link, node, attach),
        }
    }

    /// Looks up the entity, and the session if the client wants one.
    fn open(&mut self, link: LinkId, attach: Box<Attach>, entity: EntityName) {
        let destination = match destination_of(&attach) {
            Ok(destination) => destination,
            Err(error) => return self.refuse(link, &attach, error),
        };
        if let Err(error) = self.check_rights(&attach, &entity, destination.as_ref()) {
            return self.refuse(link, &attach, error);
        }
        if let Some(mode) = unknown_distribution_mode(&attach) {
            let text = format!(
                "The distribution mode '{mode}' is not supported: use move, and browse with \
                 peek-message requests."
            );
            return self.refuse(link, &attach, Error::new(condition::NOT_IMPLEMENTED, text));
        }
        let choice = match attach.role {
            // A client that may only send locks no session.
            Role::Sender => Ok(None),
            Role::Receiver => session_choice(&attach),
        };
        let choice = match choice {
            Ok(choice) => choice,
            Err(error) => return self.refuse(link, &attach, error),
        };
        let wait = wait_of(&attach).min(self.shared.limits.session_wait_max);
        let cancel = Arc::<Cancel>::default();
        // It may wait for a session.
        let (attach, size_bytes) = attach.unshared();
        let opening = Opening {
            attach: attach.into(),
            entity: entity.clone(),
            destination: destination.clone(),
            cancel: Arc::clone(&cancel),
            _size: self.load.account.fixed(Sum::OpeningBytes, size_bytes),
        };
        self.links.insert(link, Link::Opening(opening));
        let broker = Broker::clone(&self.broker);
        // One for a session may wait long.
        let is_look = choice.is_none();
        if is_look {
            self.load.begin_look();
        }
        self.tasks.spawn(async move {
            let entities = (entity, destination);
            let opened = find(broker, entities, choice, wait, cancel).await;
            Done::Opened(link, opened, is_look)
        });
    }

    /// A client that sends via an entity needs the same right on the destination.
    fn check_rights(
        &self,
        attach: &Attach,
        entity: &EntityName,
        destination: Option<&EntityName>,
    ) -> Result<(), Error> {
        let right = right_of(attach);
        let mut all = [entity].into_iter().chain(destination);
        let refused = all.find(|it| !self.credentials.grants.allow(it, right));
        refused.map_or(Ok(()), |it| Err(unauthorized(it, right)))
    }

    pub(super) fn on_opened(&mut self, link: LinkId, opened: Result<Opened, Error>) {
        let Some(Link::Opening(_)) = self.links.get(&link) else {
            self.load.end_forgotten();
            return self.give_session_back(opened);
        };
        let Some(Link::Opening(Opening {
            attach,
            entity,
            destination,
            ..
        })) = self.links.remove(link)
        else {
            return;
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return self.refuse(link, &attach, error),
        };
        // The token may have expired while the entity was looked up.
        if let Err(error) = self.check_rights(&attach, &entity, destination.as_ref()) {
            self.refuse(link, &attach, error);
            return self.give_session_back(Ok(opened));
        }
        let is_after_first = match (attach.role, &destination) {
            (Role::Sender, None) => {
                let first = self.links.first_before(link, &entity);
                first.is_some_and(|first| self.credentials.allow_failed_transfers(first))
            }
            (Role::Sender, Some(_)) | (Role::Receiver, _) => false,
        };
        let usable = match is_after_first {
            // If it is disabled, transfers to it fail.
            true => check_is_destination(&opened.view),
            false => check_usable(&opened.view, attach.role),
        };
        if let Err(error) = usable {
            self.refuse(link, &attach, error);
            return self.give_session_back(Ok(opened));
        }
        if attach.role == Role::Sender {
            let sends = Sends {
                asked: entity,
                destination,
                is_after_first,
            };
            return self.accept_sender(link, &attach, sends, &opened);
        }
        let needs_session = opened.view.options.requires_session && !entity.name.contains('$');
        if needs_session && opened.session.is_none() {
            let text = format!(
                "It is not possible for an entity that requires sessions to create a \
                 non-sessionful message receiver: '{}'",
                opened.view.name
            );
            return self.refuse(link, &attach, Error::new(condition::NOT_ALLOWED, text));
        }
        self.accept_receiver(link, &attach, entity, opened);
    }

    fn give_session_back(&mut self, opened: Result<Opened, Error>) {
        if let Ok(Opened {
            view,
            session: Some(session),
            ..
        }) = opened
            && let Some(queue) = entity_named(&view.name)
        {
            self.submit_and_forget(BusCommand::ReleaseSession {
                queue,
                session: session.lock,
            });
        }
    }

    /// The entity of a link that will be attached.
    fn attached(&self, entity: EntityName, view: &BusQueueView) -> Attached {
        let changes = &self.stirred.changes;
        Attached::new(&self.broker, entity, view, changes)
    }

    fn accept_sender(&mut self, link: LinkId, attach: &Attach, sends: Sends, opened: &Opened) {
        let Sends {
            asked,
            destination,
            is_after_first,
        } = sends;
        let entity = match destination {
            None => asked.clone(),
            // A subscription stands for its topic.
            Some(_) => entity_named(&opened.view.name).unwrap_or_else(|| asked.clone()),
        };
        if entity.name.contains('$') {
            let text = format!(
                "Messages cannot be sent to the sub-queue '{}'.",
                entity.name
            );
            return self.refuse(link, attach, Error::new(condition::NOT_ALLOWED, text));
        }
        let mut answer = attach.answer();
        answer.max_message_size = Some(opened.message_size_bytes_max);
        answer.properties = answered_destination(attach);
        if self.connection.accept(link, answer) {
            let attached = self.attached(entity, &opened.view);
            let sender = Sender {
                attached,
                asked,
                destination,
                is_after_first,
            };
            self.links.insert(link, Link::Sender(sender));
            self.connection.grant(link, Sender::CREDIT);
            // It may have changed since it was read.
            self.look(link);
        }
    }

    fn accept_receiver(
        &mut self,
        link: LinkId,
        attach: &Attach,
        entity: EntityName,
        opened: Opened,
    ) {
        let mut answer = attach.answer();
        answer.max_message_size = Some(opened.view.options.message_size_bytes_max);
        answer.initial_delivery_count = Some(0);
        let filter = opened.session.as_ref().and_then(|session| {
            let asked = session_filter(attach)?;
            Some(answered_filter(&asked, &session.session))
        });
        if let Some(source) = &mut answer.source {
            source.filter = filter;
        }
        // The Python SDK reads the properties, even if there are none to send.
        answer.properties = Some(Map::build(|map| {
            if let Some(session) = &opened.session {
                let ticks = dotnet_ticks(session.locked_until.as_ms());
                map.entry(&Symbol::from_static(LOCKED_UNTIL), &ticks);
            }
        }));
        let mode = match attach.snd_settle_mode {
            SenderSettleMode::Settled => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        let name = attach.name.unshared();
        let session_end = opened.session.as_ref().map(|session| session.locked_until);
        let attached = self.attached(entity, &opened.view);
        let account = &self.load.account;
        let receiver = Receiver::new(name, attached, mode, opened.session, account);
        self.links.insert(link, Link::Receiver(Box::new(receiver)));
        if let Some(at) = session_end {
            self.stirred.note_session_end(link, at, &mut self.links);
        }
        if self.connection.accept(link, answer) {
            // It may have changed since it was read.
            self.look(link);
        } else {
            self.forget(link);
        }
    }
}

/// The right that a link needs.
fn right_of(attach: &Attach) -> Right {
    match attach.role {
        Role::Sender => Right::Send,
        Role::Receiver => Right::Listen,
    }
}

/// Whether the link asks for a dynamic node, such as a temporary queue.
fn is_dynamic(attach: &Attach) -> bool {
    match (attach.role, &attach.target) {
        (Role::Sender, Some(Target::Node(target))) => target.dynamic,
        (Role::Sender, _) => false,
        (Role::Receiver, _) => attach.source.as_ref().is_some_and(|it| it.dynamic),
    }
}

/// The distribution mode of a receiver, if it is not supported. A browser that was served as a
/// receiver would lock messages that it only reads.
fn unknown_distribution_mode(attach: &Attach) -> Option<&Symbol> {
    let source = attach.source.as_ref()?;
    let mode = source.distribution_mode.as_ref()?;
    (attach.role == Role::Receiver && mode.as_str() != "move").then_some(mode)
}

fn session_filter(attach: &Attach) -> Option<Raw> {
    attach.source.as_ref()?.filter.as_ref()?.get(SESSION_FILTER)
}

/// The requested session, if any: a string, or null for the next one, plain or described.
fn session_choice(attach: &Attach) -> Result<Option<SessionChoice>, Error> {
    let Some(filter) = session_filter(attach) else {
        return Ok(None);
    };
    let plain = match filter.value() {
        Value::Described(described) => described.value.value(),
        plain => plain,
    };
    match plain {
        Value::Null => Ok(Some(SessionChoice::Next)),
        Value::String(id) => Ok(Some(SessionChoice::Named(id.as_str().into()))),
        _ => Err(Error::new(
            bus_condition::ARGUMENT_ERROR,
            format!("the filter {SESSION_FILTER} must be a string or null"),
        )),
    }
}

/// The filter with the session's id, in the form of the request.
fn answered_filter(asked: &Raw, session: &str) -> Map {
    let id = Value::String(session.into());
    let answered = match asked.value() {
        Value::Described(Described { descriptor, .. }) => Value::Described(Described {
            descriptor,
            value: Raw::of(&id),
        }),
        _ => id,
    };
    Map::build(|map| map.entry(&Symbol::from_static(SESSION_FILTER), &answered))
}

/// How long to wait. SDKs request nearly all of their own time-out. A little less leaves time for
/// the answer to arrive before they give up.
fn wait_of(attach: &Attach) -> Duration {
    const SPARED_LEAST: Duration = Duration::from_millis(100);
    const SPARED_MOST: Duration = Duration::from_millis(500);
    let asked = attach.properties.as_ref().and_then(|it| it.get(TIMEOUT));
    let ms = asked.and_then(|raw| raw.value().as_integer());
    let ms = ms.and_then(|ms| u64::try_from(ms).ok());
    let asked = ms.map_or(SESSION_WAIT_DEFAULT, Duration::from_millis);
    asked.saturating_sub((asked / 20).clamp(SPARED_LEAST, SPARED_MOST))
}

/// Ticks of 100 ns since the year 1, as in .NET.
fn dotnet_ticks(ms: u64) -> i64 {
    const TICKS_AT_1970: i64 = 621_355_968_000_000_000;
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    ms.saturating_mul(10_000).saturating_add(TICKS_AT_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_answer_before_its_own_time_out() {
        let waits = |asked: Option<u32>| {
            let mut attach = Attach::new("a".into(), Role::Receiver);
            attach.properties =
                asked.map(|ms| Map::build(|map| map.entry(&Symbol::from_static(TIMEOUT), &ms)));
            wait_of(&attach).as_millis()
        };
        assert_eq!(waits(Some(0)), 0);
        assert_eq!(waits(Some(300)), 200);
        assert_eq!(waits(Some(4_000)), 3_800);
        assert_eq!(waits(Some(30_000)), 29_500);
        assert_eq!(waits(None), 59_500);
    }
}
