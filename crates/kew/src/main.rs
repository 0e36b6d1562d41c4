//! The `kew` command: a durable message service, and the tools for its operators.

mod accept;
mod account_command;
mod admin;
mod backup_command;
mod bus;
mod bus_args;
mod bus_command;
mod bus_entity_args;
mod bus_message_args;
mod bus_rule_args;
mod bus_session_args;
mod bus_tool_args;
mod bus_topic_args;
mod cli;
mod completions;
mod disk_test;
mod flags;
mod holders;
mod importing;
mod input;
mod issuer_keys;
mod log_command;
mod logs;
mod migration;
mod open_files;
mod operate;
mod operate_args;
mod portable;
mod principal_command;
mod proxy;
mod queue_args;
mod queue_command;
mod queue_values;
mod quota;
mod restore_command;
mod safe_json;
mod scale_args;
mod scale_command;
mod serve;
mod serve_args;
mod settings;
mod start_error;
mod tls_command;
mod transfer;
mod transfer_args;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};
use mimalloc::MiMalloc;

/// Commands, bodies and answers are allocated on the threads of connections and freed on the
/// partition's, and the reverse. Memory that one thread allocates and another frees is the worst
/// case of glibc's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The exit code for an invalid command line or configuration.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => serve::run(cli.serve),
        Some(Command::Serve(args)) => serve::run(*args),
        Some(Command::Account(args)) => account_command::run(args),
        Some(Command::Tls(args)) => tls_command::run(&args),
        Some(Command::Backup(args)) => backup_command::run(args),
        Some(Command::Restore(args)) => restore_command::run(&args),
        Some(Command::Log(args)) => log_command::run(&args),
        Some(Command::DiskTest(args)) => disk_test::run(&args),
        Some(Command::Queue(args)) => return queue_command::run(&args),
        Some(Command::Bus(args)) => return bus_command::run(args),
        Some(Command::Export(args)) => return transfer::export(&args),
        Some(Command::Import(args)) => return transfer::import(&args),
        Some(Command::Dlq(args)) => return operate::run_dlq(&args),
        Some(Command::Scale(args)) => scale_command::run(&args),
        Some(Command::Completions(args)) => completions::run(&args),
        Some(Command::Man(args)) => completions::write_manual(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::print_error(&error);
            if error.is::<settings::SettingsError>() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
