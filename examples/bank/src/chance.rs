//! Random numbers for replays and tests. They are repeatable from a seed, and good for nothing secret.

use crate::names::TransactionId;

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream that no other process has.
    pub fn from_system() -> Result<Self, getrandom::Error> {
        Ok(Self(getrandom::u64()?))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A transaction id.
    pub fn id(&mut self) -> TransactionId {
        let bytes = u128::from(self.number()) << 64 | u128::from(self.number());
        TransactionId::from_random(bytes.to_be_bytes())
    }
}
