//! Random numbers for jitter, which a test can repeat.

use std::sync::atomic::{AtomicU64, Ordering};

/// The step of the sequence (SplitMix64).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A source of random numbers. Not for secrets.
#[derive(Debug)]
pub(crate) struct Chance(AtomicU64);

impl Chance {
    /// Another sequence each time. Without random numbers of the system all sequences are equal, which only costs
    /// the jitter between processes.
    pub(crate) fn from_system() -> Self {
        Self::seeded(getrandom::u64().unwrap_or_default())
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// From 0, and below 1.
    pub(crate) fn fraction(&self) -> f64 {
        let state = self.0.fetch_add(STEP, Ordering::Relaxed);
        let mixed = mix(state.wrapping_add(STEP));
        f64::from(u32::try_from(mixed >> 32).unwrap_or(0)) / 4_294_967_296.0
    }
}

fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_they_spread() {
        let [one, other] = [Chance::seeded(7), Chance::seeded(7)];
        let numbers: Vec<f64> = (0..1_000).map(|_| one.fraction()).collect();
        assert!(numbers.iter().all(|it| (0.0..1.0).contains(it)));
        assert!(numbers.iter().all(|it| *it == other.fraction()));
        let mean = numbers.iter().sum::<f64>() / 1_000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
