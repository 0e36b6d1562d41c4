//! Links that have something to send, while their session has no room.
//!
//! Thousands of links can wait in one session. When it has room again, that is often room for a few messages, so links
//! are taken one after the other, in turn, until there is no more room. To look at all of them each time would cost more
//! than the messages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use kew_amqp::{LinkId, SessionId};

#[derive(Default)]
pub(crate) struct Blocked {
    links: BTreeSet<LinkId>,
    /// Sessions with room, as far as is known.
    with_room: BTreeSet<SessionId>,
    /// The link of each session that had its turn last.
    last: BTreeMap<SessionId, LinkId>,
    /// The session that had its turn last.
    last_session: Option<SessionId>,
}

impl Blocked {
    /// There was no room for what this link has to send.
    pub(crate) fn add(&mut self, link: LinkId) {
        self.links.insert(link);
        self.with_room.remove(&link.session());
    }

    /// A session may have room again.
    pub(crate) fn note_room(&mut self, session: SessionId) {
        if self.links.range(session.links()).next().is_some() {
            self.with_room.insert(session);
        }
    }

    /// Takes the next link of a session that may have room.
    pub(crate) fn take(&mut self) -> Option<LinkId> {
        loop {
            let after = self.last_session.map_or(Unbounded, Excluded);
            let next = self.with_room.range((after, Unbounded)).next();
            let session = *next.or_else(|| self.with_room.first())?;
            self.last_session = Some(session);
            let all = session.links();
            let after = self.last.get(&session);
            let found = after
                .and_then(|after| {
                    self.links
                        .range((Excluded(*after), Included(*all.end())))
                        .next()
                })
                .or_else(|| self.links.range(all).next())
                .copied();
            if let Some(link) = found {
                self.links.remove(&link);
                self.last.insert(session, link);
                return Some(link);
            }
            self.forget_session(session);
        }
    }

    /// The link is detached.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.remove(&link);
        let session = link.session();
        if self.links.range(session.links()).next().is_none() {
            self.forget_session(session);
        }
    }

    fn forget_session(&mut self, session: SessionId) {
        self.with_room.remove(&session);
        self.last.remove(&session);
    }
}
