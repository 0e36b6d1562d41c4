//! `kew serve`: open the data, open the listeners, serve, stop.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kew_broker::{Broker, BrokerOptions};
use kew_log::{DataDir, MemoryStorage, Recovery, Storage};
use kew_queue_api::{Accounts, QueueApi, QueueApiOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::{ServeArgs, print_line};
use crate::settings::{Place, Settings};

/// How long requests that are under way may take to end once the server was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: ServeArgs) -> Result<()> {
    let settings = Settings::from_args(args)?;
    init_logs();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("kew-front")
        .build()
        .context("cannot start threads")?;
    runtime.block_on(serve(settings))
}

/// Logs go to standard error; `KEW_LOG` filters them (for example `warn` or `kew_broker=debug`).
fn init_logs() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("KEW_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

async fn serve(settings: Settings) -> Result<()> {
    // Signals that come while the log is being recovered stop the server right after.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;

    let (_data_dir, storage) = open_storage(&settings.place)?;
    let (broker, recovery) = Broker::start(storage, BrokerOptions::default())
        .with_context(|| format!("cannot start with {}", describe(&settings.place)))?;
    log_recovery(&settings.place, &recovery);
    let served = serve_until_stopped(&settings, &broker, async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    })
    .await;
    tokio::task::spawn_blocking(move || broker.stop())
        .await
        .context("the partition did not stop in order")?;
    served?;
    tracing::info!("stopped");
    Ok(())
}

/// The lock on the data directory, if there is one, and what the messages are kept in.
fn open_storage(place: &Place) -> Result<(Option<DataDir>, Arc<dyn Storage>)> {
    match place {
        Place::Memory => Ok((None, Arc::new(MemoryStorage::new()))),
        Place::Directory(path) => {
            let data_dir = DataDir::open(path)
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

async fn serve_until_stopped(
    settings: &Settings,
    broker: &Broker,
    signalled: impl Future<Output = ()>,
) -> Result<()> {
    let options = QueueApiOptions {
        accounts: Accounts::well_known(),
        ..QueueApiOptions::default()
    };
    let api = QueueApi::new(broker.clone(), options);
    let mut listeners = Vec::new();
    for address in &settings.queue_listen {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address} (--queue-listen)"))?;
        listeners.push(listener);
    }
    announce(&listeners, &settings.place)?;

    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for listener in listeners {
        let acceptor = Acceptor {
            listener,
            api: api.clone(),
            stopping: stopping.clone(),
        };
        tasks.spawn(acceptor.run());
    }
    let result = tokio::select! {
        () = signalled => Ok(()),
        failure = broker.failed() => Err(anyhow!(failure).context(
            "the server stops so that nothing is answered that is not safe; start it again to recover",
        )),
    };
    stop.send_replace(true);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!("requests were cut off that took longer than {STOP_GRACE:?} to end");
    }
    result
}

/// Says where the server is, in lines that a shell can read and in words for a person.
fn announce(listeners: &[TcpListener], place: &Place) -> Result<()> {
    let mut first = None;
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot read a listener's address")?;
        print_line(&format!("KEW_QUEUE_LISTEN={address}"));
        first.get_or_insert(address);
    }
    if let Some(address) = first {
        let connection_string = connection_string(address);
        print_line(&format!(
            "KEW_QUEUE_CONNECTION_STRING='{connection_string}'"
        ));
        tracing::info!(
            "ready: Queue Storage on {address}, messages in {}",
            describe(place)
        );
    }
    print_line("KEW_READY=1");
    Ok(())
}

fn connection_string(address: SocketAddr) -> String {
    let account = Accounts::WELL_KNOWN_NAME;
    let key = Accounts::WELL_KNOWN_KEY;
    format!(
        "DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};\
         QueueEndpoint=http://{}/{account};",
        reachable(address)
    )
}

/// An address that a client on this machine can use.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Accepts connections on one listener until the server stops.
struct Acceptor {
    listener: TcpListener,
    api: QueueApi,
    stopping: watch::Receiver<bool>,
}

impl Acceptor {
    async fn run(mut self) {
        let mut serving = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.stopping.wait_for(|stopping| *stopping) => break,
                Some(_) = serving.join_next(), if !serving.is_empty() => continue,
            };
            match accepted {
                Ok((stream, peer)) => self.serve(&mut serving, stream, peer),
                Err(error) => {
                    // Out of file descriptors, most likely: others must end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self.listener);
        while serving.join_next().await.is_some() {}
    }

    fn serve(&self, serving: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr) {
        // Without it, an answer can wait for the client's acknowledgement of the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
        }
        let api = self.api.clone();
        let mut stopping = self.stopping.clone();
        serving.spawn(async move {
            let shutdown = async move {
                // An error means that the sender is gone, and the server with it.
                let _ = stopping.wait_for(|stopping| *stopping).await;
            };
            api.serve_connection(stream, peer, shutdown).await;
        });
    }
}
