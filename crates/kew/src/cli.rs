//! The command line: its commands, and how answers are printed.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use kew_principals::WhichKey;

use crate::principal_command::which_key;
use crate::quota::{Limit, parse_limit, parse_size, parse_size_limit};

use crate::bus_args::BusArgs;
use crate::flags::{DataDirArgs, DirectoryArgs};
use crate::operate_args::DlqArgs;
use crate::queue_args::QueueArgs;
use crate::queue_command::{Align, printable_lines, table};
use crate::scale_args::ScaleArgs;
use crate::serve_args::ServeArgs;
use crate::transfer_args::{ExportArgs, ImportArgs};

/// A durable message service that speaks Azure Queue Storage and Azure Service Bus.
///
/// Without a command, kew starts the server.
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
    /// Run the server until SIGTERM or SIGINT.
    ///
    /// When all listeners are open, Kew prints NAME=value lines on standard output that a shell can read.
    /// The last one is KEW_READY=1. Everything else goes to standard error.
    Serve(Box<ServeArgs>),
    /// Add, list, change and remove accounts.
    ///
    /// If a server uses the data directory, it makes the change. Otherwise this command changes the
    /// directory itself.
    Account(AccountArgs),
    /// Use and administer Service Bus: queues, messages and authorization rules.
    ///
    /// For rule and export, the server that uses the data directory answers; if there is none, the command
    /// uses the directory itself. All other commands connect to a server with a connection string. Their
    /// exit codes are those of kew queue.
    Bus(BusArgs),
    /// Create certificates for HTTPS.
    Tls(TlsArgs),
    /// Copy the data directory of a running server, or of none, into a backup.
    ///
    /// If a server uses the data directory, it goes on serving, and keeps the files in their place until
    /// they are copied. The backup has everything that was durable when it began, and nothing newer. Each copy
    /// is read back and checked.
    ///
    /// Run it again with the same directory to continue after an interruption, and to bring a backup up to
    /// date: files that did not change are not copied again. The earlier backup stays usable until the new one is
    /// whole. Run it with another directory to keep both.
    ///
    /// A backup has the keys of accounts and rules, so only its owner may read it. It has no certificates.
    Backup(BackupArgs),
    /// Verify a backup, and make a new data directory of it.
    ///
    /// It first reads all of the backup, and stops before it writes anything if any byte is damaged. kew
    /// serve does not open the new directory before it is whole. After an interruption, run it again.
    ///
    /// Pop receipts and locks become invalid: clients may hold some from after the backup. New messages get
    /// sequence numbers far above all earlier ones.
    Restore(RestoreArgs),
    /// Inspect, verify and repair the log of a data directory.
    Log(LogArgs),
    /// Measure how fast this disk makes small writes durable, which limits the speed of every queue.
    DiskTest(DiskTestArgs),
    /// Use Queue Storage: of this server, of Azure, or of an emulator.
    ///
    /// Without --connection-string and its environment variables, kew queue uses the well-known account at
    /// 127.0.0.1:10001, the default address of kew serve. A duration is a number with ms, s, m, h or d; a
    /// number alone means seconds.
    ///
    /// Exit codes: 0 for success; 1 if the service refused, or the queue or message does not exist; 2 for
    /// invalid arguments; 3 if the service did not answer in time or was too busy. A command whose error says
    /// that the outcome is unknown may have changed the queue. Results go to standard output; errors, notes
    /// and progress go to standard error.
    Queue(QueueArgs),
    /// Browse, resubmit and delete dead letters of Service Bus queues.
    ///
    /// The exit codes are those of kew queue.
    Dlq(Box<DlqArgs>),
    /// Write queues, topics and messages of a whole account or namespace as JSON lines. They stay there.
    ///
    /// Lines have the definitions of queues, topics, subscriptions and rules, states of sessions, and messages:
    /// waiting, scheduled, deferred and dead letters. Stop the clients first: the export is not of one moment. Of
    /// Service Bus, it browses messages and locks each session for a moment. Of Queue Storage, it peeks, which shows 32
    /// messages of a queue; use --receive for queues with more.
    ///
    /// Works with Kew, Azure and emulators. Exit code 1 means that a part was not exported; a note names it.
    Export(Box<ExportArgs>),
    /// Create the queues, topics and subscriptions and send the messages that kew export has written.
    ///
    /// If it is interrupted, repeat the same command: it compares the queues with the lines, and sends what is missing
    /// there. It publishes a message of a topic again if its time has passed. Until the import succeeds, no other client
    /// may use the queues. At the end it counts what no command of the service can restore, such as sequence numbers,
    /// delivery counts, and the messages of subscriptions if the service is not Kew.
    Import(Box<ImportArgs>),
    /// Start and stop instances of workers by the load of their queues.
    ///
    /// The agent observes queues of Queue Storage and Service Bus, decides by a documented control law how many instances
    /// of a program they need, and starts and stops them on this machine. Connection strings come from environment
    /// variables that the configuration file names. Exit code 2 means that the file or a variable is wrong.
    Scale(ScaleArgs),
    /// Print shell completions.
    Completions(CompletionsArgs),
    /// Write a manual page for each command.
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
    /// Add an account and print its two keys with connection strings.
    Add {
        /// 3 to 24 lower-case letters and digits
        name: String,
        /// Maximum number of queues
        #[arg(long, value_name = "N")]
        quota_queues: Option<u64>,
        /// Maximum size of all messages; each counts its body and 128 bytes.
        /// A number of bytes, or a number with KiB, MiB, GiB or TiB
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        quota_bytes: Option<u64>,
        /// Read a key in Base64 from standard input, and use it as primary and secondary key
        #[arg(long)]
        key_from_stdin: bool,
    },
    /// List accounts and their quotas, but not their keys.
    List,
    /// Show an account without its keys.
    Show {
        /// The account
        name: String,
    },
    /// Print the two keys of an account with connection strings. The audit log records it.
    Keys {
        /// The account
        name: String,
    },
    /// Replace a key and print the new one. The old key stops working at once.
    Rotate {
        /// The account
        name: String,
        /// Which key to replace
        #[arg(long, value_parser = which_key())]
        key: WhichKey,
    },
    /// Change the quotas of an account, or disable or enable it.
    #[command(group(ArgGroup::new("change").required(true).multiple(true)
        .args(["quota_queues", "quota_bytes", "disable", "enable"])))]
    Set {
        /// The account
        name: String,
        /// Maximum number of queues, or none for no limit
        #[arg(long, value_name = "N|none", value_parser = parse_limit)]
        quota_queues: Option<Limit>,
        /// Maximum size of all messages, or none for no limit
        #[arg(long, value_name = "SIZE|none", value_parser = parse_size_limit)]
        quota_bytes: Option<Limit>,
        /// Refuse all requests to this account
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// Accept requests to this account again
        #[arg(long)]
        enable: bool,
    },
    /// Remove an account.
    Remove {
        /// The account
        name: String,
        /// Delete its queues with all their messages; without this flag, the account must have no queues
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
    /// Create a certificate authority and a server certificate that it signs.
    ///
    /// Writes ca.pem, ca.key, server.pem and server.key, by default into the data directory, where
    /// kew serve finds them. Then prints how to make each SDK trust ca.pem.
    ///
    /// Run it again to renew the server certificate with the same authority, for the same names and those
    /// of --host. A server that runs with TLS loads the new certificate within seconds, or at once on
    /// SIGHUP. Restart a server that was started without TLS. The authority is valid for 10 years, the
    /// server certificate for 397 days.
    ///
    /// The authority can sign only for the names it was created with, and for the addresses of this
    /// machine. For other names, create a new authority with --force, and make clients trust it.
    Init(TlsInitArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TlsInitArgs {
    /// Directory for the files [default: tls in the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR", conflicts_with = "dir")]
    pub(crate) data_dir: Option<PathBuf>,

    /// A name or address that clients use for the server, in addition to localhost,
    /// *.queue.localhost, host.docker.internal, 127.0.0.1 and ::1; repeat it for several
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,

    /// Replace the existing authority with a new one
    #[arg(long)]
    pub(crate) force: bool,

    /// Print the result as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The directory of the backup, empty, missing, or with an earlier backup of the same data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,

    /// How fast to read at most, to copy and to check, in MiB a second; 0 for no limit
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) rate: u64,

    #[command(flatten)]
    pub(crate) of: DirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The directory of the backup
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,

    /// The new data directory, empty or missing; a directory tls may be there
    #[arg(long, value_name = "DIR", required_unless_present = "verify_only")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Verify the backup, and restore nothing
    #[arg(long, conflicts_with = "data_dir")]
    pub(crate) verify_only: bool,

    /// Print progress and the result as lines of JSON
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
    /// List segments and snapshots, and show where the log ends.
    Inspect(DataDirArgs),
    /// Read the whole log and check every checksum. Fails if anything is damaged, and changes nothing.
    Verify(DataDirArgs),
    /// List what a running server has found damaged: places in files, messages, and session states.
    ///
    /// Its scrub reads everything that is durable, at a bounded rate (kew serve --scrub-rate). Requests
    /// read messages from the disk too, above the limit for memory. Pages that are damaged in both copies are counted: no
    /// backup can be made meanwhile. Messages that are set aside because of them are listed. Exit codes: 0 if nothing is
    /// damaged, otherwise 1, also if the server has no scrub.
    Damage(DirectoryArgs),
    /// List what a damaged log has lost; with --accept-loss, repair it.
    ///
    /// Use it when the server does not start with a data directory, or when bodies of messages are damaged.
    /// Stop the server first.
    ///
    /// Run it first without --accept-loss. It then changes nothing, and lists every message that would be
    /// lost and every part of the history that it cannot read. A repair keeps everything that matches its
    /// checksum, even after a damaged place, and alters no message. A message whose deletion cannot be read
    /// comes back. A queue whose name cannot be read is renamed to recovered-N.
    ///
    /// With --accept-loss it lists the same, and then writes a new log with everything else. Damaged files
    /// stay in the data directory, with names that begin with damaged-. If the repair is interrupted, run
    /// it again.
    ///
    /// Exit codes: 0 if there is nothing to repair or the repair succeeded, otherwise 1.
    Repair(RepairArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) of: DataDirArgs,

    /// Accept the listed losses, and repair the log
    #[arg(long)]
    pub(crate) accept_loss: bool,

    /// Print JSON: one line with the losses, and one with the result of the repair
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiskTestArgs {
    /// A directory on the disk to measure. Kew creates a file there and removes it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) data_dir: PathBuf,

    /// How long to measure each size, in seconds, 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, for example: source <(kew completions bash)
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory for the pages; it must exist
    pub(crate) dir: PathBuf,
}

/// Prints a line on standard output, with terminal control characters escaped. A closed output is
/// not an error.
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

/// An error and its causes in one line. Some errors end with the text of their cause: that is
/// printed once.
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
    fn a_cause_is_printed_once() {
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
