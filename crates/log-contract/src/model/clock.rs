//! The clocks of the members.

use kew_log::BootTime;

/// How the boot time of a member's machine differs from that of the engine. By default it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberClock {
    /// So much it showed when the engine's showed 0.
    pub ahead_us: u64,
    /// How many microseconds it gains in each second. Negative for a slow clock.
    pub gains_ppm: i32,
}

impl MemberClock {
    /// What it shows at a moment of the engine's clock.
    pub(super) fn at(self, engine: BootTime) -> BootTime {
        let rate = u64::try_from(1_000_000 + i64::from(self.gains_ppm)).unwrap_or_default();
        let passed = u128::from(engine.as_us()) * u128::from(rate) / 1_000_000;
        let passed_us = u64::try_from(passed).unwrap_or(u64::MAX);
        BootTime::from_us(self.ahead_us.saturating_add(passed_us))
    }
}
