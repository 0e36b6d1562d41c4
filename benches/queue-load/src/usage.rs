//! Values that load generators report: CPU time and memory of a process, read from `/proc`, and
//! percentiles.

/// The usage of a process so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time together.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_mib: f64,
}

impl Usage {
    /// Reads the usage of process `pid`; `None` when there is no such process or no `/proc`.
    pub fn of(pid: u32) -> Option<Self> {
        // The kernel shows these times in hundredths of a second on every architecture.
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: f64 = resident.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            resident_mib: kib / 1024.0,
        })
    }
}

/// The smallest value that is not below a `share` of all values.
///
/// Panics if there are none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rank lies between 0 and the count"
)]
pub fn percentile<T: Copy>(sorted: &[T], share: f64) -> T {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u32> = (1..=1000).collect();
        let ranks = [0.5, 0.99, 0.999, 1.0].map(|share| percentile(&values, share));
        assert_eq!(ranks, [500, 990, 999, 1000]);
        assert_eq!(percentile(&[7], 0.01), 7);
    }
}
