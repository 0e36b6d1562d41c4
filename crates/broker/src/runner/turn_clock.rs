//! The processor time of turns.

use std::time::{Duration, Instant};

use super::processor_time;

/// A turn that took less has used no more than that, which tells enough.
const LONG: Duration = Duration::from_millis(1);

/// So old the last reading of the thread's processor time may be when the turn before a long one ends.
const READ_INTERVAL: Duration = Duration::from_millis(2);

/// Reads the thread's processor time seldom. It is a system call, which takes as long as a command.
#[derive(Debug)]
pub(super) struct TurnClock {
    used: Duration,
    read_at: Instant,
}

impl TurnClock {
    pub(super) fn start() -> Self {
        Self {
            used: processor_time(),
            read_at: Instant::now(),
        }
    }

    /// The most processor time of a turn that ends now, and took so long without its commit.
    pub(super) fn end_turn(&mut self, now: Instant, took: Duration) -> Duration {
        self.end(now, took, processor_time)
    }

    fn end(&mut self, now: Instant, took: Duration, read: impl FnOnce() -> Duration) -> Duration {
        let is_long = took >= LONG;
        if !is_long && now.saturating_duration_since(self.read_at) < READ_INTERVAL {
            return took;
        }
        self.read_at = now;
        let used_before = std::mem::replace(&mut self.used, read());
        let used = self.used.saturating_sub(used_before);
        // What came between the last reading and the turn is in it, and so is the commit.
        if is_long { used.min(took) } else { took }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_long_turns_is_known_and_read_seldom() {
        let began = Instant::now();
        let us = Duration::from_micros;
        let mut clock = TurnClock {
            used: us(0),
            read_at: began,
        };
        let mut reads = 0;
        // Of each turn: when it ended, what it took, and what the thread had used then.
        let turns = [
            (1000, 900, 800, 900),
            (1999, 999, 1600, 999),
            // It is read, for a later turn.
            (2100, 100, 1700, 100),
            (4000, 10, 1800, 10),
            // 1.7 ms had been used when it was last read.
            (9000, 5000, 6000, 4300),
            (9010, 10, 6005, 10),
            (10_500, 1000, 6100, 100),
            // Most of this was used by its commit.
            (20_000, 1200, 9100, 1200),
        ];
        for (at, took, used, told) in turns {
            let read = || {
                reads += 1;
                us(used)
            };
            let most = clock.end(began + us(at), us(took), read);
            assert_eq!(most, us(told), "at {at}");
        }
        assert_eq!(reads, 4);
    }
}
