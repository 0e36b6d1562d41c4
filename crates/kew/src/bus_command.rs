//! `kew bus`: Service Bus of a server that runs.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::operate::{self, OperateCommand};

#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    #[command(subcommand)]
    command: BusCommand,
}

#[derive(Debug, Subcommand)]
enum BusCommand {
    #[command(flatten)]
    Operate(OperateCommand),
}

pub(crate) fn run(args: &BusArgs) -> ExitCode {
    match &args.command {
        BusCommand::Operate(command) => operate::run(command),
    }
}
