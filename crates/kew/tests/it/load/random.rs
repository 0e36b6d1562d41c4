//! Random choices that a seed repeats.

/// A xorshift generator: good enough for choices, unfit for secrets.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // A state of zero never changes, and similar seeds should soon differ.
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.below(from.len() as u64)).expect("an index");
        from[at]
    }

    /// Takes one out, and moves the last one to its place.
    pub(crate) fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let at = usize::try_from(self.below(from.len() as u64)).expect("an index");
        Some(from.swap_remove(at))
    }
}
