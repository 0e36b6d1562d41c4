//! `kew bus`: Service Bus of a server that runs; its rules also of a data directory that none uses.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(crate) mod rule;

use crate::cli::print_error;
use crate::operate::{self, OperateCommand};
use rule::RuleCommand;

#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    #[command(subcommand)]
    command: BusCommand,
}

#[derive(Debug, Subcommand)]
enum BusCommand {
    /// Say who may do what: authorization rules, each with rights and two keys.
    ///
    /// A rule of the namespace holds everywhere, one of a queue (--entity) there alone, and in its
    /// dead-letter queue. There are at most 12 of each. Asks the server that uses the data directory; if
    /// none does, changes the directory itself.
    Rule(RuleArgs),
    #[command(flatten)]
    Operate(Box<OperateCommand>),
}

#[derive(Debug, Args)]
struct RuleArgs {
    #[command(subcommand)]
    command: RuleCommand,

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

pub(crate) fn run(args: BusArgs) -> ExitCode {
    let rule = match args.command {
        BusCommand::Operate(command) => return operate::run(&command),
        BusCommand::Rule(rule) => rule,
    };
    match rule::run(rule.command, rule.data_dir, rule.admin_socket, rule.json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}
