//! What handles tell the connection's task without waiting: from `Drop`, and when their time runs out.
//!
//! There is at most one entry for each link, and one for all requests, so the list is as bounded as links are.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::core::LinkKey;

/// What is to become of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nudge {
    /// Something was withdrawn: it is dropped, with its place.
    Tidy,
    /// Something ran out of time before it went out: the link is replaced, unless it is only busy.
    Stalled,
    /// It has not answered in time: it is detached, and attached again when it is needed.
    Replace,
    /// Nobody has it any more.
    Forget,
}

#[derive(Debug, Default)]
pub(super) struct Nudges {
    links: Mutex<BTreeMap<LinkKey, Nudge>>,
    arrived: Notify,
}

impl Nudges {
    pub(super) fn push(&self, link: LinkKey, nudge: Nudge) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = links.entry(link).or_insert(nudge);
        *entry = nudge.max(*entry);
        drop(links);
        self.arrived.notify_one();
    }

    pub(super) fn take(&self) -> BTreeMap<LinkKey, Nudge> {
        std::mem::take(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until there is something to take. To drop the future loses nothing.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}
