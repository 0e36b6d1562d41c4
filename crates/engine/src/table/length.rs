//! How many sequence numbers share a run.

/// The most slots that a run has.
pub(super) const SLOTS_MAX: usize = 1024;

/// How many sequence numbers share a run: a power of two, at most 1,024.
///
/// An event can end whole runs. So the length is fixed for a partition by its first event, and equal on all of
/// its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLength(u16);

impl RunLength {
    /// The length of a new partition.
    pub const DEFAULT: Self = Self(1024);

    /// The length in a partition whose first event does not tell it: earlier versions knew no other.
    pub const UNTOLD: Self = Self(128);

    /// A length for tests: what happens at the edge of a run happens often.
    pub const TINY: Self = Self(4);

    /// The length of that many numbers, if there can be such runs.
    pub(crate) fn new(numbers: u64) -> Option<Self> {
        let length = u16::try_from(numbers).ok()?;
        let is_allowed = length.is_power_of_two() && usize::from(length) <= SLOTS_MAX;
        is_allowed.then_some(Self(length))
    }

    /// How many numbers share a run.
    pub fn as_u64(self) -> u64 {
        self.0.into()
    }

    /// How many slots a run has.
    pub(super) fn slots(self) -> usize {
        self.0.into()
    }

    /// With so many messages a run needs no page of its own, and with so many changes it keeps its page.
    pub(super) fn changes_max(self) -> usize {
        (self.slots() / 16).max(1)
    }

    /// Under pressure, more messages than these are worth a page, and more changes than these a new one.
    pub(super) fn changes_under_pressure_max(self) -> usize {
        self.slots() / 128
    }

    /// How many slots of a page are read together: 128 of 1,024, and two of four.
    pub(crate) fn slots_per_group(self) -> usize {
        (self.slots() / 8).max(2)
    }

    /// The groups of a page.
    pub(super) fn groups(self) -> std::ops::Range<usize> {
        0..self.slots().div_ceil(self.slots_per_group())
    }

    /// The run of a number.
    pub(crate) fn run_of(self, number: u64) -> u64 {
        number >> self.0.trailing_zeros()
    }

    /// The slot of a number in its run.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below 1,024"
    )]
    pub(super) fn slot_of(self, number: u64) -> usize {
        (number & (self.as_u64() - 1)) as usize
    }

    /// The first number of a run.
    pub(super) fn first_of(self, run: u64) -> u64 {
        run << self.0.trailing_zeros()
    }
}

impl Default for RunLength {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_up_to_1024_are_lengths() {
        let lengths: Vec<u64> = (0..5000)
            .filter(|it| RunLength::new(*it).is_some())
            .collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(RunLength::new(1 << 32 | 4), None);
    }

    #[test]
    fn a_number_is_its_run_and_its_slot() {
        for length in [RunLength::TINY, RunLength::UNTOLD, RunLength::DEFAULT] {
            for number in [0, 1, 3, 4, 127, 128, 1023, 1024, (1 << 56) - 1] {
                let first = length.first_of(length.run_of(number));
                assert_eq!(first + length.slot_of(number) as u64, number);
                assert!(number - first < length.as_u64());
            }
        }
    }
}
