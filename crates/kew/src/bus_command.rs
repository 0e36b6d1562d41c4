//! `kew bus`: Service Bus of a server that runs, or of a data directory that none uses.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};

pub(crate) mod rule;

use rule::RuleCommand;

use crate::admin::reach::ask;
use crate::admin::{Act, Answer};
use crate::cli::print_line;

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

    /// Print the queues and their settings as a configuration file of the emulator, which --import
    /// of kew serve takes.
    ///
    /// It has no messages, no authorization rules, and no setting that such files do not have.
    Export {
        /// Write it to this file, which must not be there yet
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
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
        BusCommand::Export { output } => {
            let config = match ask(data_dir, admin_socket, Act::ExportBus)? {
                Ok(Answer::Config { config }) => config,
                Ok(_) => bail!("the server answered about something else"),
                Err(failure) => bail!("{}", failure.message),
            };
            let text = match json {
                true => serde_json::to_string(&config)?,
                false => serde_json::to_string_pretty(&config)?,
            };
            write(&text, output.as_deref())
        }
    }
}

fn write(text: &str, output: Option<&Path>) -> Result<()> {
    let Some(path) = output else {
        print_line(text);
        return Ok(());
    };
    let written = File::create_new(path).and_then(|mut file| writeln!(file, "{text}"));
    written.with_context(|| format!("cannot write {}", path.display()))
}
