//! Other machines that a commit waits for, as a test lets them answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kew_log::BootTime;

/// Other machines. They answer at once, unless a test holds their answers back.
#[derive(Debug, Default)]
pub struct Others {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    are_silent: bool,
    silent_since: Option<BootTime>,
    /// How many commits wait.
    waiting: usize,
}

impl Others {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is half done where a thread can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on they do not answer. The log says that it has no quorum since this time, if there is one.
    pub fn fall_silent(&self, since: Option<BootTime>) {
        let mut state = self.state();
        (state.are_silent, state.silent_since) = (true, since);
    }

    /// They answer, also what was asked before.
    pub fn answer(&self) {
        let mut state = self.state();
        (state.are_silent, state.silent_since) = (false, None);
        self.changed.notify_all();
    }

    /// How many commits wait for an answer.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    pub(super) fn silent_since(&self) -> Option<BootTime> {
        self.state().silent_since
    }

    /// Lets the jobs of an owner come back.
    pub(super) fn stop(&self, is_stopped: &AtomicBool) {
        // Under the lock, so that none that is about to wait misses it.
        let state = self.state();
        is_stopped.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for an answer. Returns false if the owner has stopped before.
    pub(super) fn wait(&self, is_stopped: &AtomicBool) -> bool {
        let mut state = self.state();
        state.waiting += 1;
        let waits = |state: &mut State| state.are_silent && !is_stopped.load(Ordering::Relaxed);
        let state = self.changed.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !state.are_silent
    }
}
