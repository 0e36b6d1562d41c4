//! Service Bus: its listeners, and the queues of a configuration file.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kew_broker::Broker;
use kew_bus_api::{
    AuthorizationRule, BusApi, ImportedQueue, Limits, WELL_KNOWN_KEY, WELL_KNOWN_RULE,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::print_line;
use crate::serve::reachable;

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
pub(crate) fn announce(listeners: &[TcpListener]) -> Result<()> {
    let mut first = None;
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot read a listener's address")?;
        print_line(&format!("KEW_BUS_LISTEN={address}"));
        first.get_or_insert(address);
    }
    if let Some(address) = first.map(reachable) {
        // Some SDKs take the emulator's flag only for this name.
        let host = if address.is_ipv4() && address.ip().is_loopback() {
            format!("localhost:{}", address.port())
        } else {
            address.to_string()
        };
        print_line(&format!(
            "KEW_BUS_CONNECTION_STRING='Endpoint=sb://{host};SharedAccessKeyName={WELL_KNOWN_RULE};\
             SharedAccessKey={WELL_KNOWN_KEY};UseDevelopmentEmulator=true;'"
        ));
        tracing::info!("ready: Service Bus queues (preview) on {address}");
    }
    Ok(())
}

/// The front end, with the rule of the emulator's connection string. The settings see to it that it
/// listens only where that may be served.
pub(crate) fn api(broker: &Broker) -> BusApi {
    BusApi::new(
        broker.clone(),
        vec![AuthorizationRule::well_known()],
        Limits::default(),
    )
}

/// Accepts connections until the server stops, and waits for them to end.
pub(crate) async fn accept(listener: TcpListener, api: BusApi, stopping: watch::Receiver<bool>) {
    let mut serving = JoinSet::new();
    let mut stopped = stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stopping| *stopping) => break,
            Some(ended) = serving.join_next(), if !serving.is_empty() => {
                if ended.is_err() {
                    tracing::error!("serving a Service Bus connection panicked; it was closed");
                }
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(permit) = api.admit() else {
                    tracing::warn!(%peer, "too many Service Bus connections: one was closed");
                    continue;
                };
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
                }
                let (api, mut stopping) = (api.clone(), stopping.clone());
                serving.spawn(async move {
                    let shutdown = async move {
                        // An error means that the sender is gone, and the server with it.
                        let _ = stopping.wait_for(|stopping| *stopping).await;
                    };
                    Box::pin(api.serve(stream, permit, shutdown)).await;
                });
            }
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Out of memory or file descriptors: others must end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    while serving.join_next().await.is_some() {}
}
