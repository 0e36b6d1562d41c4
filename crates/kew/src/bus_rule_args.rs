//! The arguments of `kew bus rule`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::operate_args::{Common, FilterArgs};
use crate::queue_values::{SubscriptionName, bus_entity, bus_rule_name, bus_subscription, pair};

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Add a rule to a subscription
    ///
    /// A subscription gets a copy of each message that at least one of its rules matches. Rules without an action make
    /// one copy together. Each rule with an action makes a copy of its own.
    Add(AddRuleArgs),
    /// Replace the filter and the action of a rule
    Set(SetRuleArgs),
    /// List the rules of a subscription
    List(ListRulesArgs),
    /// Show a rule
    Show(OneRuleArgs),
    /// Remove a rule. A subscription without rules gets no messages
    Remove(RemoveRuleArgs),
    /// Test rules on messages of a file, of standard input or of a queue
    ///
    /// It needs no topic and changes nothing. With --subscription it tests the rules of that subscription. It prints for
    /// each message whether the filter selects it, what the action would change, or why the rule fails. A rule that is
    /// not valid is refused, and the place is marked.
    Test(Box<TestRuleArgs>),
}

/// A filter and an action.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Rule")]
pub(crate) struct RuleArgs {
    /// The condition of an SQL filter, such as "color = 'red' AND sys.Label LIKE 'a%'"
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) sql: Option<String>,
    /// A condition of a correlation filter, such as sys.Label=order or color=red; repeat it for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) correlation: Vec<(String, String)>,
    /// A filter that matches all messages
    #[arg(long = "true")]
    pub(super) all: bool,
    /// A filter that matches no message
    #[arg(long = "false")]
    pub(super) none: bool,
    /// The statements of an SQL action, such as "SET priority = 1; REMOVE color"
    #[arg(long, value_name = "TEXT", requires = "rule_filter")]
    pub(super) action: Option<String>,
    /// The value of a parameter such as @size in --sql and --action; repeat it for several. true, false, numbers
    /// and quoted strings have their JSON type, an object is a typed value of docs/message-format.md; any other
    /// value is a string
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "rule_filter")]
    pub(super) parameter: Vec<(String, String)>,
}

/// The rule that a new subscription begins with.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "First rule")]
#[command(group(ArgGroup::new("rule_filter").args(["sql", "correlation", "all", "none"]).multiple(false)))]
pub(crate) struct DefaultRuleArgs {
    /// The name of the first rule [default: $Default]
    #[arg(long, value_name = "NAME", value_parser = bus_rule_name, requires = "rule_filter")]
    pub(super) rule_name: Option<String>,
    #[command(flatten)]
    pub(super) rule: RuleArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rule_filter").args(["sql", "correlation", "all", "none"]).multiple(false).required(true)))]
pub(crate) struct AddRuleArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) subscription: SubscriptionName,
    /// The name of the rule: up to 50 characters, and none of / \ ? # @ *
    #[arg(value_parser = bus_rule_name)]
    pub(super) name: String,
    /// Succeed if there is a rule of that name, even another one
    #[arg(long)]
    pub(super) if_not_exists: bool,
    #[command(flatten)]
    pub(super) rule: RuleArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rule_filter").args(["sql", "correlation", "all", "none"]).multiple(false).required(true)))]
pub(crate) struct SetRuleArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) subscription: SubscriptionName,
    /// The rule. What has no flag is removed: its action, too
    #[arg(value_parser = bus_rule_name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) rule: RuleArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ListRulesArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) subscription: SubscriptionName,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct OneRuleArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) subscription: SubscriptionName,
    /// The rule
    #[arg(value_parser = bus_rule_name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveRuleArgs {
    /// The subscription, as TOPIC/subscriptions/NAME
    #[arg(value_parser = bus_subscription)]
    pub(super) subscription: SubscriptionName,
    /// The rule
    #[arg(value_parser = bus_rule_name)]
    pub(super) name: String,
    /// Succeed if there is no such rule
    #[arg(long)]
    pub(super) if_exists: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("rule_filter")
        .args(["sql", "correlation", "all", "none", "subscription"])
        .multiple(false)
        .required(true)
))]
pub(crate) struct TestRuleArgs {
    /// Test the messages of this queue or subscription, or of a sub-queue such as orders/$deadletterqueue. They stay
    /// there [default: messages of a file or standard input]
    #[arg(value_parser = bus_entity)]
    pub(super) queue: Option<String>,
    /// Test the messages of this file, in the form of kew bus message export [default: standard input]
    #[arg(long, value_name = "FILE", conflicts_with = "queue")]
    pub(super) file: Option<PathBuf>,
    /// Test the rules of this subscription, TOPIC/subscriptions/NAME
    #[arg(long, value_name = "SUBSCRIPTION", value_parser = bus_subscription, conflicts_with_all = ["action", "parameter"])]
    pub(super) subscription: Option<SubscriptionName>,
    #[command(flatten)]
    pub(super) rule: RuleArgs,
    /// Stop after this many messages
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) common: Common,
}
