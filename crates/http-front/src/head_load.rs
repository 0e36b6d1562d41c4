//! The share of one connection's heads in the budget of all connections.

use crate::budget::{NoRoom, Share};
use crate::limits::Limits;

/// How many bytes the heads of one connection may take without counting against the budget. Nearly every
/// head is far shorter, and then there is nothing to count.
const HEAD_SIZE_BYTES_FREE: usize = 8 * 1024;

/// The size of a connection's heads, until their requests are answered.
pub(crate) struct HeadLoad {
    pub(crate) size_bytes: usize,
    share: Share,
    /// Bytes that found no room when they were counted again. They are added to the next bytes.
    owed_bytes: usize,
}

impl HeadLoad {
    /// No bytes yet, to be counted in `share`.
    pub(crate) fn new(share: Share) -> Self {
        Self {
            size_bytes: 0,
            share,
            owed_bytes: 0,
        }
    }

    /// Adds this many bytes, or refuses.
    pub(crate) fn grow(&mut self, size_bytes: usize, limits: &Limits) -> Result<(), NoRoom> {
        // For the part that hyper has read ahead and for the head of the request being answered.
        let size_bytes_max = limits.head_size_bytes_max.saturating_mul(2);
        let before = self.size_bytes.saturating_sub(HEAD_SIZE_BYTES_FREE);
        let all = self
            .size_bytes
            .saturating_add(self.owed_bytes)
            .saturating_add(size_bytes)
            .min(size_bytes_max);
        let after = all.saturating_sub(HEAD_SIZE_BYTES_FREE);
        if after > before {
            self.share.grow(after - before)?;
        }
        self.size_bytes = all;
        self.owed_bytes = 0;
        Ok(())
    }

    /// Counts only the remaining bytes of heads, in another share. If other connections have taken the room
    /// in the meantime, the next byte finds none either.
    pub(crate) fn begin_anew(&mut self, share: Share, left_bytes: usize, limits: &Limits) {
        self.share = share;
        self.size_bytes = 0;
        self.owed_bytes = 0;
        if self.grow(left_bytes, limits).is_err() {
            self.owed_bytes = left_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::limits::LIMITS;

    #[test]
    fn the_rest_of_a_head_is_counted_as_soon_as_there_is_room() {
        let limits = LIMITS;
        let budget = Budget::new(20 << 10);
        let mut load = HeadLoad::new(budget.share());
        load.grow(20 << 10, &limits).unwrap();
        // The request is answered, a part of the next head is there, and another connection takes the room.
        load.share = Budget::new(0).share();
        let mut other = budget.share();
        other.grow(20 << 10).unwrap();
        load.begin_anew(budget.share(), 16 << 10, &limits);
        assert!(load.grow(1, &limits).is_err(), "crowded at the next byte");
        drop(other);
        load.grow(1, &limits).unwrap();
        // 8 KiB and a byte are taken: the first 8 KiB are free.
        assert!(budget.check_room((12 << 10) - 1).is_ok());
        assert!(budget.check_room(12 << 10).is_err());
    }
}
