//! The arguments of `kew export` and `kew import`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::queue_values::{duration, whole_seconds};

/// The services, and the form of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ServicesArgs {
    /// Connection string of an account of Queue Storage or of a namespace of Service Bus, in the form of the
    /// SDKs; pass it twice to name one of each
    /// [default: both, as kew queue and kew bus find them]
    ///
    /// Its rule needs the right Manage for the namespace. Other users of this machine can see command lines. Use
    /// the environment for secrets: KEW_CONNECTION_STRING, AZURE_STORAGE_CONNECTION_STRING,
    /// KEW_BUS_CONNECTION_STRING, SERVICEBUS_CONNECTION_STRING.
    #[arg(long, value_name = "STRING")]
    pub(crate) connection_string: Vec<String>,

    /// Also trust the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,

    /// Print the report and errors as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Time limit for each operation
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// How often to retry what certainly changed nothing, when the server is busy or unreachable
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) retries: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Only this queue with its dead letters, this topic with its subscriptions, or this subscription with the
    /// definition of its topic (TOPIC/subscriptions/NAME); repeat it for several
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Vec<String>,
    /// Write to this file, which must not exist yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the definitions of queues, topics, subscriptions and rules, and no messages and states of sessions
    #[arg(long)]
    pub(crate) definitions_only: bool,
    /// Write the keys of authorization rules of queues and topics too. Everyone who reads the file can then use them
    #[arg(long)]
    pub(crate) with_keys: bool,
    /// Receive the messages of a queue of Queue Storage that has more than can be peeked at. It hides them, and
    /// their dequeue counts rise
    #[arg(long)]
    pub(crate) receive: bool,
    /// With --receive, hide the messages for this long. It must be longer than the export of a queue takes
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = whole_seconds, requires = "receive")]
    pub(crate) visibility: u32,
    #[command(flatten)]
    pub(crate) services: ServicesArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only this queue, this topic with its subscriptions, or this subscription with the definition of its topic
    /// (TOPIC/subscriptions/NAME); repeat it for several
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Vec<String>,
    /// Check all lines, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Add the messages to what the queues hold. Without this flag, messages that an earlier import of the same
    /// file has sent are left out, and a queue with other messages is refused
    #[arg(long)]
    pub(crate) append: bool,
    #[command(flatten)]
    pub(crate) services: ServicesArgs,
}
