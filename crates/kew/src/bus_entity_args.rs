//! The arguments of `kew bus create`, `update` and `delete`.

use clap::{ArgGroup, Args, ValueEnum};

use crate::flags::Yes;
use crate::operate_args::Common;
use crate::queue_values::{Life, Target, bus_queue_name, duration, life, target, xml_text};
use crate::quota::parse_size;

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name of the queue: up to 260 letters, digits and . - _ /, with a letter or digit at both ends
    #[arg(value_parser = bus_queue_name)]
    pub(super) name: String,
    /// Succeed if the queue exists, even with other settings
    #[arg(long)]
    pub(super) if_not_exists: bool,
    /// Require sessions: one receiver at a time receives the messages of a session, in order. Cannot be
    /// changed later
    #[arg(long)]
    pub(super) sessions: bool,
    /// Drop messages whose id was already sent within --duplicate-window. Cannot be changed later
    #[arg(long)]
    pub(super) detect_duplicates: bool,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args([
    "lock_duration", "ttl", "max_size", "max_message_size", "max_delivery_count", "duplicate_window",
    "dead_letter_expired", "forward_to", "forward_dead_letters_to", "auto_delete_on_idle", "status",
    "user_metadata",
])))]
pub(crate) struct UpdateArgs {
    /// The queue. Settings without a flag stay as they are
    #[arg(value_parser = bus_queue_name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteQueueArgs {
    /// The queue
    #[arg(value_parser = bus_queue_name)]
    pub(super) name: String,
    /// Succeed if the queue does not exist
    #[arg(long)]
    pub(super) if_exists: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
    #[command(flatten)]
    pub(super) common: Common,
}

/// The settings of a queue that can be changed after it is created.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(super) receiving: ReceivingArgs,
    #[command(flatten)]
    pub(super) sending: SendingArgs,
    #[command(flatten)]
    pub(super) entity: EntityArgs,
}

/// The settings of what messages are received from: queues and subscriptions.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct ReceivingArgs {
    /// Lock duration of received messages, 5s to 5m [when created: 1m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) lock_duration: Option<std::time::Duration>,
    /// Dead-letter a message after this many failed deliveries [when created: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    pub(super) max_delivery_count: Option<u32>,
    /// Dead-letter expired messages instead of dropping them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) dead_letter_expired: Option<bool>,
    /// Forward messages to this queue or topic
    #[arg(long, value_name = "NAME|none", value_parser = target)]
    pub(super) forward_to: Option<Target>,
    /// Forward dead letters to this queue or topic
    #[arg(long, value_name = "NAME|none", value_parser = target)]
    pub(super) forward_dead_letters_to: Option<Target>,
}

/// The settings of what messages are sent to: queues and topics.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SendingArgs {
    /// Maximum size of all its messages, in whole MiB [when created: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) max_size: Option<u64>,
    /// Maximum size of a message, in whole KiB up to 1MiB [when created: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) max_message_size: Option<u64>,
    /// How long duplicate detection remembers message ids, 20s to 7d [when created: 10m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) duplicate_window: Option<std::time::Duration>,
}

/// The settings of queues, topics and subscriptions.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct EntityArgs {
    /// Default and maximum time to live of messages, at least 1s [when created: never]
    #[arg(long, value_name = "DURATION|never", value_parser = life)]
    pub(super) ttl: Option<Life>,
    /// Delete it after it has been idle for this long, at least 5m [when created: never]
    #[arg(long, value_name = "DURATION|never", value_parser = life)]
    pub(super) auto_delete_on_idle: Option<Life>,
    /// Whether it accepts sends and receives [when created: active]
    #[arg(long)]
    pub(super) status: Option<Status>,
    /// Metadata of your own, up to 1024 characters
    #[arg(long, value_name = "TEXT", value_parser = xml_text)]
    pub(super) user_metadata: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    Active,
    /// Accepts neither sends nor receives
    Disabled,
    /// Accepts no sends: not for subscriptions
    SendDisabled,
    /// Accepts no receives: not for topics
    ReceiveDisabled,
}
