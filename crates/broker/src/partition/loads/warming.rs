//! Reads runs back whose pages are worth writing again, so that the next snapshot writes what is left of them.
//!
//! After each snapshot a hand goes round over the runs and finds them: much of their page is gone, or much has changed
//! beside it. Such a run is read while no command waits for a read. Then it leaves its page, a snapshot becomes due, and
//! the run can leave memory again, with what lay beside its page. Only few runs are read at a time, and no more than fit
//! below the limit: a little more under pressure, because what lies beside pages could fill the memory up to the limit.
//! What cannot be read stays where it is, and the next round finds it again.
//!
//! Without a limit nothing of this happens, nor while the disk is full.

use std::collections::{BTreeMap, VecDeque};

use kew_engine::{Group, Hand, Missing, Pressure, Resident, RunId, Slots, Taken};
use kew_log::{BootTime, Job};

use super::ahead::PAGES_AT_ONCE;
use super::{JOBS_MAX, Loaded, Partition, Read, Reply, page_to_log, read_groups};
use crate::partition::eviction::begins_at;

/// How many runs are read back at a time.
const RUNS_AT_ONCE: usize = 8;

/// How many runs that were found may wait for that: 256 KiB. The next round finds the others.
const FOUND_MAX: usize = 16_384;

/// What the hand looks at, in steps of 20 ns: 10 µs from time to time, or 0.15 ms in each turn if a snapshot is due or
/// records take much memory.
const STEPS: u32 = 512;
const HURRIED_STEPS: u32 = 7_500;
const LOOK_INTERVAL_MS: u64 = 10;

/// How often groups of a run are read that are still missing then: commands may have read some of them meanwhile.
const TRIES: u32 = 3;

/// Under pressure, runs that wait for their pages may take so much of the limit whatever else is in memory.
const SHARE_UNDER_PRESSURE: u64 = 8;

/// How soon a snapshot is tried again for which the log had no room.
const RETRY_INTERVAL_MS: u64 = 1000;

/// What is to be warmed, and how far that is.
#[derive(Default)]
pub(in crate::partition) struct Warming {
    hand: Hand,
    /// The hand is on its way round.
    is_looking: bool,
    looks_at: BootTime,
    pressure: Pressure,
    /// What lies beside pages, as far as this round has come.
    beside: Resident,
    found: VecDeque<RunId>,
    /// Those that are being read back.
    runs: BTreeMap<RunId, Warm>,
    is_reading: bool,
    /// How many records were read back for runs that wait for their pages.
    waiting_records: u64,
    /// The next snapshot writes pages that were worth it.
    awaits_pages: bool,
    /// When a snapshot is tried again that could not begin.
    retry_at: BootTime,
    /// How many runs have left their pages.
    count: u64,
}

/// A run that is being read back.
struct Warm {
    to_read: Vec<(Group, Slots)>,
    is_being_read: bool,
    records: u64,
    tries: u32,
}

impl Warm {
    fn is_read(&self) -> bool {
        self.to_read.is_empty() && !self.is_being_read
    }
}

fn groups_of(missing: Missing) -> Vec<(Group, Slots)> {
    missing.groups.into_iter().collect()
}

fn records_of(groups: &[(Group, Slots)]) -> u64 {
    let counts = groups.iter().map(|(_, slots)| slots.count_ones());
    counts.map(u64::from).sum()
}

impl Warming {
    /// Begins a round: runs have other pages now.
    pub(in crate::partition) fn snapshot_written(&mut self, now: BootTime) {
        self.begin_round();
        self.looks_at = now;
        self.awaits_pages = false;
        self.waiting_records = 0;
    }

    fn begin_round(&mut self) {
        self.hand = Hand::default();
        self.is_looking = true;
        self.beside = Resident::default();
        self.found.clear();
    }

    /// Ends a round. If what lies beside pages takes more than a quarter of the limit only now, the next round looks for
    /// smaller pages at once.
    fn end_round(&mut self, limit_bytes: u64) {
        let before = self.pressure;
        self.pressure = match self.beside.size_bytes() > limit_bytes / 4 {
            true => Pressure::High,
            false => Pressure::Low,
        };
        self.is_looking = false;
        if (before, self.pressure) == (Pressure::Low, Pressure::High) {
            self.begin_round();
        }
    }

    /// Whether a run stays in memory until it has left its page.
    pub(super) fn has_run(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// Whether a job reads something for this.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Notes that its job has ended.
    pub(super) fn end_read(&mut self) {
        self.is_reading = false;
        for warm in self.runs.values_mut() {
            warm.is_being_read = false;
        }
    }

    /// Gives up what is not read yet: another round finds it again.
    fn give_up(&mut self) {
        self.found.clear();
        self.runs.clear();
    }

    /// Whether a run with so many records that are not in memory may be read back, with what is there already.
    fn has_room(&self, records: u64, resident: Resident, limit_bytes: u64) -> bool {
        let being_read: u64 = self.runs.values().map(|warm| warm.records).sum();
        let size_of = |records| Resident::of_records(records).size_bytes();
        if resident.size_bytes() + size_of(being_read + records) <= limit_bytes {
            return true;
        }
        let held = self.waiting_records + being_read;
        let share_bytes = limit_bytes / SHARE_UNDER_PRESSURE;
        self.pressure == Pressure::High && (held == 0 || size_of(held + records) <= share_bytes)
    }

    /// Whether nothing is left that the next snapshot could write, too.
    fn is_ready_for_snapshot(&self) -> bool {
        self.awaits_pages && !self.is_looking && self.runs.is_empty()
    }
}

/// What it does in a turn.
impl<T> Partition<T> {
    /// Looks for runs whose pages are worth writing again, and lets those leave their pages that were read back.
    pub(in crate::partition) fn warm(&mut self) {
        let Some(limit_bytes) = self.options.resident_bytes else {
            return;
        };
        if self.log.is_draining() {
            self.loads.warming.give_up();
            return;
        }
        // A run may get another page from a snapshot that is under way.
        if self.stopped || self.log.is_snapshotting() {
            return;
        }
        self.leave_pages();
        self.look_for_pages(limit_bytes);
        self.begin_to_warm(limit_bytes);
        self.write_pages();
    }

    /// Whether a hand goes round that looks for pages which are worth writing again.
    pub(in crate::partition) fn is_looking_for_pages(&self) -> bool {
        self.options.resident_bytes.is_some() && self.loads.warming.is_looking
    }

    /// Lets runs leave their pages that were read back.
    fn leave_pages(&mut self) {
        let warming = &mut self.loads.warming;
        let read = warming.runs.iter().filter(|(_, warm)| warm.is_read());
        let read: Vec<RunId> = read.map(|(run, _)| *run).collect();
        for run in read {
            match self.state.can_leave_page(run) {
                Some(true) => {
                    let warm = warming.runs.remove(&run);
                    warming.waiting_records += warm.map_or(0, |warm| warm.records);
                    self.state.leave_page(run, warming.pressure);
                    warming.awaits_pages = true;
                    warming.count += 1;
                }
                Some(false) => {
                    if let Some(warm) = warming.runs.get_mut(&run) {
                        warm.tries += 1;
                        warm.to_read = groups_of(self.state.missing_of(run));
                        if warm.tries >= TRIES {
                            warming.runs.remove(&run);
                        }
                    }
                }
                None => {
                    warming.runs.remove(&run);
                }
            }
        }
    }

    /// Whether records take so much memory that some are to leave it.
    fn is_memory_needed(&self, limit_bytes: u64) -> bool {
        self.state.resident().size_bytes() > begins_at(limit_bytes)
    }

    /// Whether the hand does not wait for its time.
    fn hurries(&self, limit_bytes: u64) -> bool {
        self.is_snapshot_due() || self.is_memory_needed(limit_bytes)
    }

    fn look_for_pages(&mut self, limit_bytes: u64) {
        let now = self.now.boot;
        let hurries = self.hurries(limit_bytes);
        let warming = &mut self.loads.warming;
        if !warming.is_looking || !hurries && !warming.looks_at.has_passed(now) {
            return;
        }
        let steps = if hurries { HURRIED_STEPS } else { STEPS };
        let log = &self.log;
        let size_of = |page| log.page_size_bytes(page_to_log(page));
        let found = (self.state).find_to_warm(&mut warming.hand, warming.pressure, steps, size_of);
        let room = FOUND_MAX.saturating_sub(warming.found.len());
        warming.found.extend(found.runs.into_iter().take(room));
        warming.beside.add(found.beside);
        warming.looks_at = now.plus_ms(LOOK_INTERVAL_MS);
        if found.is_round {
            warming.end_round(limit_bytes);
        }
        // What was in memory anyway can wait for a snapshot, unless records have to leave.
        let is_needed = found.changed > 0 && self.is_memory_needed(limit_bytes);
        self.loads.warming.awaits_pages |= is_needed;
        if found.is_round {
            // It may have waited for this.
            self.snapshot_if_due();
        }
    }

    /// The records of the next run to read back, if there is a place and room for them.
    fn next_to_warm(&self, limit_bytes: u64) -> Option<(RunId, Vec<(Group, Slots)>)> {
        let warming = &self.loads.warming;
        let run = *warming.found.front()?;
        let groups = groups_of(self.state.missing_of(run));
        let resident = self.state.resident();
        let may = warming.runs.len() < RUNS_AT_ONCE
            && warming.has_room(records_of(&groups), resident, limit_bytes);
        may.then_some((run, groups))
    }

    fn begin_to_warm(&mut self, limit_bytes: u64) {
        while !self.log.is_snapshotting()
            && let Some((run, to_read)) = self.next_to_warm(limit_bytes)
        {
            self.loads.warming.found.pop_front();
            let is_failing = |(group, _): &(Group, Slots)| self.loads.why_failing(*group).is_some();
            // It may have ended, or have another page by now.
            let is_there = self.state.can_leave_page(run).is_some();
            if is_there && !to_read.iter().any(is_failing) {
                let warm = Warm {
                    records: records_of(&to_read),
                    to_read,
                    is_being_read: false,
                    tries: 0,
                };
                self.loads.warming.runs.insert(run, warm);
            }
        }
    }

    /// Whether a snapshot is due because it writes pages that were worth it.
    pub(in crate::partition) fn is_due_by_warming(&self) -> bool {
        self.loads.warming.is_ready_for_snapshot() && self.have_snapshots_rested()
    }

    /// Begins such a snapshot. It must differ from the last one, also if nothing else has happened.
    fn write_pages(&mut self) {
        let now = self.now.boot;
        let may_begin = self.loads.warming.retry_at.has_passed(now)
            && self.snapshot_retry_at.has_passed(now)
            && self.lets_snapshot_begin();
        if !may_begin || !self.is_due_by_warming() || self.log.is_snapshotting() {
            return;
        }
        if self.log.bytes_since_snapshot() > 0 {
            self.snapshot_if_due();
        } else if !self.log.beat() {
            self.loads.warming.retry_at = now.plus_ms(RETRY_INTERVAL_MS);
        }
    }

    /// When it is to go on if nothing else happens.
    pub(in crate::partition) fn next_warming(&self) -> Option<BootTime> {
        let limit_bytes = self.options.resident_bytes?;
        if self.stopped || self.log.is_draining() || self.log.is_snapshotting() {
            return None;
        }
        let (now, warming) = (self.now.boot, &self.loads.warming);
        let is_any_read = warming.runs.values().any(Warm::is_read);
        if is_any_read || self.next_to_warm(limit_bytes).is_some() {
            return Some(now);
        }
        if warming.is_looking {
            let hurries = self.hurries(limit_bytes);
            return Some(if hurries { now } else { warming.looks_at });
        }
        // Otherwise a job comes first, and a turn after it.
        let is_quiet = self.log.durable() == self.log.end();
        let retry_at = warming.retry_at.max(self.snapshot_retry_at);
        let awaits = warming.is_ready_for_snapshot() && is_quiet && self.lets_snapshot_begin();
        awaits.then(|| retry_at.max(self.snapshots_rest_until))
    }
}

/// Its reads.
impl<T> Partition<T> {
    /// The next job that reads for this, if all that commands wait for is being read.
    pub(super) fn next_load_to_warm(&mut self) -> Option<Job> {
        let loads = &mut self.loads;
        let is_busy =
            loads.jobs >= JOBS_MAX || loads.ahead.is_reading() || loads.warming.is_reading;
        if is_busy || self.opening_retry_at.is_some() {
            return None;
        }
        let mut to_read = Vec::new();
        let runs = loads.warming.runs.values_mut();
        let runs = runs.filter(|warm| !warm.to_read.is_empty());
        for warm in runs.take(PAGES_AT_ONCE) {
            for (group, slots) in std::mem::take(&mut warm.to_read) {
                let slots = slots & !loads.wants.being_read(group);
                if let Some(it) = self.state.to_read(group, slots) {
                    loads.wants.begin_read(group, slots);
                    to_read.push((slots, it));
                    warm.is_being_read = true;
                }
            }
        }
        if to_read.is_empty() {
            return None;
        }
        loads.warming.is_reading = true;
        let pages = to_read.iter().map(|(_, it)| page_to_log(it.page()));
        let pages = self.log.read_pages(pages);
        Some(Job::load(move || {
            let (read, pages) = read_groups(pages, to_read);
            Loaded::ToWarm(read, pages)
        }))
    }

    /// Takes what was read, as what commands have asked for if one has come to need it meanwhile.
    pub(super) fn take_to_warm(
        &mut self,
        (group, slots): (Group, Slots),
        read: Read,
        replies: &mut Vec<(T, Reply)>,
    ) {
        if self.loads.wants.is_wanted(group, slots) {
            self.take_one((group, slots), read, replies);
            return;
        }
        self.loads.wants.put_back(group, slots);
        let is_taken = match read {
            Read::Group(read) => self.state.take_read(read) == Taken::InMemory,
            Read::NotNow => {
                self.retry_opening();
                false
            }
            Read::BadSectors | Read::Failed(_) => false,
        };
        match is_taken {
            true => self.loads.read_count += 1,
            false => drop(self.loads.warming.runs.remove(&group.run())),
        }
    }

    /// How many runs have left their pages since the open, after they were read back.
    pub fn warmed_count(&self) -> u64 {
        self.loads.warming.count
    }
}
