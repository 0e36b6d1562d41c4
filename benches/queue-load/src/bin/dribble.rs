//! `kew-dribble`: how much thousands of dribbling connections slow down honest clients.
//!
//! Honest clients put, get and delete, first alone and then beside the dribblers; the result is the
//! ratio of their slowest hundredth.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use queue_load::{Client, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Dribblers, Endpoint, PutOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

const QUEUE: &str = "dribble";

/// An answer that takes longer counts as missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures honest clients without and with dribbling connections beside them.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Where the service is: `http://HOST:PORT/ACCOUNT`.
    #[arg(long, default_value = "http://127.0.0.1:10001/devstoreaccount1")]
    endpoint: String,

    /// The account that signs requests.
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    account: String,

    /// The account's key, in Base64.
    #[arg(long, default_value = DEVELOPMENT_KEY, hide_default_value = true)]
    key: String,

    /// Dribbling connections.
    #[arg(long, default_value_t = 2000)]
    connections: usize,

    /// Honest clients.
    #[arg(long, default_value_t = 8)]
    clients: usize,

    /// Length of each of the two measurements, in seconds.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "kew-dribble: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every honest request was answered, and in no more than twice the time.
async fn run(options: Options) -> Result<bool> {
    let endpoint = Endpoint::new(&options.endpoint, &options.account, &options.key)
        .context("bad --endpoint or --key")?;
    let endpoint = Arc::new(endpoint);
    let mut client = Client::new(endpoint.clone());
    let created = client.create_queue(QUEUE, &[]).await;
    created.context("cannot create the queue")?;
    let seconds = Duration::from_secs_f64(options.seconds);
    let alone = honest(&endpoint, options.clients, seconds).await;
    let dribblers = Dribblers::start(&endpoint, QUEUE, options.connections);
    let beside = honest(&endpoint, options.clients, seconds).await;
    let ratio = beside.p99_ms() / alone.p99_ms().max(1e-9);
    let mut output = std::io::stdout().lock();
    writeln!(output, "alone: {alone}")?;
    writeln!(output, "beside {} dribblers: {beside}", options.connections)?;
    writeln!(output, "dribblers: {}", dribblers.tally())?;
    writeln!(output, "p99_ratio={ratio:.2}")?;
    Ok(alone.errors + beside.errors == 0 && ratio <= 2.0)
}

#[derive(Default)]
struct Measured {
    latencies: Vec<Duration>,
    errors: usize,
}

impl Measured {
    fn percentile_ms(&self, of_hundred: usize) -> f64 {
        let index = (self.latencies.len() * of_hundred / 100).min(self.latencies.len().max(1) - 1);
        let latency = self.latencies.get(index).copied().unwrap_or_default();
        latency.as_secs_f64() * 1000.0
    }

    fn p99_ms(&self) -> f64 {
        self.percentile_ms(99)
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "requests={} errors={} p50_ms={:.2} p99_ms={:.2}",
            self.latencies.len(),
            self.errors,
            self.percentile_ms(50),
            self.p99_ms()
        )
    }
}

async fn honest(endpoint: &Arc<Endpoint>, clients: usize, length: Duration) -> Measured {
    let end = Instant::now() + length;
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        tasks.spawn(cycle(Client::new(endpoint.clone()), end));
    }
    let mut all = Measured::default();
    while let Some(measured) = tasks.join_next().await {
        match measured {
            Ok(measured) => {
                all.latencies.extend(measured.latencies);
                all.errors += measured.errors;
            }
            Err(_) => all.errors += 1,
        }
    }
    all.latencies.sort_unstable();
    all
}

/// Puts, gets and deletes until the end.
async fn cycle(mut client: Client, end: Instant) -> Measured {
    let mut measured = Measured::default();
    while Instant::now() < end {
        let began = Instant::now();
        let put = client.put(QUEUE, "an honest message", PutOptions::default());
        measured.note(began, matches!(timeout(PATIENCE, put).await, Ok(Ok(_))));
        let began = Instant::now();
        let got = timeout(PATIENCE, client.get(QUEUE, 1, 60)).await;
        let Ok(Ok(messages)) = got else {
            measured.note(began, false);
            continue;
        };
        measured.note(began, true);
        for message in messages {
            let began = Instant::now();
            let receipt = message.receipt.map(|receipt| receipt.value);
            let receipt = receipt.unwrap_or_default();
            let delete = client.delete(QUEUE, &message.id, &receipt);
            measured.note(began, matches!(timeout(PATIENCE, delete).await, Ok(Ok(()))));
        }
    }
    measured
}

impl Measured {
    fn note(&mut self, began: Instant, is_answered: bool) {
        if is_answered {
            self.latencies.push(began.elapsed());
        } else {
            self.errors += 1;
        }
    }
}
