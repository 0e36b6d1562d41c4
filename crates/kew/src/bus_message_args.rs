//! What can be asked of `kew bus send`, `receive` and `message complete`, `abandon` and `renew`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::operate_args::Common;
use crate::queue_values::{bus_entity, bus_message_part, duration, pair, point_in_time};

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The queue
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// The messages, each with its body; standard input is one if neither they nor --file are given
    #[arg(conflicts_with_all = ["file", "lines"])]
    pub(super) text: Vec<String>,
    /// Take the message from a file, all of it
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Send each line as a message, without its LF or CRLF; an empty line is an empty message
    #[arg(long, conflicts_with = "message_id")]
    pub(super) lines: bool,
    #[command(flatten)]
    pub(super) properties: PropertyArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What messages say besides their bodies.
#[derive(Debug, Args)]
#[command(next_help_heading = "Properties of each message")]
pub(crate) struct PropertyArgs {
    /// Its id, by which duplicates are detected: of one message
    #[arg(long, value_name = "ID")]
    pub(super) message_id: Option<String>,
    /// Its session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    /// Its subject, which some SDKs call label
    #[arg(long, value_name = "TEXT")]
    pub(super) subject: Option<String>,
    /// The type of its body
    #[arg(long, value_name = "TYPE")]
    pub(super) content_type: Option<String>,
    /// What it is an answer to
    #[arg(long, value_name = "ID")]
    pub(super) correlation_id: Option<String>,
    /// Where it is meant to go
    #[arg(long, value_name = "TEXT")]
    pub(super) to: Option<String>,
    /// Where an answer should go
    #[arg(long, value_name = "TEXT")]
    pub(super) reply_to: Option<String>,
    /// The session that an answer should have
    #[arg(long, value_name = "ID")]
    pub(super) reply_to_session: Option<String>,
    /// Its partition key; with a session the same as that
    #[arg(long, value_name = "TEXT")]
    pub(super) partition_key: Option<String>,
    /// An application property; repeatable. true, false, a number and a quoted text
    /// are of their type, anything else is a text
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) property: Vec<(String, String)>,
    /// How long it lives [default: as long as the queue says]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) ttl: Option<Duration>,
    /// Schedule it: it can be received so long from now
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "at")]
    pub(super) delay: Option<Duration>,
    /// Schedule it: it can be received from this time on, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub(super) at: Option<std::time::SystemTime>,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The queue, or a sub-queue such as orders/$deadletterqueue
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// How many messages at most; each is a request of its own
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// If there is none, wait so long for the first
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) wait: Option<Duration>,
    /// From the queue's dead letters
    #[arg(long)]
    pub(super) dead_letter: bool,
    /// Take each out of the queue at once: one whose answer is lost on the way is lost
    #[arg(long, conflicts_with = "settle")]
    pub(super) delete: bool,
    /// What becomes of each once it is printed; without it, it stays locked for kew bus message
    #[arg(long, value_name = "HOW")]
    pub(super) settle: Option<Settle>,
    /// Print bodies only, unaltered unless to a terminal, with a line feed after each
    #[arg(long, conflicts_with = "json")]
    pub(super) raw: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Settle {
    /// It is done
    Complete,
    /// Others may have it, and the delivery counts as failed: all of them at the end
    Abandon,
    // These are known, so that they can be refused with what to do instead.
    #[value(hide = true)]
    DeadLetter,
    #[value(hide = true)]
    Defer,
}

/// A message under a lock.
#[derive(Debug, Args)]
pub(crate) struct LockedArgs {
    /// The queue, or a sub-queue such as orders/$deadletterqueue
    #[arg(value_parser = bus_entity)]
    pub(super) queue: String,
    /// The message's sequence number, or its id
    #[arg(value_parser = bus_message_part)]
    pub(super) message: String,
    /// The lock token, as printed by receive
    #[arg(value_parser = bus_message_part)]
    pub(super) lock: String,
    #[command(flatten)]
    pub(super) common: Common,
}
