//! Printed results.

use std::io::Write as _;

use anyhow::Result;
use queue_load::{Usage, percentile};
use serde::Serialize;

/// A spread of durations, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Spread {
    p50_us: i64,
    p90_us: i64,
    p99_us: i64,
    p999_us: i64,
    max_us: i64,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn of(mut values_us: Vec<i64>) -> Option<Self> {
        values_us.sort_unstable();
        let rank = |share| percentile(&values_us, share);
        (!values_us.is_empty()).then(|| Self {
            p50_us: rank(0.5),
            p90_us: rank(0.9),
            p99_us: rank(0.99),
            p999_us: rank(0.999),
            max_us: rank(1.0),
        })
    }
}

/// A process's processor time for each message, and its memory.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    cpu_us: f64,
    cores: f64,
    rss_mib: f64,
}

impl Cost {
    /// The difference of two readings that are `seconds` apart.
    pub(crate) fn between(
        before: Option<Usage>,
        after: Option<Usage>,
        seconds: f64,
        message_count: u64,
    ) -> Option<Self> {
        let (before, after) = (before?, after?);
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        Some(Self {
            cpu_us: round(1e6 * cpu_seconds / as_f64(message_count.max(1))),
            cores: round(cpu_seconds / seconds.max(1e-9)),
            rss_mib: round(after.resident_mib),
        })
    }
}

/// Two digits behind the point are enough.
pub(crate) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Prints a result as one line, which is the purpose of this program.
pub(crate) fn print(result: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, result)?;
    writeln!(output)?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_values_that_occurred() {
        let spread = Spread::of((-10..=90).rev().collect()).unwrap();
        assert_eq!((spread.p50_us, spread.max_us), (40, 90));
        assert!(Spread::of(Vec::new()).is_none());
    }
}
