//! What can be asked of `kew queue`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::flags::Yes;
use crate::queue_values::{
    duration, message_part, metadata_pair, queue_name, time_to_live, whole_seconds,
};

/// `kew queue` with what all its commands share.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct CommonArgs {
    /// Which service to ask, in the form of the SDKs, or as a URL with a shared access signature
    /// [env: KEW_CONNECTION_STRING, then AZURE_STORAGE_CONNECTION_STRING]
    /// [default: the well-known account at 127.0.0.1:10001]
    ///
    /// Others on this machine can see what is on a command line: prefer the environment for secrets.
    #[arg(long, global = true, value_name = "STRING")]
    pub(crate) connection_string: Option<String>,

    /// Certificate authorities to trust beside those of the system, in PEM
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,

    /// Print JSON: an object or an array, and errors as objects too
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// How long one try of a request may take
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// How often a request is tried again when the service is busy or not there
    #[arg(long, global = true, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) retries: u32,

    /// Whether to show progress of long work on standard error; auto: if it is a terminal
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues by name
    List(ListArgs),
    /// Create a queue
    Create(CreateArgs),
    /// Delete a queue with all its messages
    Delete(DeleteArgs),
    /// Send messages: from an argument, a file or standard input
    #[command(visible_alias = "put")]
    Send(SendArgs),
    /// Receive messages; each is hidden from others for a while, or deleted with --delete
    #[command(visible_alias = "get")]
    Receive(ReceiveArgs),
    /// Look at messages without receiving them
    Peek(PeekArgs),
    /// Hide a received message for longer, show it again, or replace its text
    Update(UpdateArgs),
    /// Delete a message that was received: its work is done
    #[command(visible_alias = "complete")]
    DeleteMessage(DeleteMessageArgs),
    /// Delete all messages of a queue and keep the queue
    #[command(visible_alias = "clear")]
    Purge(PurgeArgs),
    /// Show a queue's counts, metadata and next message; without a name, those of the service
    #[command(visible_alias = "stats")]
    Show(ShowArgs),
    /// Watch counts and rates until Ctrl-C
    Watch(WatchArgs),
    /// Print a URL with a shared access signature, made from the account key: nobody is asked
    Sas(SasArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only queues whose names begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,
    /// Show metadata
    #[arg(long)]
    pub(crate) metadata: bool,
    /// Show how many messages each has, hidden ones included: one more request a queue
    #[arg(long)]
    pub(crate) counts: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// 3 to 63 lower-case letters, digits and single hyphens
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// Metadata; repeatable. Names are sent in lower case, which the service does not tell apart
    #[arg(long, value_name = "NAME=VALUE", value_parser = metadata_pair)]
    pub(crate) meta: Vec<(String, String)>,
    /// Succeed if the queue is there already, whatever its metadata
    #[arg(long)]
    pub(crate) if_not_exists: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// Succeed if there is no such queue
    #[arg(long)]
    pub(crate) if_exists: bool,
    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// The message; standard input if neither it nor --file is given
    #[arg(conflicts_with_all = ["file", "lines"])]
    pub(crate) text: Option<String>,
    /// Take the message from a file, all of it
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Send each line as a message, without its LF or CRLF; an empty line is an empty message
    #[arg(long)]
    pub(crate) lines: bool,
    /// Encode messages in Base64: for what is not text, or for receivers that expect it
    #[arg(long)]
    pub(crate) base64: bool,
    /// How long messages live, or never [default: the service's, 7 days]
    #[arg(long, value_name = "DURATION|never", value_parser = time_to_live)]
    pub(crate) ttl: Option<i64>,
    /// How long messages stay hidden first
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) delay: Option<u32>,
    /// How many lines are sent at once; with 1, they keep their order
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256), requires = "lines")]
    pub(crate) parallel: u16,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// How many messages at most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// How long messages are hidden from others [default: the service's, 30 s]
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) visibility: Option<u32>,
    /// Delete each message after it was printed
    #[arg(long)]
    pub(crate) delete: bool,
    /// If there is none, wait so long for the first
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PeekArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// How many messages at most; the service shows no more than 32
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// How messages are printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormArgs {
    /// Decode messages from Base64; one that is none is shown as it is
    #[arg(long)]
    pub(crate) base64: bool,
    /// Print bodies only, unaltered unless to a terminal, with a line feed after each
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// The message's id, as printed by receive
    #[arg(value_parser = message_part)]
    pub(crate) id: String,
    /// The latest receipt for it, as printed by receive or update
    #[arg(value_parser = message_part)]
    pub(crate) receipt: String,
    /// How long the message is hidden from now on; 0 shows it at once
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) visibility: u32,
    /// The message's new text
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Encode the new text in Base64
    #[arg(long, requires = "text")]
    pub(crate) base64: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteMessageArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// The message's id, as printed by receive
    #[arg(value_parser = message_part)]
    pub(crate) id: String,
    /// The latest receipt for it, as printed by receive or update
    #[arg(value_parser = message_part)]
    pub(crate) receipt: String,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SasArgs {
    /// The queue that the URL opens [default: the whole service]
    #[arg(value_parser = queue_name)]
    pub(crate) name: Option<String>,
    /// What it permits [default: all]
    ///
    /// Of a queue: r (peek, properties, metadata), a (send), u (update), p (receive, delete). Of the
    /// service: r (read), w (write), d (delete), l (list), a (add), c (create), u (update), p (process).
    #[arg(long, value_name = "LETTERS")]
    pub(crate) permissions: Option<String>,
    /// How long it is good
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub(crate) expiry: Duration,
    /// Good over TLS alone
    #[arg(long)]
    pub(crate) https_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Queues to watch [default: all]
    #[arg(value_parser = queue_name)]
    pub(crate) names: Vec<String>,
    /// Only queues whose names begin so
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        conflicts_with = "names"
    )]
    pub(crate) prefix: String,
    /// How long to wait between two looks, 100ms or more
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// End after so many looks
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}
