//! Groups that could not be read, and until when they are not read again.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{Group, Missing};
use kew_log::BootTime;

use super::RETRY_INTERVAL_MS;

#[derive(Default)]
pub(super) struct Failing {
    /// Until when each rests: [`BootTime::NEVER`] until the next turn, which knows the time.
    groups: BTreeMap<Group, BootTime>,
    by_end: BTreeSet<(BootTime, Group)>,
    /// Those that failed since the last turn.
    failed: Vec<Group>,
}

impl Failing {
    /// Begins a turn, and the pauses of what failed since the last one: a read may take longer than a pause before it
    /// fails. Returns what failed, and until when it rests.
    pub(super) fn begin_turn(&mut self, now: BootTime) -> (Vec<Group>, BootTime) {
        while let Some((end, group)) = self.by_end.first().copied()
            && end.has_passed(now)
        {
            self.by_end.pop_first();
            self.groups.remove(&group);
        }
        let until = now.plus_ms(RETRY_INTERVAL_MS);
        let failed = std::mem::take(&mut self.failed);
        for group in &failed {
            self.groups.insert(*group, until);
            self.by_end.insert((until, *group));
        }
        (failed, until)
    }

    /// Whether a pause begins with the next turn.
    pub(super) fn awaits_turn(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Notes that a group could not be read.
    pub(super) fn note(&mut self, group: Group) {
        if let Some(until) = self.groups.insert(group, BootTime::NEVER) {
            self.by_end.remove(&(until, group));
        }
        self.failed.push(group);
    }

    /// Until when a group rests, if it does.
    pub(super) fn until(&self, group: Group) -> Option<BootTime> {
        match self.groups.is_empty() {
            true => None,
            false => self.groups.get(&group).copied(),
        }
    }

    /// Until when something of this rests, if it does.
    pub(super) fn until_any(&self, missing: &Missing) -> Option<BootTime> {
        match self.groups.is_empty() {
            true => None,
            false => missing.groups.keys().filter_map(|it| self.until(*it)).max(),
        }
    }
}
