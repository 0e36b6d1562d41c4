//! Links for requests to a node, and links for its answers.

use std::collections::VecDeque;

use bytes::Bytes;
use kew_amqp::LinkId;
use kew_amqp::codec::Text;
use kew_amqp::performative::{Attach, SenderSettleMode, Target};
use kew_engine::{Timestamp, Token};
use tokio::sync::OwnedSemaphorePermit;

use crate::ground::address::Node;
use crate::memory::account::Part;

/// A link over which a client sends requests.
pub(crate) struct Requests {
    pub(crate) node: Node,
}

impl Requests {
    /// How many requests may arrive before more credit is granted.
    pub(crate) const CREDIT: u32 = 100;
}

/// A link over which a client receives answers.
pub(crate) struct Replies {
    pub(crate) node: Node,
    /// The names that a request can use for it: its own name, or its target address.
    pub(crate) names: [Option<Text>; 2],
    pub(crate) is_settled: bool,
    pub(crate) waiting: VecDeque<(Bytes, Part)>,
    pub(crate) next_tag: u64,
    /// How many such links the client had attached before.
    pub(crate) before: u64,
}

impl Replies {
    pub(crate) fn new(node: Node, attach: &Attach, before: u64) -> Self {
        let target = attach.target.as_ref().and_then(Target::address);
        Self {
            node,
            names: [Some(attach.name.unshared()), target.map(Text::unshared)],
            is_settled: attach.snd_settle_mode != SenderSettleMode::Unsettled,
            waiting: VecDeque::new(),
            next_tag: 0,
            before,
        }
    }

    /// Bytes of its texts.
    pub(crate) fn size_bytes(&self) -> usize {
        let names = self.names.iter().flatten();
        let names: usize = names.map(|name| name.as_str().len()).sum();
        self.node.size_bytes() + names
    }
}

/// The sender of a request to a node.
pub(crate) struct Asker {
    pub(crate) link: LinkId,
    pub(crate) node: Node,
    /// How many links for answers the client had attached by then.
    pub(crate) reply_links: u64,
}

/// An answer to a request.
pub(crate) struct Reply {
    pub(crate) reply_to: Option<Text>,
    pub(crate) answer: Bytes,
    /// The session lock that the request has renewed, and until when.
    pub(crate) renewed: Option<(Token, Timestamp)>,
    /// The room that it has used so far.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}
