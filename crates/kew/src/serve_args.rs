//! The arguments of `kew serve`.

use std::path::PathBuf;

use clap::Args;

/// The settings of `kew serve`. A flag overrides its environment variable, and that the file. The
/// variables are read where the settings are completed, so that each place can be checked
/// separately.
#[derive(Debug, Default, Args)]
#[allow(
    rustdoc::bare_urls,
    reason = "these texts are shown on a terminal, as they are"
)]
pub(crate) struct ServeArgs {
    /// The directory for messages; Kew creates it if it does not exist
    /// [env: KEW_DATA_DIR] [default: $XDG_DATA_HOME/kew or ~/.local/share/kew]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Keep everything in memory and forget it at shutdown [env: KEW_EPHEMERAL=true|false]
    #[arg(long)]
    pub(crate) ephemeral: bool,

    /// Address for Queue Storage; repeat it for several, and separate them with commas in the
    /// environment. Port 0 picks a free port. Without --bus-listen, this flag turns Service Bus off
    /// [env: KEW_QUEUE_LISTEN] [default: 127.0.0.1:10001]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) queue_listen: Vec<String>,

    /// Address for Service Bus over AMQP, WebSockets and HTTP; repeat it for several, and separate them
    /// with commas in the environment. Port 0 picks a free port; "none" turns Service
    /// Bus off [env: KEW_BUS_LISTEN] [default: 127.0.0.1 with ports 5672 and 5300, and with a certificate
    /// also 5671 and 443, as far as Kew can open them; none if --queue-listen is given]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bus_listen: Vec<String>,

    /// Create the Service Bus queues, topics and subscriptions in the emulator's configuration file
    /// (Config.json), and update the settings of those that exist [env: KEW_IMPORT] [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) import: Option<PathBuf>,

    /// Serve the well-known account, whose key is public, to other machines
    /// [env: KEW_ALLOW_PUBLIC_KEY=true|false]
    #[arg(long)]
    pub(crate) allow_public_key: bool,

    /// Do not serve the well-known account to any client [env: KEW_NO_PUBLIC_KEY=true|false]
    #[arg(long, conflicts_with = "allow_public_key")]
    pub(crate) no_public_key: bool,

    /// A name that clients use for this server, such as kew.example.net, *.example.net or an address;
    /// repeat it for several, and separate them with commas in the environment. The public key works only
    /// under these names, localhost, loopback addresses and the names in the certificate [env: KEW_SERVER_NAME] [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Vec<String>,

    /// Path of the administration socket
    /// [env: KEW_ADMIN_SOCKET] [default: admin.sock in the data directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) admin_socket: Option<PathBuf>,
    /// Serve HTTPS on the same ports with this certificate chain in PEM, the server's own certificate
    /// first. Kew reloads it on SIGHUP and when it changes
    /// [env: KEW_TLS_CERT] [default: tls/server.pem in the data directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate: PEM with PKCS#8, SEC 1 or PKCS#1, without a passphrase
    /// [env: KEW_TLS_KEY] [default: tls/server.key in the data directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Refuse all requests without TLS, including those from this machine
    /// [env: KEW_TLS_ONLY=true|false]
    #[arg(long)]
    pub(crate) tls_only: bool,

    /// Serve other machines without TLS. Anyone who can see a request on the network can read it, and
    /// repeat it for 15 minutes [env: KEW_ALLOW_PLAIN_HTTP=true|false]
    #[arg(long)]
    pub(crate) allow_plain_http: bool,

    /// Address for metrics and health checks; repeat it for several, and separate them with commas in
    /// the environment. Metrics show the names of accounts and queues and need no credentials. Clients on
    /// this machine can also read /metrics on the other listeners [env: KEW_METRICS_LISTEN] [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics_listen: Vec<String>,

    /// How many queues have metrics of their own, 0 to 10000. Kew picks the queues with the most
    /// messages and adds up the others [env: KEW_METRICS_QUEUES] [default: 100]
    #[arg(long, value_name = "COUNT")]
    pub(crate) metrics_queues: Option<u64>,

    /// Log lines for people (text) or for programs (json). To choose what is logged, set the environment
    /// variable KEW_LOG to a level and TARGET=LEVEL pairs, such as warn or info,kew::access=debug; the
    /// default level is info [env: KEW_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "text|json")]
    pub(crate) log_format: Option<String>,

    /// Log requests that take at least this long, in milliseconds, 1 to 3600000
    /// [env: KEW_SLOW_REQUEST] [default: none]
    #[arg(long, value_name = "MS")]
    pub(crate) slow_request: Option<u64>,

    /// Accept bearer tokens of this issuer, such as https://login.example/tenant/v2.0, which is the
    /// value of their iss claim; repeat it for several, and separate them with commas in the environment
    /// [env: KEW_ISSUER] [default: none; Kew refuses all tokens]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Vec<String>,

    /// Where to find the issuer's public keys, a JSON Web Key Set. With several issuers, give one for
    /// each in their order; an empty value means the default. Separate them with commas in the environment
    /// [env: KEW_ISSUER_KEYS] [default: the jwks_uri in ISSUER/.well-known/openid-configuration]
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) issuer_keys: Vec<String>,

    /// Accept tokens for this audience, from every issuer; repeat it for several, and separate them with
    /// commas in the environment
    /// [env: KEW_AUDIENCE] [default: https://storage.azure.com,
    /// https://ACCOUNT.queue.core.windows.net, and the id of the Azure Storage application; for
    /// Service Bus https://servicebus.azure.net]
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) audience: Vec<String>,

    /// The claim that holds a user's roles. With several issuers, give one for all of them or one for each
    /// in their order, separated by commas in the environment [env: KEW_ROLE_CLAIM] [default: roles]
    #[arg(long, value_name = "CLAIM")]
    pub(crate) role_claim: Vec<String>,

    /// Map a value of that claim to a role: reader, processor, sender, contributor or delegator, and for
    /// Service Bus bus-owner, bus-sender or bus-receiver; repeat it for several, and separate them with
    /// commas in the environment [env: KEW_ROLES]
    /// [default: the names of the built-in roles, such as StorageQueueDataReader]
    #[arg(long, value_name = "VALUE=ROLE")]
    pub(crate) role: Vec<String>,

    /// Accept tokens without TLS from this machine. For development only: anyone who can read a token can
    /// use it [env: KEW_ISSUER_ALLOW_HTTP=true|false]
    #[arg(long)]
    pub(crate) issuer_allow_http: bool,

    /// How long the name of a deleted queue stays taken, 0 to 3600. Meanwhile, Create Queue answers
    /// QueueBeingDeleted, as in Azure for about 30 seconds. A restart frees the names
    /// [env: KEW_QUEUE_DELETION_DELAY] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) queue_deletion_delay: Option<u64>,

    /// How fast to read everything that is durable, once a day, to find damage before a client needs the data; in
    /// MiB a second, 0 to 10000. 0 turns it off [env: KEW_SCRUB_RATE] [default: 8]
    #[arg(long, value_name = "MIB")]
    pub(crate) scrub_rate: Option<u64>,

    /// How much memory to use for messages, without their bodies; in MiB, up to 1048576. A message takes 61 bytes. Above
    /// three quarters of the limit, messages leave memory that a snapshot has written, and are read from the disk when a
    /// client needs them. 0 is no limit, and then each start reads all messages. Not with --ephemeral
    /// [env: KEW_RESIDENT_MEMORY] [default: 32, or 2 bytes for each message if that is more]
    #[arg(long, value_name = "MIB")]
    pub(crate) resident_memory: Option<u64>,

    /// Read settings from this TOML file: data_dir, ephemeral, queue_listen, bus_listen, import, allow_public_key,
    /// no_public_key, server_name, admin_socket, tls_cert, tls_key, tls_only, allow_plain_http, metrics_listen,
    /// metrics_queues, log_format, slow_request, queue_deletion_delay, scrub_rate, resident_memory, and a table
    /// issuer with url, keys, audience, role_claim, roles and allow_http, or an array of such tables. docs/configuration.md
    /// describes each of them
    /// [env: KEW_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
