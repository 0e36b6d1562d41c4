//! Reads runs back whose pages are worth writing again, so that the next snapshot writes what is left of them.
//!
//! After each snapshot, and after messages were set aside, a hand goes round over the runs and finds them: much of their
//! page is gone, or much has changed beside it. Such a run is read while no command waits for a read. Then it leaves its
//! page, a snapshot becomes due, and the run can leave memory again, with what lay beside its page. Only few runs are read
//! at a time, and no more than fit below the limit: a little more under pressure, because what lies beside pages could fill
//! the memory up to the limit. Those with the most beside their pages come first. What cannot be read stays where it is,
//! and is not tried again. What was passed over for a reason that passes, such as a full disk, is found by another round
//! ten seconds later.
//!
//! A page that cannot be read, as a snapshot has found, comes before all others. What is lost of it is set aside before
//! anybody asks for it, and another round follows. Then what is left of the run leaves the page, and two snapshots are
//! written at once: no start needs the page any more.
//!
//! Without a limit nothing of this happens, nor while the disk is full.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kew_engine::{
    Group, Hand, KnownPages, Missing, PageNumber, Pressure, Resident, RunId, Slots, Taken,
};
use kew_log::{BootTime, Job, LogPosition};

use super::ahead::PAGES_AT_ONCE;
use super::{JOBS_MAX, Loaded, Partition, Read, Reply, read_groups};
use crate::partition::eviction::begins_at;
use crate::partition::known_pages::{PagesOfLog, page_to_log};
use crate::partition::snapshots::{REST_MS_MAX, SHARE_MAX};

/// How many runs are read back at a time.
const RUNS_AT_ONCE: usize = 8;

/// How many runs that were found may wait for that, some 800 KB. The next round finds the others.
const FOUND_MAX: usize = 16_384;

/// How many of them a turn looks at.
const LOOKED_AT_MAX: u32 = 64;

/// How many runs are remembered that could not be read, with the pages that they had.
const UNREADABLE_MAX: usize = 1024;

/// What the hand looks at, in steps of 20 ns: 10 µs from time to time, or 0.15 ms in each turn if a snapshot is due or
/// records take much memory.
const STEPS: u32 = 512;
const HURRIED_STEPS: u32 = 7_500;
const LOOK_INTERVAL_MS: u64 = 10;

/// How often groups of a run are read that are still missing then: commands may have read some of them meanwhile.
const TRIES: u32 = 3;

/// What was read back and waits for its pages may take so much of the limit, and under pressure so much whatever else is in
/// memory. That much of the limit stays free for what commands read.
const SHARE: u64 = 4;
const SHARE_UNDER_PRESSURE: u64 = 8;

/// How soon the hand goes round again after a run was passed over that may be read by then.
const PASSED_OVER_INTERVAL_MS: u64 = 10_000;

/// How soon the log is asked again for a beat that it had no room for.
const BEAT_RETRY_INTERVAL_MS: u64 = 1000;

/// What is to be warmed, and how far that is.
#[derive(Default)]
pub(in crate::partition) struct Warming {
    hand: Hand,
    /// The hand is on its way round.
    is_looking: bool,
    /// Another round comes after this one.
    looks_again: bool,
    /// When it goes round again: a run was passed over that may be read by then.
    again_at: Option<BootTime>,
    /// A run has left a page that cannot be read: no start is to need that any more.
    has_left_unreadable: bool,
    looks_at: BootTime,
    pressure: Pressure,
    /// What lies beside pages, as far as this round has come.
    beside: Resident,
    /// The most is worth the first.
    found: BTreeSet<(Reverse<u64>, RunId)>,
    /// Those that are being read back.
    runs: BTreeMap<RunId, Warm>,
    /// Those that could not be read, until they have another page.
    unreadable: BTreeMap<RunId, PageNumber>,
    is_reading: bool,
    /// How many records were read back for runs that wait for their pages.
    waiting_records: u64,
    /// The next snapshot writes pages that were worth it: since then.
    awaits_pages_since: Option<BootTime>,
    /// It writes pages of runs that were in memory anyway, and can leave it then.
    has_changed: bool,
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
    let counts = groups.iter();
    counts.map(|(group, slots)| group.records_of(*slots)).sum()
}

impl Warming {
    /// Begins a round: runs have other pages now.
    pub(in crate::partition) fn snapshot_written(&mut self, now: BootTime) {
        self.begin_round();
        self.looks_at = now;
        self.awaits_pages_since = None;
        self.has_changed = false;
        self.waiting_records = 0;
    }

    fn begin_round(&mut self) {
        self.hand = Hand::default();
        self.is_looking = true;
        self.looks_again = false;
        self.again_at = None;
        self.beside = Resident::default();
        self.found.clear();
    }

    /// Begins a round, or another one after this one: some messages were set aside, so what is left of their runs can leave
    /// its page.
    pub(in crate::partition) fn note_set_aside(&mut self) {
        match self.is_looking {
            true => self.looks_again = true,
            false => self.begin_round(),
        }
    }

    /// Notes that a run was passed over for a reason that passes. Without this, nothing would come back to it before the next
    /// snapshot, which an idle partition never writes.
    pub(in crate::partition) fn pass_over(&mut self, now: BootTime) {
        self.again_at = Some(now.plus_ms(PASSED_OVER_INTERVAL_MS));
    }

    /// When a round is to begin for such runs, if nothing else is under way.
    fn looks_again_at(&self) -> Option<BootTime> {
        let is_idle = self.has_ended() && self.found.is_empty();
        self.again_at.filter(|_| is_idle)
    }

    /// Notes that a run has left a page that cannot be read.
    pub(in crate::partition) fn note_left_unreadable(&mut self) {
        self.has_left_unreadable = true;
    }

    /// Ends a round. If what lies beside pages takes more than a quarter of the limit only now, the next round looks for
    /// smaller pages at once.
    fn end_round(&mut self, limit_bytes: u64, now: BootTime) {
        // A round over many runs takes longer than the interval, and the hand is to rest.
        let least_at = now.plus_ms(PASSED_OVER_INTERVAL_MS);
        self.again_at = self.again_at.map(|at| at.max(least_at));
        let before = self.pressure;
        self.pressure = match self.beside.size_bytes() > limit_bytes / 4 {
            true => Pressure::High,
            false => Pressure::Low,
        };
        self.is_looking = false;
        let is_high_now = (before, self.pressure) == (Pressure::Low, Pressure::High);
        if is_high_now || self.looks_again {
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
    fn give_up(&mut self, now: BootTime) {
        if !self.found.is_empty() || !self.runs.is_empty() {
            self.pass_over(now);
        }
        self.found.clear();
        self.runs.clear();
    }

    /// Whether a run with so many records that are not in memory may be read back, with what is there already.
    fn has_room(&self, records: u64, resident: Resident, limit_bytes: u64) -> bool {
        let being_read: u64 = self.runs.values().map(|warm| warm.records).sum();
        let size_of = |records| Resident::of_records(records).size_bytes();
        let held = self.waiting_records + being_read;
        let is_within = |share| held == 0 || size_of(held + records) <= limit_bytes / share;
        let least_free_bytes = limit_bytes / SHARE_UNDER_PRESSURE;
        let in_memory_bytes = resident.size_bytes() + size_of(being_read + records);
        let has_free = in_memory_bytes + least_free_bytes <= limit_bytes;
        match has_free {
            true => is_within(SHARE),
            false => self.pressure == Pressure::High && is_within(SHARE_UNDER_PRESSURE),
        }
    }

    /// Takes what was found, and keeps what is worth the most.
    fn add_found(&mut self, runs: Vec<(u64, RunId)>) {
        for (worth, run) in runs {
            self.found.insert((Reverse(worth), run));
            if self.found.len() > FOUND_MAX {
                self.found.pop_last();
            }
        }
    }

    /// Notes that a run could not be read.
    fn note_unreadable(&mut self, run: RunId, page: Option<PageNumber>) {
        self.runs.remove(&run);
        if let Some(page) = page {
            self.unreadable.insert(run, page);
        }
        if self.unreadable.len() > UNREADABLE_MAX {
            self.unreadable.pop_first();
        }
    }

    /// Whether nothing is left that the next snapshot could write, too.
    fn has_ended(&self) -> bool {
        !self.is_looking && self.runs.is_empty()
    }

    /// Whether snapshots are to be written because of pages that cannot be read.
    fn is_to_avoid_unreadable(&self) -> bool {
        self.has_left_unreadable && self.has_ended()
    }
}

/// What it does in a turn.
impl<T> Partition<T> {
    /// Looks for runs whose pages are worth writing again, and lets those leave their pages that were read back.
    pub(in crate::partition) fn warm(&mut self) {
        let Some(limit_bytes) = self.limit_bytes() else {
            return;
        };
        if self.is_full() {
            self.loads.warming.give_up(self.now.boot);
            return;
        }
        // A run may get another page from a snapshot that is under way.
        if self.stopped || self.log.snapshots().is_under_way {
            return;
        }
        let warming = &mut self.loads.warming;
        if (warming.looks_again_at()).is_some_and(|at| at.has_passed(self.now.boot)) {
            warming.begin_round();
        }
        self.leave_pages();
        self.look_for_pages(limit_bytes);
        self.begin_to_warm(limit_bytes);
        self.write_pages();
        self.avoid_unreadable();
    }

    /// Whether snapshots are to be written because of pages that cannot be read, and nothing more of such pages is about to
    /// be set aside.
    fn is_to_avoid_unreadable(&self) -> bool {
        self.loads.warming.is_to_avoid_unreadable() && !self.damaged.awaits_turn()
    }

    /// Lets two snapshots be written at once that do not name the pages which could not be read, and which runs have left.
    fn avoid_unreadable(&mut self) {
        if !self.is_to_avoid_unreadable() {
            return;
        }
        self.loads.warming.has_left_unreadable = false;
        let last = self.log.snapshots().last;
        let behind = last.map_or(0, |last| last.as_u64() + 1);
        self.avoid_before(LogPosition::new(behind));
        self.avoid_damage();
    }

    /// Whether a hand goes round that looks for pages which are worth writing again.
    pub(in crate::partition) fn is_looking_for_pages(&self) -> bool {
        self.limit_bytes().is_some() && self.loads.warming.is_looking
    }

    /// Lets runs leave their pages that were read back.
    fn leave_pages(&mut self) {
        let warming = &mut self.loads.warming;
        let read = warming.runs.iter().filter(|(_, warm)| warm.is_read());
        let read: Vec<RunId> = read.map(|(run, _)| *run).collect();
        for run in read {
            match self.state.can_leave_page(run) {
                Some(true) => {
                    let (page, known) = (self.state.page_of(run), PagesOfLog(&*self.log));
                    warming.has_left_unreadable |= page.is_some_and(|it| known.is_unreadable(it));
                    let warm = warming.runs.remove(&run);
                    warming.waiting_records += warm.map_or(0, |warm| warm.records);
                    self.state.leave_page(run, warming.pressure);
                    warming.awaits_pages_since.get_or_insert(self.now.boot);
                    warming.count += 1;
                }
                Some(false) => {
                    if let Some(warm) = warming.runs.get_mut(&run) {
                        warm.tries += 1;
                        warm.to_read = groups_of(self.state.missing_of(run));
                        if warm.tries >= TRIES {
                            warming.runs.remove(&run);
                            warming.pass_over(self.now.boot);
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
        if !self.loads.warming.is_looking {
            return;
        }
        let now = self.now.boot;
        let hurries = self.hurries(limit_bytes);
        let warming = &mut self.loads.warming;
        if !hurries && !warming.looks_at.has_passed(now) {
            return;
        }
        let steps = if hurries { HURRIED_STEPS } else { STEPS };
        let known = PagesOfLog(&*self.log);
        let found = (self.state).find_to_warm(&mut warming.hand, warming.pressure, steps, &known);
        warming.add_found(found.runs);
        warming.beside.add(found.beside);
        warming.looks_at = now.plus_ms(LOOK_INTERVAL_MS);
        warming.has_changed |= found.changed > 0;
        warming.has_left_unreadable |= found.has_left_unreadable;
        if found.is_round {
            warming.end_round(limit_bytes, now);
            // It may have waited for this.
            self.snapshot_if_due();
        }
    }

    /// The next run to read back, if there is a place and room for its records.
    fn next_to_warm(&self, limit_bytes: u64) -> Option<RunId> {
        let warming = &self.loads.warming;
        let (_, run) = *warming.found.first()?;
        let may = warming.runs.len() < RUNS_AT_ONCE
            && warming.has_room(
                self.state.missing_count(run),
                self.state.resident(),
                limit_bytes,
            );
        may.then_some(run)
    }

    fn begin_to_warm(&mut self, limit_bytes: u64) {
        for _ in 0..LOOKED_AT_MAX {
            let Some(run) = self.next_to_warm(limit_bytes) else {
                return;
            };
            self.loads.warming.found.pop_first();
            // It may have ended by now.
            let Some(page) = self.state.page_of(run) else {
                continue;
            };
            let to_read = groups_of(self.state.missing_of(run));
            let is_failing = |(group, _): &(Group, Slots)| self.loads.why_failing(*group).is_some();
            if self.loads.warming.unreadable.get(&run) == Some(&page) {
                continue;
            }
            if to_read.iter().any(is_failing) {
                self.loads.warming.pass_over(self.now.boot);
            } else {
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
        let due_at = self.due_by_warming_at();
        due_at.is_some_and(|at| at.has_passed(self.now.boot)) && self.have_snapshots_rested()
    }

    /// When a snapshot becomes due because it writes pages that were worth it, unless more happens. At once if records have
    /// to leave memory, or if those that were read back take a quarter of what the last snapshot wrote. Otherwise it waits
    /// for more: each snapshot writes directories and a manifest, too.
    fn due_by_warming_at(&self) -> Option<BootTime> {
        let limit_bytes = self.limit_bytes()?;
        let warming = &self.loads.warming;
        if !warming.has_ended() {
            return None;
        }
        let is_needed = self.is_memory_needed(limit_bytes);
        let Some(since) = warming.awaits_pages_since else {
            return (warming.has_changed && is_needed).then_some(BootTime::ZERO);
        };
        let waiting_bytes = Resident::of_records(warming.waiting_records).size_bytes();
        let is_worth = waiting_bytes * SHARE_MAX >= self.last_snapshot_bytes;
        Some(match is_worth || is_needed {
            true => BootTime::ZERO,
            false => since.plus_ms(REST_MS_MAX),
        })
    }

    /// Begins such a snapshot. It must differ from the last one, also if nothing else has happened.
    fn write_pages(&mut self) {
        let now = self.now.boot;
        let may_begin = self.loads.warming.retry_at.has_passed(now)
            && self.log.snapshots().retry_at.has_passed(now)
            && self.lets_snapshot_begin();
        if !may_begin || !self.is_due_by_warming() || self.log.snapshots().is_under_way {
            return;
        }
        if self.log.snapshots().bytes_since > 0 {
            self.snapshot_if_due();
        } else if !self.beat() {
            self.loads.warming.retry_at = now.plus_ms(BEAT_RETRY_INTERVAL_MS);
        }
    }

    /// When it is to go on if nothing else happens.
    pub(in crate::partition) fn next_warming(&self) -> Option<BootTime> {
        let limit_bytes = self.limit_bytes()?;
        if self.stopped || self.is_full() || self.log.snapshots().is_under_way {
            return None;
        }
        let (now, warming) = (self.now.boot, &self.loads.warming);
        let is_any_read = warming.runs.values().any(Warm::is_read);
        let is_any_to_do = is_any_read || self.is_to_avoid_unreadable();
        if is_any_to_do || self.next_to_warm(limit_bytes).is_some() {
            return Some(now);
        }
        if warming.is_looking {
            let hurries = self.hurries(limit_bytes);
            return Some(if hurries { now } else { warming.looks_at });
        }
        // Otherwise a job comes first, and a turn after it.
        let snapshot_at = self.writes_pages_at();
        let next = [snapshot_at, warming.looks_again_at()];
        next.into_iter().flatten().min()
    }

    /// When a snapshot is to begin that writes pages which were worth it.
    fn writes_pages_at(&self) -> Option<BootTime> {
        let due_at = self.due_by_warming_at()?;
        let retry_at = (self.loads.warming.retry_at).max(self.log.snapshots().retry_at);
        let may_begin = !self.log.snapshots().is_under_way && self.lets_snapshot_begin();
        may_begin.then(|| due_at.max(retry_at).max(self.snapshots_rest_until))
    }
}

/// Its reads.
impl<T> Partition<T> {
    /// The next job that reads for this, if all that commands wait for is being read.
    pub(super) fn next_load_to_warm(&mut self) -> Option<Job> {
        let loads = &mut self.loads;
        let is_busy =
            loads.jobs >= JOBS_MAX || loads.ahead.is_reading() || loads.warming.is_reading;
        if is_busy || self.reading_retry_at.is_some() {
            return None;
        }
        let mut to_read = Vec::new();
        let runs = loads.warming.runs.values_mut();
        let runs = runs.filter(|warm| !warm.to_read.is_empty());
        for warm in runs.take(PAGES_AT_ONCE) {
            for (group, slots) in std::mem::take(&mut warm.to_read) {
                let being_read = slots & loads.wants.being_read(group);
                if being_read != 0 {
                    // By another job: what comes of it is seen then.
                    warm.to_read.push((group, being_read));
                }
                let slots = slots & !being_read;
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
        let mut pages = to_read.iter().map(|(_, it)| page_to_log(it.page()));
        let pages = self.log.read_pages(&mut pages);
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
        let taken = match read {
            Read::Group(read) => self.state.take_read(read),
            Read::Damaged(page) => self.note_damaged((group, slots), page),
            Read::NotNow => {
                self.retry_reading();
                self.loads.warming.pass_over(self.now.boot);
                Taken::Replaced
            }
            Read::BadSectors | Read::Failed(_) => Taken::Damaged,
        };
        let run = group.run();
        match taken {
            Taken::InMemory => self.loads.read_count += 1,
            Taken::Replaced => drop(self.loads.warming.runs.remove(&run)),
            Taken::Damaged => {
                let page = self.state.page_of(run);
                self.loads.warming.note_unreadable(run, page);
            }
        }
    }

    /// Messages of a group of which nothing can be read are set aside with the next turn, as far as they can be.
    fn note_damaged(&mut self, (group, slots): (Group, Slots), page: PageNumber) -> Taken {
        if self.state.page_of(group.run()) != Some(page) {
            return Taken::Replaced;
        }
        self.damaged.note(group, page);
        match self.state.can_quarantine(group, page, slots) {
            // The next round finds the run again, without them.
            true => Taken::Replaced,
            false => Taken::Damaged,
        }
    }

    /// How many runs have left their pages since the open, after they were read back.
    pub fn warmed_count(&self) -> u64 {
        self.loads.warming.count
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::Incarnation;

    use super::*;

    #[test]
    fn those_with_the_most_beside_their_pages_come_first() {
        let mut warming = Warming::default();
        let run = |number| (Incarnation::default(), number);
        let all = 0..FOUND_MAX as u64 + 5;
        warming.add_found(all.map(|number| (number / 2, run(number))).collect());
        assert_eq!(warming.found.len(), FOUND_MAX);
        let most = FOUND_MAX as u64 / 2 + 2;
        assert_eq!(warming.found.first(), Some(&(Reverse(most), run(2 * most))));
        assert_eq!(warming.found.last(), Some(&(Reverse(2), run(4))));
    }

    /// Whether so many records may be read back, with so many that wait and so many in memory, of 8,000.
    fn has_room(pressure: Pressure, waiting_records: u64, resident: u64, records: u64) -> bool {
        let warming = Warming {
            pressure,
            waiting_records,
            ..Warming::default()
        };
        let limit_bytes = Resident::of_records(8000).size_bytes();
        warming.has_room(records, Resident::of_records(resident), limit_bytes)
    }

    #[test]
    fn what_waits_for_its_pages_leaves_room_for_others() {
        assert!(has_room(Pressure::Low, 0, 0, 4000), "one run always");
        assert!(has_room(Pressure::Low, 1000, 6000, 1000));
        assert!(!has_room(Pressure::Low, 1001, 6000, 1000), "a quarter");
        assert!(!has_room(Pressure::Low, 0, 6001, 1000), "an eighth stays");
        assert!(has_room(Pressure::High, 0, 9000, 1024), "one run always");
        assert!(has_room(Pressure::High, 500, 9000, 500));
        assert!(!has_room(Pressure::High, 501, 9000, 500), "an eighth");
    }

    /// When another round is to begin, in milliseconds.
    fn looks_again_ms(warming: &Warming) -> Option<u64> {
        let at = warming.looks_again_at()?;
        (0..60_000).find(|ms| at.has_passed(BootTime::ZERO.plus_ms(*ms)))
    }

    #[test]
    fn what_is_passed_over_is_looked_for_again_once_the_hand_has_rested() {
        let at = |ms| BootTime::ZERO.plus_ms(ms);
        let mut warming = Warming::default();
        warming.give_up(at(0));
        assert_eq!(looks_again_ms(&warming), None, "it had found nothing");
        warming.add_found(vec![(1, (Incarnation::default(), 7))]);
        warming.give_up(at(1000));
        assert_eq!(looks_again_ms(&warming), Some(11_000));
        warming.begin_round();
        assert_eq!(looks_again_ms(&warming), None);
        // A long round: the hand rests after it.
        warming.pass_over(at(12_000));
        assert_eq!(looks_again_ms(&warming), None, "it is on its way");
        warming.end_round(1000, at(30_000));
        assert_eq!(looks_again_ms(&warming), Some(40_000));
        warming.add_found(vec![(1, (Incarnation::default(), 7))]);
        assert_eq!(looks_again_ms(&warming), None, "it has found some");
    }

    #[test]
    fn a_second_round_looks_for_smaller_pages_at_once() {
        let mut warming = Warming {
            is_looking: true,
            beside: Resident::of_records(2000),
            ..Warming::default()
        };
        let limit_bytes = Resident::of_records(8000).size_bytes();
        warming.end_round(limit_bytes, BootTime::ZERO);
        assert_eq!(warming.pressure, Pressure::Low, "a quarter is not more");
        assert!(!warming.is_looking);
        warming.beside = Resident::of_records(2001);
        warming.end_round(limit_bytes, BootTime::ZERO);
        assert_eq!(warming.pressure, Pressure::High);
        assert!(warming.is_looking);
        warming.beside = Resident::of_records(2001);
        warming.end_round(limit_bytes, BootTime::ZERO);
        assert!(!warming.is_looking, "it ends");
    }
}
