//! A link over which a client sends messages, perhaps via its entity to another one.

use kew_amqp::codec::{Map, Symbol, Value};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{Attach, Role};
use kew_engine::EntityName;

use super::attached::Attached;
use crate::ground::address::{Node, node_at};
use crate::ground::refusal::{bus_condition, not_found};

/// The property of an attach with the address of another entity: messages are sent to that one, via the target.
///
/// Source: Service Bus, AMQP protocol guide, *Transaction support: send via*.
const TRANSFER_DESTINATION: &str = "com.microsoft:transfer-destination-address";

/// A link over which a client sends.
pub(crate) struct Sender {
    pub(crate) attached: Attached,
    /// The name that the client asked for, of which it has rights. A subscription stands for its topic.
    pub(crate) asked: EntityName,
    /// Where its messages go, if it only sends them via its entity.
    pub(crate) destination: Option<EntityName>,
    /// Whether its session has another first entity, which gets what a transaction sends over it and its own entity does
    /// not accept.
    pub(crate) is_after_first: bool,
}

impl Sender {
    /// How many messages may arrive before more credit is granted. The real limit is that no more
    /// input is read.
    pub(crate) const CREDIT: u32 = 1_000;

    /// Bytes of its texts.
    pub(crate) fn size_bytes(&self) -> usize {
        let destination = self.destination.as_ref();
        let destination = destination.map_or(0, |it| it.name.len());
        self.attached.size_bytes() + self.asked.name.len() + destination
    }
}

/// The destination of a link that sends via its entity.
pub(crate) fn destination_of(attach: &Attach) -> Result<Option<EntityName>, Error> {
    let asked = attach
        .properties
        .as_ref()
        .filter(|_| attach.role == Role::Sender);
    let Some(asked) = asked.and_then(|it| it.get(TRANSFER_DESTINATION)) else {
        return Ok(None);
    };
    let asked = asked.value();
    if asked == Value::Null {
        return Ok(None);
    }
    let Some(address) = asked.as_str() else {
        let text = format!("the property {TRANSFER_DESTINATION} must be a string");
        return Err(Error::new(bus_condition::ARGUMENT_ERROR, text));
    };
    match node_at(address) {
        Some(Node::Entity(entity)) => Ok(Some(entity)),
        Some(Node::Tokens | Node::Management(_)) => {
            let text = format!("Messages cannot be sent via an entity to the node '{address}'.");
            Err(Error::new(condition::NOT_ALLOWED, text))
        }
        None => Err(not_found(address)),
    }
}

/// The properties of the answer to its attach.
pub(crate) fn answered_destination(attach: &Attach) -> Option<Map> {
    let asked = attach.properties.as_ref()?.get(TRANSFER_DESTINATION)?;
    Some(Map::build(|map| {
        map.entry(&Symbol::from_static(TRANSFER_DESTINATION), &asked);
    }))
}
