//! `kew bus`: administers Service Bus of a running server; rules and settings also in a data
//! directory that no server uses.

pub(crate) mod authorization_rule;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::admin::reach::ask;
use crate::admin::{Act, Answer};
use crate::bus_args::{BusArgs, BusCommand, ExportArgs};
use crate::cli::{print_error, print_line};
use crate::operate;

pub(crate) fn run(args: BusArgs) -> ExitCode {
    let done = match args.command {
        BusCommand::Operate(command) => return operate::run(&command),
        BusCommand::Topic(command) => return operate::run_topic(&command),
        BusCommand::Subscription(command) => return operate::run_subscription(&command),
        BusCommand::Rule(command) => return operate::run_rule(&command),
        BusCommand::AuthorizationRule(args) => authorization_rule::run(args.command, args.of),
        BusCommand::Export(args) => export(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn export(ExportArgs { output, of }: ExportArgs) -> Result<()> {
    let config = match ask(of.of.data_dir, of.admin_socket, Act::ExportBus)? {
        Ok(Answer::Config { config }) => config,
        Ok(_) => bail!("the server sent an unexpected answer"),
        Err(failure) => bail!("{}", failure.message),
    };
    let text = match of.json {
        true => serde_json::to_string(&config)?,
        false => serde_json::to_string_pretty(&config)?,
    };
    write(&text, output.as_deref())
}

fn write(text: &str, output: Option<&Path>) -> Result<()> {
    let Some(path) = output else {
        print_line(text);
        return Ok(());
    };
    let written = File::create_new(path).and_then(|mut file| writeln!(file, "{text}"));
    written.with_context(|| format!("cannot write {}", path.display()))
}
