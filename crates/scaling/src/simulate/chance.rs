//! Chance that repeats: the same seed gives the same numbers.

/// A sequence of numbers that look random.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        let high = u32::try_from(self.next() >> 32).expect("32 bits are left");
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }

    /// How many arrive, if `mean` do on average and none knows of the others (the Poisson distribution).
    pub(super) fn arrivals(&mut self, mean: f64) -> u32 {
        let mut count = 0;
        let mut left = mean;
        // In pieces, so that the product below does not become too small for a number.
        while left > 0.0 {
            let limit = (-left.min(30.0)).exp();
            let mut product = self.share();
            while product > limit {
                count += 1;
                product *= self.share();
            }
            left -= 30.0;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_mean() {
        let mut chance = Chance::new(1);
        for mean in [0.2, 3.0, 75.0] {
            let sum: u32 = (0..2000).map(|_| chance.arrivals(mean)).sum();
            let found = f64::from(sum) / 2000.0;
            assert!((found / mean - 1.0).abs() < 0.1, "{found} for {mean}");
        }
        assert_eq!(chance.arrivals(0.0), 0);
    }
}
