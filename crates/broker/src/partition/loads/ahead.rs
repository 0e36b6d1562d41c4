//! Records that no command needs yet, and receivers are likely to need soon.
//!
//! A receiver that missed something asks for what lies ahead of it, and again once it has received half of that. It
//! waits for none of it. All of this is bounded, shared among receivers, and read while no command waits for a read. A
//! job reads few pages: a command that comes to need one of its groups waits for that job, and reads nothing itself. What
//! cannot be read is left to the command that needs it.
//!
//! What was read ahead is spared by eviction until it was received, or until its receiver has been away for a while. Above
//! the limit nothing is read ahead, and nothing is spared.

use std::collections::{BTreeMap, VecDeque};

use kew_engine::{
    Ahead as Found, Group, Incarnation, Missing, Receiving, Resident, RunId, SequenceNumber, Slots,
    Taken,
};
use kew_log::{BootTime, Job};

use super::{FailingGroups, Loaded, Partition, Read, Reply, read_groups};
use crate::partition::known_pages::page_to_log;

/// The most queues and sessions that have something read ahead, and the most records for all of them: 2 MiB.
const RECEIVERS_MAX: usize = 64;
const RECORDS_MAX: u64 = 34_000;

/// A job reads from so many pages at most, for one receiver: who needs one of its groups waits for the others.
pub(super) const PAGES_AT_ONCE: usize = 2;

/// After so long without a receive, what was read ahead is spared no longer, and makes room for others.
const UNUSED_MS: u64 = 3000;

/// How often that is looked at.
const LOOK_INTERVAL_MS: u64 = 1000;

/// From where messages are received: an entity, and the number of a session in it.
type ReceivedFrom = (Incarnation, u32);

/// What lies ahead of the receivers of a queue or session.
struct OfReceiver {
    /// The messages, by group.
    messages: BTreeMap<Group, Slots>,
    /// How many they are.
    records: u64,
    /// Those that are to be read, and are not being read.
    asked: VecDeque<(Group, Slots)>,
    /// From this message on, it is time to ask again.
    again_at: SequenceNumber,
    used_at: BootTime,
}

/// What lies ahead of all receivers.
#[derive(Default)]
pub(super) struct Ahead {
    receivers: BTreeMap<ReceivedFrom, OfReceiver>,
    /// Those that have asked for something, in turn. Some may not have any more.
    ring: VecDeque<ReceivedFrom>,
    records: u64,
    /// The runs of these messages, and for how many receivers.
    runs: BTreeMap<RunId, u32>,
    is_reading: bool,
    now: BootTime,
    looks_at: BootTime,
}

fn count_of(messages: Slots) -> u64 {
    u64::from(messages.count_ones())
}

/// The runs of groups, each once.
fn runs_of(messages: &BTreeMap<Group, Slots>) -> Vec<RunId> {
    let mut runs: Vec<RunId> = messages.keys().map(Group::run).collect();
    runs.dedup();
    runs
}

impl Ahead {
    /// Begins a turn. Forgets from time to time the receivers that have been away for a while.
    pub(super) fn begin_turn(&mut self, now: BootTime) {
        self.now = now;
        if self.receivers.is_empty() || !self.looks_at.has_passed(now) {
            return;
        }
        self.looks_at = now.plus_ms(LOOK_INTERVAL_MS);
        let is_unused = |of: &OfReceiver| of.used_at.plus_ms(UNUSED_MS).has_passed(now);
        let unused = self.receivers.iter().filter(|(_, of)| is_unused(of));
        let unused: Vec<ReceivedFrom> = unused.map(|(from, _)| *from).collect();
        for from in unused {
            self.forget(from);
        }
    }

    /// Notes a receive, before which so much was missing, and after which this is the first message. Returns whether it is
    /// time to look ahead.
    fn note_use(
        &mut self,
        from: ReceivedFrom,
        missing: &Missing,
        first: Option<SequenceNumber>,
    ) -> bool {
        let Some(first) = first else {
            self.forget(from);
            return false;
        };
        let (entity, _) = from;
        let has_missed = missing.groups.keys().any(|group| group.entity == entity);
        match self.receivers.get_mut(&from) {
            Some(of) => {
                of.used_at = self.now;
                has_missed || first >= of.again_at
            }
            None => has_missed && self.receivers.len() < RECEIVERS_MAX,
        }
    }

    /// How many records may lie ahead of a receiver, as far as this goes.
    fn room(&self, from: ReceivedFrom) -> u64 {
        let own = self.receivers.get(&from).map_or(0, |of| of.records);
        RECORDS_MAX.saturating_sub(self.records - own)
    }

    /// Notes what lies ahead of a receiver now, and asks for what is missing of it. What it has asked for before is not
    /// asked for again, unless a receive has missed something since: it could not be read.
    fn plan(
        &mut self,
        from: ReceivedFrom,
        found: Found,
        has_missed: bool,
        failing: &FailingGroups,
    ) {
        let before = self.forget(from);
        if found.groups.is_empty() {
            return;
        }
        let mut of = OfReceiver {
            messages: BTreeMap::new(),
            records: 0,
            asked: VecDeque::new(),
            again_at: found.half,
            used_at: self.now,
        };
        for it in found.groups {
            let asked_before = before.as_ref().filter(|_| !has_missed).map_or(0, |before| {
                let known = before.messages.get(&it.group).copied().unwrap_or_default();
                let mut asked = before.asked.iter();
                let asked = asked.find(|(group, _)| *group == it.group);
                known & !asked.map_or(0, |(_, slots)| *slots)
            });
            let to_read = it.missing & !asked_before;
            if to_read != 0 && failing.put_off(it.group, self.now).is_none() {
                of.asked.push_back((it.group, to_read));
            }
            of.records += count_of(it.records());
            of.messages.insert(it.group, it.records());
        }
        if !of.asked.is_empty() {
            self.ring.push_back(from);
        }
        self.records += of.records;
        for run in runs_of(&of.messages) {
            *self.runs.entry(run).or_default() += 1;
        }
        self.receivers.insert(from, of);
    }

    fn forget(&mut self, from: ReceivedFrom) -> Option<OfReceiver> {
        let of = self.receivers.remove(&from)?;
        self.records -= of.records;
        for run in runs_of(&of.messages) {
            if let Some(count) = self.runs.get_mut(&run) {
                *count -= 1;
                if *count == 0 {
                    self.runs.remove(&run);
                }
            }
        }
        if !of.asked.is_empty() {
            self.ring.retain(|it| *it != from);
        }
        Some(of)
    }

    /// Forgets the receivers of an entity: something of it cannot be read, and the disk is left in peace.
    pub(super) fn forget_all_of(&mut self, entity: Incarnation) {
        let all = self.receivers.range((entity, 0)..=(entity, u32::MAX));
        let all: Vec<ReceivedFrom> = all.map(|(from, _)| *from).collect();
        for from in all {
            self.forget(from);
        }
    }

    /// Takes what the next receiver has asked for, of a few runs.
    fn take(&mut self) -> Vec<(Group, Slots)> {
        let mut taken: Vec<(Group, Slots)> = Vec::new();
        let Some(from) = self.ring.pop_front() else {
            return taken;
        };
        let Some(of) = self.receivers.get_mut(&from) else {
            return taken;
        };
        let mut runs = 0;
        while let Some((group, slots)) = of.asked.front().copied() {
            if taken
                .last()
                .is_none_or(|(last, _)| last.run() != group.run())
            {
                runs += 1;
            }
            if runs > PAGES_AT_ONCE {
                self.ring.push_back(from);
                break;
            }
            of.asked.pop_front();
            taken.push((group, slots));
        }
        taken
    }

    /// Whether a job reads ahead.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Notes that its job has ended.
    pub(super) fn end_read(&mut self) {
        self.is_reading = false;
    }

    /// Whether a receiver is going to come to messages of a run.
    pub(super) fn has_run(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }
}

impl<T> Partition<T> {
    /// How many records more may be in memory.
    fn room_in_memory(&self) -> u64 {
        let Some(limit_bytes) = self.limit_bytes() else {
            return RECORDS_MAX;
        };
        let left_bytes = limit_bytes.saturating_sub(self.state.resident().size_bytes());
        left_bytes / Resident::of_records(1).size_bytes()
    }

    /// Looks ahead of a receiver that has missed something, or has come far enough.
    pub(in crate::partition) fn look_ahead_of(&mut self, receiving: &Receiving, missing: &Missing) {
        if self.loads.is_failing(missing) {
            return;
        }
        let in_memory = self.room_in_memory();
        let (from, ahead) = (receiving.place(), &mut self.loads.ahead);
        let first = self.state.first_for(receiving);
        if !ahead.note_use(from, missing, first) {
            return;
        }
        let room = ahead.room(from).min(in_memory);
        if room == 0 {
            return;
        }
        let now = self.now.time;
        let found = self.state.ahead_of(receiving, missing, room, now);
        let has_missed = !missing.groups.is_empty();
        ahead.plan(from, found, has_missed, &self.loads.failing);
    }

    /// The next job that reads ahead, if something is asked for, and no command waits for a read.
    pub(super) fn next_load_ahead(&mut self) -> Option<Job> {
        let mut room = self.room_in_memory();
        let loads = &mut self.loads;
        let is_busy = loads.jobs > 0 || loads.ahead.is_reading || loads.warming.is_reading();
        if is_busy || self.reading_retry_at.is_some() {
            return None;
        }
        let mut to_read = Vec::new();
        while to_read.is_empty() && !loads.ahead.ring.is_empty() {
            for (group, slots) in loads.ahead.take() {
                let slots = slots & !loads.wants.being_read(group);
                let records = group.records_of(slots);
                // What there is no room for is left to the command that needs it.
                if records <= room
                    && let Some(it) = self.state.to_read(group, slots)
                {
                    room -= records;
                    loads.wants.begin_read(group, slots);
                    to_read.push((slots, it));
                }
            }
        }
        if to_read.is_empty() {
            return None;
        }
        loads.ahead.is_reading = true;
        let mut pages = to_read.iter().map(|(_, it)| page_to_log(it.page()));
        let pages = self.log.read_pages(&mut pages);
        Some(Job::load(move || {
            let (read, pages) = read_groups(pages, to_read);
            Loaded::Ahead(read, pages)
        }))
    }

    /// Takes what was read ahead, as what commands have asked for if one has come to need it meanwhile. Otherwise a failure
    /// is left to the command that needs it.
    pub(super) fn take_ahead(
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
        let room = self.room_in_memory();
        if let Read::Group(read) = read
            && group.records_of(slots) <= room
            && self.state.take_read(read) == Taken::InMemory
        {
            self.loads.read_count += 1;
        }
    }
}

/// For tests.
impl<T> Partition<T> {
    /// How many queues and sessions have something read ahead, and how many records lie there.
    pub fn ahead(&self) -> (usize, u64) {
        let ahead = &self.loads.ahead;
        (ahead.receivers.len(), ahead.records)
    }
}
