//! Unsettled deliveries of a session, in one direction.
//!
//! A peer names deliveries by ranges of up to 2^31 numbers, in a frame of some thirty bytes, and
//! may repeat the same frame many times. So deliveries with a reported outcome are kept apart:
//! walking a range visits only the deliveries that the frame changes.
//!
//! Deliveries of detached links are not searched for. They are removed when a walk meets them, and
//! all at once when they outnumber the others. So detaching a link costs no more than its own
//! deliveries have paid for.

use std::collections::BTreeMap;

use super::link::Link;
use super::slab::{Key, Slab};
use crate::performative::Tag;

/// An unsettled delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    pub(crate) link: Key,
    pub(crate) tag: Tag,
}

/// How many deliveries of detached links may always stay.
const ORPHANS_MIN: usize = 64;

/// Which deliveries of a range to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All: the peer settles them, whether it has reported an outcome or not. They are taken out.
    All,
    /// Those whose outcome the peer had not reported. It has now.
    Untold,
}

/// Numbers still to visit, from `next` to `last`. They may wrap around in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) next: u32,
    pub(super) last: u32,
}

impl Range {
    /// The part before a number: the peer does not mean deliveries that are sent while the range is
    /// visited.
    pub(super) fn before(self, end: u32) -> Option<Self> {
        let newest = end.wrapping_sub(1);
        let reach = newest.wrapping_sub(self.next);
        let is_ahead = reach > u32::MAX / 2;
        let span = self.last.wrapping_sub(self.next).min(reach);
        let last = self.next.wrapping_add(span);
        (!is_ahead).then_some(Self { last, ..self })
    }

    /// The first number of the range that a map contains.
    fn first_in(self, map: &BTreeMap<u32, Unsettled>) -> Option<u32> {
        let Self { next, last } = self;
        // Most name one delivery.
        if next == last {
            return map.contains_key(&next).then_some(next);
        }
        let found = if next <= last {
            map.range(next..=last).next()
        } else {
            let until_end = map.range(next..).next();
            until_end.or_else(|| map.range(..=last).next())
        };
        found.map(|(&id, _)| id)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// The peer has reported no outcome of these.
    untold: BTreeMap<u32, Unsettled>,
    /// It has of these, and has not settled them.
    told: BTreeMap<u32, Unsettled>,
    /// How many of both belong to detached links.
    orphans: usize,
}

impl Deliveries {
    /// The number of deliveries.
    pub(super) fn len(&self) -> usize {
        let all = self.untold.len() + self.told.len();
        all.saturating_sub(self.orphans)
    }

    /// Adds a delivery. Its number must be new.
    pub(super) fn insert(&mut self, id: u32, delivery: Unsettled) {
        // Only a delivery of a detached link can have had the number.
        let before = self.untold.insert(id, delivery);
        let before = before.or_else(|| self.told.remove(&id));
        self.orphans = self.orphans.saturating_sub(usize::from(before.is_some()));
    }

    pub(super) fn has(&self, id: u32, links: &Slab<Link>) -> bool {
        self.link_of(id, links).is_some()
    }

    /// The link of a delivery, unless it is detached.
    pub(super) fn link_of(&self, id: u32, links: &Slab<Link>) -> Option<Key> {
        let found = self.untold.get(&id).or_else(|| self.told.get(&id));
        found.filter(|own| is_of(own, links)).map(|own| own.link)
    }

    /// Takes a delivery out, unless its link is detached.
    pub(super) fn take(&mut self, id: u32, links: &Slab<Link>) -> Option<Unsettled> {
        let found = self.told.remove(&id);
        let found = found.or_else(|| self.untold.remove(&id))?;
        self.unless_orphan(found, links)
    }

    /// Takes a delivery of this link out. Returns whether there was one.
    pub(super) fn take_of(&mut self, id: u32, link: Key) -> bool {
        let mut maps = [&mut self.untold, &mut self.told].into_iter();
        maps.any(|map| {
            map.get(&id).is_some_and(|own| own.link == link) && map.remove(&id).is_some()
        })
    }

    /// Visits one delivery of a range, and advances the range. `None` if the range has no more.
    ///
    /// The visited delivery can belong to a detached link.
    pub(super) fn visit(
        &mut self,
        range: &mut Option<Range>,
        wanted: Wanted,
        links: &Slab<Link>,
    ) -> Option<(u32, Option<Unsettled>)> {
        let left = (*range)?;
        let untold = left.first_in(&self.untold);
        let told = match wanted {
            Wanted::All if !self.told.is_empty() => left.first_in(&self.told),
            Wanted::All | Wanted::Untold => None,
        };
        let ahead = |id: &u32| id.wrapping_sub(left.next);
        let Some(id) = untold.into_iter().chain(told).min_by_key(ahead) else {
            *range = None;
            return None;
        };
        let next = id.wrapping_add(1);
        *range = (id != left.last).then_some(Range { next, ..left });
        let found = match (wanted, self.untold.remove(&id)) {
            (Wanted::All, None) => self.told.remove(&id)?,
            (_, found) => found?,
        };
        let found = self.unless_orphan(found, links);
        if let (Wanted::Untold, Some(own)) = (wanted, found) {
            self.told.insert(id, own);
        }
        Some((id, found))
    }

    fn unless_orphan(&mut self, own: Unsettled, links: &Slab<Link>) -> Option<Unsettled> {
        if is_of(&own, links) {
            return Some(own);
        }
        self.orphans = self.orphans.saturating_sub(1);
        None
    }

    /// The link of `count` deliveries is detached. Returns how many were visited to clean up.
    pub(super) fn orphan(&mut self, count: usize, links: &Slab<Link>) -> usize {
        self.orphans += count;
        let all = self.untold.len() + self.told.len();
        if self.orphans < ORPHANS_MIN.max(all / 2) {
            return 0;
        }
        self.untold.retain(|_, own| is_of(own, links));
        self.told.retain(|_, own| is_of(own, links));
        self.orphans = 0;
        all
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether a delivery belongs to one of these links, and the link still exists.
fn is_of(delivery: &Unsettled, links: &Slab<Link>) -> bool {
    let link = links.get(delivery.link);
    link.is_some_and(Link::has_deliveries)
}
