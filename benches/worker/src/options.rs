//! The command line.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures a listener, or a loop written by hand, and prints one line of JSON.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) mode: Mode,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Where Kew listens. It has the queues of `kew-bus-load config`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// Its address for Queue Storage.
    #[arg(long, global = true, default_value = "127.0.0.1:10001")]
    pub(crate) queue_address: SocketAddr,

    /// Its address for Service Bus.
    #[arg(long, global = true, default_value = "127.0.0.1:5672")]
    pub(crate) bus_address: SocketAddr,
}

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Mode {
    /// Fills a queue, and drains it as fast as possible.
    Drain(Drain),
    /// The time from an announcement to an idle listener until its handler begins.
    Wake(Wake),
    /// The requests that Kew answers while the queue is empty.
    Idle(Idle),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Drain {
    /// The service.
    #[arg(long, value_enum)]
    pub(crate) service: Service,

    /// Who drains.
    #[arg(long, value_enum)]
    pub(crate) by: Drainer,

    /// Messages. The first and the last tenth are not measured.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..))]
    pub(crate) count: u64,

    /// Bytes of body.
    #[arg(long, default_value_t = 1_024)]
    pub(crate) size: usize,

    /// Requests in progress of Queue Storage, each on a connection; dequeue tasks of a listener.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) concurrency: u32,

    /// Messages of one receive. Concurrency times batch is the most that a client holds.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) batch: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Wake {
    /// The service.
    #[arg(long, value_enum)]
    pub(crate) service: Service,

    /// How the listener hears of work.
    #[arg(long, value_enum)]
    pub(crate) push: Push,

    /// Announcements, one after another.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Idle {
    /// Who waits for messages of Queue Storage.
    #[arg(long, value_enum)]
    pub(crate) by: Waiter,

    /// Dequeue tasks at the beginning.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) tasks: u32,

    /// The length of the measurement, after the listener has become idle.
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,
}

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// Queue Storage.
    Queue,
    /// Service Bus.
    Bus,
}

/// Who drains a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drainer {
    /// A loop on the client of the load generator.
    Loop,
    /// A listener with an empty handler.
    Listener,
}

/// How announcements reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Push {
    /// Within the process.
    Local,
    /// Over a queue of Service Bus.
    Bus,
}

/// Who waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Waiter {
    /// One receive a second and task.
    Loop,
    /// A listener with the default back-off.
    BackOff,
    /// A listener with push.
    Push,
}
