//! The time by which a log and its owner wait.

/// Microseconds since the machine was booted, suspension included. It never goes back while a process runs.
///
/// Retries and intervals use it. A partition's time can jump when another machine owns the partition, and it follows
/// the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(u64);

impl BootTime {
    /// When the machine was booted, before anything happened.
    pub const ZERO: Self = Self(0);

    /// Later than any moment.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `us` microseconds after the boot.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since the boot.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// The moment `ms` milliseconds later; [`BootTime::NEVER`] if that is out of range.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Whether a deadline at `self` has passed at `now`: at the deadline itself it has.
    pub const fn has_passed(self, now: Self) -> bool {
        self.0 <= now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_added_and_never_stays_never() {
        let at = BootTime::from_us(1500);
        assert_eq!(at.plus_ms(2).as_us(), 3500);
        assert_eq!(at.plus_ms(u64::MAX), BootTime::NEVER);
        assert_eq!(BootTime::NEVER.plus_ms(1), BootTime::NEVER);
        assert!(at.has_passed(at) && !at.plus_ms(1).has_passed(at));
    }
}
