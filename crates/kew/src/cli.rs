//! The command line: what can be asked, and how answers are printed.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::quota::{Key, Limit, parse_limit, parse_size, parse_size_limit};

use crate::bus_args::BusArgs;
use crate::flags::{DataDirArgs, DirectoryArgs};
use crate::operate_args::DlqArgs;
use crate::queue_args::QueueArgs;
use crate::queue_command::{Align, printable_lines, table};
use crate::serve_args::ServeArgs;

/// A durable message service that speaks Azure Queue Storage and Azure Service Bus.
///
/// Without a command it serves.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM or SIGINT.
    ///
    /// Once every listener is open, standard output has one NAME=value line a fact, in the form
    /// that a shell reads; KEW_READY=1 is the last. Everything else goes to standard error.
    Serve(Box<ServeArgs>),
    /// Add, list, change and remove accounts.
    ///
    /// Asks the server that uses the data directory; if none does, changes the directory itself.
    Account(AccountArgs),
    /// Administer Service Bus: who may do what, queues and messages.
    ///
    /// Rules are asked of the server that uses the data directory; if none does, the directory itself is
    /// changed. Everything else is asked of a server by a connection string, and exits as kew queue does.
    Bus(BusArgs),
    /// Make certificates with which clients can reach this server over HTTPS.
    Tls(TlsArgs),
    /// Look at the log of a data directory, and repair it if it is damaged.
    Log(LogArgs),
    /// Measure how fast this disk makes small writes durable, which bounds what a queue can do.
    DiskTest(DiskTestArgs),
    /// Use queues: of this server, of the service in the cloud, or of an emulator.
    ///
    /// Without --connection-string and its environment variables it asks the well-known account at
    /// 127.0.0.1:10001, where kew serve serves by default. Durations are a number with ms, s, m, h or d;
    /// a number alone is seconds.
    ///
    /// Exits with 0 if it was done, 1 if the service refused or there is no such queue or message, 2 if
    /// the command line cannot be meant, and 3 if nobody answered, not in time, or the service was too busy.
    /// Results go to standard output; errors, notes and progress to standard error.
    Queue(QueueArgs),
    /// Look at the dead letters of Service Bus queues, send them again or delete them.
    ///
    /// Exits as kew queue does.
    Dlq(Box<DlqArgs>),
    /// Print the completions for a shell, to be read by it.
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command.
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AccountArgs {
    #[command(subcommand)]
    pub(crate) command: AccountCommand,

    #[command(flatten)]
    pub(crate) of: DirectoryArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// Add an account, and print its two keys with connection strings. They are not shown again.
    Add {
        /// 3 to 24 lower-case letters and digits
        name: String,
        /// The most queues it may have
        #[arg(long, value_name = "N")]
        quota_queues: Option<u64>,
        /// The most bytes its messages may take, 128 more than the body for each;
        /// a number, with KiB, MiB, GiB or TiB or without
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        quota_bytes: Option<u64>,
        /// Take a key in Base64 from standard input, for the primary and the secondary one
        #[arg(long)]
        key_from_stdin: bool,
    },
    /// List accounts and their quotas.
    List,
    /// Make a key anew, and print it. The old one stops working at once.
    Rotate {
        /// The account
        name: String,
        /// Which of its keys
        #[arg(long)]
        key: Key,
    },
    /// Change an account's quota, or whether it is served.
    #[command(group(ArgGroup::new("change").required(true).multiple(true)
        .args(["quota_queues", "quota_bytes", "disable", "enable"])))]
    Set {
        /// The account
        name: String,
        /// The most queues it may have, or none
        #[arg(long, value_name = "N|none", value_parser = parse_limit)]
        quota_queues: Option<Limit>,
        /// The most bytes its messages may take, or none
        #[arg(long, value_name = "SIZE|none", value_parser = parse_size_limit)]
        quota_bytes: Option<Limit>,
        /// Refuse every request to it
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// Serve it again
        #[arg(long)]
        enable: bool,
    },
    /// Remove an account.
    Remove {
        /// The account
        name: String,
        /// Delete its queues with all in them; otherwise it must have none
        #[arg(long)]
        with_queues: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    #[command(subcommand)]
    pub(crate) command: TlsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Make a certificate authority of your own, and a certificate for this server by it.
    ///
    /// Writes ca.pem, ca.key, server.pem and server.key. `kew serve` uses them by itself if they are in
    /// its data directory, which is where they go by default. Then tells how each SDK is made to
    /// trust ca.pem.
    ///
    /// Run again, it makes a new certificate for the server by the same authority, for the same
    /// names and those of --host. A server that runs with TLS loads it within seconds, or at once on
    /// SIGHUP; one that was started without TLS has to be restarted. The authority is valid for 10 years,
    /// the server's certificate for 397 days.
    ///
    /// The authority can vouch only for the names that it was made for, and for the addresses of
    /// this machine. For other names a new one is made with --force, which has to be trusted anew.
    Init(TlsInitArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TlsInitArgs {
    /// Where to put the files [default: tls in the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR", conflicts_with = "dir")]
    pub(crate) data_dir: Option<PathBuf>,

    /// A name or an address under which clients reach the server, besides localhost,
    /// *.queue.localhost, host.docker.internal, 127.0.0.1 and ::1; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,

    /// Make a new authority in place of the one that is there
    #[arg(long)]
    pub(crate) force: bool,

    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) command: LogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// List segments and snapshots, and where the log begins and ends.
    Inspect(DataDirArgs),
    /// Read everything and check every checksum; fails if anything is damaged. Changes nothing.
    Verify(DataDirArgs),
    /// List what a damaged log has lost; with --accept-loss, go on without it.
    ///
    /// For a data directory with which the server does not start, or with messages whose bodies are
    /// damaged. No server may be running.
    ///
    /// First run it without --accept-loss: it changes nothing and lists every message that would be
    /// lost, and every part of the history that cannot be read. Whatever matches its checksum is
    /// kept, also behind damage; no message is altered. A message whose deletion cannot be read
    /// comes back. A queue whose name cannot be read is kept as recovered-N.
    ///
    /// With --accept-loss it lists the same, and then makes a new log of the rest. Damaged files
    /// stay in the data directory, under names that begin with damaged-. An interruption does no
    /// harm: run it again.
    ///
    /// Exits with 0 if there is nothing to repair or it was repaired, and with 1 otherwise.
    Repair(RepairArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) of: DataDirArgs,

    /// Give up what is listed, and make a new log of the rest
    #[arg(long)]
    pub(crate) accept_loss: bool,

    /// Print JSON: one line that lists, and one that says what was done
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiskTestArgs {
    /// A directory on the disk to measure; a file is made in it and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) data_dir: PathBuf,

    /// How long to measure each size, in seconds, 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell, for example: source <(kew completions bash)
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory to write them to; it must be there
    pub(crate) dir: PathBuf,
}

/// Prints a line on standard output, with what a terminal would obey escaped. Nobody reading it is no
/// reason to fail.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", printable_lines(line)).and_then(|()| out.flush());
}

/// Prints a table on standard output.
pub(crate) fn print_table(columns: &[(&str, Align)], rows: &[Vec<String>]) {
    for line in table(columns, rows) {
        print_line(&line);
    }
}

/// Prints an error with its causes on standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "kew: {}", printable_lines(&with_causes(error)));
}

/// An error and its causes in one line. Some errors end with the text of their cause: that is said once.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |said, cause| {
        let cause = cause.to_string();
        match said.ends_with(&cause) {
            true => said,
            false if said.is_empty() => cause,
            false => format!("{said}: {cause}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("Permission denied (os error 13)")
            .context("cannot open data/lock: Permission denied (os error 13)")
            .context("cannot use the data directory data");
        assert_eq!(
            with_causes(&error),
            "cannot use the data directory data: cannot open data/lock: Permission denied (os error 13)"
        );
        assert_eq!(with_causes(&anyhow!("alone")), "alone");
    }
}
