//! Measures what saves requests of Queue Storage, one saving after the other, and what push costs.
//!
//! Requests are those that Kew answered. Each measurement is a row: without the saving, and with it.

mod counting;
mod push;
mod requests;
mod savings;

use std::path::Path;
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context as _, Result, bail};

pub use self::requests::requests;
use crate::program::print_line;
use crate::start::{Plan, Program};

/// Dollars for a request: $0.01 for 10,000.
const PRICE: f64 = 0.01 / 10_000.0;

/// The idle seconds of a month in the document: 22 hours of each of 30 days.
const IDLE_SECONDS_OF_A_MONTH: f64 = 22.0 * 3_600.0 * 30.0;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Transactions of the measurements under load.
    pub transactions: u32,
    /// Length of each measurement of idle programs.
    pub idle: Duration,
}

/// What a measurement found.
#[derive(Clone, Debug, Default)]
struct Row {
    name: String,
    /// Requests to Queue Storage.
    requests: u64,
    /// How long it took.
    took: Duration,
    /// Transactions that were handled, if any.
    transactions: u64,
    /// Under load, until half of the transactions were handled. After an idle time, from the put of a message until a
    /// handler has it.
    latency: Duration,
    /// After an idle time, messages a second of those that came at once then.
    afterwards: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, requests) = (&self.name, self.requests);
        let seconds = self.took.as_secs_f64();
        let latency = self.latency;
        // Counts are far below 2^53.
        #[expect(clippy::cast_precision_loss, reason = "counts of requests are small")]
        let (dollars, rate) = match self.transactions {
            0 => {
                let a_second = requests as f64 / seconds;
                (a_second * IDLE_SECONDS_OF_A_MONTH * PRICE, self.afterwards)
            }
            count => (
                requests as f64 / count as f64 * 1e6 * PRICE,
                count as f64 / seconds,
            ),
        };
        let unit = match self.transactions {
            0 => "a month of 22 idle hours a day",
            _ => "a million transactions",
        };
        let digits = if dollars < 0.1 { 4 } else { 2 };
        write!(
            f,
            "| {name} | {requests} in {seconds:.1} s | ${dollars:.digits$} for {unit} | {latency:.0?} | {rate:.0}/s |"
        )
    }
}

fn show(row: &Row) {
    print_line(&row.to_string());
}

/// In a folder of measurements.
const MARK: &str = "measured";

/// Refuses a folder with other data: measurements delete what waits in their queues.
fn claim(data: &Path) -> Result<()> {
    fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let mark = data.join(MARK);
    let mut found =
        fs::read_dir(data).with_context(|| format!("cannot read {}", data.display()))?;
    if found.next().is_some() && !mark.exists() {
        bail!(
            "{} has other data, which a measurement would delete: name another folder with --data",
            data.display()
        );
    }
    fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))
}

/// Measures everything against a Kew of its own, and prints a table.
pub async fn measure(plan: &Plan, options: Options) -> Result<()> {
    claim(&plan.data)?;
    let (kew, services) = plan.kew().await?;
    let measured = run(plan, &kew, &services, options).await;
    kew.stop().await?;
    measured
}

async fn run(
    plan: &Plan,
    kew: &Program,
    services: &crate::start::Services,
    options: Options,
) -> Result<()> {
    let address = kew.fact("KEW_QUEUE_LISTEN")?.parse()?;
    print_line("| what | requests of Queue Storage | dollars | latency | throughput |");
    print_line("| --- | --- | --- | --- | --- |");
    savings::measure(plan, services, address, options).await?;
    print_line("");
    push::measure(services, options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_data_is_not_touched() {
        let place = tempfile::tempdir().unwrap();
        let new = place.path().join("new");
        claim(&new).unwrap();
        fs::write(new.join("scale.toml"), "").unwrap();
        claim(&new).unwrap();
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("journal"), "1").unwrap();
        let refused = claim(&other).unwrap_err().to_string();
        assert!(
            refused.ends_with("name another folder with --data"),
            "{refused}"
        );
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    }

    /// The document's figures: 79,200 empty requests in 22 hours are $2.38 a month.
    #[test]
    fn a_row_has_requests_dollars_latency_and_throughput() {
        let idle = Row {
            name: "idle".to_owned(),
            requests: 60,
            took: Duration::from_secs(60),
            latency: Duration::from_millis(216),
            afterwards: 800.4,
            ..Row::default()
        };
        let expected =
            "| idle | 60 in 60.0 s | $2.38 for a month of 22 idle hours a day | 216ms | 800/s |";
        assert_eq!(idle.to_string(), expected);
        let load = Row {
            name: "load".to_owned(),
            requests: 30_010,
            took: Duration::from_secs(20),
            transactions: 10_000,
            latency: Duration::from_secs(9),
            ..Row::default()
        };
        let expected = "| load | 30010 in 20.0 s | $3.00 for a million transactions | 9s | 500/s |";
        assert_eq!(load.to_string(), expected);
    }
}
