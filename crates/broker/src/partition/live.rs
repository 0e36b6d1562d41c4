//! The bytes of the log that a state still needs.

use std::ops::Range;

use kew_engine::State;
use kew_log::{LiveBytes, LogPosition};
use kew_planted::{Overlooked, Seam, alter};

/// A state, as its log asks for what is live.
pub(crate) struct Live<'a> {
    state: &'a State,
    overlooked: Overlooked,
}

impl<'a> Live<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        Self {
            state,
            overlooked: None,
        }
    }

    /// What a snapshot keeps that begins.
    pub(super) fn for_snapshot(state: &'a State) -> Self {
        let mut live = Self::of(state);
        alter(Seam::SnapshotBegun, &mut live.overlooked);
        live
    }
}

impl LiveBytes for Live<'_> {
    fn bytes_in(&self, positions: Range<LogPosition>) -> u64 {
        self.state.live_bytes_in(numbers(&positions))
    }

    fn is_any_in(&self, positions: Range<LogPosition>) -> bool {
        let positions = numbers(&positions);
        let is_seen = |overlooked: &dyn Fn(Range<u64>) -> bool| !overlooked(positions.clone());
        self.state.is_any_live_in(positions.clone())
            && self.overlooked.as_deref().is_none_or(is_seen)
    }

    fn all_bytes(&self) -> u64 {
        self.state.live_bytes()
    }

    fn unit_bytes(&self) -> u64 {
        self.state.count_unit().size_bytes()
    }

    fn units_around(&self, range: Range<LogPosition>) -> Range<LogPosition> {
        let units = self.state.units_around(&numbers(&range));
        LogPosition::new(units.start)..LogPosition::new(units.end)
    }
}

/// Positions, as the engine has them.
pub(super) fn numbers(positions: &Range<LogPosition>) -> Range<u64> {
    positions.start.as_u64()..positions.end.as_u64()
}
