//! Instruments that are written on hot paths.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts events.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing happened yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts so many.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many were counted.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts what is present now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Nothing is there yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One owner's part changes from `before` to `now`. Returns the new total.
    pub fn change(&self, before: u64, now: u64) -> u64 {
        if now == before {
            return self.value();
        }
        // Differences wrap around, and their sum is right in any order.
        let difference = now.wrapping_sub(before);
        let others = self.0.fetch_add(difference, Ordering::Relaxed);
        others.wrapping_add(difference)
    }

    /// The current total.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Remembers the largest value.
#[derive(Debug, Default)]
pub struct HighWater(AtomicU64);

impl HighWater {
    /// None yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Notes a value. A value that is not a new maximum costs one read.
    pub fn note(&self, value: u64) {
        if value > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// The largest one; 0 if there was none.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of latencies in microseconds: from 50 us to 30 s.
const LATENCIES_US: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// Upper bounds of sizes in bytes: from 256 bytes to 1 MiB, the largest batch.
pub const SIZES_BYTES: [u64; 7] = [256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];

/// The unit that a histogram counts in, and how the page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Counted in microseconds, shown in seconds.
    Seconds,
    /// Shown as counted.
    Plain,
}

impl Scale {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the page has decimals; what is above 2^53 is rounded"
    )]
    fn show(self, value: u64) -> f64 {
        match self {
            Self::Seconds => value as f64 / 1e6,
            Self::Plain => value as f64,
        }
    }
}

/// Counts values by size.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    scale: Scale,
    /// One more than bounds: the last is for values above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram has counted at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The sum of the values.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
    /// Upper bound and count of each bucket; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Buckets with these upper bounds, which rise.
    pub fn new(bounds: &'static [u64], scale: Scale) -> Self {
        Self {
            bounds,
            scale,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// For durations, with buckets from 50 us to 30 s.
    pub fn of_latencies() -> Self {
        Self::new(&LATENCIES_US, Scale::Seconds)
    }

    /// For sizes in bytes, with buckets from 256 bytes to 1 MiB.
    pub fn of_sizes() -> Self {
        Self::new(&SIZES_BYTES, Scale::Plain)
    }

    /// Counts a duration, rounded up to microseconds, so that no value is counted below its bucket.
    pub fn observe_duration(&self, duration: Duration) {
        let us = duration.as_nanos().div_ceil(1000);
        self.observe(u64::try_from(us).unwrap_or(u64::MAX));
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// What was counted so far. The count equals that of the buckets, also while other threads
    /// observe.
    pub fn observed(&self) -> Observed {
        let bounds = self.bounds.iter().map(|bound| self.scale.show(*bound));
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::MAX]).zip(counts).collect();
        Observed {
            sum: self.scale.show(self.sum.load(Ordering::Relaxed)),
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_the_sum_of_its_owners_parts() {
        let gauge = Gauge::new();
        assert_eq!(gauge.change(0, 5), 5);
        assert_eq!(gauge.change(0, 3), 8);
        assert_eq!(gauge.change(5, 1), 4);
        assert_eq!(gauge.change(3, 0), 1);
        assert_eq!(gauge.change(1, 1), 1);
        assert_eq!(gauge.value(), 1);
    }

    #[test]
    fn a_value_lies_in_the_first_bucket_that_bounds_it() {
        let histogram = Histogram::of_latencies();
        for us in [0, 50, 51, 30_000_000, 30_000_001] {
            histogram.observe_duration(Duration::from_micros(us));
        }
        histogram.observe_duration(Duration::from_nanos(50_001));
        let observed = histogram.observed();
        let at = |index: usize| observed.buckets[index];
        assert_eq!(at(0), (0.000_05, 2));
        assert_eq!(at(1), (0.0001, 2));
        assert_eq!(at(17), (30.0, 1));
        assert_eq!(at(18).1, 1);
        assert_eq!(observed.count, 6);
        assert!((observed.sum - 60.000_153).abs() < 1e-9, "{}", observed.sum);
    }
}
