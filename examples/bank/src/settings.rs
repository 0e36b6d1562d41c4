//! The settings that the programs share, and their defaults. Each is an argument and an environment variable.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::queue::{ConnectError, Queue};

/// Where the web service listens.
pub const LISTEN: &str = "127.0.0.1:8080";

/// The address of the web service, for callers.
pub const WEB: &str = "http://127.0.0.1:8080";

/// Where the data is.
#[derive(Clone, Debug, Args)]
pub struct Places {
    /// Folder for the data of the bank. It is created if it does not exist.
    #[arg(long, env = "BANK_DATA", default_value = "bank-data")]
    pub data: String,
    /// The stores: the path of a SQLite file, or postgres://user:password@host/database. Default: bank.sqlite in the
    /// folder for data.
    #[arg(long, env = "BANK_STORE", hide_env_values = true)]
    pub store: Option<String>,
}

/// The file with confirmed transactions, which `bank check` compares with the stores.
#[derive(Clone, Debug, Args)]
pub struct Journal {
    /// File with the confirmed transactions, which replays add to. Default: journal in the folder for data.
    #[arg(long, env = "BANK_JOURNAL")]
    journal: Option<PathBuf>,
}

/// The queue, wherever it is.
#[derive(Clone, Debug, Args)]
pub struct QueueSettings {
    /// Name of the queue. It is created if it does not exist.
    #[arg(long, env = "BANK_QUEUE", default_value = "bank-transactions")]
    pub queue: String,
    /// Seconds that a worker may have a message before another one gets it. Queue Storage: 1 at least. Service Bus: 5 at
    /// least, 300 at most, and equal to the lock duration of the queue. All programs need the same.
    #[arg(
        long,
        env = "BANK_WORKER_TIMEOUT_S",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=7200)
    )]
    pub worker_timeout_s: u32,
}

/// The queue and the service that has it.
#[derive(Clone, Debug, Args)]
pub struct ServiceSettings {
    /// Connection string of Queue Storage or Service Bus. It decides which of the two has the queue.
    #[arg(
        long,
        env = "BANK_QUEUE_SERVICE",
        default_value = "UseDevelopmentStorage=true",
        hide_env_values = true
    )]
    pub queue_service: String,
    /// The queue.
    #[command(flatten)]
    pub queue: QueueSettings,
}

/// What the web service and the workers need.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The queue.
    #[command(flatten)]
    pub service: ServiceSettings,
    /// The stores.
    #[command(flatten)]
    pub places: Places,
}

impl Places {
    /// The stores, as [`Ledger::open`](crate::ledger::Ledger::open) takes them.
    pub fn store(&self) -> String {
        let in_folder = || format!("{}/bank.sqlite", self.data);
        self.store.clone().unwrap_or_else(in_folder)
    }
}

impl Journal {
    /// Its file.
    pub fn path(&self, places: &Places) -> PathBuf {
        let in_folder = || Path::new(&places.data).join("journal");
        self.journal.clone().unwrap_or_else(in_folder)
    }

    /// Of the folder for data.
    pub fn in_folder() -> Self {
        Self { journal: None }
    }
}

impl ServiceSettings {
    /// The queue. Connects to nothing yet.
    pub fn queue(&self) -> Result<Queue, ConnectError> {
        let timeout = Duration::from_secs(self.queue.worker_timeout_s.into());
        Queue::connect(&self.queue_service, &self.queue.queue, timeout)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        places: Places,
        #[command(flatten)]
        journal: Journal,
    }

    fn read(arguments: &[&str]) -> (String, PathBuf) {
        let all = ["bank"].iter().chain(arguments);
        let Arguments { places, journal } = Arguments::parse_from(all);
        (places.store(), journal.path(&places))
    }

    #[test]
    fn stores_and_journal_are_in_the_folder_for_data() {
        let (store, journal) = read(&["--data", "d"]);
        assert_eq!(
            (store.as_str(), journal),
            ("d/bank.sqlite", "d/journal".into())
        );
        let (store, journal) = read(&["--store", "postgres://h/b", "--journal", "j"]);
        assert_eq!((store.as_str(), journal), ("postgres://h/b", "j".into()));
    }

    #[test]
    fn callers_call_where_the_web_service_listens() {
        assert_eq!(WEB, format!("http://{LISTEN}"));
    }
}
