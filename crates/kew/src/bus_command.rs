//! `kew bus`: Service Bus of a server that runs; its rules also of a data directory that none uses.

pub(crate) mod rule;

use std::process::ExitCode;

use crate::bus_args::{BusArgs, BusCommand};
use crate::cli::print_error;
use crate::operate;

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
