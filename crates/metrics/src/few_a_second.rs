//! Log lines of which a flood shows only the first few and a count.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lets some lines a second through, and counts the others.
#[derive(Debug)]
pub struct FewASecond {
    count_max: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    second: u64,
    /// Of the current second.
    told: u32,
    untold: u64,
}

/// What to do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It is logged.
    Told,
    /// Count it. It is the first since the count was taken, so the caller must take the count
    /// later.
    FirstUntold,
    /// It is counted.
    Untold,
}

impl FewASecond {
    /// Lets `count_max` lines a second through.
    pub fn new(count_max: u32) -> Self {
        Self {
            count_max,
            state: Mutex::default(),
        }
    }

    /// Decides what to do with one more line.
    pub fn note(&self, now: SystemTime) -> Line {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut state = self.lock();
        if state.second != second {
            state.second = second;
            state.told = 0;
        }
        if state.told < self.count_max {
            state.told += 1;
            return Line::Told;
        }
        state.untold += 1;
        match state.untold {
            1 => Line::FirstUntold,
            _ => Line::Untold,
        }
    }

    /// How many were counted since the last call.
    pub fn take_untold(&self) -> u64 {
        std::mem::take(&mut self.lock().untold)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn some_a_second_are_logged_and_the_others_counted() {
        let log = FewASecond::new(2);
        let note = |second| log.note(UNIX_EPOCH + Duration::from_secs(second));
        assert_eq!([note(5), note(5)], [Line::Told; 2]);
        assert_eq!(
            [note(5), note(5), note(5)],
            [Line::FirstUntold, Line::Untold, Line::Untold]
        );
        assert_eq!(
            [note(6), note(6), note(6)],
            [Line::Told, Line::Told, Line::Untold]
        );
        assert_eq!((log.take_untold(), log.take_untold()), (4, 0));
        assert_eq!(note(6), Line::FirstUntold);
    }
}
