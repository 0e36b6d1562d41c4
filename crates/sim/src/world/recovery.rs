//! How a process ends, and the next one begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use kew_broker::{Partition, Rejection, TurnEnd};
use kew_engine::Timestamp;
use kew_log::{LogEnd, LogPosition, Recovery, TablePage, read_table};

use super::life::Life;
use super::{World, secret};
use crate::checker::{Violation, promise, violated};
use crate::faults::{Crash, RecoveryFault};
use crate::rare::Rare;
use crate::seam::{self, Disk};

impl World {
    /// The log has ended in a job: the machine died during it, or a call failed and the process must stop.
    pub(super) fn log_ended(&mut self, end: &LogEnd) -> Result<(), Violation> {
        if self.members.is_some() {
            return self.log_fenced(end);
        }
        if let Some(crash) = self.death() {
            let rare = match crash {
                Crash::Kill => Rare::KillInJob,
                Crash::PowerCut => Rare::PowerCutInJob,
            };
            self.report.rare.note(rare);
            return self.crash(crash);
        }
        if !self.call_may_fail {
            return violated!(promise::LIVENESS, "the log failed without a fault: {end}");
        }
        self.report.rare.note(Rare::StoppedByFailedCall);
        self.check_stopped(&Rejection::Stopped)?;
        // Other threads may finish their work before the process ends.
        if self.schedule.happens(500) {
            for job in std::mem::take(&mut self.life.jobs) {
                let _ = seam::carry_out(job);
            }
        }
        let crash = [Crash::Kill, Crash::PowerCut][self.schedule.index(2)];
        self.crash(crash)
    }

    /// After the end of its log, a process does nothing any more, and says so.
    pub(super) fn check_stopped(&mut self, rejection: &Rejection) -> Result<(), Violation> {
        let mut replies = Vec::new();
        let end = self.decide(&mut replies)?;
        let all_stopped = replies
            .iter()
            .all(|(_, reply)| reply.as_ref().is_err_and(|it| it == rejection));
        let is_stopped =
            self.life.partition.is_stopped() && self.life.partition.next_job().is_none();
        if !all_stopped || !is_stopped || end != TurnEnd::Done || !self.life.commands.is_empty() {
            return violated!(
                promise::STOPS,
                "after the log's end: {replies:?}, stopped {is_stopped}"
            );
        }
        self.take_in(replies)
    }

    pub(super) fn crash(&mut self, crash: Crash) -> Result<(), Violation> {
        self.trace.add("crash", &[crash as u64], &crash);
        let end = seam::files_of(self.life.partition.log()).segments().last();
        let last_segment = end.map(|segment| segment.first);
        self.note_cut_transactions(crash);
        self.die(crash);
        self.abandon();
        self.check()?;
        self.damage_snapshot();
        self.damage_page();
        self.reopen(last_segment)
    }

    /// The process that acts ends. What it has not answered may have happened or not.
    pub(super) fn abandon(&mut self) {
        self.life.jobs.clear();
        self.life.done.clear();
        self.life.scrub = None;
        self.backups.forget();
        let own = self.history.iter_mut();
        for (id, asked) in own.filter(|(_, asked)| asked.life == self.life.number) {
            self.in_flight -= usize::from(asked.waits());
            if asked.operation.until == Timestamp::NEVER {
                // It was not decided.
                self.life.order.push_back(*id);
            }
            asked.operation.until = asked.operation.until.min(self.life.now);
            asked.done = true;
        }
    }

    /// Counts transactions that are decided and not answered when the process or machine ends.
    fn note_cut_transactions(&mut self, crash: Crash) {
        let Some(bus) = &mut self.bus else { return };
        for asked in self.history.values().filter(|asked| !asked.done) {
            let operation = &asked.operation;
            let Some(parts) = operation.transaction() else {
                continue;
            };
            if operation.until == Timestamp::NEVER {
                continue;
            }
            let queues: BTreeSet<_> = parts.iter().map(|part| &part.queue).collect();
            match crash {
                Crash::Kill => bus.checker.note("a transaction was cut by a kill"),
                Crash::PowerCut => {
                    bus.checker.note("a transaction was cut by a power failure");
                    if queues.len() >= 3 {
                        bus.checker
                            .note("a transaction over three queues was cut by a power failure");
                    }
                }
            }
        }
    }

    fn die(&mut self, crash: Crash) {
        let disk = &mut self.disk;
        let next = match crash {
            Crash::Kill => {
                self.report.kills += 1;
                self.storage.kill()
            }
            Crash::PowerCut => {
                self.report.power_cuts += 1;
                // The machine is booted anew.
                self.reading.boot_us = 0;
                self.storage.crash(&mut |end| disk.below_u32(end.max(1)))
            }
        };
        self.storage = Arc::new(next);
        self.device = Arc::new(Disk::new(&self.storage));
        self.dies_after = None;
        self.call_may_fail = false;
    }

    /// Damages the newest snapshot, sometimes, if there is another one to fall back on.
    fn damage_snapshot(&mut self) {
        let Some(which) = self.faults.damage_snapshot() else {
            return;
        };
        if let [.., _, (name, size_bytes)] = self.whole_snapshots().as_slice() {
            let offset = which % size_bytes.max(&1);
            self.flip(name, offset, which >> 61);
            self.damaged_snapshots.push(name.clone());
            self.report.damaged_snapshots += 1;
        }
    }

    /// Snapshots that were not damaged, with their size, oldest first.
    fn whole_snapshots(&self) -> Vec<(String, u64)> {
        let files = self.storage.files().into_iter();
        files
            .filter(|(name, _)| name.starts_with("snapshot-"))
            .filter(|(name, _)| !self.damaged_snapshots.contains(name))
            .collect()
    }

    /// Damages a page, sometimes: one of its copies, or both if there is a snapshot to fall back on that does not
    /// name it.
    fn damage_page(&mut self) {
        let Some(which) = self.faults.damage_page() else {
            return;
        };
        let rest = which / 4;
        match which % 4 {
            0 => self.damage_both_copies(rest),
            1 => self.damage_anywhere(rest),
            _ => self.damage_copy(rest),
        }
    }

    /// Damages any byte of all page files, their headers too.
    fn damage_anywhere(&mut self, which: u64) {
        let files = self.storage.files().into_iter();
        let files = files.filter(|(name, _)| page_file(name).is_some());
        let files: Vec<_> = files.collect();
        let size_bytes: u64 = files.iter().map(|(_, size_bytes)| size_bytes).sum();
        let mut at = which % size_bytes.max(1);
        for (name, size_bytes) in files {
            if at < size_bytes {
                self.damage_one_of_pair(&name, at, which);
                return;
            }
            at -= size_bytes;
        }
    }

    /// Damages one copy of a page that is needed.
    pub(super) fn damage_copy(&mut self, which: u64) {
        let Some((newest, _)) = self.whole_snapshots().pop() else {
            return;
        };
        let pages = self.pages_of(&newest);
        if let Some(page) = pick(&pages, which) {
            let [first, second] = files_of(page);
            let name = if which.is_multiple_of(2) {
                first
            } else {
                second
            };
            self.damage_one_of_pair(&name, offset_in(page, which), which);
        }
    }

    /// Damages a file if the other one of its pair has no damage.
    fn damage_one_of_pair(&mut self, name: &str, at: u64, which: u64) {
        let Some(number) = page_file(name) else {
            return;
        };
        if *self.damaged_pages.entry(number / 2).or_insert(number) == number {
            self.flip(name, at, which);
        }
    }

    /// Damages both copies of a page that the newest snapshot names, and no other one.
    fn damage_both_copies(&mut self, which: u64) {
        let whole = self.whole_snapshots();
        let [older @ .., (newest, _)] = whole.as_slice() else {
            return;
        };
        let kept = older.iter().flat_map(|(name, _)| self.pages_of(name));
        let kept: Vec<_> = kept.collect();
        let mut own = self.pages_of(newest);
        own.retain(|page| !kept.contains(page) && !older.is_empty());
        let Some(page) = pick(&own, which) else {
            return;
        };
        for name in files_of(page) {
            self.flip(&name, offset_in(page, which), which);
        }
        self.damaged_snapshots.push(newest.clone());
        self.report.damaged_snapshots += 1;
    }

    /// The pages that a snapshot names.
    fn pages_of(&self, snapshot: &str) -> Vec<TablePage> {
        let position = snapshot.strip_prefix("snapshot-").map(str::parse);
        let position = position.and_then(Result::ok);
        let position = LogPosition::new(position.expect("a snapshot is named by its position"));
        let read = read_table(&*self.storage, position);
        read.map_or_else(|_| Vec::new(), |it| it.table.pages().to_vec())
    }

    /// Opens the content of the disk, sometimes with another fault during that.
    fn reopen(&mut self, last_segment: Option<LogPosition>) -> Result<(), Violation> {
        let wall = Timestamp::from_ms(self.reading.wall_us / 1000);
        loop {
            let fault = self.faults.strike_recovery();
            match fault {
                Some(RecoveryFault::CrashAfter { crash, calls }) => self.die_after(calls, crash),
                Some(RecoveryFault::FailCall(failed)) => {
                    self.report.failed_calls += 1;
                    self.call_may_fail = true;
                    self.storage
                        .fail_after(failed.after, failed.fault, failed.repeat);
                }
                None => {}
            }
            let salt = self.disk.next();
            let opened = seam::open(
                self.device.clone(),
                self.options.clone(),
                salt,
                secret(salt),
                wall,
            );
            let error = match opened {
                // Nothing cuts the log of one machine.
                Ok((_, recovery)) if recovery.void > 0 => {
                    return violated!(promise::RECOVERY, "{} claims are void", recovery.void);
                }
                Ok((partition, recovery)) => {
                    self.begin_life(partition, &recovery, last_segment)?;
                    return Ok(());
                }
                Err(error) => error,
            };
            self.trace.add("not opened", &[], &error);
            if let Some(crash) = self.death() {
                self.report.rare.note(match crash {
                    Crash::Kill => Rare::KillInRecovery,
                    Crash::PowerCut => Rare::PowerCutInRecovery,
                });
                self.die(crash);
            } else if self.call_may_fail {
                self.report.rare.note(Rare::FailedCallInRecovery);
                self.die(Crash::Kill);
            } else if self.is_full {
                self.report.rare.note(Rare::FullDiskAtRecovery);
                self.free_disk();
            } else {
                return violated!(promise::RECOVERY, "{error} ({error:?})");
            }
        }
    }

    /// Goes on with another process. Returns the one before.
    pub(super) fn begin_life(
        &mut self,
        partition: Partition<u64>,
        recovery: &Recovery,
        last_segment: Option<LogPosition>,
    ) -> Result<Life, Violation> {
        self.trace.add(
            "reopened",
            &[recovery.events_replayed, recovery.end.as_u64()],
            recovery,
        );
        let rare = &mut self.report.rare;
        rare.note_if(recovery.tail_cut.is_some(), Rare::TornTailCut);
        rare.note_if(recovery.records_copied > 0, Rare::TailCopied);
        let taken_back = last_segment.is_some_and(|first| recovery.end < first);
        rare.note_if(taken_back, Rare::RollTakenBack);
        let behind = recovery.snapshot.is_some() && recovery.events_replayed > 0;
        rare.note_if(behind, Rare::SnapshotReplayed);
        let warns = |of: &str| recovery.warnings.iter().any(|it| it.starts_with(of));
        rare.note_if(warns("a snapshot"), Rare::SnapshotPassedOver);
        rare.note_if(
            warns("what is damaged was read from its copy"),
            Rare::PageReadFromCopy,
        );
        let number = self.life.number + 1;
        let life = Life::begin(number, partition, &self.swarm, self.reading);
        if life.now.as_ms() < recovery.time_ms {
            return violated!(
                promise::TIME,
                "a clock begins at {}, and {} ms are recorded",
                life.now,
                recovery.time_ms
            );
        }
        Ok(std::mem::replace(&mut self.life, life))
    }
}

/// The number of a file of pages.
fn page_file(name: &str) -> Option<u64> {
    name.strip_prefix("pages-")?.parse().ok()
}

fn files_of(page: &TablePage) -> [String; 2] {
    let first = 2 * u64::from(page.place.pair);
    [first, first + 1].map(|number| format!("pages-{number:020}"))
}

fn pick(pages: &[TablePage], which: u64) -> Option<&TablePage> {
    let index = (which / 8) % (pages.len() as u64).max(1);
    pages.get(usize::try_from(index).ok()?)
}

/// A byte of a page.
fn offset_in(page: &TablePage, which: u64) -> u64 {
    u64::from(page.place.offset) + (which / 8) % u64::from(page.place.size_bytes)
}
