//! How many values a block of an ordered container has at most, and when blocks with few are put together.

/// How many values a block has at most.
///
/// A removal looks at the neighbours of a block at every sixteenth of that, from half on. So of two neighbours one of
/// which is half full at most, both together have more than five eighths of a full block: three quarters, less a
/// sixteenth for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLength(u8);

impl BlockLength {
    const IN_SERVICE: u8 = 128;

    const SHORTEST: u8 = 4;

    /// With short runs blocks are short too, so that tests see their edges.
    pub(crate) fn new(run_length: u64) -> Self {
        let length = u8::try_from(run_length).unwrap_or(Self::IN_SERVICE);
        Self(length.clamp(Self::SHORTEST, Self::IN_SERVICE))
    }

    pub(crate) fn max(self) -> usize {
        self.0.into()
    }

    /// Whether a removal that left so many looks at the neighbours of the block.
    pub(crate) fn is_few(self, count: usize) -> bool {
        let step = (self.max() / 16).max(1);
        count <= self.max() / 2 && count.is_multiple_of(step)
    }

    /// Whether two blocks with so many are put together. A quarter stays free for what comes.
    pub(crate) fn fits_one(self, count: usize) -> bool {
        count <= self.max() / 4 * 3
    }

    /// Where a full block is split for a value at a place. What comes before the last values fills the lower block:
    /// one value that stays last for long leaves those that rise before it in full blocks.
    pub(crate) fn split_at(self, place: usize) -> usize {
        if place >= self.max() - self.max() / 8 {
            place
        } else {
            self.max() / 2
        }
    }
}
