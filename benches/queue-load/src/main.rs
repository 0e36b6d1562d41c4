//! `kew-queue-load`: puts load on a Queue Storage service and finds lost messages after a crash.

mod ledger;
mod options;
mod tally;
mod worker;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser as _;
use queue_load::{Client, Endpoint, Usage};
use tokio::runtime::Builder;

use crate::options::{Operation, Options};
use crate::worker::Run;

fn main() -> ExitCode {
    start(Options::parse()).unwrap_or_else(|error| {
        // One line: a backtrace would hide what went wrong.
        let _ = writeln!(std::io::stderr(), "kew-queue-load: {error:#}");
        ExitCode::FAILURE
    })
}

fn start(options: Options) -> Result<ExitCode> {
    let runtime = match options.threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread()
            .worker_threads(threads as usize)
            .enable_all()
            .build(),
    };
    runtime
        .context("cannot start the runtime")?
        .block_on(run(options))
}

async fn run(options: Options) -> Result<ExitCode> {
    let endpoint = Endpoint::new(&options.endpoint, &options.account, &options.key)
        .context("bad --endpoint or --key")?
        .with_version(&options.version);
    let endpoint = Arc::new(endpoint);
    let mut client = Client::new(endpoint.clone());
    client
        .create_queue(&options.queue, &[])
        .await
        .context("cannot create the queue")?;
    match options.op {
        Operation::Clear => {
            client
                .clear(&options.queue)
                .await
                .context("cannot clear the queue")?;
            Ok(ExitCode::SUCCESS)
        }
        Operation::Verify => verify(options, endpoint).await,
        Operation::Put
        | Operation::Get
        | Operation::Delete
        | Operation::Cycle
        | Operation::Drain => measure(options, endpoint).await,
    }
}

async fn verify(options: Options, endpoint: Arc<Endpoint>) -> Result<ExitCode> {
    let path = options.ledger.clone().context("verify needs --ledger")?;
    let now = Instant::now();
    let run = Arc::new(Run::new(options, endpoint, (now, now), Vec::new()));
    let held = run
        .drain(usize::MAX)
        .await
        .map_err(|error| anyhow!(error))?;
    let markers: Vec<String> = held.into_iter().map(|held| held.marker).collect();
    let verdict = ledger::verify(&path, &markers)?;
    print(&[verdict.to_string()])?;
    Ok(if verdict.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn measure(options: Options, endpoint: Arc<Endpoint>) -> Result<ExitCode> {
    let mut held = Vec::new();
    if options.op == Operation::Delete {
        let now = Instant::now();
        let max = if options.count == 0 {
            10_000
        } else {
            options.count
        };
        let run = Run::new(options.clone(), endpoint.clone(), (now, now), Vec::new());
        held = Arc::new(run)
            .drain(max)
            .await
            .map_err(|error| anyhow!(error))?;
    }

    let server_before = options.pid.and_then(Usage::of);
    let own_before = Usage::of(std::process::id());
    let start = Instant::now();
    let begins = start + Duration::from_secs_f64(options.warmup);
    let ends = begins + Duration::from_secs_f64(options.seconds);
    let run = Arc::new(Run::new(options.clone(), endpoint, (begins, ends), held));
    let tally = run.load().await;
    let whole = start.elapsed().as_secs_f64();
    let measured = begins.elapsed().as_secs_f64().max(1e-9);

    // CPU time is read over warm-up and measurement together, so it is scaled to the latter.
    let request_count = tally.request_count();
    let request_rate = tally::per_second(request_count as u64, measured);
    let micros_per_request = |cpu_seconds: f64| 1e6 * cpu_seconds / whole / request_rate.max(1e-9);
    let mut total = format!(
        "total op={:?} requests={request_count} requests/s={request_rate:.0} errors={} seconds={measured:.2}",
        options.op, tally.error_count
    );
    if let (Some(before), Some(after)) = (own_before, Usage::of(std::process::id())) {
        let micros = micros_per_request(after.cpu_seconds - before.cpu_seconds);
        total += &format!(" client_cpu_us={micros:.1}");
    }
    if let (Some(before), Some(after)) = (server_before, options.pid.and_then(Usage::of)) {
        let seconds = after.cpu_seconds - before.cpu_seconds;
        total += &format!(
            " server_cpu_us={:.1} server_cores={:.2} server_rss_mib={:.1}",
            micros_per_request(seconds),
            seconds / whole,
            after.resident_mib
        );
    }

    let mut lines = tally.lines(options.concurrency, options.batch, measured);
    lines.push(total.to_lowercase());
    lines.extend(
        tally
            .first_error
            .iter()
            .map(|error| format!("first error: {error}")),
    );
    print(&lines)?;
    if let Some(path) = &options.ledger {
        ledger::append(path, &tally.ledger)?;
    }
    let clean = tally.error_count == 0 && request_count > 0;
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the results, which is the purpose of this program.
fn print(lines: &[String]) -> Result<()> {
    let mut output = std::io::stdout().lock();
    for line in lines {
        writeln!(output, "{line}")?;
    }
    output.flush()?;
    Ok(())
}
