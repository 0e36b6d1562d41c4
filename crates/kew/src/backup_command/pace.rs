//! Bounds a rate. It sleeps nowhere: the caller does.

use std::time::{Duration, Instant};

/// A pause is worth the sleep from this length on. Shorter ones add up until then.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// What was not used for a while is not made up for.
pub(super) struct Pace {
    bytes_per_second: u64,
    free_at: Instant,
}

impl Pace {
    /// `rate_mib` is in MiB a second, 0 for no bound.
    pub(super) fn new(rate_mib: u64, now: Instant) -> Self {
        Self {
            bytes_per_second: rate_mib << 20,
            free_at: now,
        }
    }

    /// How long to wait after so many bytes.
    pub(super) fn pause_after(&mut self, bytes: u64, now: Instant) -> Duration {
        if self.bytes_per_second == 0 {
            return Duration::ZERO;
        }
        let took = bytes.saturating_mul(1_000_000_000) / self.bytes_per_second;
        self.free_at = self.free_at.max(now) + Duration::from_nanos(took);
        let pause = self.free_at - now;
        match pause < PAUSE_MIN {
            true => Duration::ZERO,
            false => pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads 10 MiB in pieces of this size, and returns how long it has paused, in a time that only pauses move on.
    fn paused(rate_mib: u64, piece_bytes: u64) -> Duration {
        let begun = Instant::now();
        let mut now = begun;
        let mut pace = Pace::new(rate_mib, now);
        for _ in 0..(10 << 20) / piece_bytes {
            now += pace.pause_after(piece_bytes, now);
        }
        now - begun
    }

    #[test]
    fn the_rate_is_kept_for_pieces_of_every_size() {
        for piece_bytes in [1 << 20, 64 << 10, 512] {
            let took = paused(100, piece_bytes);
            let due = Duration::from_millis(100);
            assert!(took <= due && took > due - 2 * PAUSE_MIN, "{took:?}");
        }
        assert_eq!(paused(0, 1 << 20), Duration::ZERO);
    }

    #[test]
    fn a_pause_of_the_reader_is_not_made_up_for() {
        let now = Instant::now();
        let mut pace = Pace::new(1, now);
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.pause_after(1 << 20, later), Duration::from_secs(1));
    }
}
