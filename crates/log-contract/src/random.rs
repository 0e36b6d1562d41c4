//! Choices by a seed, and hashes of what came of them.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// One of the streams of a seed. Each part of a world has its own, so that one more choice of a part changes no
    /// other.
    pub(crate) fn named(seed: u64, name: &str) -> Self {
        let mut hash = Hash::default();
        hash.add(seed);
        hash.add_bytes(name.as_bytes());
        Self(hash.0)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound; 0 if there is none.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }

    /// Whether something happens that happens once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A number from 1 to 2^`bits` - 1, spread evenly over its logarithm.
    pub(crate) fn spread(&mut self, bits: usize) -> u64 {
        let least = 1 << self.below(bits);
        (least + self.below(least)) as u64
    }
}

/// FNV-1a.
#[derive(Clone, Debug)]
pub(crate) struct Hash(pub(crate) u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn add(&mut self, number: u64) {
        self.add_bytes(&number.to_le_bytes());
    }
}
