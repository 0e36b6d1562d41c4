//! The settings that the programs share. Each is an argument and an environment variable.

use std::time::Duration;

use clap::Args;

use crate::queue::{ConnectError, Queue};

/// Where the queue and the stores are.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Connection string of Queue Storage or Service Bus. It decides which of the two has the queue.
    #[arg(
        long,
        env = "BANK_QUEUE_SERVICE",
        default_value = "UseDevelopmentStorage=true",
        hide_env_values = true
    )]
    pub queue_service: String,
    /// Name of the queue. It is created if it does not exist.
    #[arg(long, env = "BANK_QUEUE", default_value = "bank-transactions")]
    pub queue: String,
    /// The stores: the path of a SQLite file, or postgres://user:password@host/database.
    #[arg(
        long,
        env = "BANK_STORE",
        default_value = "bank.sqlite",
        hide_env_values = true
    )]
    pub store: String,
    /// Seconds that a worker may have a message before another one gets it. Queue Storage: 1 at least. Service Bus: 5 at
    /// least, 300 at most, and equal to the lock duration of the queue. All programs need the same.
    #[arg(
        long,
        env = "BANK_WORKER_TIMEOUT_S",
        default_value_t = Self::WORKER_TIMEOUT_S,
        value_parser = clap::value_parser!(u32).range(1..=7200)
    )]
    pub worker_timeout_s: u32,
}

impl Settings {
    /// The default of the worker's timeout.
    pub const WORKER_TIMEOUT_S: u32 = 20;

    /// The queue. Connects to nothing yet.
    pub fn queue(&self) -> Result<Queue, ConnectError> {
        let timeout = Duration::from_secs(self.worker_timeout_s.into());
        Queue::connect(&self.queue_service, &self.queue, timeout)
    }
}
