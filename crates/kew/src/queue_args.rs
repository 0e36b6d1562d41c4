//! The arguments of `kew queue`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::flags::Yes;
use crate::queue_values::{
    duration, message_part, metadata_pair, queue_name, time_to_live, whole_seconds,
};

/// The arguments of `kew queue`.
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
    /// Connection string in the form of the SDKs, or a URL with a shared access signature
    /// [env: KEW_CONNECTION_STRING, then AZURE_STORAGE_CONNECTION_STRING]
    /// [default: the well-known account at 127.0.0.1:10001]
    ///
    /// Other users of this machine can see command lines. Use the environment for secrets.
    #[arg(long, global = true, value_name = "STRING")]
    pub(crate) connection_string: Option<String>,

    /// Also trust the certificate authorities in this PEM file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,

    /// Print results and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Time limit for the first attempt of a request; each retry has twice the time of the attempt before
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// How often to retry a request when the service is busy or unreachable
    #[arg(long, global = true, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) retries: u32,

    /// Show progress of long operations on standard error; auto: only on a terminal
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
    /// List queues, sorted by name
    List(ListArgs),
    /// Create a queue
    Create(CreateArgs),
    /// Delete a queue and all its messages
    Delete(DeleteArgs),
    /// Send messages from an argument, a file or standard input
    #[command(visible_alias = "put")]
    Send(SendArgs),
    /// Receive messages and hide them from other receivers for a while; --delete deletes them
    #[command(visible_alias = "get")]
    Receive(ReceiveArgs),
    /// Browse messages without receiving them
    Peek(PeekArgs),
    /// Extend or end the visibility timeout of a received message, or replace its text
    Update(UpdateArgs),
    /// Delete a received message after you have processed it
    #[command(visible_alias = "complete")]
    DeleteMessage(DeleteMessageArgs),
    /// Delete all messages of a queue and keep the queue
    #[command(visible_alias = "clear")]
    Purge(PurgeArgs),
    /// Show the message count, metadata and next message of a queue; without a name, the totals of all queues
    #[command(visible_alias = "stats")]
    Show(ShowArgs),
    /// Show message counts and their growth until you press Ctrl-C
    Watch(WatchArgs),
    /// Write messages as JSON lines. They stay in the queue unless you pass --delete
    ///
    /// The export receives all visible messages, which hides them from other receivers while it runs and raises their
    /// dequeue counts. At the end it makes them visible again.
    Export(ExportArgs),
    /// Send messages that export has written, from Queue Storage or from Service Bus
    ///
    /// Lines are sent in order. An error names the line, and says which lines were sent and how to continue.
    Import(ImportArgs),
    /// Print a URL with a shared access signature. Uses the account key and contacts no server
    Sas(SasArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only queues whose names start with this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,
    /// Show metadata
    #[arg(long)]
    pub(crate) metadata: bool,
    /// Show the number of messages, including hidden ones. Sends one more request per queue
    #[arg(long)]
    pub(crate) counts: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name of the queue: 3 to 63 lower-case letters, digits and single hyphens
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// Add metadata; repeat it for several. Names are not case-sensitive and are sent in lower case
    #[arg(long, value_name = "NAME=VALUE", value_parser = metadata_pair)]
    pub(crate) meta: Vec<(String, String)>,
    /// Succeed if the queue exists, even with other metadata
    #[arg(long)]
    pub(crate) if_not_exists: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// Succeed if the queue does not exist
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
    /// The message; without it and without --file, read it from standard input
    #[arg(conflicts_with_all = ["file", "lines"])]
    pub(crate) text: Option<String>,
    /// Send the whole file as one message
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Send each line as a message, without its LF or CRLF. An empty line is an empty message
    #[arg(long)]
    pub(crate) lines: bool,
    /// Encode messages in Base64, for binary data or for receivers that expect it
    #[arg(long)]
    pub(crate) base64: bool,
    /// Time to live, or never if messages do not expire [default: that of the service, 7 days]
    #[arg(long, value_name = "DURATION|never", value_parser = time_to_live)]
    pub(crate) ttl: Option<i64>,
    /// Hide the messages for this long before they can be received
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) delay: Option<u32>,
    /// How many requests to send at once; 1 keeps the order of the lines
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256), requires = "lines")]
    pub(crate) parallel: u16,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// Maximum number of messages
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Visibility timeout: hide the messages from other receivers for this long
    /// [default: that of the service, 30 s]
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) visibility: Option<u32>,
    /// Delete each message after printing it
    #[arg(long)]
    pub(crate) delete: bool,
    /// If the queue is empty, wait this long for the first message
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
    /// Maximum number of messages, up to 32
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// How messages are printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormArgs {
    /// Decode messages from Base64. Messages that are not Base64 are printed as they are
    #[arg(long)]
    pub(crate) base64: bool,
    /// Print only the bodies, each followed by a line feed. On a terminal, escape control characters
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// The id that receive printed
    #[arg(value_parser = message_part)]
    pub(crate) id: String,
    /// The latest receipt that receive or update printed
    #[arg(value_parser = message_part)]
    pub(crate) receipt: String,
    /// Hide the message for this long from now on; 0 makes it visible at once
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
    /// The id that receive printed
    #[arg(value_parser = message_part)]
    pub(crate) id: String,
    /// The latest receipt that receive or update printed
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
    /// The queue that the URL gives access to [default: the whole service]
    #[arg(value_parser = queue_name)]
    pub(crate) name: Option<String>,
    /// The permissions of the URL [default: all]
    ///
    /// For a queue: r (peek, properties, metadata), a (send), u (update), p (receive, delete). For the
    /// service: r (read), w (write), d (delete), l (list), a (add), c (create), u (update), p (process).
    #[arg(long, value_name = "LETTERS")]
    pub(crate) permissions: Option<String>,
    /// How long the URL is valid
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub(crate) expiry: Duration,
    /// Allow the URL over HTTPS only
    #[arg(long)]
    pub(crate) https_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Queues to watch [default: all]
    #[arg(value_parser = queue_name)]
    pub(crate) names: Vec<String>,
    /// Only queues whose names start with this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        conflicts_with = "names"
    )]
    pub(crate) prefix: String,
    /// Time between two updates, at least 100ms
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Stop after this many updates
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// Write to this file, which must not exist yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Hide the messages for this long. It must be longer than the export takes
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = whole_seconds)]
    pub(crate) visibility: u32,
    /// Delete the messages once they are written
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The queue
    #[arg(value_parser = queue_name)]
    pub(crate) name: String,
    /// The file to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Begin with this line: to continue an import that stopped
    #[arg(long, value_name = "LINE", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from_line: u64,
    /// Check all lines, and send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
