//! What can be asked of `kew bus`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kew_bus_api::Right;

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

/// Whom to ask, of those who use a data directory.
#[derive(Debug, Args)]
pub(super) struct DirectoryArgs {
    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR", global = true)]
    pub(super) data_dir: Option<PathBuf>,

    /// The socket of the server, if it is not admin.sock in the data directory
    #[arg(long, env = "KEW_ADMIN_SOCKET", value_name = "PATH", global = true)]
    pub(super) admin_socket: Option<PathBuf>,

    /// Print one line of JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
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
        /// The queue whose rule it is; without it, it is one of the namespace
        #[arg(long, value_name = "QUEUE")]
        entity: Option<String>,
    },
    /// List rules and their rights, without their keys.
    List {
        /// The queue whose rules they are; without it, those of the namespace
        #[arg(long, value_name = "QUEUE")]
        entity: Option<String>,
    },
    /// Remove a rule. Its keys stop working at once.
    Remove {
        /// The rule
        name: String,
        /// The queue whose rule it is; without it, it is one of the namespace
        #[arg(long, value_name = "QUEUE")]
        entity: Option<String>,
    },
    /// Print a rule's two keys with connection strings.
    Keys {
        /// The rule
        name: String,
        /// The queue whose rule it is; without it, it is one of the namespace
        #[arg(long, value_name = "QUEUE")]
        entity: Option<String>,
    },
    /// Make a key anew, and print it. The old one stops working at once.
    Regenerate {
        /// The rule
        name: String,
        /// Which of its keys
        #[arg(long)]
        key: Key,
        /// The queue whose rule it is; without it, it is one of the namespace
        #[arg(long, value_name = "QUEUE")]
        entity: Option<String>,
    },
}
