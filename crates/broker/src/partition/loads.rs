//! Reads what decisions miss, on another thread.
//!
//! What several commands miss is read once. What a turn misses is read by one job, as far as its bound allows.

use std::collections::BTreeSet;

use kew_engine::{Group, GroupRead, GroupToRead, Incarnation, Missing, Sealing, Ticked};
use kew_log::{BootTime, Job};

use super::lanes::Candidate;
use super::{Partition, Rejection, Reply};
use crate::Source;

/// The most groups that one job reads: 8,192 messages.
const GROUPS_AT_ONCE: usize = 64;

/// How long due work rests if what it needs could not be read.
const RETRY_INTERVAL_MS: u64 = 1000;

/// What is to be read, and what is being read.
#[derive(Default)]
pub(super) struct Loads {
    asked: BTreeSet<Group>,
    under_way: BTreeSet<Group>,
    /// The entities of what was read since the last turn: it stays in memory until the next one has used it.
    read: BTreeSet<Incarnation>,
    /// Set if everything that is due waits for a read: until then, or until something was read.
    due_waits_until: Option<BootTime>,
}

/// What a job has read: `None` what could not be.
type Read = Vec<(Group, Option<GroupRead>)>;

impl Loads {
    pub(super) fn ask(&mut self, missing: &Missing) {
        let groups = missing.groups.iter();
        let groups = groups.filter(|group| !self.under_way.contains(group));
        self.asked.extend(groups);
    }

    /// The entities whose records stay in memory, because they were read for a decision or will be.
    fn entities(&self) -> impl Iterator<Item = Incarnation> {
        let groups = self.asked.iter().chain(&self.under_way);
        groups
            .map(|group| group.entity)
            .chain(self.read.iter().copied())
    }

    /// Ends a turn, which has used what was read.
    pub(super) fn end_turn(&mut self) {
        self.read.clear();
    }

    /// When due work goes on that waits for a read. `None` if none waits.
    pub(super) fn due_waits_until(&self) -> Option<BootTime> {
        self.due_waits_until
    }

    /// Asks for what a tick misses.
    pub(super) fn note_ticked(&mut self, ticked: &Ticked) {
        self.ask(&ticked.missing);
        if ticked.missing.is_empty() || ticked.more_is_due {
            self.due_waits_until = None;
        } else if self.due_waits_until.is_none() {
            self.due_waits_until = Some(BootTime::NEVER);
        }
    }
}

impl<T> Partition<T> {
    /// Lets a command wait until what is missing was read.
    pub(super) fn wait_for(&mut self, candidate: Candidate<T>, source: Source, missing: Missing) {
        self.loads.ask(&missing);
        self.lanes.wait(candidate, source, missing);
    }

    /// The next job that reads, if something is to be read.
    pub(super) fn next_load(&mut self) -> Option<Job> {
        let mut to_read: Vec<GroupToRead> = Vec::new();
        while to_read.len() < GROUPS_AT_ONCE
            && let Some(group) = self.loads.asked.pop_first()
        {
            match self.state.to_read(group) {
                Some(group) => to_read.push(group),
                // All of its messages are gone. Nobody fails for that.
                None => drop(self.lanes.note_read(group, true)),
            }
        }
        let groups = to_read.iter().map(GroupToRead::group);
        self.loads.under_way.extend(groups);
        (!to_read.is_empty()).then(|| Job::load(move || read(to_read)))
    }

    /// Takes what a job has read.
    pub(super) fn take_read(&mut self, read: Read, replies: &mut Vec<(T, Reply)>) {
        let mut is_any_failed = false;
        for (group, read) in read {
            self.loads.under_way.remove(&group);
            let is_read = read.is_some();
            is_any_failed |= !is_read;
            if let Some(read) = read {
                self.loads.read.insert(group.entity);
                // If its run is on another page by now, the command that needs it asks again.
                self.state.take_read(read);
            }
            let failed = self.lanes.note_read(group, is_read).into_iter();
            replies.extend(failed.map(|ticket| (ticket, Err(Rejection::Unreadable))));
        }
        if self.loads.due_waits_until.is_some() {
            let retry_at = self.now.boot.plus_ms(RETRY_INTERVAL_MS);
            self.loads.due_waits_until = is_any_failed.then_some(retry_at);
        }
    }

    /// Rejects the commands that wait for a read: nothing was done for them.
    pub fn reject_waiting(&mut self, replies: &mut Vec<(T, Reply)>) {
        let waiting = self.lanes.drain();
        replies.extend(waiting.map(|ticket| (ticket, Err(Rejection::Stopped))));
    }

    /// The tickets of the commands that wait for a read, in the order of arrival.
    pub fn waiting(&self) -> impl Iterator<Item = &T> {
        self.lanes.tickets()
    }

    /// Takes records of messages out of memory: `choose` says what becomes of each run of an entity. What decisions
    /// wait for stays. Nothing in the product does so yet: see [`State::seal`](kew_engine::State::seal).
    pub fn seal(&mut self, mut choose: impl FnMut(Incarnation) -> Sealing) {
        let queues = self.lanes.queues().into_iter();
        let kept: BTreeSet<Incarnation> = queues
            .flat_map(|queue| self.state.incarnations_of(queue))
            .chain(self.loads.entities())
            .chain(self.maintenance.evacuation.entities())
            .collect();
        self.state.seal(|entity| match kept.contains(&entity) {
            true => Sealing::Stay,
            false => choose(entity),
        });
    }
}

fn read(groups: Vec<GroupToRead>) -> Read {
    let groups = groups.into_iter();
    let read = groups.map(|to_read| {
        let group = to_read.group();
        let read = to_read.read();
        if let Err(error) = &read {
            tracing::error!(%error, "messages cannot be read: commands that need them are refused");
        }
        (group, read.ok())
    });
    read.collect()
}

/// What [`Partition::take_read`] takes.
pub(super) type Loaded = Read;
