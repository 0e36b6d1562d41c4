//! The kinds of links of a client.

use kew_amqp::performative::Role;

use super::attached::Attached;
use super::opening::Opening;
use super::receiver::Receiver;
use super::requests::{Replies, Requests};
use super::sender::Sender;

/// A link of a client, by its kind.
pub(crate) enum Link {
    /// It was attached, and we are still to answer.
    Opening(Opening),
    /// The client sends messages to an entity.
    Sender(Sender),
    /// The client receives messages from an entity.
    Receiver(Box<Receiver>),
    /// The client sends requests to a node.
    Requests(Requests),
    /// The client receives a node's answers.
    Replies(Replies),
    /// The client declares and discharges transactions.
    Coordinator,
}

impl Link {
    /// Whether messages over it can be part of a transaction.
    pub(crate) fn may_be_in_transactions(&self) -> bool {
        match self {
            Self::Sender(_) | Self::Receiver(_) | Self::Requests(_) => true,
            Self::Opening(_) | Self::Replies(_) | Self::Coordinator => false,
        }
    }

    /// Whether its entity may have changed since the last call.
    pub(crate) fn may_have_changed(&self) -> bool {
        self.attached().is_some_and(Attached::may_have_changed)
    }

    /// Its entity, if it is a link to one.
    pub(crate) fn attached(&self) -> Option<&Attached> {
        match self {
            Self::Sender(sender) => Some(&sender.attached),
            Self::Receiver(receiver) => Some(&receiver.attached),
            Self::Opening(_) | Self::Requests(_) | Self::Replies(_) | Self::Coordinator => None,
        }
    }

    /// The client's role on the link.
    pub(crate) fn role(&self) -> Option<Role> {
        match self {
            Self::Sender(_) => Some(Role::Sender),
            Self::Receiver(_) => Some(Role::Receiver),
            Self::Opening(_) | Self::Requests(_) | Self::Replies(_) | Self::Coordinator => None,
        }
    }

    /// The memory that it takes while it exists. Parts that change meanwhile are counted elsewhere.
    pub(crate) fn size_bytes(&self) -> usize {
        let own = match self {
            // Its attach is counted separately.
            Self::Opening(_) | Self::Coordinator => 0,
            Self::Sender(sender) => sender.size_bytes(),
            Self::Receiver(receiver) => {
                size_of::<Receiver>()
                    + receiver.name.as_str().len()
                    + receiver.attached.size_bytes()
            }
            Self::Requests(requests) => requests.node.size_bytes(),
            Self::Replies(replies) => replies.size_bytes(),
        };
        size_of::<Self>() + own
    }
}
