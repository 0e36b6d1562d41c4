//! Faults on their way: what goes wrong while the process runs.

use super::World;
use crate::checker::Violation;
use crate::faults::{Crash, Strike};
use crate::rare::Rare;

impl World {
    /// Lets something go wrong.
    pub(super) fn strike(&mut self, strike: Strike) -> Result<(), Violation> {
        self.trace.add("strike", &[], &strike);
        match strike {
            Strike::ClockJump { ahead } => {
                let hour = 3_600_000_000;
                let wall = self.reading.wall_us;
                self.reading.wall_us = if ahead { wall + hour } else { wall - hour };
                self.report.clock_jumps += 1;
            }
            Strike::Suspension { seconds } => {
                self.report.suspensions += 1;
                self.report.rare.note_if(seconds > 60, Rare::LongSuspension);
                self.pass_time(|_| seconds * 1_000_000)?;
            }
            Strike::GiveUp { which } => self.give_up(which),
            Strike::SlowDisk { steps } => {
                self.slow_until = self.report.steps + steps;
                self.report.slow_disks += 1;
            }
            Strike::FillDisk { room_bytes } => {
                let used = self.storage.used_bytes();
                self.storage.set_capacity_bytes(Some(used + room_bytes));
                self.is_full = true;
                self.report.full_disks += 1;
            }
            Strike::FreeDisk => self.free_disk(),
            Strike::FailCall(failed) => {
                self.report.failed_calls += 1;
                self.call_may_fail = true;
                self.storage
                    .fail_after(failed.after, failed.fault, failed.repeat);
            }
            Strike::Fence => return self.fence(),
            Strike::Crash(_) | Strike::CrashAfter { .. } if self.members.is_some() => {
                return self.owner_dies();
            }
            Strike::Crash(crash) => return self.crash(crash),
            Strike::CrashAfter { crash, calls } => self.die_after(calls, crash),
        }
        Ok(())
    }

    /// One of the waiting clients gives up. Its command continues.
    fn give_up(&mut self, which: u64) {
        let waiting = || self.history.iter().filter(|(_, asked)| asked.waits());
        let Some(nth) = which.checked_rem(waiting().count() as u64) else {
            return;
        };
        let nth = usize::try_from(nth).expect("below a count of what is in memory");
        let id = waiting().nth(nth).map(|(id, _)| *id);
        if let Some(asked) = id.and_then(|id| self.history.get_mut(&id)) {
            asked.given_up = true;
            self.in_flight -= 1;
            self.report.given_up += 1;
        }
    }

    pub(super) fn free_disk(&mut self) {
        self.storage.set_capacity_bytes(None);
        self.faults.disk_is_free();
        self.is_full = false;
    }

    /// Makes the process or the machine die after some more storage calls.
    pub(crate) fn die_after(&mut self, calls: u64, crash: Crash) {
        self.storage.crash_after(calls);
        self.dies_after = Some((self.storage.calls() + calls, crash));
    }

    /// How it died, if it has.
    pub(super) fn death(&self) -> Option<Crash> {
        let (calls, crash) = self.dies_after?;
        (self.storage.calls() > calls).then_some(crash)
    }
}
