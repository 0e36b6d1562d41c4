//! The links of a client, counted by kind.
//!
//! Each kind of link has its state here, with the tasks that wait for it. The operations of a
//! client on its links are in `handlers`.

pub(crate) mod attached;
pub(crate) mod cancel;
pub(crate) mod firsts;
pub(crate) mod link;
pub(crate) mod opening;
pub(crate) mod receive;
pub(crate) mod receiver;
pub(crate) mod requests;
pub(crate) mod sender;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use kew_amqp::codec::{Text, Value};
use kew_amqp::performative::Attach;
use kew_amqp::{LinkId, SessionId};
use kew_engine::{EntityName, Token};

use self::firsts::{First, Firsts, whole};
use self::link::Link;
use self::requests::{Asker, Replies};
use crate::ground::address::Node;
use crate::messages::request::{Request, text_of};

/// Opening, senders, receivers, requests, replies.
const KINDS: usize = 5;

#[derive(Default)]
pub(crate) struct Links {
    by_id: BTreeMap<LinkId, Link>,
    counts: [u64; KINDS],
    /// Links for answers, which every answer searches.
    replies: BTreeSet<LinkId>,
    /// How many of those were attached so far.
    reply_count: u64,
    /// The first entities of sessions with a coordinator.
    firsts: Firsts,
    /// Their memory, counted when they are attached and detached.
    size_bytes: usize,
}

impl Links {
    pub(crate) fn insert(&mut self, id: LinkId, link: Link) {
        self.remove(id);
        *self.count(&link) += 1;
        if let Link::Replies(_) = link {
            self.replies.insert(id);
        }
        match &link {
            Link::Coordinator => self.firsts.begin(id.session()),
            Link::Opening(opening) => self.firsts.reserve(id, &opening.entity),
            Link::Sender(sender) => {
                let whole = sender.attached.entity.clone();
                self.firsts.note(id.session(), &sender.asked, whole);
            }
            Link::Receiver(receiver) => {
                let attached = &receiver.attached;
                let whole = whole(&attached.entity, Some(attached.kind));
                self.firsts.note(id.session(), &attached.entity, whole);
            }
            Link::Requests(_) | Link::Replies(_) => {}
        }
        self.size_bytes += link.size_bytes();
        self.by_id.insert(id, link);
    }

    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.by_id.remove(&id)?;
        *self.count(&link) -= 1;
        match &link {
            Link::Replies(_) => {
                self.replies.remove(&id);
            }
            Link::Opening(_) => self.firsts.give_back(id),
            Link::Sender(_) | Link::Receiver(_) | Link::Requests(_) | Link::Coordinator => {}
        }
        self.size_bytes -= link.size_bytes();
        Some(link)
    }

    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get_mut(&id)
    }

    /// The entity that gets failed transfers of transactions that send to this one over a link.
    pub(crate) fn first_before(&self, link: LinkId, entity: &EntityName) -> Option<&First> {
        self.firsts.before(link.session(), entity)
    }

    /// A session has ended.
    pub(crate) fn forget_first_of(&mut self, session: SessionId) {
        self.firsts.end(session);
    }

    /// The links for answers.
    pub(crate) fn replies(&self) -> impl ExactSizeIterator<Item = (&LinkId, &Link)> {
        let link = |id| self.by_id.get(id).expect("it was inserted with its link");
        self.replies.iter().map(move |id| (id, link(id)))
    }

    /// Adds one for answers of a node.
    pub(crate) fn insert_replies(&mut self, id: LinkId, node: Node, attach: &Attach) {
        let before = self.reply_count;
        self.reply_count += 1;
        self.insert(id, Link::Replies(Replies::new(node, attach, before)));
    }

    /// The sender of a request to this node, over a link.
    pub(crate) fn asker(&self, link: LinkId, node: Node) -> Asker {
        Asker {
            link,
            node,
            reply_links: self.reply_count,
        }
    }

    /// The link for an answer to a request: the link of the same node that the request names, or
    /// one of the same session, or any. SDKs name links, targets, or nothing. If the link of the
    /// request is detached, a later link is not meant: its requests may have the same numbers.
    pub(crate) fn for_answer(&self, asker: &Asker, reply_to: &Option<Text>) -> Option<LinkId> {
        let is_gone = !self.by_id.contains_key(&asker.link);
        let is_named = |replies: &Replies| reply_to.is_some() && replies.names.contains(reply_to);
        self.replies()
            .filter_map(|(id, link)| match link {
                Link::Replies(replies) if replies.node == asker.node => Some((id, replies)),
                _ => None,
            })
            .filter(|(_, replies)| !is_gone || replies.before < asker.reply_links)
            .max_by_key(|(id, replies)| (id.session() == asker.link.session(), is_named(replies)))
            .map(|(id, _)| *id)
    }

    /// The lock of the session that a request refers to, if a link holds it: the session that the
    /// request names or, as the Go SDK does, the session of the link that it names.
    pub(crate) fn session_named(&self, entity: &EntityName, request: &Request) -> Option<Token> {
        let Value::Map(body) = &request.body else {
            return None;
        };
        let id = text_of(body, "session-id");
        let link_name = text_of(&request.properties, "associated-link-name");
        self.by_id.values().find_map(|link| match link {
            Link::Receiver(receiver) if receiver.attached.entity == *entity => {
                let session = receiver.session.as_ref()?;
                let is_meant = match &id {
                    Some(id) => *session.session == **id,
                    None => link_name.as_deref() == Some(receiver.name.as_str()),
                };
                is_meant.then_some(session.lock)
            }
            _ => None,
        })
    }

    /// The link that holds the lock of a session.
    pub(crate) fn holder_of(&self, lock: Token) -> Option<LinkId> {
        self.by_id.iter().find_map(|(id, link)| match link {
            Link::Receiver(receiver) => {
                let session = receiver.session.as_ref()?;
                (session.lock == lock).then_some(*id)
            }
            _ => None,
        })
    }

    /// The number of links of each kind.
    pub(crate) fn counts(&self) -> [u64; KINDS] {
        self.counts
    }

    /// Their memory, without the messages that wait to be sent over them.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn count(&mut self, link: &Link) -> &mut u64 {
        let [opening, senders, receivers, requests, replies] = &mut self.counts;
        match link {
            Link::Opening(_) => opening,
            Link::Sender(_) => senders,
            Link::Receiver(_) => receivers,
            Link::Requests(_) | Link::Coordinator => requests,
            Link::Replies(_) => replies,
        }
    }
}

impl Deref for Links {
    type Target = BTreeMap<LinkId, Link>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}
