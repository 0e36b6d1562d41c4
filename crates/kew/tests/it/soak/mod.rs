//! A soak: both protocols at one server for as long as `KEW_FLAT_SECONDS` says, at a steady rate and over a steady
//! backlog, most of which is on pages alone. Resident memory, open descriptors and bytes on disk must stay flat.
//!
//! The load is the same at all times: messages of both services arrive and leave at the same rate, some of them hidden,
//! scheduled or dead-lettered meanwhile, and once in each period queues are created, filled, cleared or purged, and
//! deleted, by clients that connect anew. So growth is a leak, and no other test runs long enough to see
//! one. What the messages say is checked by the loads of the other tests, and not here.

mod buses;
mod queues;
mod sample;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kew_client::Error;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::bus::metric;
use crate::bus_load::Door;
use crate::load::{self, from_environment, stop_in_order};
use crate::server::{Server, show};

/// Within `./test` it shows only that the soak works. `proof/run` asks for 1,800.
const SECONDS_DEFAULT: u64 = 10;

/// Messages of each service that arrive in a second, and as many that leave.
const RATE: u64 = 400;

/// Messages of each service that wait while the load runs.
const BACKLOG: u64 = 20_000;

/// The same within `./test`.
const BACKLOG_SMALL: u64 = 2_000;

/// How often clients send: each sends as many messages as the rate says.
const TICK: Duration = Duration::from_millis(100);

/// A machine that stands still once costs each part of the load one error.
const ERRORS_MAX: u64 = 100;

/// How many samples there are, whatever the time.
const SAMPLES: u32 = 300;

/// The time between two samples at least, and at most.
const SAMPLED_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What all clients of the load share.
#[derive(Clone)]
struct Pace {
    is_over: Arc<AtomicBool>,
    /// Messages that arrived, of each service.
    of_storage: Arc<AtomicU64>,
    of_bus: Arc<AtomicU64>,
    /// How often a part of the load began anew.
    errors: Arc<AtomicU64>,
    /// How often the queues that come and go do so.
    period: Duration,
}

impl Pace {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Runs a part of the load until the end. It begins anew after an error: when a machine stands still for a while,
    /// connections and locks are lost. There may be few of them.
    async fn keep_up<F>(&self, part: impl Fn() -> F)
    where
        F: Future<Output = Result<(), Error>>,
    {
        while self.goes_on() {
            if let Err(error) = part().await {
                show(&format!("a part of the load begins anew: {error}"));
                self.errors.fetch_add(1, Relaxed);
                tokio::time::sleep(TICK).await;
            }
        }
    }

    /// A clock that makes up for no tick that was late: a burst would not be a steady load.
    fn clock(every: Duration) -> Interval {
        let mut clock = interval(every);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        clock
    }

    /// How many messages of each service a tick sends.
    fn count() -> u64 {
        RATE * u64::try_from(TICK.as_millis()).unwrap_or(u64::MAX) / 1000
    }
}

/// The body of a message: most are small, some of 8 KiB, few of 40 KiB.
fn body(number: u64) -> String {
    let size = match number % 100 {
        0 => 40 << 10,
        1..=10 => 8 << 10,
        _ => 200,
    };
    format!("{number} {}", "x".repeat(size))
}

fn start(data_dir: &Path) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--bus-listen", "127.0.0.1:0"]);
        command.args(["--metrics-listen", "127.0.0.1:0"]);
        // So little that most of the backlog is on pages alone, and is read from them again.
        command.args(["--resident-memory", "1"]);
    })
}

#[test]
fn memory_descriptors_and_disk_stay_flat() {
    let wanted = from_environment("KEW_FLAT_SECONDS");
    let length = Duration::from_secs(wanted.unwrap_or(SECONDS_DEFAULT));
    let place = tempfile::tempdir().expect("a temporary directory");
    // Other tests run beside this one if it is not the one that was asked for: they may slow the load down.
    let (backlog, rate_min) = match wanted {
        Some(_) => (BACKLOG, RATE * 4 / 5),
        None => (BACKLOG_SMALL, 1),
    };
    load::run(soak(place.path(), length, backlog, rate_min));
}

async fn soak(data_dir: &Path, length: Duration, backlog: u64, rate_min: u64) {
    let server = start(data_dir);
    let pace = Pace {
        is_over: Arc::default(),
        of_storage: Arc::default(),
        of_bus: Arc::default(),
        errors: Arc::default(),
        period: (length / 100).max(Duration::from_secs(1)),
    };
    let door = Door::of(&server);
    let account = server.account();
    queues::prepare(&account, backlog).await;
    buses::prepare(&door, backlog).await;
    let mut clients = JoinSet::new();
    clients.spawn(queues::steady(account.clone(), pace.clone()));
    clients.spawn(queues::come_and_go(account, pace.clone()));
    clients.spawn(buses::run(door, pace.clone()));

    let samples = sampled(&server, data_dir, length, &mut clients).await;
    let of_pages = ["kew_partition_cold_runs", "kew_partition_loads_total"];
    let of_pages = of_pages.map(|name| metric(&server, name, &[]));
    pace.is_over.store(true, Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client of the load ends well");
    }
    let (table, grown) = sample::judge(&samples);
    let last = samples.last().expect("there are samples").at;
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let pause = pairs.map(|(one, next)| next.at - one.at).max();
    let errors = pace.errors.load(Relaxed);
    show(&format!(
        "soak_of_both: {errors} errors, {} ms between two samples at most",
        pause.unwrap_or_default().as_millis()
    ));
    table.iter().for_each(|line| show(line));
    let rate_of = |name: &str, count: &AtomicU64| {
        let count = count.load(Relaxed);
        let rate = u128::from(count) * 1000 / last.as_millis().max(1);
        show(&format!(
            "soak_of_{name}: {count} messages in {} s, {rate} a second of {RATE}, over {backlog}",
            last.as_secs()
        ));
        rate
    };
    let rates = [
        rate_of("storage", &pace.of_storage),
        rate_of("bus", &pace.of_bus),
    ];
    let [cold_runs, loads] = of_pages;
    show(&format!(
        "soak_of_pages: {cold_runs} runs on pages alone, {loads} loads"
    ));
    assert!(
        backlog < BACKLOG || cold_runs > 0.0 && loads > 0.0,
        "the load did not reach pages"
    );
    assert!(grown.is_empty(), "not flat: {}", grown.join("; "));
    assert!(errors <= ERRORS_MAX, "{errors} errors are no steady load");
    assert!(
        rates.iter().all(|&rate| rate >= u128::from(rate_min)),
        "the load was not the stated one: {rates:?} a second"
    );
    stop_in_order(server).await;
}

/// Samples until the time is over. A client that ends before that has failed.
async fn sampled(
    server: &Server,
    data_dir: &Path,
    length: Duration,
    clients: &mut JoinSet<()>,
) -> Vec<sample::Sample> {
    let (least, most) = SAMPLED_EVERY;
    let mut clock = Pace::clock((length / SAMPLES).clamp(least, most));
    let begun = Instant::now();
    let mut samples = Vec::new();
    while begun.elapsed() < length {
        tokio::select! {
            _ = clock.tick() => {}
            ended = clients.join_next() => panic!("a client of the load ended: {ended:?}"),
        }
        samples.push(sample::take(begun.elapsed(), server.pid(), data_dir));
    }
    samples
}
