//! The threads that drive a partition: wait, feed, drain, answer.
//!
//! One thread decides and commits, inline: a single request in flight costs one wake-up of the runner and
//! one of the caller. Requests that come in during a sync make up the next batch. More threads do slow
//! work: one prepares segments, which every request may come to wait for, one writes snapshots, which they wait for
//! if memory is short, and three read what commands wait for, or are likely to need soon. The partition decides what to do and when.
//!
//! The runner has one of two roles. It *owns* the log, and drives a partition ([`owner`]). When another process has taken
//! the log over, it *follows* it ([`following`]) until it is told to own it again. Nothing of one role lives on in the next:
//! the state, which has decisions that were perhaps never agreed, is dropped, and no log is opened before the last job of
//! the log before is back.

mod following;
mod last_will;
mod mailbox;
mod owner;
mod scrubber;
mod space;
mod turn_clock;
mod workers;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use kew_engine::Timestamp;
use kew_log::{LogSource, Recovery};
use tokio::sync::watch;

use self::last_will::LastWill;
pub use self::mailbox::Standing;
use self::mailbox::Ticket;
pub(crate) use self::mailbox::{Opening, ReportOf, Shared};
use self::owner::Owner;
use self::scrubber::Scrubber;
use self::workers::Workers;
use crate::metrics::Instruments;
use crate::{BrokerOptions, ClockReading, Failure, Partition, PartitionOptions, Spent, StartError};

/// Longer than any wait that ends by itself.
const DAY: Duration = Duration::from_secs(86_400);

/// A partition that runs.
pub(crate) struct Started {
    pub(crate) shared: Arc<Shared>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) recovery: Recovery,
}

/// Opens the partition as its owner and starts its threads.
pub(crate) fn start(
    source: Arc<dyn LogSource>,
    options: BrokerOptions,
    failed: watch::Sender<Option<Failure>>,
) -> Result<Started, StartError> {
    let secret = random()?;
    let began = Instant::now();
    let (partition, recovery) =
        Partition::open_from(&*source, options.partition.clone(), secret, wall())?;
    let instruments = Instruments::new(began.elapsed(), &recovery, partition.state());
    let shared = Arc::new(Shared::new(options.admission, instruments, recovery.epoch));
    let (workers, mut threads) = Workers::start(&shared)?;
    let runner = Runner {
        source,
        options: options.partition,
        secret,
        shared: Arc::clone(&shared),
        workers,
        stop_patience: options.stop_patience,
        failed,
    };
    let scrubber = runner.start_scrub()?;
    threads.push(spawn("kew-runner", move || {
        runner.run(Box::new(partition), scrubber);
    })?);
    Ok(Started {
        shared,
        threads,
        recovery,
    })
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| StartError::System {
        what: "random bytes",
        source: error.into(),
    })?;
    Ok(bytes)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let builder = thread::Builder::new().name(name.into());
    builder.spawn(run).map_err(|source| StartError::System {
        what: "a thread",
        source,
    })
}

/// What a runner has in each role.
struct Runner {
    source: Arc<dyn LogSource>,
    options: PartitionOptions,
    /// Of a new partition.
    secret: [u8; 16],
    shared: Arc<Shared>,
    workers: Workers,
    /// How long a stop waits for other machines.
    stop_patience: Duration,
    failed: watch::Sender<Option<Failure>>,
}

impl Runner {
    /// Drives the partition until the stop, or until it fails.
    fn run(mut self, mut partition: Box<Partition<Ticket>>, mut scrubber: Option<Scrubber>) {
        let _last_will = LastWill {
            shared: self.shared.clone(),
            failed: self.failed.clone(),
        };
        while let Some(end) = Owner::begin(&mut self, partition, scrubber).run() {
            partition = match self.follow(end) {
                Some(owned) => owned,
                None => return,
            };
            scrubber = match self.start_scrub() {
                Ok(scrubber) => scrubber,
                Err(error) => {
                    tracing::error!(error = %error, "there is no scrub until the next start");
                    None
                }
            };
        }
    }

    /// The scrub of an opening of the log, if there is to be one.
    fn start_scrub(&self) -> Result<Option<Scrubber>, StartError> {
        match self.options.scrub_bytes_per_second {
            0 => Ok(None),
            rate => Scrubber::start(&self.shared, rate).map(Some),
        }
    }

    fn fail_for_want_of_a_worker(&self) {
        tracing::error!("a thread of the log has died: the partition stops");
        self.failed.send_replace(Some(Failure::of_a_bug()));
    }
}

fn wall() -> Timestamp {
    Timestamp::from_ms(read_clocks().wall_us / 1000)
}

/// The processor time that this thread has used. What other programs and other guests of the host took is not in it.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// What this thread has spent, by the two clocks of turns.
fn spent() -> Spent {
    let elapsed = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Spent {
        elapsed: Duration::try_from(elapsed).unwrap_or_default(),
        on_processor: processor_time(),
    }
}

/// Reads the machine's clocks.
fn read_clocks() -> ClockReading {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // Only Linux has a clock under this name that also counts suspended time. The monotonic clock of macOS
    // does so by itself.
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let boot = rustix::time::clock_gettime(clock);
    let boot_us = u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(boot.tv_nsec).unwrap_or(0) / 1000;
    ClockReading {
        wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
        boot_us,
    }
}
