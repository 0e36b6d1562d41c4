//! The links of a client, counted by what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use kew_amqp::LinkId;

use super::Link;
use super::receiver::Receiver;

/// Opening, senders, receivers, requests, replies.
const KINDS: usize = 5;

#[derive(Default)]
pub(super) struct Links {
    by_id: BTreeMap<LinkId, Link>,
    counts: [u64; KINDS],
    /// Those for answers, which every answer looks at.
    replies: BTreeSet<LinkId>,
    /// What they take, as it is counted when they come and go.
    size_bytes: usize,
}

impl Links {
    pub(super) fn insert(&mut self, id: LinkId, link: Link) {
        self.remove(id);
        *self.count(&link) += 1;
        if let Link::Replies(_) = link {
            self.replies.insert(id);
        }
        self.size_bytes += link.size_bytes();
        self.by_id.insert(id, link);
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.by_id.remove(&id)?;
        *self.count(&link) -= 1;
        if let Link::Replies(_) = link {
            self.replies.remove(&id);
        }
        self.size_bytes -= link.size_bytes();
        Some(link)
    }

    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get_mut(&id)
    }

    /// Those for answers.
    pub(super) fn replies(&self) -> impl ExactSizeIterator<Item = (&LinkId, &Link)> {
        let link = |id| self.by_id.get(id).expect("it was inserted with its link");
        self.replies.iter().map(move |id| (id, link(id)))
    }

    /// How many there are of each kind.
    pub(super) fn counts(&self) -> [u64; KINDS] {
        self.counts
    }

    /// What they take, beside what waits to go over them.
    pub(super) fn size_bytes(&self) -> usize {
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

impl Link {
    /// What it takes as long as it is there. What changes meanwhile is counted where it does.
    fn size_bytes(&self) -> usize {
        let own = match self {
            // Its attach is counted by itself.
            Self::Opening(_) | Self::Coordinator => 0,
            Self::Sender(sender) => sender.attached.size_bytes(),
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

impl Deref for Links {
    type Target = BTreeMap<LinkId, Link>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}
