//! `kew bus`: Service Bus of a server that runs, or of a data directory that none uses.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) mod rule;

use rule::RuleCommand;

#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    #[command(subcommand)]
    command: BusCommand,

    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    /// The socket of the server, if it is not admin.sock in the data directory
    #[arg(long, env = "KEW_ADMIN_SOCKET", value_name = "PATH", global = true)]
    admin_socket: Option<PathBuf>,

    /// Print one line of JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BusCommand {
    /// Say who may do what: authorization rules, each with rights and two keys.
    ///
    /// A rule of the namespace holds everywhere, one of a queue (--entity) there alone, and in its
    /// dead-letter queue. There are at most 12 of each.
    #[command(subcommand)]
    Rule(RuleCommand),
}

pub(crate) fn run(args: BusArgs) -> Result<()> {
    let BusArgs {
        command,
        data_dir,
        admin_socket,
        json,
    } = args;
    match command {
        BusCommand::Rule(command) => rule::run(command, data_dir, admin_socket, json),
    }
}
