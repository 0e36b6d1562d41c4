//! What can be asked of `kew serve`.

use std::path::PathBuf;

use clap::Args;

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
    /// port 0 picks a free one. Given without --bus-listen, it turns Service Bus off
    /// [env: KEW_QUEUE_LISTEN] [default: 127.0.0.1:10001]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) queue_listen: Vec<String>,

    /// Where to serve Service Bus queues: AMQP, AMQP within WebSockets and HTTP on each address;
    /// repeatable, and in the environment separated by commas; port 0 picks a free one, and none
    /// turns Service Bus off [env: KEW_BUS_LISTEN] [default: those of 127.0.0.1:5672, 127.0.0.1:5300
    /// and, with a certificate, 127.0.0.1:5671 and 127.0.0.1:443 that can be opened; none if
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

    /// A name by which clients call this server, such as kew.example.net, *.example.net or an address;
    /// repeatable, and in the environment separated by commas. The public key is taken only from clients
    /// that call the server by one of these, by localhost or a loopback address, or by a name in its
    /// certificate [env: KEW_SERVER_NAME] [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Vec<String>,

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

    /// Log in lines for people (text) or for programs (json). What is logged, the environment variable
    /// KEW_LOG says: a level, and TARGET=LEVEL for parts, such as warn or info,kew::access=debug; info
    /// without it [env: KEW_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "text|json")]
    pub(crate) log_format: Option<String>,

    /// Log requests that take as long as this, in milliseconds, 1 to 3600000
    /// [env: KEW_SLOW_REQUEST] [default: none]
    #[arg(long, value_name = "MS")]
    pub(crate) slow_request: Option<u64>,

    /// An issuer of the bearer tokens to take, such as https://login.example/tenant/v2.0: what
    /// their claim iss says; repeatable, and in the environment separated by commas
    /// [env: KEW_ISSUER] [default: none, and tokens are refused]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Vec<String>,

    /// Where its public keys are: a JSON Web Key Set. With several issuers, one for each in their
    /// order, where an empty one means the default; in the environment separated by commas
    /// [env: KEW_ISSUER_KEYS] [default: where ISSUER/.well-known/openid-configuration says]
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) issuer_keys: Vec<String>,

    /// What the tokens may be for, of every issuer; repeatable, and in the environment separated by commas
    /// [env: KEW_AUDIENCE] [default: https://storage.azure.com,
    /// https://ACCOUNT.queue.core.windows.net, and the id of the Azure Storage application; for
    /// Service Bus https://servicebus.azure.net]
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) audience: Vec<String>,

    /// The claim that names the roles of a user. With several issuers one for all, or one for each in
    /// their order; in the environment separated by commas [env: KEW_ROLE_CLAIM] [default: roles]
    #[arg(long, value_name = "CLAIM")]
    pub(crate) role_claim: Vec<String>,

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
    /// no_public_key, server_name, admin_socket, tls_cert, tls_key, tls_only, allow_plain_http, metrics_listen,
    /// metrics_queues, log_format, slow_request, queue_deletion_delay, and a table issuer with url,
    /// keys, audience, role_claim, roles and allow_http, or an array of such tables: docs/configuration.md has
    /// them all
    /// [env: KEW_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
