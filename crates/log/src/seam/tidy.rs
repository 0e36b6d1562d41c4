//! What a log and its owner say to each other so that disk space follows what is live.

use std::ops::Range;

use crate::LogPosition;

/// The bytes of bodies that are still needed, as the owner of a log counts them.
///
/// They are counted in units of positions. A range stands for all units that it touches, so a unit that lies in two
/// segments keeps both.
pub trait LiveBytes {
    /// The live bytes in a range. Takes a step for each unit.
    fn bytes_in(&self, positions: Range<LogPosition>) -> u64;

    /// Whether there are any.
    fn is_any_in(&self, positions: Range<LogPosition>) -> bool {
        self.bytes_in(positions) > 0
    }

    /// The live bytes in the whole log.
    fn all_bytes(&self) -> u64 {
        self.bytes_in(LogPosition::new(0)..LogPosition::new(u64::MAX))
    }

    /// The size of a unit.
    fn unit_bytes(&self) -> u64 {
        1
    }

    /// The smallest range of whole units around some positions.
    fn units_around(&self, positions: Range<LogPosition>) -> Range<LogPosition> {
        positions
    }
}

/// Every byte of a range is live: for tools and tests.
impl LiveBytes for Range<LogPosition> {
    fn bytes_in(&self, positions: Range<LogPosition>) -> u64 {
        let first = self.start.max(positions.start).as_u64();
        self.end.min(positions.end).as_u64().saturating_sub(first)
    }
}

/// What a log needs from its owner now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// A snapshot would free space, or bring the log closer to that: the owner is to begin one at once.
    pub wants_snapshot: bool,
    /// The size of the state is to be measured anew: a purge makes it smaller at once. This comes before the snapshot.
    pub wants_size: bool,
    /// Which part of all that is appended moved bodies may be while there are commands, in thousandths, if the log has
    /// looked: more the more space is taken beside what is live, and the most while little of the disk is free.
    pub moved_share_per_mille: Option<u64>,
    /// Positions to empty, so that their segment can be removed. There is no other victim until
    /// [`end_victim`](super::LocalLog::end_victim).
    pub victim: Option<Range<LogPosition>>,
}

/// How the evacuation of a victim has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimEnd {
    /// It has no live bytes any more.
    Emptied,
    /// A body in it cannot be read. It is not chosen again before the next opening.
    Unreadable,
    /// What moving its bodies needs cannot be read now. It is not chosen for a while, which is longer each time.
    Paused,
    /// The same, because its bodies need more room than a full disk has.
    TooLarge,
    /// It was given up, and may be chosen again.
    GivenUp,
}
