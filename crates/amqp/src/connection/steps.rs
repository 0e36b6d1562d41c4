//! How much is done before others have their turn.

/// How many entries that are only looked at cost a step.
const LOOKED_AT: usize = 16;

/// The steps for a number of entries that are only looked at.
pub(super) fn steps_to_look_at(count: usize) -> usize {
    1 + count / LOOKED_AT
}

/// The steps that are left of a turn.
///
/// A step is one thing that is visited: a header or a frame that is read, an event, a delivery of a
/// range. Some work cannot be split: its steps are charged afterwards, so that nothing follows it
/// in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    budget: u32,
    taken: u32,
}

impl Steps {
    /// So many.
    pub fn of(budget: u32) -> Self {
        Self { budget, taken: 0 }
    }

    /// No limit.
    pub fn unlimited() -> Self {
        Self::of(u32::MAX)
    }

    /// Whether any is left.
    pub fn are_left(&self) -> bool {
        self.taken < self.budget
    }

    /// Takes a number of steps, even if fewer are left.
    pub fn charge(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.taken = self.taken.saturating_add(count);
    }

    /// The steps taken so far.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Makes all steps available again.
    pub fn renew(&mut self) {
        self.taken = 0;
    }
}
