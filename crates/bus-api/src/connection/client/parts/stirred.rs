//! Which links need attention, and why.

use std::collections::BTreeSet;
use std::sync::Arc;

use kew_amqp::{LinkId, Millis, SendRefusal};
use kew_engine::Timestamp;
use tokio::sync::Notify;

use super::blocked::Blocked;
use crate::connection::client::links::Links;
use crate::connection::client::links::link::Link;
use crate::ground::clock::Clock;

#[derive(Default)]
pub(crate) struct Stirred {
    /// Receivers and replies that may have work to do.
    pub(crate) links: BTreeSet<LinkId>,
    /// Links that wait for room in their session.
    pub(crate) blocked: Blocked,
    /// Receivers that wait for room.
    pub(crate) starved: BTreeSet<LinkId>,
    /// When the locks of sessions run out, by link.
    session_ends: BTreeSet<(Timestamp, LinkId)>,
    /// Notified when the entity of a link may have changed.
    pub(crate) changes: Arc<Notify>,
}

impl Stirred {
    /// Takes the next link that needs attention, or that may have room again.
    pub(crate) fn take(&mut self) -> Option<LinkId> {
        self.links.pop_first().or_else(|| self.blocked.take())
    }

    /// Notes that a link could not send. Credit will bring it here again, if it is not its session that has no room.
    pub(crate) fn note_refused(&mut self, link: LinkId, refusal: &SendRefusal) {
        if refusal.is_of_session() {
            self.blocked.add(link);
        }
    }

    /// Looks again at receivers that wait for room. Returns how many there are.
    pub(crate) fn feed_starved(&mut self) -> usize {
        let count = self.starved.len();
        self.links.append(&mut self.starved);
        count
    }

    /// Forgets a detached link.
    pub(crate) fn forget(&mut self, link: LinkId, links: &mut Links) {
        self.links.remove(&link);
        self.blocked.forget(link);
        self.starved.remove(&link);
        self.forget_session_end(link, links);
    }

    /// Notes when a link's session lock expires, unless it is renewed.
    pub(crate) fn note_session_end(&mut self, link: LinkId, at: Timestamp, links: &mut Links) {
        self.forget_session_end(link, links);
        if let Some(Link::Receiver(receiver)) = links.get_mut(link) {
            receiver.session_ends_at = Some(at);
            self.session_ends.insert((at, link));
        }
    }

    /// The link has lost the lock, or has it until another time.
    pub(crate) fn forget_session_end(&mut self, link: LinkId, links: &mut Links) {
        if let Some(Link::Receiver(receiver)) = links.get_mut(link)
            && let Some(at) = receiver.session_ends_at.take()
        {
            self.session_ends.remove(&(at, link));
        }
    }

    /// The link whose session lock should have expired first, if there is one.
    pub(crate) fn session_that_ended(&self, now_ms: u64) -> Option<LinkId> {
        let &(at, link) = self.session_ends.first()?;
        (at.as_ms() <= now_ms).then_some(link)
    }

    /// When the first session lock runs out.
    pub(crate) fn next_session_end(&self, now: Millis, clock: Clock) -> Option<Millis> {
        let (at, _) = self.session_ends.first()?;
        let left_ms = at.as_ms().saturating_sub(clock.now_ms());
        // The system's clock may jump, so it is checked once an hour.
        Some(Millis(now.0.saturating_add(left_ms.min(3_600_000))))
    }
}
