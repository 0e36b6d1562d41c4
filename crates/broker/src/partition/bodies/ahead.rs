//! What is read ahead: bodies that no command needs yet, and receivers are likely to need soon.
//!
//! It is bounded, and shared among queues. What was read is not dropped to read something else, or many queues would
//! read the same bodies again and again. It is dropped when its queue has not used it for a while, and when it asks for what lies behind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kew_engine::BodyLocation;
use kew_log::BootTime;

use super::JOB_SIZE_BYTES;
use crate::Target;

/// The most bytes that are read ahead and not used yet.
pub(super) const AHEAD_SIZE_BYTES_MAX: u64 = 4 << 20;

/// The least share of a queue. So at most 64 queues have one, and the others have none.
const SHARE_SIZE_BYTES_MIN: u64 = 64 << 10;

/// After so long without use, what was read for a queue makes room for others.
pub(super) const UNUSED_MS: u64 = 3000;

/// What is read ahead for a queue.
#[derive(Default)]
struct OfQueue {
    asked: VecDeque<BodyLocation>,
    is_reading: bool,
    reading_bytes: u64,
    held: BTreeSet<BodyLocation>,
    size_bytes: u64,
    used_at: BootTime,
}

impl OfQueue {
    fn is_over(&self) -> bool {
        self.asked.is_empty() && !self.is_reading && self.held.is_empty()
    }
}

/// What is read ahead for all queues. The bytes themselves are elsewhere.
#[derive(Default)]
pub(super) struct Ahead {
    queues: BTreeMap<Target, OfQueue>,
    /// Those that have asked, in turn.
    ring: VecDeque<Target>,
    reading_bytes: u64,
    size_bytes: u64,
}

impl Ahead {
    /// How many bytes a queue may ask for now. What it has before a body is not counted.
    pub(super) fn room(&self, target: Target, first: BodyLocation) -> u64 {
        let of = self.queues.get(&target);
        if of.is_some_and(|of| of.is_reading || of.asked.back() >= Some(&first)) {
            return 0;
        }
        let others = self.queues.len() - usize::from(of.is_some());
        let share = AHEAD_SIZE_BYTES_MAX / (others as u64 + 1);
        if share < SHARE_SIZE_BYTES_MIN {
            return 0;
        }
        let held = of.into_iter().flat_map(|of| of.held.range(first..));
        let held_bytes = held.map(|body| u64::from(body.length)).sum();
        share.min(JOB_SIZE_BYTES).saturating_sub(held_bytes)
    }

    /// Asks for bodies of a queue, in order.
    pub(super) fn ask(&mut self, target: Target, bodies: Vec<BodyLocation>, now: BootTime) {
        let Some(first) = bodies.first() else {
            return;
        };
        if self.room(target, *first) == 0 {
            return;
        }
        let of = self.queues.entry(target).or_default();
        of.asked = bodies.into();
        of.used_at = now;
        self.ring.push_back(target);
    }

    /// The next queue that has asked, with what it has asked for, and how many bytes may be read.
    pub(super) fn next(&mut self) -> Option<(Target, VecDeque<BodyLocation>, u64)> {
        while let Some(target) = self.ring.pop_front() {
            if let Some(of) = self.queues.get_mut(&target)
                && !of.asked.is_empty()
            {
                of.is_reading = true;
                let asked = std::mem::take(&mut of.asked);
                let used_bytes = self.size_bytes + self.reading_bytes;
                let room_bytes = AHEAD_SIZE_BYTES_MAX.saturating_sub(used_bytes);
                return Some((target, asked, room_bytes));
            }
        }
        None
    }

    /// Whether a queue has asked for something.
    pub(super) fn has_asked(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Notes how much is being read for the queue that was the next.
    pub(super) fn begin_read(&mut self, target: Target, size_bytes: u64) {
        if let Some(of) = self.queues.get_mut(&target) {
            of.reading_bytes = size_bytes;
            self.reading_bytes += size_bytes;
        }
        if size_bytes == 0 {
            self.end_read(target);
        }
    }

    /// Notes that it was read, or is not read.
    pub(super) fn end_read(&mut self, target: Target) {
        if let Some(of) = self.queues.get_mut(&target) {
            of.is_reading = false;
            self.reading_bytes -= std::mem::take(&mut of.reading_bytes);
        }
        self.end_if_over(target);
    }

    /// Notes a body that was read for a queue. Returns whether it is to be kept.
    pub(super) fn hold(&mut self, target: Target, body: BodyLocation) -> bool {
        let Some(of) = self.queues.get_mut(&target) else {
            return false;
        };
        if of.held.insert(body) {
            of.size_bytes += u64::from(body.length);
            self.size_bytes += u64::from(body.length);
        }
        true
    }

    /// Notes that a body is not read ahead any more: a command needs it, or it is dropped.
    pub(super) fn leave(&mut self, target: Target, body: BodyLocation) {
        if let Some(of) = self.queues.get_mut(&target)
            && of.held.remove(&body)
        {
            of.size_bytes -= u64::from(body.length);
            self.size_bytes -= u64::from(body.length);
        }
        self.end_if_over(target);
    }

    /// Notes that a queue makes use of it, up to a body in the log.
    pub(super) fn note_use(&mut self, target: Target, last: BodyLocation, now: BootTime) {
        if let Some(of) = self.queues.get_mut(&target) {
            of.used_at = now;
            while of.asked.front().is_some_and(|first| *first <= last) {
                of.asked.pop_front();
            }
        }
    }

    /// Takes what was read for a queue and lies before a body in the log. What was asked for there is not read any more.
    pub(super) fn take_before(
        &mut self,
        target: Target,
        body: BodyLocation,
    ) -> BTreeSet<BodyLocation> {
        let Some(of) = self.queues.get_mut(&target) else {
            return BTreeSet::new();
        };
        of.asked.retain(|asked| *asked >= body);
        let kept = of.held.split_off(&body);
        let taken = std::mem::replace(&mut of.held, kept);
        self.subtract(target, &taken);
        taken
    }

    /// Takes what queues hold that have not used it for a while.
    pub(super) fn take_unused(&mut self, now: BootTime) -> BTreeSet<BodyLocation> {
        let is_unused = |of: &OfQueue| of.used_at.plus_ms(UNUSED_MS).has_passed(now);
        let unused = self.queues.iter().filter(|(_, of)| is_unused(of));
        let unused: Vec<Target> = unused.map(|(target, _)| *target).collect();
        let mut all = BTreeSet::new();
        for target in unused {
            if let Some(of) = self.queues.get_mut(&target) {
                of.asked.clear();
                let taken = std::mem::take(&mut of.held);
                self.subtract(target, &taken);
                all.extend(taken);
            }
        }
        all
    }

    /// When [`take_unused`](Self::take_unused) has something to take, if nothing is used until then.
    pub(super) fn unused_at(&self) -> BootTime {
        let queues = self.queues.values();
        let held = queues.filter(|of| !of.held.is_empty() || !of.asked.is_empty());
        let first = held.map(|of| of.used_at.plus_ms(UNUSED_MS)).min();
        first.unwrap_or(BootTime::NEVER)
    }

    fn subtract(&mut self, target: Target, taken: &BTreeSet<BodyLocation>) {
        let size_bytes: u64 = taken.iter().map(|body| u64::from(body.length)).sum();
        self.size_bytes -= size_bytes;
        if let Some(of) = self.queues.get_mut(&target) {
            of.size_bytes -= size_bytes;
        }
        self.end_if_over(target);
    }

    fn end_if_over(&mut self, target: Target) {
        if self.queues.get(&target).is_some_and(OfQueue::is_over) {
            self.queues.remove(&target);
        }
    }

    /// How many bytes were read and not used.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}
