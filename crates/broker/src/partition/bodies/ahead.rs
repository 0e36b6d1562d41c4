//! What is read ahead: bodies that no command needs yet, and receivers are likely to need soon.
//!
//! It is bounded, and shared among queues. What was read is not dropped to read something else, or many queues would
//! read the same bodies again and again. It is dropped when its queue has not used it for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kew_engine::{BodyLocation, Timestamp};

use super::JOB_SIZE_BYTES;
use crate::Target;

/// The most bytes that are read ahead and not used yet.
pub(super) const AHEAD_SIZE_BYTES_MAX: u64 = 4 << 20;

/// The least share of a queue. So at most 64 queues have one, and the others have none.
const SHARE_SIZE_BYTES_MIN: u64 = 64 << 10;

/// After so long without use, what was read for a queue makes room for others.
const UNUSED_MS: u64 = 1000;

/// What is read ahead for a queue.
#[derive(Default)]
struct OfQueue {
    asked: VecDeque<BodyLocation>,
    is_reading: bool,
    held: BTreeSet<BodyLocation>,
    size_bytes: u64,
    used_at: Timestamp,
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
    size_bytes: u64,
}

impl Ahead {
    /// How many bytes a queue may ask for now.
    pub(super) fn room(&self, target: Target) -> u64 {
        let of = self.queues.get(&target);
        if of.is_some_and(|of| of.is_reading || !of.asked.is_empty()) {
            return 0;
        }
        let others = self.queues.len() - usize::from(of.is_some());
        let share = AHEAD_SIZE_BYTES_MAX / (others as u64 + 1);
        if share < SHARE_SIZE_BYTES_MIN {
            return 0;
        }
        let held_bytes = of.map_or(0, |of| of.size_bytes);
        share.min(JOB_SIZE_BYTES).saturating_sub(held_bytes)
    }

    /// Asks for bodies of a queue, in order.
    pub(super) fn ask(&mut self, target: Target, bodies: Vec<BodyLocation>, now: Timestamp) {
        if bodies.is_empty() || self.room(target) == 0 {
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
                let room_bytes = AHEAD_SIZE_BYTES_MAX.saturating_sub(self.size_bytes);
                return Some((target, asked, room_bytes.min(JOB_SIZE_BYTES)));
            }
        }
        None
    }

    /// Whether a queue has asked for something.
    pub(super) fn has_asked(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Notes that what was asked for a queue was read, or is not read.
    pub(super) fn end_read(&mut self, target: Target) {
        if let Some(of) = self.queues.get_mut(&target) {
            of.is_reading = false;
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
    pub(super) fn note_use(&mut self, target: Target, last: BodyLocation, now: Timestamp) {
        if let Some(of) = self.queues.get_mut(&target) {
            of.used_at = now;
            while of.asked.front().is_some_and(|first| *first <= last) {
                of.asked.pop_front();
            }
        }
    }

    /// What was read for a queue and lies before a body in the log: others have taken these messages.
    pub(super) fn before(&self, target: Target, body: BodyLocation) -> Vec<BodyLocation> {
        let of = self.queues.get(&target).into_iter();
        of.flat_map(|of| of.held.range(..body)).copied().collect()
    }

    /// What queues hold that have not used it for a while.
    pub(super) fn unused(&self, now: Timestamp) -> Vec<BodyLocation> {
        let queues = self.queues.values();
        let unused = queues.filter(|of| of.used_at.plus_ms(UNUSED_MS).has_passed(now));
        unused.flat_map(|of| &of.held).copied().collect()
    }

    /// Forgets what was asked for.
    pub(super) fn forget_asked(&mut self) {
        for target in std::mem::take(&mut self.ring) {
            if let Some(of) = self.queues.get_mut(&target) {
                of.asked.clear();
            }
            self.end_if_over(target);
        }
    }

    /// What is held for all queues.
    pub(super) fn all(&self) -> Vec<BodyLocation> {
        let queues = self.queues.values();
        queues.flat_map(|of| &of.held).copied().collect()
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
