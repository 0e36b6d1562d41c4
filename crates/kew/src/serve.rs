//! `kew serve`: opens the data and the listeners, serves, and stops.

mod fronts;
mod signals;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kew_broker::{Broker, BrokerOptions};
use kew_bus_message::AmqpFormat;
use kew_issuer::Issuers;
use kew_listen::{
    CertificateFacts, CertificateFiles, Door, DoorLimits, ServerNames, ServerNamesOptions, Tls,
    TlsOptions,
};
use kew_log::{DataDir, MemoryStorage, Recovery, Storage};
use kew_queue_api::Accounts;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin;
use crate::admin::rule::BusEndpoint;
use crate::bus;
use crate::cli::print_line;
use crate::holders;
use crate::issuer_keys::KeyKeeper;
use crate::migration::migrate_if_old;
use crate::open_files;
use crate::serve_args::ServeArgs;
use crate::settings::tls::{PlainHttp, TlsSettings};
use crate::settings::{Place, Settings};
use crate::start_error;
use crate::tls_command::{HOST_OF_CONTAINERS, LOCALHOST};
use fronts::{Fronts, Listeners};
use signals::Signals;

/// How long requests in progress may take after the server was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: ServeArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("kew-front")
        .build()
        .context("cannot start threads")?;
    // This comes first, so that an early SIGHUP does not end the process.
    let signals = {
        let _entered = runtime.enter();
        Signals::take_over()?
    };
    let settings = Settings::from_args(args)?;
    crate::logs::init(settings.observing.log_format)?;
    let open_files_max = open_files::raise();
    let result = runtime.block_on(serve(settings, open_files_max, signals));
    // A recovery that was interrupted by a signal need not finish: the next one repeats it.
    runtime.shutdown_background();
    result
}

/// How brokers run that have front ends.
pub(crate) fn broker_options() -> BrokerOptions {
    let mut options = BrokerOptions::default();
    options.partition.format = Arc::new(AmqpFormat);
    options
}

async fn serve(settings: Settings, open_files_max: u64, mut signals: Signals) -> Result<()> {
    let keepers = settings.issuers.iter().cloned().map(KeyKeeper::start);
    let keepers = keepers.collect::<Result<Vec<_>>>()?;
    // The ports are bound now, to report one in use at once. They are opened when a put would
    // succeed.
    let imported = settings.import.as_deref().map(bus::read).transpose()?;
    let sockets = Sockets {
        bus: bus::bind(&settings.bus_listen)?,
        queue: bind(&settings.queue_listen, QUEUE_LISTEN)?,
        metrics: bind(&settings.observing.metrics_listen, METRICS_LISTEN)?,
    };
    let tls = open_tls(&settings.tls)?;
    signals.answer_hangup(tls.as_ref(), &settings.place);
    let (_data_dir, storage) = open_storage(&settings.place)?;
    let mut options = broker_options();
    options.partition.scrub_bytes_per_second = match &settings.place {
        // There is no disk.
        Place::Memory => 0,
        Place::Directory(_) => settings.scrub_bytes_per_second,
    };
    options.partition.resident_limit = settings.resident_limit;
    let starting = tokio::task::spawn_blocking(|| Broker::start(storage, options));
    let started = tokio::select! {
        started = starting => started.context("the recovery panicked")?,
        () = signals.stop() => return Ok(()),
    };
    let (broker, recovery) = started.map_err(|error| match &settings.place {
        Place::Memory => anyhow!(error).context("cannot start"),
        Place::Directory(path) => start_error::explain(error, path),
    })?;
    log_recovery(&settings.place, &recovery);
    if let Some(queues) = imported {
        bus::import(&broker, queues).await?;
    }
    let issuers = keepers.iter().map(|keeper| Arc::clone(&keeper.issuer));
    let issuers: Issuers = issuers.collect();
    for keeper in keepers {
        tokio::spawn(keeper.run());
    }
    let served = serve_until_stopped(
        &settings,
        issuers,
        open_files_max,
        sockets,
        tls,
        &broker,
        &mut signals,
    )
    .await;
    tokio::task::spawn_blocking(move || broker.stop())
        .await
        .context("the partition did not stop in order")?;
    served?;
    tracing::info!("stopped");
    Ok(())
}

/// The certificate, if one is configured.
fn open_tls(settings: &TlsSettings) -> Result<Option<Arc<Tls>>> {
    let Some(files) = &settings.files else {
        return Ok(None);
    };
    let options = TlsOptions {
        files: CertificateFiles {
            certificate: files.cert.clone(),
            key: files.key.clone(),
        },
        // One list for all listeners: the first bytes decide the protocol, not the client's ALPN.
        protocols: vec![b"http/1.1".to_vec(), b"amqp".to_vec()],
    };
    let tls = Tls::open(options).context("cannot serve TLS")?;
    Ok(Some(Arc::new(tls)))
}

/// The lock on the data directory, if there is one, and the storage of the messages.
fn open_storage(place: &Place) -> Result<(Option<DataDir>, Arc<dyn Storage>)> {
    match place {
        Place::Memory => Ok((None, Arc::new(MemoryStorage::new()))),
        Place::Directory(path) => {
            migrate_if_old(path)?;
            let data_dir = DataDir::open(path)
                .map_err(holders::of_data_dir)
                .with_context(|| format!("cannot use the data directory {}", path.display()))?;
            let storage = data_dir
                .storage()
                .with_context(|| format!("cannot use the data directory {}", path.display()))?;
            Ok((Some(data_dir), Arc::new(storage)))
        }
    }
}

fn describe(place: &Place) -> String {
    match place {
        Place::Memory => "nothing but memory".into(),
        Place::Directory(path) => format!("the data directory {}", path.display()),
    }
}

fn log_recovery(place: &Place, recovery: &Recovery) {
    if *place == Place::Memory {
        tracing::warn!("--ephemeral: everything is kept in memory and forgotten at the end");
        return;
    }
    tracing::info!(
        epoch = recovery.epoch.as_u64(),
        events = recovery.events_replayed,
        "recovered {}",
        describe(place)
    );
    for warning in &recovery.warnings {
        tracing::warn!("{warning}");
    }
}

/// The flags for listeners.
const QUEUE_LISTEN: &str = "--queue-listen";
const METRICS_LISTEN: &str = "--metrics-listen";

pub(crate) type Bound = Vec<(SocketAddr, TcpSocket)>;

/// The bound ports.
struct Sockets {
    queue: Bound,
    bus: Bound,
    metrics: Bound,
}

/// Binds the ports without opening them.
fn bind(addresses: &[SocketAddr], flag: &str) -> Result<Bound> {
    let addresses = addresses.iter();
    addresses
        .map(|address| {
            let socket = bind_one(*address);
            let socket = socket.map_err(|error| cannot_listen(*address, flag, error))?;
            Ok((*address, socket))
        })
        .collect()
}

/// Binds a port without opening it.
pub(crate) fn bind_one(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Allows a port again whose last connections are still closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Why a port of `flag` cannot be opened. If it is in use, the error names the process.
pub(crate) fn cannot_listen(address: SocketAddr, flag: &str, error: io::Error) -> anyhow::Error {
    let what = format!("cannot listen on {address} ({flag})");
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "{}: stop that process, or name another address with {flag}",
            holders::of_port(address)
        ),
        _ => error.into(),
    }
    .context(what)
}

/// Opens bound ports.
fn open(sockets: Bound, flag: &str) -> Result<Vec<TcpListener>> {
    let sockets = sockets.into_iter();
    sockets
        .map(|(address, socket)| {
            let listener = socket.listen(BACKLOG);
            listener.map_err(|error| cannot_listen(address, flag, error))
        })
        .collect()
}

/// How many connections the kernel queues before they are accepted.
pub(crate) const BACKLOG: u32 = 1024;

async fn serve_until_stopped(
    settings: &Settings,
    issuers: Issuers,
    open_files_max: u64,
    sockets: Sockets,
    tls: Option<Arc<Tls>>,
    broker: &Broker,
    signals: &mut Signals,
) -> Result<()> {
    let has_bus = !sockets.bus.is_empty();
    let names = server_names(settings, &sockets, tls.clone());
    let fronts = Fronts::open(settings, issuers, names, open_files_max, has_bus, broker).await?;
    let admin = settings
        .admin_socket
        .as_deref()
        .map(admin::door::Door::open);
    let admin = admin.transpose()?;
    let listeners = Listeners::open(sockets, settings)?;
    bus::announce(&listeners.bus, settings, tls.as_deref(), fronts.has_rules)?;
    let first = announce(
        &listeners.queue,
        &listeners.metrics,
        settings,
        tls.as_deref(),
        fronts.has_accounts,
    )?;

    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let bus_endpoint = bus_endpoint(&listeners.bus, settings);
    let door = Door::new(tls, DoorLimits::default());
    fronts.accept(&mut tasks, listeners, settings, &door, &stopping);
    if let (Some(door), Some(address)) = (admin, first) {
        let administered = fronts.administered(address, bus_endpoint, stopping.clone())?;
        tasks.spawn(door.run(administered, stopping));
    }
    let result = tokio::select! {
        () = signals.stop() => Ok(()),
        failure = broker.failed() => Err(anyhow!(failure).context(
            "the server stops, because it cannot make answers durable; start it again to recover",
        )),
    };
    stop.send_replace(true);
    end(tasks, signals).await;
    result
}

/// The names of this server.
fn server_names(settings: &Settings, sockets: &Sockets, tls: Option<Arc<Tls>>) -> ServerNames {
    let listeners = sockets.queue.iter().chain(&sockets.bus);
    let namespace = kew_bus_api::NAMESPACE.parse();
    ServerNames::new(ServerNamesOptions {
        given: settings.server_names.clone(),
        aliases: vec![namespace.expect("the name of the namespace is a valid host name")],
        listeners: listeners.map(|(address, _)| address.ip()).collect(),
        tls,
    })
}

/// Waits for requests in progress, with a limit.
async fn end(mut tasks: JoinSet<()>, signals: &mut Signals) {
    let ended = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        () = ended => {}
        () = tokio::time::sleep(STOP_GRACE) => {
            tracing::warn!("requests that took longer than {STOP_GRACE:?} were cut off");
        }
        () = signals.stop() => tracing::warn!("a second signal: requests in progress were cut off"),
    }
}

/// The address in connection strings for Service Bus: its first listener, or the usual one.
fn bus_endpoint(listeners: &[TcpListener], settings: &Settings) -> BusEndpoint {
    let first = listeners.first();
    let address = first.and_then(|listener| listener.local_addr().ok());
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, BUS_PORT));
    BusEndpoint {
        endpoint: bus::endpoint(address.map_or(usual, reachable)),
        is_plain: settings.tls.plain != PlainHttp::Nowhere,
    }
}

/// The port where Service Bus clients expect a server without TLS.
const BUS_PORT: u16 = 5672;

/// Announces the server's addresses, in lines for a shell and in words for people.
fn announce(
    listeners: &[TcpListener],
    metrics: &[TcpListener],
    settings: &Settings,
    tls: Option<&Tls>,
    has_accounts: bool,
) -> Result<Option<SocketAddr>> {
    let mut all = Vec::new();
    let mut first_public = None;
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot read a listener's address")?;
        print_line(&format!("KEW_QUEUE_LISTEN={address}"));
        all.push(address);
        if settings.public_key.is_served_at(address) {
            first_public.get_or_insert(address);
        } else if !has_accounts {
            tracing::warn!(
                "no account can be reached at {address}: add one with kew account add, or serve the \
                 well-known account there with --allow-public-key"
            );
        }
    }
    if let Some(address) = first_public {
        let plain = connection_string("http", &reachable(address).to_string());
        let secure = tls.map(|tls| connection_string("https", &secure_host(&tls.facts(), address)));
        // Loopback always works from this machine.
        let usable = match (&secure, settings.tls.plain) {
            (Some(secure), PlainHttp::Nowhere) => secure,
            _ => &plain,
        };
        print_line(&format!("KEW_QUEUE_CONNECTION_STRING='{usable}'"));
        if let Some(secure) = &secure {
            print_line(&format!("KEW_QUEUE_CONNECTION_STRING_TLS='{secure}'"));
        }
    }
    if !all.is_empty() {
        tracing::info!(
            "ready: Queue Storage on {}{}, messages in {}",
            listed(&all),
            if tls.is_some() { " with TLS" } else { "" },
            describe(&settings.place)
        );
    }
    for listener in metrics {
        let address = listener
            .local_addr()
            .context("cannot read a listener's address")?;
        print_line(&format!("KEW_METRICS_LISTEN={address}"));
    }
    print_line("KEW_READY=1");
    Ok(all.first().copied())
}

/// Addresses of listeners, for a log line.
pub(crate) fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

fn connection_string(scheme: &str, host: &str) -> String {
    let account = Accounts::WELL_KNOWN_NAME;
    let key = Accounts::WELL_KNOWN_KEY;
    format!(
        "DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};\
         QueueEndpoint={scheme}://{host}/{account};"
    )
}

/// A host and port that the certificate covers and that lead to the listener: `localhost` if
/// possible, since some clients accept the emulator's flag for that name only, then the address,
/// then another name. If none fits, the address.
pub(crate) fn secure_host(facts: &CertificateFacts, address: SocketAddr) -> String {
    let address = reachable(address);
    let has_address = facts.addresses.contains(&address.ip());
    let is_localhost = match address.ip() {
        IpAddr::V4(ip) => ip == Ipv4Addr::LOCALHOST,
        // On many machines the name means the other loopback address first.
        IpAddr::V6(ip) => ip == Ipv6Addr::LOCALHOST && !has_address,
    };
    let leads_here = |name: &&String| match name.as_str() {
        LOCALHOST => is_localhost,
        HOST_OF_CONTAINERS => false,
        other => !other.starts_with('*') && !has_address,
    };
    let mut names = facts.names.iter();
    let localhost = names.clone().find(|name| *name == LOCALHOST);
    let name = localhost
        .filter(leads_here)
        .or_else(|| names.find(leads_here));
    match name {
        Some(name) => format!("{name}:{}", address.port()),
        None => address.to_string(),
    }
}

/// An address that a client on this machine can use.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn clients_are_sent_where_the_certificate_and_the_listener_are() {
        let init = [LOCALHOST, "*.queue.localhost", HOST_OF_CONTAINERS];
        let named = [&init[..], &["kew.example.net"]].concat();
        for (names, address, expected) in [
            (&init[..], "127.0.0.1:1", "localhost:1"),
            (&init, "0.0.0.0:1", "localhost:1"),
            (&named, "127.0.0.1:1", "localhost:1"),
            (&["kew.example.net"], "127.0.0.1:1", "127.0.0.1:1"),
            (&init, "[::1]:1", "localhost:1"),
            // Not the names of another address.
            (&init, "127.9.9.9:1", "127.9.9.9:1"),
            (&named, "127.9.9.9:1", "kew.example.net:1"),
            (&named, "10.0.0.5:1", "kew.example.net:1"),
            (&init, "10.0.0.5:1", "10.0.0.5:1"),
            (&["kew.example.net"], "[::1]:1", "kew.example.net:1"),
        ] {
            let facts = CertificateFacts {
                names: names.iter().map(ToString::to_string).collect(),
                addresses: vec![Ipv4Addr::LOCALHOST.into()],
                not_before: SystemTime::UNIX_EPOCH,
                not_after: SystemTime::UNIX_EPOCH,
            };
            let address = address.parse().expect("an address");
            assert_eq!(secure_host(&facts, address), expected, "{names:?}");
        }
    }
}
