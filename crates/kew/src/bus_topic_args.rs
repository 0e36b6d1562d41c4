//! The arguments of `kew bus topic` and `kew bus subscription`.

use clap::{ArgGroup, Args, Subcommand};

use crate::bus_entity_args::{EntityArgs, ReceivingArgs, SendingArgs};
use crate::bus_rule_args::DefaultRuleArgs;
use crate::flags::Yes;
use crate::operate_args::{Common, ListArgs};
use crate::queue_values::{SubscriptionName, bus_subscription, bus_topic_name};

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create a topic
    Create(CreateTopicArgs),
    /// Show the counts and settings of a topic
    Show(TopicArgs),
    /// List topics with their counts
    List(ListArgs),
    /// Change the settings of a topic
    Update(UpdateTopicArgs),
    /// Delete a topic with its subscriptions and all their messages
    Delete(DeleteTopicArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    /// The topic
    #[arg(value_parser = bus_topic_name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CreateTopicArgs {
    /// The name of the topic: up to 260 letters, digits and . - _ /, with a letter or digit at both ends
    #[arg(value_parser = bus_topic_name)]
    pub(super) name: String,
    /// Succeed if the topic exists, even with other settings
    #[arg(long)]
    pub(super) if_not_exists: bool,
    /// Drop messages whose id was already sent within --duplicate-window. Cannot be changed later
    #[arg(long)]
    pub(super) detect_duplicates: bool,
    #[command(flatten)]
    pub(super) settings: TopicSettingsArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args([
    "max_size", "max_message_size", "duplicate_window", "filter_before_publishing", "ttl",
    "auto_delete_on_idle", "status", "user_metadata",
])))]
pub(crate) struct UpdateTopicArgs {
    /// The topic. Settings without a flag stay as they are
    #[arg(value_parser = bus_topic_name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) settings: TopicSettingsArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct TopicSettingsArgs {
    #[command(flatten)]
    pub(super) sending: SendingArgs,
    /// Refuse messages that no rule matches, instead of dropping them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) filter_before_publishing: Option<bool>,
    #[command(flatten)]
    pub(super) entity: EntityArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteTopicArgs {
    /// The topic
    #[arg(value_parser = bus_topic_name)]
    pub(super) name: String,
    /// Succeed if the topic does not exist
    #[arg(long)]
    pub(super) if_exists: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Create a subscription. Without a rule of yours, it gets all messages
    Create(Box<CreateSubscriptionArgs>),
    /// Show the message counts and settings of a subscription
    Show(SubscriptionArgs),
    /// List the subscriptions of a topic with their message counts
    List(TopicArgs),
    /// Change the settings of a subscription
    Update(UpdateSubscriptionArgs),
    /// Delete a subscription with its rules and all its messages
    Delete(DeleteSubscriptionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SubscriptionArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) name: SubscriptionName,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CreateSubscriptionArgs {
    /// The subscription, as TOPIC/subscriptions/NAME. NAME has up to 50 letters, digits and . - _
    #[arg(value_parser = bus_subscription)]
    pub(super) name: SubscriptionName,
    /// Succeed if the subscription exists, even with other settings
    #[arg(long)]
    pub(super) if_not_exists: bool,
    /// Require sessions: one receiver at a time receives the messages of a session, in order. Cannot be
    /// changed later
    #[arg(long)]
    pub(super) sessions: bool,
    #[command(flatten)]
    pub(super) rule: DefaultRuleArgs,
    #[command(flatten)]
    pub(super) settings: SubscriptionSettingsArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args([
    "lock_duration", "max_delivery_count", "dead_letter_expired", "forward_to", "forward_dead_letters_to",
    "dead_letter_filter_failures", "ttl", "auto_delete_on_idle", "status", "user_metadata",
])))]
pub(crate) struct UpdateSubscriptionArgs {
    /// The subscription, as TOPIC/subscriptions/NAME. Settings without a flag stay as they are
    #[arg(value_parser = bus_subscription)]
    pub(super) name: SubscriptionName,
    #[command(flatten)]
    pub(super) settings: SubscriptionSettingsArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SubscriptionSettingsArgs {
    #[command(flatten)]
    pub(super) receiving: ReceivingArgs,
    /// Dead-letter messages on which a rule fails [when created: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) dead_letter_filter_failures: Option<bool>,
    #[command(flatten)]
    pub(super) entity: EntityArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteSubscriptionArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) name: SubscriptionName,
    /// Succeed if the subscription does not exist
    #[arg(long)]
    pub(super) if_exists: bool,
    #[command(flatten)]
    pub(super) yes: Yes,
    #[command(flatten)]
    pub(super) common: Common,
}
