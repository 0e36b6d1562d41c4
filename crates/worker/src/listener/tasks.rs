//! How many dequeue tasks run, and when one may end.
//!
//! A task that ends and an announcement meet under one lock. So a task never ends with an announcement that came
//! after it last looked into the queue: it would be lost if no other task runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The count of dequeue tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    active: u32,
    total: u64,
    /// Rises with each announcement of work.
    generation: u64,
    /// Whether push works, so that no task needs to stay.
    has_push: bool,
}

impl Tasks {
    /// Counts tasks that start now, as many as `wanted` but no more than there may be at once.
    pub(crate) fn start(&self, wanted: u32, active_max: u32) -> u32 {
        let mut counts = self.lock();
        let started = wanted.min(active_max.saturating_sub(counts.active));
        counts.active += started;
        counts.total += u64::from(started);
        started
    }

    /// Counts tasks that start now until `target` are active.
    pub(crate) fn start_to(&self, target: u32, active_max: u32) -> u32 {
        let mut counts = self.lock();
        let started = target.min(active_max).saturating_sub(counts.active);
        counts.active += started;
        counts.total += u64::from(started);
        started
    }

    /// Announces work: no task ends before it has looked again.
    pub(crate) fn announce(&self) {
        self.lock().generation += 1;
    }

    /// Which announcements a look into the queue that begins now takes into account.
    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Ends one task, if it may. `generation` is that from before its last look into the queue.
    pub(crate) fn try_end(&self, generation: u64) -> bool {
        let mut counts = self.lock();
        let is_needed = counts.active <= 1 && !counts.has_push;
        let ends = counts.generation == generation && !is_needed;
        if ends {
            counts.active -= 1;
        }
        ends
    }

    /// Ends one task in any case: the listener stops.
    pub(crate) fn end(&self) {
        let mut counts = self.lock();
        counts.active = counts.active.saturating_sub(1);
    }

    /// Push works from now on, or not any more.
    pub(crate) fn set_push(&self, has_push: bool) {
        self.lock().has_push = has_push;
    }

    pub(crate) fn active(&self) -> u32 {
        self.lock().active
    }

    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_target_minus_active_tasks_start() {
        let tasks = Tasks::default();
        assert_eq!(tasks.start(2, 200), 2);
        assert_eq!(tasks.start_to(10, 200), 8);
        assert_eq!(tasks.start_to(10, 200), 0);
        assert_eq!(tasks.start_to(5, 200), 0);
        assert_eq!(tasks.start_to(100, 20), 10);
        assert_eq!(tasks.start(7, 20), 0);
        assert_eq!((tasks.active(), tasks.total()), (20, 20));
    }

    #[test]
    fn the_last_task_stays_unless_push_works() {
        let tasks = Tasks::default();
        tasks.start(2, 200);
        assert!(tasks.try_end(0) && !tasks.try_end(0));
        tasks.set_push(true);
        assert!(tasks.try_end(0));
        assert_eq!((tasks.active(), tasks.total()), (0, 2));
    }

    #[test]
    fn a_task_that_was_announced_work_looks_again() {
        let tasks = Tasks::default();
        tasks.start(1, 200);
        tasks.set_push(true);
        let generation = tasks.generation();
        tasks.announce();
        assert!(!tasks.try_end(generation));
        assert!(tasks.try_end(tasks.generation()));
    }
}
