//! The command line of the load generator.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use queue_load::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint};

/// Loads a Queue Storage service and checks every answer.
///
/// Only operations with the expected status count; any other answer counts as an error.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// What to do.
    #[arg(long, value_enum)]
    pub(crate) op: Operation,

    /// Where the service is: `http://HOST:PORT/ACCOUNT`.
    #[arg(long, default_value = "http://127.0.0.1:10001/devstoreaccount1")]
    pub(crate) endpoint: String,

    /// The account that signs requests.
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    pub(crate) account: String,

    /// The account's key, in Base64.
    #[arg(long, default_value = DEVELOPMENT_KEY, hide_default_value = true)]
    pub(crate) key: String,

    /// The queue; created when it is absent.
    #[arg(long, default_value = "load")]
    pub(crate) queue: String,

    /// Connections, with one request in flight on each.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrency: u32,

    /// Threads of this program.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: u32,

    /// Length of the measurement in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,

    /// Seconds to run before the measurement, which are not counted.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) warmup: f64,

    /// Stop after this many operations (put, get, delete); 0 for no limit.
    #[arg(long, default_value_t = 0)]
    pub(crate) count: usize,

    /// Characters of message text.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(32..=65536))]
    pub(crate) size: u32,

    /// Messages that a get asks for; a cycle puts, gets and deletes as many.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) batch: u32,

    /// drain: leave each so many-th message in the queue, hidden; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub(crate) keep_every: usize,

    /// Visibility timeout of a get, in seconds.
    #[arg(long, default_value_t = 600)]
    pub(crate) visibility: u32,

    /// The protocol version to ask for.
    #[arg(long, default_value = Endpoint::DEFAULT_VERSION)]
    pub(crate) version: String,

    /// Also report CPU time and memory of this server process.
    #[arg(long)]
    pub(crate) pid: Option<u32>,

    /// put, cycle: append acknowledged operations to this file; verify: compare it with the queue.
    #[arg(long)]
    pub(crate) ledger: Option<PathBuf>,
}

/// What the load generator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Puts messages.
    Put,
    /// Gets messages, which stay in the queue, hidden.
    Get,
    /// Gets up to `--count` messages (10000 by default) unmeasured, then deletes them, measured.
    Delete,
    /// Puts, gets and deletes.
    Cycle,
    /// Gets and deletes until the queue is empty.
    Drain,
    /// Gets until the queue is empty; fails if the ledger shows a loss or a resurrection.
    Verify,
    /// Deletes every message of the queue.
    Clear,
}
