//! What can be asked of `kew bus` and `kew dlq` about messages and queues.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use crate::bus_entity_args::{CreateArgs, DeleteQueueArgs, UpdateArgs};
use crate::bus_message_args::{LockedArgs, ReceiveArgs, SendArgs};
use crate::flags::Caution;
use crate::queue_values::{duration, pair};

/// Whom to ask, and how to print what is answered.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Common {
    /// Which server to ask, in the form of the SDKs
    /// [env: KEW_BUS_CONNECTION_STRING, then SERVICEBUS_CONNECTION_STRING]
    /// [default: the emulator's rule at localhost:5672]
    ///
    /// Its rule must have the right to manage the namespace; to send messages and to receive them, Send
    /// and Listen are enough, and a rule of the queue if the string names it as EntityPath. Others on this
    /// machine can see what is on a command line: prefer the environment for secrets.
    #[arg(long, value_name = "STRING")]
    pub(super) connection_string: Option<String>,

    /// Certificate authorities to trust beside those of the system, in PEM
    #[arg(long, value_name = "FILE")]
    pub(super) ca_cert: Option<PathBuf>,

    /// Print JSON: an object or an array, and errors as objects too
    #[arg(long)]
    pub(super) json: bool,

    /// How long one request may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(super) timeout: Duration,

    /// How often a request that only looks is tried again when the server is busy or not there
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(super) retries: u32,
}

/// Which messages are meant; all of them, if nothing is said.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which messages")]
pub(crate) struct FilterArgs {
    /// From this sequence number on
    #[arg(long, value_name = "NUMBER")]
    pub(super) from: Option<u64>,
    /// Up to this sequence number
    #[arg(long = "until", value_name = "NUMBER")]
    pub(super) until: Option<u64>,
    /// Enqueued at this time or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(super) after: Option<String>,
    /// Enqueued before this time
    #[arg(long, value_name = "TIME")]
    pub(super) before: Option<String>,
    /// In this state
    #[arg(long, value_name = "STATE", value_parser = ["active", "locked", "deferred", "scheduled"])]
    pub(super) state: Option<String>,
    /// Dead letters for this reason
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// Dead letters whose description contains this
    #[arg(long, value_name = "TEXT")]
    pub(super) description: Option<String>,
    /// With this subject
    #[arg(long, value_name = "TEXT")]
    pub(super) subject: Option<String>,
    /// With this content type
    #[arg(long, value_name = "TEXT")]
    pub(super) content_type: Option<String>,
    /// With this message id
    #[arg(long, value_name = "ID")]
    pub(super) message_id: Option<String>,
    /// Of this session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    /// With this application property; repeatable. A value that is JSON is of its type, any other a text
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) property: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// List queues with their counts
    List(ListArgs),
    /// Show a queue
    #[command(visible_alias = "stats")]
    Show(ShowArgs),
    /// Create a queue
    Create(CreateArgs),
    /// Change settings of a queue
    Update(UpdateArgs),
    /// Delete a queue with all its messages
    Delete(DeleteQueueArgs),
    /// Send messages: from arguments, a file or standard input
    ///
    /// Several go in batches, of which each is sent as a whole or not at all.
    #[command(visible_alias = "put")]
    Send(SendArgs),
    /// Receive messages; each is locked for a while, or taken out with --delete
    ///
    /// Over HTTP, as all of kew bus, which has no sessions, and names of properties in lower case alone.
    #[command(visible_alias = "get")]
    Receive(ReceiveArgs),
    /// Look at messages in any state without receiving them
    Peek(PeekArgs),
    /// Delete messages in any state: ready, deferred, scheduled, of sessions
    #[command(visible_alias = "clear")]
    Purge(PurgeArgs),
    /// One message, by its sequence number
    #[command(subcommand)]
    Message(MessageCommand),
    /// End the lock of a message or session for its holder: it can be received at once, and no delivery
    /// counts as failed
    BreakLock(BreakLockArgs),
    /// List purges and resubmissions that run, and those that have ended
    Jobs(ListArgs),
    /// Stop a purge or resubmission where it is
    Cancel(CancelArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List queues that have dead letters
    List(ListArgs),
    /// Look at dead letters without receiving them
    Peek(PeekArgs),
    /// Count dead letters by reason, description, subject and content type
    Groups(GroupsArgs),
    /// Send dead letters again, as they are or edited: each in one step, so that none is lost or doubled
    Resubmit(ResubmitArgs),
    /// Delete dead letters
    Purge(PurgeArgs),
}

/// `kew dlq` with what all its commands share.
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
    /// The queue, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PeekArgs {
    /// The queue
    pub(super) queue: String,
    /// How many messages at most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// Leave the bodies out
    #[arg(long)]
    pub(super) no_bodies: bool,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct GroupsArgs {
    /// The queue whose dead letters are meant
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// The queue
    pub(super) queue: String,
    /// Also messages that somebody has locked
    #[arg(long)]
    pub(super) with_locked: bool,
    /// Also the states of sessions that have no messages then
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
    /// The queue whose dead letters are meant
    pub(super) queue: String,
    /// Send to this queue [default: the one whose dead letters they are]
    #[arg(long, value_name = "QUEUE")]
    pub(super) to: Option<String>,
    /// Give each a new message id, so that duplicate detection takes it. Otherwise each keeps its own, and
    /// stays if the destination has seen it within its window
    #[arg(long)]
    pub(super) new_ids: bool,
    /// Set an application property; repeatable. A value that is JSON is of its type, any other a text
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) set: Vec<(String, String)>,
    /// Remove an application property; repeatable
    #[arg(long, value_name = "NAME")]
    pub(super) remove: Vec<String>,
    /// Give each this subject
    #[arg(long, value_name = "TEXT")]
    pub(super) set_subject: Option<String>,
    /// Give each this content type
    #[arg(long, value_name = "TEXT")]
    pub(super) set_content_type: Option<String>,
    /// Give each this session
    #[arg(long, value_name = "ID")]
    pub(super) set_session: Option<String>,
    /// Give each this body
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
    /// Show a message; with --lock or --delete, receive it. Others' deliveries are not counted for it
    Get(GetArgs),
    /// Delete a message
    Delete(DeleteArgs),
    /// A message that was received is done
    Complete(LockedArgs),
    /// Give a message that was received back; its delivery counts as failed
    Abandon(LockedArgs),
    /// Keep a message that was received locked for longer
    Renew(LockedArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("mode").args(["lock", "delete"])))]
pub(crate) struct GetArgs {
    /// The queue, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    /// The sequence number
    pub(super) number: u64,
    /// Lock it, and print its lock token
    #[arg(long)]
    pub(super) lock: bool,
    /// Take it out of the queue
    #[arg(long)]
    pub(super) delete: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The queue, or a sub-queue such as orders/$deadletterqueue
    pub(super) queue: String,
    /// The sequence number
    pub(super) number: u64,
    /// Also if somebody has locked it
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
    /// The queue, or a sub-queue such as orders/$deadletterqueue
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
    /// The job, as printed when it began
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}
