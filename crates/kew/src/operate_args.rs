//! The arguments of `kew bus` and `kew dlq` for queues and messages.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use crate::bus_entity_args::{CreateArgs, DeleteQueueArgs, UpdateArgs};
use crate::bus_message_args::{
    CancelScheduledArgs, ChangeArgs, DeadLetterArgs, LockedArgs, ReceiveArgs, SendArgs,
};
use crate::bus_session_args::SessionCommand;
use crate::bus_tool_args::{ExportMessagesArgs, ImportMessagesArgs, SasArgs, WatchArgs};
use crate::flags::Caution;
use crate::queue_values::{duration, pair};

/// The connection, and the form of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Common {
    /// Connection string in the form of the SDKs
    /// [env: KEW_BUS_CONNECTION_STRING, then SERVICEBUS_CONNECTION_STRING]
    /// [default: the emulator's rule at localhost, ports 5672 and 5300]
    ///
    /// Its rule needs the right Manage for the namespace. To send or receive messages, the right Send or
    /// Listen is enough; with EntityPath in the string, so is a rule of that queue. Other users of this
    /// machine can see command lines. Use the environment for secrets.
    #[arg(long, value_name = "STRING")]
    pub(super) connection_string: Option<String>,

    /// Also trust the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(super) ca_cert: Option<PathBuf>,

    /// Print results and errors as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Time limit for each operation, with all its retries
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(super) timeout: Duration,

    /// How often to retry what certainly changed nothing, when the server is busy or unreachable
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(super) retries: u32,
}

/// Which messages to use; without any of these, all.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which messages")]
pub(crate) struct FilterArgs {
    /// Messages with this sequence number or a higher one
    #[arg(long, value_name = "NUMBER")]
    pub(super) from: Option<u64>,
    /// Messages with this sequence number or a lower one
    #[arg(long = "until", value_name = "NUMBER")]
    pub(super) until: Option<u64>,
    /// Messages enqueued at or after this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(super) after: Option<String>,
    /// Messages enqueued before this time
    #[arg(long, value_name = "TIME")]
    pub(super) before: Option<String>,
    /// Messages in this state
    #[arg(long, value_name = "STATE", value_parser = ["active", "locked", "deferred", "scheduled"])]
    pub(super) state: Option<String>,
    /// Dead letters with this reason
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// Dead letters whose description contains this
    #[arg(long, value_name = "TEXT")]
    pub(super) description: Option<String>,
    /// Messages with this subject
    #[arg(long, value_name = "TEXT")]
    pub(super) subject: Option<String>,
    /// Messages with this content type
    #[arg(long, value_name = "TEXT")]
    pub(super) content_type: Option<String>,
    /// Messages with this message id
    #[arg(long, value_name = "ID")]
    pub(super) message_id: Option<String>,
    /// Messages of this session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    /// Messages with this application property; repeat it for several. A value that is valid JSON has its
    /// JSON type; any other value is a string
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) property: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// List queues with their message counts, and say how many topics there are
    List(ListArgs),
    /// Show the message counts and settings of a queue, topic or subscription
    #[command(visible_alias = "stats")]
    Show(ShowArgs),
    /// Create a queue
    Create(CreateArgs),
    /// Change the settings of a queue
    Update(UpdateArgs),
    /// Delete a queue and all its messages
    Delete(DeleteQueueArgs),
    /// Send messages from arguments, a file or standard input
    ///
    /// Several messages are sent in batches. Each batch is sent completely or not at all.
    #[command(visible_alias = "put")]
    Send(SendArgs),
    /// Receive messages and lock them for a while; --delete deletes them
    ///
    /// The locks outlive the command, except those of sessions: use --settle or --delete for these.
    #[command(visible_alias = "get")]
    Receive(ReceiveArgs),
    /// Browse messages in any state without receiving them
    ///
    /// Only Kew shows which messages are locked, and filters on the server. Elsewhere the command filters.
    Peek(PeekArgs),
    /// Delete messages in any state: active, deferred, scheduled and of sessions (only at Kew)
    #[command(visible_alias = "clear")]
    Purge(PurgeArgs),
    /// Use a single message
    #[command(subcommand)]
    Message(MessageCommand),
    /// Show message counts of queues, topics and subscriptions and their growth until you press Ctrl-C
    Watch(WatchArgs),
    /// Print a connection string or a token that gives access for a limited time
    ///
    /// The token is a shared access signature, signed with the key of the connection string. No server is asked.
    Sas(SasArgs),
    /// List sessions, and show or set their states
    #[command(subcommand)]
    Session(SessionCommand),
    /// Take the lock of a message or session away from its holder (only at Kew). It can be received again at
    /// once, and the delivery does not count as failed
    BreakLock(BreakLockArgs),
    /// List running and finished purges and resubmissions (only at Kew)
    Jobs(ListArgs),
    /// Stop a purge or resubmission (only at Kew). What it has done so far stays done
    Cancel(CancelArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List queues, topics and subscriptions that have dead letters, or messages that could not be forwarded
    List(ListArgs),
    /// Browse dead letters without receiving them
    Peek(PeekArgs),
    /// Count dead letters by reason, description, subject and content type
    Groups(GroupsArgs),
    /// Send dead letters again, unchanged or edited
    ///
    /// At Kew each moves in one step: none is lost or duplicated. Elsewhere, or with a rule without Manage, each is
    /// received, sent and completed in a transaction. If the service does not take the transaction, the command says so:
    /// then a failure between sending and completing leaves a message in both queues.
    Resubmit(ResubmitArgs),
    /// Delete dead letters (only at Kew)
    Purge(PurgeArgs),
}

/// The arguments of `kew dlq`.
#[derive(Debug, Args)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    pub(super) command: DlqCommand,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The queue, topic or subscription, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PeekArgs {
    /// The queue or subscription
    pub(super) queue: String,
    /// Maximum number of messages
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// Do not print bodies
    #[arg(long)]
    pub(super) no_bodies: bool,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct GroupsArgs {
    /// The queue or subscription that has the dead letters
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// The queue or subscription
    pub(super) queue: String,
    /// Also delete locked messages
    #[arg(long)]
    pub(super) with_locked: bool,
    /// Also clear the states of sessions that then have no messages
    #[arg(long)]
    pub(super) session_states: bool,
    #[command(flatten)]
    pub(super) caution: Caution,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ResubmitArgs {
    /// The queue or subscription that has the dead letters
    pub(super) queue: String,
    /// Send them to this queue or topic [default: the queue or subscription that has the dead letters]. Elsewhere than
    /// at Kew, it must be a queue, and those of a subscription need it
    #[arg(long, value_name = "NAME")]
    pub(super) to: Option<String>,
    /// Give each message a new message id, so that duplicate detection accepts it. Without this flag,
    /// messages keep their ids, and those that the destination detects as duplicates are not resubmitted. Elsewhere
    /// than at Kew, a destination that detects duplicates, or does not say, then takes none at all
    #[arg(long)]
    pub(super) new_ids: bool,
    /// Set an application property; repeat it for several. A value that is valid JSON has its JSON type; any
    /// other value is a string
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) set: Vec<(String, String)>,
    /// Remove an application property; repeat it for several
    #[arg(long, value_name = "NAME")]
    pub(super) remove: Vec<String>,
    /// Set the subject
    #[arg(long, value_name = "TEXT")]
    pub(super) set_subject: Option<String>,
    /// Set the content type
    #[arg(long, value_name = "TEXT")]
    pub(super) set_content_type: Option<String>,
    /// Set the session id
    #[arg(long, value_name = "ID")]
    pub(super) set_session: Option<String>,
    /// Replace the body
    #[arg(long, value_name = "TEXT")]
    pub(super) set_body: Option<String>,
    #[command(flatten)]
    pub(super) caution: Caution,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MessageCommand {
    /// Show a message by its sequence number, or receive it with --lock or --delete (only at Kew)
    Get(GetArgs),
    /// Delete a message by its sequence number (only at Kew)
    Delete(DeleteArgs),
    /// Complete a received message
    Complete(LockedArgs),
    /// Abandon a received message. Its delivery counts as failed
    Abandon(ChangeArgs),
    /// Defer a received message: it can be received by its sequence number only
    Defer(ChangeArgs),
    /// Move a received message to the dead-letter queue
    DeadLetter(DeadLetterArgs),
    /// Renew the lock of a received message
    Renew(LockedArgs),
    /// Write messages as JSON lines with their properties. They stay in the queue
    Export(ExportMessagesArgs),
    /// Send messages that export has written
    ///
    /// Lines are sent in order. An error names the line, and says which lines were sent and how to continue.
    Import(ImportMessagesArgs),
    /// Cancel scheduled messages by their sequence numbers. If one does not exist, none is cancelled
    CancelScheduled(CancelScheduledArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("mode").args(["lock", "delete"])))]
pub(crate) struct GetArgs {
    /// The queue or subscription, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    /// The sequence number
    pub(super) number: u64,
    /// Lock the message and print its lock token
    #[arg(long)]
    pub(super) lock: bool,
    /// Delete the message from the queue
    #[arg(long)]
    pub(super) delete: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The queue or subscription, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    /// The sequence number
    pub(super) number: u64,
    /// Delete it even if it is locked
    #[arg(long)]
    pub(super) with_locked: bool,
    #[command(flatten)]
    pub(super) caution: Caution,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whose").required(true).args(["number", "session"])))]
pub(crate) struct BreakLockArgs {
    /// The queue or subscription, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    /// The sequence number of the message
    #[arg(long, value_name = "NUMBER")]
    pub(super) number: Option<u64>,
    /// The id of the session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The id of the job, as printed when it started
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}
