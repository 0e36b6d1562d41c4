//! The command line: what can be asked, and how answers are printed.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::quota::{Key, Limit, parse_limit, parse_size, parse_size_limit};

use crate::bus_args::BusArgs;
use crate::operate_args::DlqArgs;
use crate::queue_args::QueueArgs;

/// A durable message service that speaks Azure Queue Storage.
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

/// The settings of `kew serve`. A flag comes before its environment variable, and that before the
/// file. The variables are read where the settings are completed, so that each place can be judged
/// by itself.
#[derive(Debug, Default, Args)]
#[allow(
    rustdoc::bare_urls,
    reason = "these texts are shown on a terminal, as they are"
)]
pub(crate) struct ServeArgs {
    /// The directory that holds the messages; created if it is not there
    /// [env: KEW_DATA_DIR] [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Keep everything in memory, and forget it at the end [env: KEW_EPHEMERAL=true|false]
    #[arg(long)]
    pub(crate) ephemeral: bool,

    /// Where to serve Queue Storage; repeatable, and in the environment separated by commas;
    /// port 0 picks a free one [env: KEW_QUEUE_LISTEN] [default: 127.0.0.1:10001]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) queue_listen: Vec<String>,

    /// Where to serve Service Bus queues, a preview: AMQP, AMQP within WebSockets and HTTP on each
    /// address; repeatable, and in the environment separated by commas; port 0 picks a free one, and
    /// none serves it nowhere [env: KEW_BUS_LISTEN] [default: 127.0.0.1:5672 and 127.0.0.1:5300, with
    /// a certificate also 127.0.0.1:5671 and 127.0.0.1:443, as far as they can be had; none if
    /// --queue-listen is given]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bus_listen: Vec<String>,

    /// Create the Service Bus queues of a configuration file of the emulator (Config.json), or give
    /// those that are there its settings [env: KEW_IMPORT] [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) import: Option<PathBuf>,

    /// Serve the well-known account, whose key is public, on addresses that other machines can
    /// reach [env: KEW_ALLOW_PUBLIC_KEY=true|false]
    #[arg(long)]
    pub(crate) allow_public_key: bool,

    /// Do not serve the well-known account at all [env: KEW_NO_PUBLIC_KEY=true|false]
    #[arg(long, conflicts_with = "allow_public_key")]
    pub(crate) no_public_key: bool,

    /// Where to open the socket for administration
    /// [env: KEW_ADMIN_SOCKET] [default: admin.sock in the data directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) admin_socket: Option<PathBuf>,
    /// Serve HTTPS as well, on the same ports, with this certificate: PEM, the server's own first;
    /// read again on SIGHUP and when it changes
    /// [env: KEW_TLS_CERT] [default: tls/server.pem in the data directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate: PEM with PKCS#8, SEC 1 or PKCS#1, without a passphrase
    /// [env: KEW_TLS_KEY] [default: tls/server.key in the data directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Refuse requests without TLS from everywhere, also from this machine
    /// [env: KEW_TLS_ONLY=true|false]
    #[arg(long)]
    pub(crate) tls_only: bool,

    /// Serve other machines without TLS, too: whoever sees a request on its way can read it, and
    /// repeat it for 15 minutes [env: KEW_ALLOW_PLAIN_HTTP=true|false]
    #[arg(long)]
    pub(crate) allow_plain_http: bool,

    /// Where to serve metrics and health to anybody who asks; repeatable, and in the environment
    /// separated by commas. Metrics name accounts and queues and need no credential. Clients on this
    /// machine find /metrics on the other listeners, too [env: KEW_METRICS_LISTEN] [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics_listen: Vec<String>,

    /// How many queues have metrics of their own, 0 to 10000: those with the most messages; the
    /// others are added up [env: KEW_METRICS_QUEUES] [default: 100]
    #[arg(long, value_name = "COUNT")]
    pub(crate) metrics_queues: Option<u64>,

    /// Log in lines for people (text) or for programs (json) [env: KEW_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "text|json")]
    pub(crate) log_format: Option<String>,

    /// Log requests that take as long as this, in milliseconds, 1 to 3600000
    /// [env: KEW_SLOW_REQUEST] [default: none]
    #[arg(long, value_name = "MS")]
    pub(crate) slow_request: Option<u64>,

    /// The issuer of the bearer tokens to take, such as https://login.example/tenant/v2.0: what
    /// their claim iss says [env: KEW_ISSUER] [default: none, and tokens are refused]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,

    /// Where its public keys are: a JSON Web Key Set [env: KEW_ISSUER_KEYS]
    /// [default: where ISSUER/.well-known/openid-configuration says]
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) issuer_keys: Option<String>,

    /// What the tokens may be for; repeatable, and in the environment separated by commas
    /// [env: KEW_AUDIENCE] [default: https://storage.azure.com,
    /// https://ACCOUNT.queue.core.windows.net, and the id of the Azure Storage application; for
    /// Service Bus https://servicebus.azure.net]
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) audience: Vec<String>,

    /// The claim that names the roles of a user [env: KEW_ROLE_CLAIM] [default: roles]
    #[arg(long, value_name = "CLAIM")]
    pub(crate) role_claim: Option<String>,

    /// What a value of that claim means: reader, processor, sender, contributor or delegator, and for
    /// Service Bus bus-owner, bus-sender or bus-receiver; repeatable, and in the environment separated by commas [env: KEW_ROLES]
    /// [default: the names of the built-in roles, such as StorageQueueDataReader]
    #[arg(long, value_name = "VALUE=ROLE")]
    pub(crate) role: Vec<String>,

    /// Take tokens from this machine without TLS: for development, because whoever reads a token
    /// has it [env: KEW_ISSUER_ALLOW_HTTP=true|false]
    #[arg(long)]
    pub(crate) issuer_allow_http: bool,

    /// How long the name of a deleted queue cannot be taken, 0 to 3600: Create Queue then answers
    /// QueueBeingDeleted, as the service does for half a minute; a restart frees the names
    /// [env: KEW_QUEUE_DELETION_DELAY] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) queue_deletion_delay: Option<u64>,

    /// A TOML file with these settings: data_dir, ephemeral, queue_listen, bus_listen, import, allow_public_key,
    /// no_public_key, admin_socket, tls_cert, tls_key, tls_only, allow_plain_http, metrics_listen,
    /// metrics_queues, log_format, slow_request, queue_deletion_delay, and a table issuer with url,
    /// keys, audience, role_claim, roles and allow_http
    /// [env: KEW_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AccountArgs {
    #[command(subcommand)]
    pub(crate) command: AccountCommand,

    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<PathBuf>,

    /// The socket of the server, if it is not admin.sock in the data directory
    #[arg(long, env = "KEW_ADMIN_SOCKET", value_name = "PATH", global = true)]
    pub(crate) admin_socket: Option<PathBuf>,

    /// Print one line of JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
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
    /// names and those of --host; a running server takes it into use by itself. The authority is
    /// valid for 10 years, the server's certificate for 397 days.
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
pub(crate) struct DataDirArgs {
    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The data directory
    /// [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, env = "KEW_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

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

/// Prints a line on standard output. Nobody reading it is no reason to fail.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints an error with its causes on standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "kew: {error:#}");
}
