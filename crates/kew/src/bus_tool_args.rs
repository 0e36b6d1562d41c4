//! The arguments of `kew bus watch`, `sas`, `message export` and `message import`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::operate_args::{Common, FilterArgs};
use crate::queue_values::{bus_entity, bus_queue_name, duration};

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Queues, topics or subscriptions to watch [default: all queues and subscriptions]
    #[arg(value_parser = bus_queue_name)]
    pub(super) names: Vec<String>,
    /// Only queues and subscriptions whose names start with this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        conflicts_with = "names"
    )]
    pub(super) prefix: String,
    /// Time between two updates, at least 100ms
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(super) interval: Duration,
    /// Stop after this many updates
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct SasArgs {
    /// The queue, topic or subscription that the token gives access to [default: that of the connection string, or the namespace]
    #[arg(value_parser = bus_queue_name)]
    pub(super) queue: Option<String>,
    /// How long the token is valid
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub(super) expiry: Duration,
    /// Print the token alone instead of a connection string
    #[arg(long, conflicts_with = "json")]
    pub(super) token: bool,
    /// Connection string with the rule and the key that sign
    /// [env: KEW_BUS_CONNECTION_STRING, then SERVICEBUS_CONNECTION_STRING]
    /// [default: the emulator's rule at localhost, ports 5672 and 5300]
    ///
    /// The token allows what the rule allows. If the key is replaced, the token stops working. Other users of this
    /// machine can see command lines. Use the environment for secrets.
    #[arg(long, value_name = "STRING")]
    pub(super) connection_string: Option<String>,
    /// Print the token, the connection string and the expiry as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportMessagesArgs {
    /// The queue or subscription, or a sub-queue such as orders/$deadletterqueue
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// Export the dead letters of the queue
    #[arg(long)]
    pub(super) dead_letter: bool,
    /// Write to this file, which must not exist yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Stop after this many messages
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ImportMessagesArgs {
    /// The queue or topic
    #[arg(value_parser = bus_queue_name)]
    pub(super) queue: String,
    /// The file to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Begin with this line: to continue an import that stopped
    #[arg(long, value_name = "LINE", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) from_line: u64,
    /// Give each message a new message id, so that duplicate detection accepts it
    #[arg(long)]
    pub(super) new_ids: bool,
    /// Leave out the schedules of messages: all become active at once
    #[arg(long)]
    pub(super) now: bool,
    /// Check all lines, and send nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) common: Common,
}
