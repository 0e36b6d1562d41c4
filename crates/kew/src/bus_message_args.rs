//! The arguments of `kew bus send`, `receive` and `message complete`, `abandon` and `renew`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::operate_args::Common;
use crate::queue_values::{bus_entity, bus_message_part, duration, pair, point_in_time};

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The queue or topic
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// The bodies of the messages; without them and without --file, read one message from standard input
    #[arg(conflicts_with_all = ["file", "lines"])]
    pub(super) text: Vec<String>,
    /// Send the whole file as one message
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Send each line as a message, without its LF or CRLF. An empty line is an empty message
    #[arg(long, conflicts_with = "message_id")]
    pub(super) lines: bool,
    #[command(flatten)]
    pub(super) properties: PropertyArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

/// The properties of messages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Properties of each message")]
pub(crate) struct PropertyArgs {
    /// Message id, used for duplicate detection. Only for a single message
    #[arg(long, value_name = "ID")]
    pub(super) message_id: Option<String>,
    /// Session id
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    /// Subject, called label in some SDKs
    #[arg(long, value_name = "TEXT")]
    pub(super) subject: Option<String>,
    /// Content type of the body
    #[arg(long, value_name = "TYPE")]
    pub(super) content_type: Option<String>,
    /// Correlation id
    #[arg(long, value_name = "ID")]
    pub(super) correlation_id: Option<String>,
    /// Value of the property To
    #[arg(long, value_name = "TEXT")]
    pub(super) to: Option<String>,
    /// The queue for replies
    #[arg(long, value_name = "TEXT")]
    pub(super) reply_to: Option<String>,
    /// The session id for replies
    #[arg(long, value_name = "ID")]
    pub(super) reply_to_session: Option<String>,
    /// Partition key. With a session, it must be the session id
    #[arg(long, value_name = "TEXT")]
    pub(super) partition_key: Option<String>,
    /// Application property; repeat it for several. true, false, numbers and quoted strings have their JSON
    /// type; any other value is a string
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) property: Vec<(String, String)>,
    /// Time to live [default: that of the queue]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) ttl: Option<Duration>,
    /// Schedule the messages: they can be received after this time has passed
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "at")]
    pub(super) delay: Option<Duration>,
    /// Schedule the messages: they can be received from this time on, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub(super) at: Option<std::time::SystemTime>,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The queue or subscription, or a sub-queue such as orders/$deadletterqueue
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// Maximum number of messages
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// If the queue is empty, wait this long for the first message [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) wait: Option<Duration>,
    /// Receive messages of this session. The command holds the session while it runs
    #[arg(long, value_name = "ID", conflicts_with = "next_session")]
    pub(super) session: Option<String>,
    /// Receive messages of the next session that has messages and no receiver
    #[arg(long)]
    pub(super) next_session: bool,
    /// Receive the deferred message with this sequence number; repeat it for several
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["count", "wait", "next_session"])]
    pub(super) number: Vec<i64>,
    /// Receive dead letters of the queue
    #[arg(long)]
    pub(super) dead_letter: bool,
    /// Receive and delete. A message is lost if the connection fails before it arrives
    #[arg(long, conflicts_with = "settle")]
    pub(super) delete: bool,
    /// Settle each message after printing it. Without this flag it stays locked; see kew bus message
    #[arg(long, value_name = "HOW")]
    pub(super) settle: Option<Settle>,
    /// With --settle dead-letter: why, in a word or two
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// With --settle dead-letter: why, in detail
    #[arg(long, value_name = "TEXT")]
    pub(super) description: Option<String>,
    /// With --settle abandon, defer or dead-letter: set an application property; repeat it for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) set: Vec<(String, String)>,
    /// Print only the bodies, each followed by a line feed. On a terminal, escape control characters
    #[arg(long, conflicts_with = "json")]
    pub(super) raw: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Settle {
    /// Delete the message from the queue
    Complete,
    /// Release all messages at the end: they can be received again, and the deliveries count as failed
    Abandon,
    /// Move the message to the dead-letter queue
    DeadLetter,
    /// Set the message aside: it can be received by its sequence number only
    Defer,
}

/// A message under a lock.
#[derive(Debug, Args)]
pub(crate) struct LockedArgs {
    /// The queue or subscription, or a sub-queue such as orders/$deadletterqueue
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// The message's sequence number, or its id. The lock token decides which message it is
    #[arg(value_parser = bus_message_part)]
    pub(super) message: String,
    /// The lock token that receive printed
    #[arg(value_parser = bus_message_part)]
    pub(super) lock: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// A message under a lock, and properties to set.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    pub(super) locked: LockedArgs,
    /// Set an application property; repeat it for several. A value that is valid JSON has its JSON type; any
    /// other value is a string
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterArgs {
    #[command(flatten)]
    pub(super) change: ChangeArgs,
    /// Why, in a word or two
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// Why, in detail
    #[arg(long, value_name = "TEXT")]
    pub(super) description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CancelScheduledArgs {
    /// The queue or topic
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// The sequence numbers that kew bus send --json has printed
    #[arg(required = true, value_name = "NUMBER")]
    pub(super) numbers: Vec<i64>,
    #[command(flatten)]
    pub(super) common: Common,
}
