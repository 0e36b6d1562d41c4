//! Groups of records that could not be read: why, and until when they are not read again.

use std::collections::BTreeMap;

use kew_engine::Group;
use kew_engine::bus::Unread;
use kew_log::BootTime;

use super::RETRY_INTERVAL_MS;

/// A group whose sectors cannot be read so often, with pauses between the tries, is as good as damaged: otherwise nobody
/// could delete its queue.
const FAILURES_MAX: u32 = 3;

/// How long after its pause a group is forgotten that nobody has tried again.
const KEPT_MS: u64 = 10 * RETRY_INTERVAL_MS;

/// A group that could not be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    is_lost: bool,
    /// How often its sectors could not be read, one try after the other.
    bad_sectors: u32,
    /// [`BootTime::NEVER`] until the turn after the last try, which knows the time.
    until: BootTime,
}

impl Failing {
    pub(super) fn why(&self) -> Unread {
        match self.is_lost || self.bad_sectors >= FAILURES_MAX {
            true => Unread::Lost,
            false => Unread::Now,
        }
    }

    /// Until when it is not asked for again.
    pub(super) fn until(&self) -> BootTime {
        self.until
    }
}

/// The groups that could not be read.
#[derive(Default)]
pub(super) struct FailingGroups {
    groups: BTreeMap<Group, Failing>,
    /// Those that failed since the last turn.
    failed: Vec<Group>,
}

impl FailingGroups {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a pause begins with the next turn.
    pub(super) fn begins_pauses(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Begins the pauses of what failed since the last turn, and returns that.
    pub(super) fn begin_turn(&mut self, until: BootTime) -> Vec<Group> {
        let failed = std::mem::take(&mut self.failed);
        for group in &failed {
            if let Some(failing) = self.groups.get_mut(group) {
                failing.until = until;
            }
        }
        failed
    }

    /// A group that could not be read a moment ago.
    pub(super) fn put_off(&self, group: Group, now: BootTime) -> Option<&Failing> {
        let failing = self.groups.get(&group);
        failing.filter(|it| !it.until.has_passed(now))
    }

    pub(super) fn note(&mut self, group: Group, why: Unread) {
        self.fail(group).is_lost = why == Unread::Lost;
    }

    /// Notes that the sectors of a group could not be read. Returns what that means by now.
    pub(super) fn note_bad_sectors(&mut self, group: Group) -> Unread {
        let failing = self.fail(group);
        failing.bad_sectors += 1;
        failing.why()
    }

    fn fail(&mut self, group: Group) -> &mut Failing {
        self.failed.push(group);
        let failing = self.groups.entry(group).or_insert(Failing {
            is_lost: false,
            bad_sectors: 0,
            until: BootTime::NEVER,
        });
        failing.is_lost = false;
        failing.until = BootTime::NEVER;
        failing
    }

    /// Forgets a group: it was read.
    pub(super) fn end(&mut self, group: Group) {
        self.groups.remove(&group);
    }

    /// Forgets what nobody has tried again for long.
    pub(super) fn forget_old(&mut self, now: BootTime) {
        let is_old = |it: &Failing| it.until.plus_ms(KEPT_MS).has_passed(now);
        self.groups.retain(|_, it| !is_old(it));
    }
}
