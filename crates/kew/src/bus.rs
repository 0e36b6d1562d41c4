//! Service Bus: its listeners, and the queues of a configuration file.

use std::path::Path;

use anyhow::{Context, Result};
use kew_broker::Broker;
use kew_bus_api::{
    AuthorizationRule, BusApi, ImportedQueue, Limits, Origin, WELL_KNOWN_KEY, WELL_KNOWN_RULE,
};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::accept::{accept, stopped};
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
pub(crate) fn api(broker: &Broker, connections_max: usize) -> BusApi {
    let limits = Limits {
        connections_max,
        ..Limits::default()
    };
    BusApi::new(
        broker.clone(),
        vec![AuthorizationRule::well_known()],
        limits,
    )
}

/// Serves connections until the server stops, and waits for them to end.
pub(crate) async fn serve(listener: TcpListener, api: BusApi, stopping: watch::Receiver<bool>) {
    let until = stopping.clone();
    accept(listener, until, |serving, stream, peer| {
        let origin = Origin {
            peer,
            is_secure: false,
            // The settings see to it.
            may_use_public_key: true,
        };
        let Some(permit) = api.admit(peer) else {
            return;
        };
        let (api, mut stopping) = (api.clone(), stopping.clone());
        serving.spawn(async move {
            Box::pin(api.serve(stream, origin, permit, stopped(&mut stopping))).await;
        });
    })
    .await;
}
