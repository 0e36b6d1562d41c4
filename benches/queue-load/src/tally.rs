//! The measured values, and how they are printed.

use std::fmt::Write as _;

use queue_load::percentile;

/// A measured kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Get,
    Delete,
}

impl Kind {
    const ALL: [(Kind, &str); 3] = [
        (Kind::Put, "put"),
        (Kind::Get, "get"),
        (Kind::Delete, "delete"),
    ];
}

/// The counts of one connection, or of several.
#[derive(Default)]
pub(crate) struct Tally {
    /// Microseconds of each acknowledged request of a kind.
    latencies: [Vec<u32>; 3],
    /// Microseconds of each cycle without an error.
    cycles: Vec<u32>,
    pub(crate) received_count: u64,
    pub(crate) empty_count: u64,
    pub(crate) error_count: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) ledger: Vec<String>,
}

impl Tally {
    pub(crate) fn acknowledge(&mut self, kind: Kind, latency_us: u32) {
        self.latencies[kind as usize].push(latency_us);
    }

    pub(crate) fn note_cycle(&mut self, latency_us: u32) {
        self.cycles.push(latency_us);
    }

    pub(crate) fn error(&mut self, what: String) {
        self.error_count += 1;
        self.first_error.get_or_insert(what);
    }

    pub(crate) fn absorb(&mut self, mut other: Tally) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&mut other.latencies) {
            mine.append(theirs);
        }
        self.cycles.append(&mut other.cycles);
        self.received_count += other.received_count;
        self.empty_count += other.empty_count;
        self.error_count += other.error_count;
        self.first_error = self.first_error.take().or(other.first_error);
        self.ledger.append(&mut other.ledger);
    }

    pub(crate) fn sort(&mut self) {
        for latencies in &mut self.latencies {
            latencies.sort_unstable();
        }
        self.cycles.sort_unstable();
    }

    pub(crate) fn request_count(&self) -> usize {
        self.latencies.iter().map(Vec::len).sum()
    }

    /// A line for each kind of request, and for whole cycles; the tally must be sorted.
    pub(crate) fn lines(&self, concurrency: u32, batch: u32, seconds: f64) -> Vec<String> {
        let kinds = Kind::ALL
            .into_iter()
            .map(|(kind, name)| (name, &self.latencies[kind as usize]));
        kinds
            .chain([("cycle", &self.cycles)])
            .filter(|(_, latencies)| !latencies.is_empty())
            .map(|(name, latencies)| {
                let count = latencies.len();
                let rank = |share| percentile(latencies, share);
                let mut line = format!(
                    "op={name} c={concurrency} batch={batch} ops={count} ops/s={:.0} p50_us={} \
                     p99_us={} p999_us={} max_us={}",
                    per_second(count as u64, seconds),
                    rank(0.5),
                    rank(0.99),
                    rank(0.999),
                    rank(1.0)
                );
                if name == "get" {
                    let rate = per_second(self.received_count, seconds);
                    write!(
                        line,
                        " msgs={} msgs/s={rate:.0} empty={}",
                        self.received_count, self.empty_count
                    )
                    .expect("writing to memory cannot fail");
                }
                line
            })
            .collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_has_a_line_and_is_no_request() {
        let mut tally = Tally::default();
        for (kind, _) in Kind::ALL {
            tally.acknowledge(kind, 10);
        }
        tally.received_count = 2;
        tally.note_cycle(35);
        tally.sort();
        assert_eq!(tally.request_count(), 3);
        let lines = tally.lines(1, 1, 1.0);
        let heads: Vec<&str> = lines.iter().filter_map(|it| it.split(' ').next()).collect();
        assert_eq!(heads, ["op=put", "op=get", "op=delete", "op=cycle"]);
        assert!(lines[1].contains(" msgs=2 "), "{}", lines[1]);
        assert!(lines[3].contains(" max_us=35"), "{}", lines[3]);
    }
}
