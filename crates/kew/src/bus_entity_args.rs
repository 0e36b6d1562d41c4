//! What can be asked of `kew bus create`, `update` and `delete`.

use clap::{ArgGroup, Args, ValueEnum};

use crate::flags::Yes;
use crate::operate_args::Common;
use crate::queue_values::{Life, Target, bus_queue_name, duration, life, target, xml_text};
use crate::quota::parse_size;

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The queue: up to 260 letters, digits and . - _ /, with a letter or digit at both ends
    #[arg(value_parser = bus_queue_name)]
    pub(super) name: String,
    /// Succeed if the queue is there already, whatever its settings
    #[arg(long)]
    pub(super) if_not_exists: bool,
    /// Messages have sessions, each received by one receiver, in order. Never changes
    #[arg(long)]
    pub(super) sessions: bool,
    /// Drop messages whose id was sent before, within --duplicate-window. Never changes
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
    /// The queue. What is not said stays as it is
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
    /// Succeed if there is no such queue
    #[arg(long)]
    pub(super) if_exists: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What can be set when a queue is created, and changed afterwards.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingsArgs {
    /// How long a received message is locked, 5s to 5m [at first: 1m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) lock_duration: Option<std::time::Duration>,
    /// How long messages live that say nothing themselves, and at most; 1s or more [at first: never ends]
    #[arg(long, value_name = "DURATION|never", value_parser = life)]
    pub(super) ttl: Option<Life>,
    /// How large the queue may be, in whole MiB [at first: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) max_size: Option<u64>,
    /// How large a message may be, in whole KiB up to 1MiB [at first: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) max_message_size: Option<u64>,
    /// How many deliveries may fail before a message is a dead letter [at first: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    pub(super) max_delivery_count: Option<u32>,
    /// How long ids are remembered where duplicates are detected, 20s to 7d [at first: 10m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) duplicate_window: Option<std::time::Duration>,
    /// Make messages dead letters when their life ends; otherwise they are dropped
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) dead_letter_expired: Option<bool>,
    /// Have messages go on to this queue
    #[arg(long, value_name = "QUEUE|none", value_parser = target)]
    pub(super) forward_to: Option<Target>,
    /// Have dead letters go on to this queue
    #[arg(long, value_name = "QUEUE|none", value_parser = target)]
    pub(super) forward_dead_letters_to: Option<Target>,
    /// Delete the queue when it was not used for so long, 5m or more [at first: never]
    #[arg(long, value_name = "DURATION|never", value_parser = life)]
    pub(super) auto_delete_on_idle: Option<Life>,
    /// Whether it can be sent to and received from [at first: active]
    #[arg(long)]
    pub(super) status: Option<Status>,
    /// A text of your own, up to 1024 characters
    #[arg(long, value_name = "TEXT", value_parser = xml_text)]
    pub(super) user_metadata: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    Active,
    /// Neither sent to nor received from
    Disabled,
    SendDisabled,
    ReceiveDisabled,
}
