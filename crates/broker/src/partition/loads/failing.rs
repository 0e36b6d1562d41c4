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

    /// Begins the pauses of what failed since the last turn.
    pub(super) fn begin_turn(&mut self, now: BootTime, until: BootTime) {
        if !self.groups.is_empty() {
            self.forget_old(now);
        }
        for group in std::mem::take(&mut self.failed) {
            if let Some(failing) = self.groups.get_mut(&group) {
                failing.until = until;
            }
        }
    }

    /// A group that could not be read a moment ago.
    pub(super) fn put_off(&self, group: Group, now: BootTime) -> Option<&Failing> {
        let failing = self.groups.get(&group);
        failing.filter(|it| !it.until.has_passed(now))
    }

    pub(super) fn note(&mut self, group: Group, why: Unread) {
        self.fail(group).is_lost = why == Unread::Lost;
    }

    /// Notes that the sectors of a group could not be read. Returns what that means by now. What was being read when they
    /// failed for others was no other try.
    pub(super) fn note_bad_sectors(&mut self, group: Group, now: BootTime) -> Unread {
        if let Some(why) = self.put_off(group, now).map(Failing::why) {
            // Due work that was let in only now has asked for it, and rests until the pause is over.
            self.failed.push(group);
            return why;
        }
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

    /// Forgets a group: it was read. If messages of it are lost, others of it can be read.
    pub(super) fn end(&mut self, group: Group, now: BootTime) {
        if self.put_off(group, now).is_none_or(|it| !it.is_lost) {
            self.groups.remove(&group);
        }
    }

    /// Forgets what nobody has tried again for long.
    fn forget_old(&mut self, now: BootTime) {
        let is_old = |it: &Failing| it.until.plus_ms(KEPT_MS).has_passed(now);
        self.groups.retain(|_, it| !is_old(it));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::default().plus_ms(ms)
    }

    /// Reads that were under way together are one try.
    #[test]
    fn sectors_are_bad_after_three_tries_with_pauses() {
        let (mut failing, group) = (FailingGroups::default(), Group::default());
        for tries in 1..=FAILURES_MAX {
            let now = at(u64::from(tries) * 2 * RETRY_INTERVAL_MS);
            let until = now.plus_ms(RETRY_INTERVAL_MS);
            let expected = match tries {
                FAILURES_MAX => Unread::Lost,
                _ => Unread::Now,
            };
            for _ in 0..5 {
                assert_eq!(failing.note_bad_sectors(group, now), expected, "{tries}");
            }
            failing.begin_turn(now, until);
            assert_eq!(failing.note_bad_sectors(group, now), expected, "{tries}");
            assert!(failing.begins_pauses(), "who asked rests");
            failing.begin_turn(now, until);
        }
        failing.end(group, at(100 * RETRY_INTERVAL_MS));
        assert!(failing.is_empty());
    }

    #[test]
    fn what_is_lost_stays_so_when_others_of_its_group_are_read() {
        let (mut failing, group) = (FailingGroups::default(), Group::default());
        failing.note(group, Unread::Lost);
        failing.begin_turn(at(0), at(RETRY_INTERVAL_MS));
        failing.end(group, at(1));
        assert_eq!(failing.put_off(group, at(1)).unwrap().why(), Unread::Lost);
        failing.end(group, at(RETRY_INTERVAL_MS));
        assert!(failing.is_empty());
    }
}
