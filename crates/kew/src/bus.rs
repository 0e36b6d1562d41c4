//! Service Bus: its listeners, and the queues of a configuration file.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use kew_broker::Broker;
use kew_bus_api::{
    BusApi, ConnectionPermit, ImportedQueue, Origin, TurnedAway, WELL_KNOWN_KEY, WELL_KNOWN_RULE,
};
use kew_listen::{Door, Opened};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::accept::{accept, stopped};
use crate::cli::print_line;
use crate::serve::reachable;
use crate::settings::Settings;
use crate::settings::tls::PlainHttp;

/// Reads the queues of a configuration file of the emulator.
pub(crate) fn read(path: &Path) -> Result<Vec<ImportedQueue>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {} (--import)", path.display()))?;
    kew_bus_api::read_config(&text)
        .with_context(|| format!("cannot import {} (--import)", path.display()))
}

/// Creates them.
pub(crate) async fn import(broker: &Broker, queues: Vec<ImportedQueue>) -> Result<()> {
    let count = queues.len();
    kew_bus_api::import(broker, queues)
        .await
        .context("cannot import the queues (--import)")?;
    tracing::info!("{count} Service Bus queues are there as --import says");
    Ok(())
}

/// Says how to go on if a port is taken.
pub(crate) fn explain(error: anyhow::Error) -> anyhow::Error {
    error.context(
        "Service Bus cannot be served: name another port with --bus-listen, or leave it out",
    )
}

/// Says where Service Bus is served, and how clients come there.
pub(crate) fn announce(
    listeners: &[TcpListener],
    settings: &Settings,
    has_rules: bool,
) -> Result<()> {
    let mut first = None;
    let mut first_public = None;
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot read a listener's address")?;
        print_line(&format!("KEW_BUS_LISTEN={address}"));
        first.get_or_insert(address);
        if settings.public_key.is_served_at(address) {
            first_public.get_or_insert(address);
        } else if !has_rules {
            tracing::warn!(
                "Service Bus at {address} has no rule of its namespace: add one with kew bus rule add"
            );
        }
    }
    if let Some(address) = first_public {
        let endpoint = endpoint(reachable(address));
        let flag = match settings.tls.plain {
            PlainHttp::Nowhere => "",
            PlainHttp::Loopback | PlainHttp::Anywhere => "UseDevelopmentEmulator=true;",
        };
        print_line(&format!(
            "KEW_BUS_CONNECTION_STRING='Endpoint={endpoint};SharedAccessKeyName={WELL_KNOWN_RULE};\
             SharedAccessKey={WELL_KNOWN_KEY};{flag}'"
        ));
    }
    if let Some(address) = first {
        tracing::info!(
            "ready: Service Bus queues (preview) on {}",
            reachable(address)
        );
    }
    Ok(())
}

/// The endpoint in a connection string. Some SDKs take the emulator's flag only for the name
/// `localhost`.
pub(crate) fn endpoint(address: SocketAddr) -> String {
    if address.is_ipv4() && address.ip().is_loopback() {
        format!("sb://localhost:{}", address.port())
    } else {
        format!("sb://{address}")
    }
}

/// Serves what comes to one listener.
pub(crate) struct BusAcceptor {
    /// Whether the rule whose key is public is served here.
    pub(crate) may_use_public_key: bool,
    pub(crate) api: BusApi,
    pub(crate) door: Door,
    pub(crate) plain: PlainHttp,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl BusAcceptor {
    pub(crate) async fn run(self, listener: TcpListener) {
        let stopping = self.stopping.clone();
        accept(listener, stopping, |serving, stream, peer| {
            let connection = BusConnection {
                api: self.api.clone(),
                door: self.door.clone(),
                plain: self.plain,
                may_use_public_key: self.may_use_public_key,
                peer,
                stopping: self.stopping.clone(),
            };
            // It counts from now on, whatever it is going to say.
            match self.api.admit(peer) {
                Some(permit) => serving.spawn(connection.serve(stream, permit)),
                None => serving.spawn(connection.turn_away(stream)),
            };
        })
        .await;
    }
}

/// A connection that was accepted.
struct BusConnection {
    api: BusApi,
    door: Door,
    plain: PlainHttp,
    may_use_public_key: bool,
    peer: SocketAddr,
    stopping: watch::Receiver<bool>,
}

impl BusConnection {
    async fn serve(self, stream: TcpStream, permit: ConnectionPermit) {
        let mut stopping = self.stopping.clone();
        let opened = tokio::select! {
            biased;
            opened = self.door.open(stream) => opened,
            // Nothing was asked yet.
            () = stopped(&mut stopping) => return,
        };
        let origin = self.origin(matches!(opened, Ok(Opened::Secure(_))));
        let shutdown = stopped(&mut stopping);
        // In boxes, so that each connection has the space for its own kind alone.
        match opened {
            Ok(Opened::Plain(stream)) if self.plain.admits(self.peer) => {
                Box::pin(self.api.serve(stream, origin, permit, shutdown)).await;
            }
            Ok(Opened::Plain(stream)) => {
                Box::pin(self.api.turn_away(stream, origin, TurnedAway::Plain)).await;
            }
            Ok(Opened::Secure(stream)) => {
                Box::pin(self.api.serve(stream, origin, permit, shutdown)).await;
            }
            Err(error) => tracing::debug!(peer = %self.peer, %error, "connection not opened"),
        }
    }

    async fn turn_away(self, stream: TcpStream) {
        tracing::warn!(peer = %self.peer, "too many Service Bus connections: one was turned away");
        if let Some(stream) = self.door.turn_away(stream).await {
            let origin = self.origin(false);
            Box::pin(self.api.turn_away(stream, origin, TurnedAway::Crowded)).await;
        }
    }

    fn origin(&self, is_secure: bool) -> Origin {
        Origin {
            peer: self.peer,
            is_secure,
            may_use_public_key: self.may_use_public_key,
        }
    }
}
