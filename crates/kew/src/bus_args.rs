//! What can be asked of `kew bus`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kew_bus_api::Right;

use crate::flags::DirectoryArgs;
use crate::operate_args::OperateCommand;
use crate::quota::Key;

#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    #[command(subcommand)]
    pub(super) command: BusCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum BusCommand {
    /// Say who may do what: authorization rules, each with rights and two keys.
    ///
    /// A rule of the namespace holds everywhere, one of a queue (--entity) there alone, and in its
    /// dead-letter queue. There are at most 12 of each. Asks the server that uses the data directory; if
    /// none does, changes the directory itself.
    Rule(RuleArgs),

    /// Print the queues and their settings as a configuration file of the emulator, which --import
    /// of kew serve takes.
    ///
    /// It has no messages, no authorization rules, and no setting that such files do not have.
    Export(ExportArgs),
    #[command(flatten)]
    Operate(Box<OperateCommand>),
}

#[derive(Debug, Args)]
pub(super) struct RuleArgs {
    #[command(subcommand)]
    pub(super) command: RuleCommand,
    #[command(flatten)]
    pub(super) of: DirectoryArgs,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Write it to this file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) of: DirectoryArgs,
}

/// Whose rules are meant.
#[derive(Debug, Args)]
pub(crate) struct WhoseArgs {
    /// The queue whose they are; without it, the namespace's
    #[arg(long, value_name = "QUEUE")]
    pub(super) entity: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Add a rule, and print its two keys with connection strings.
    Add {
        /// 1 to 256 letters, digits and . - _
        name: String,
        /// What it allows, separated by commas: send, listen, manage (which includes the others)
        #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true)]
        rights: Vec<Right>,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// List rules and their rights, without their keys.
    List {
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
    /// Print a rule's two keys with connection strings.
    Keys {
        /// The rule
        name: String,
        #[command(flatten)]
        of: WhoseArgs,
    },
    /// Make a key anew, and print it. The old one stops working at once.
    Regenerate {
        /// The rule
        name: String,
        /// Which of its keys
        #[arg(long)]
        key: Key,
        #[command(flatten)]
        of: WhoseArgs,
    },
}
