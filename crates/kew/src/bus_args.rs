//! The arguments of `kew bus`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kew_bus_api::Right;
use kew_principals::WhichKey;

use crate::bus_rule_args::RuleCommand;
use crate::bus_topic_args::{SubscriptionCommand, TopicCommand};
use crate::flags::DirectoryArgs;
use crate::operate_args::OperateCommand;
use crate::principal_command::which_key;

#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    #[command(subcommand)]
    pub(super) command: BusCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum BusCommand {
    /// Manage authorization rules, each with rights and two keys.
    ///
    /// A rule of the namespace applies to all queues. A rule of a queue (--entity) applies to that queue and
    /// its dead-letter queue. The namespace and each queue can have 12 rules. If a server uses the data
    /// directory, it makes the change. Otherwise this command changes the directory itself.
    #[command(visible_alias = "auth-rule")]
    AuthorizationRule(AuthorizationArgs),

    /// Manage topics: what is sent to one arrives in its subscriptions.
    #[command(subcommand)]
    Topic(Box<TopicCommand>),

    /// Manage subscriptions of topics.
    #[command(subcommand)]
    Subscription(Box<SubscriptionCommand>),

    /// Manage and test rules of subscriptions: which messages a subscription gets.
    #[command(subcommand)]
    Rule(Box<RuleCommand>),

    /// Export queues, topics, subscriptions and rules as a configuration file of the emulator.
    ///
    /// kew serve --import reads this file. It contains no messages, no authorization rules, and no settings
    /// that the emulator does not have.
    Export(ExportArgs),
    #[command(flatten)]
    Operate(Box<OperateCommand>),
}

#[derive(Debug, Args)]
pub(super) struct AuthorizationArgs {
    #[command(subcommand)]
    pub(super) command: AuthorizationCommand,
    #[command(flatten)]
    pub(super) of: DirectoryArgs,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Write to this file, which must not exist yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) of: DirectoryArgs,
}

/// The scope of rules: the namespace or a queue.
#[derive(Debug, Args)]
pub(crate) struct WhoseArgs {
    /// Use the rules of this queue [default: the rules of the namespace]
    #[arg(long, value_name = "QUEUE")]
    pub(super) entity: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthorizationCommand {
    /// Add a rule and print its two keys with connection strings.
    Add {
        /// The name of the rule: 1 to 256 letters, digits and . - _
        name: String,
        /// Rights, separated by commas: send, listen, manage (which includes the other two)
        #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true)]
        rights: Vec<Right>,
        /// Read a key in Base64 from standard input, and use it as primary and secondary key
        #[arg(long)]
        key_from_stdin: bool,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// List rules and their rights, but not their keys.
    List {
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// Show a rule without its keys.
    Show {
        /// The rule
        name: String,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// Print the two keys of a rule with connection strings. The audit log records it.
    Keys {
        /// The rule
        name: String,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// Replace a key and print the new one. The old key stops working at once.
    #[command(visible_alias = "regenerate")]
    Rotate {
        /// The rule
        name: String,
        /// Which key to replace
        #[arg(long, value_parser = which_key())]
        key: WhichKey,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// Change the rights of a rule. Rights that it loses end at once; its keys stay.
    Set {
        /// The rule
        name: String,
        /// All rights of the rule, separated by commas: send, listen, manage (which includes the other two)
        #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true)]
        rights: Vec<Right>,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// Remove a rule. Its keys stop working at once.
    Remove {
        /// The rule
        name: String,
        #[command(flatten)]
        of: WhoseArgs,
    },
}
