//! Service Bus: its listeners, and the configuration file of the emulator.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use kew_broker::Broker;
use kew_bus_api::{BusApi, Imported, Origin, TurnedAway, WELL_KNOWN_KEY, WELL_KNOWN_RULE};
use kew_listen::{Barred, Door, Opened, Place, Tls};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::accept::{accept, stopped};
use crate::cli::print_line;
use crate::holders;
use crate::open_files::TurnedAwayPlaces;
use crate::serve::{BACKLOG, Bound, bind_one, cannot_listen, listed, reachable, secure_host};
use crate::settings::Settings;
use crate::settings::bus_listen::BusListen;
use crate::settings::tls::PlainHttp;

/// Reads a configuration file of the emulator.
pub(crate) fn read(path: &Path) -> Result<Imported> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {} (--import)", path.display()))?;
    kew_bus_api::read_config(&text)
        .with_context(|| format!("cannot import {} (--import)", path.display()))
}

/// Creates or updates what it names.
pub(crate) async fn import(broker: &Broker, imported: Imported) -> Result<()> {
    let count = imported.count();
    kew_bus_api::import(broker, imported)
        .await
        .context("cannot import the queues, topics and subscriptions (--import)")?;
    tracing::info!(
        "--import: {count} Service Bus queues, topics and subscriptions are created or updated"
    );
    Ok(())
}

const BUS_LISTEN: &str = "--bus-listen";

/// Binds the ports without listening yet. A default port that is taken or forbidden is skipped.
pub(crate) fn bind(listen: &BusListen) -> Result<Bound> {
    let mut bound = Bound::new();
    for &address in &listen.addresses {
        if let Some(socket) = had(address, bind_one(address), listen.is_default)? {
            bound.push((address, socket));
        }
    }
    Ok(bound)
}

/// Listens on bound ports. A default port that fails is skipped.
pub(crate) fn open(sockets: Bound, is_default: bool) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for (address, socket) in sockets {
        listeners.extend(had(address, socket.listen(BACKLOG), is_default)?);
    }
    Ok(listeners)
}

/// The result, or `None` with a log line that says how to continue if a default port failed.
fn had<T>(address: SocketAddr, result: io::Result<T>, is_default: bool) -> Result<Option<T>> {
    let error = match result {
        Ok(had) => return Ok(Some(had)),
        Err(error) => error,
    };
    if !is_default {
        return Err(cannot_listen(address, BUS_LISTEN, error)).context(
            "Service Bus cannot be served: name another address with --bus-listen, or none",
        );
    }
    match error.kind() {
        // Usual for a port below 1024.
        io::ErrorKind::PermissionDenied => tracing::info!(
            "Service Bus is not served on {address}: this user may not open that port: name \
             addresses with --bus-listen, or none"
        ),
        io::ErrorKind::AddrInUse => tracing::warn!(
            "Service Bus is not served on {address}: {}: stop that process, or name other addresses \
             with --bus-listen, or none",
            holders::of_port(address)
        ),
        _ => tracing::warn!(
            %error,
            "Service Bus is not served on {address}: the address cannot be opened: name other \
             addresses with --bus-listen, or none"
        ),
    }
    Ok(None)
}

/// Announces the addresses of Service Bus, and how clients connect.
pub(crate) fn announce(
    listeners: &[TcpListener],
    settings: &Settings,
    tls: Option<&Tls>,
    has_rules: bool,
) -> Result<()> {
    if settings.bus_listen.is_off_unasked() {
        tracing::info!(
            "Service Bus is off, because --queue-listen is set and --bus-listen is not: set --bus-listen \
             ADDR:PORT to serve it, or --bus-listen none if that is what you want"
        );
    }
    let mut all = Vec::new();
    for listener in listeners {
        let address = listener
            .local_addr()
            .context("cannot read a listener's address")?;
        print_line(&format!("KEW_BUS_LISTEN={address}"));
        if !settings.public_key.is_served_at(address) && !has_rules {
            tracing::warn!(
                "Service Bus at {address} has no rule for its namespace: add one with kew bus authorization-rule \
                 add, or serve the public key there with --allow-public-key"
            );
        }
        all.push(address);
    }
    let public = all.iter().copied();
    let public = public.filter(|address| settings.public_key.is_served_at(*address));
    let public: Vec<SocketAddr> = public.collect();
    if let Some(&first) = public.first() {
        let plain = connection_string(&endpoint(reachable(first)), "UseDevelopmentEmulator=true;");
        // Some SDKs know no other port for it.
        let usual = public.iter().find(|address| address.port() == TLS_PORT);
        let secure = usual.copied().unwrap_or(first);
        let secure = tls.map(|tls| {
            let host = secure_host(&tls.facts(), secure);
            connection_string(&format!("sb://{host}"), "")
        });
        let usable = match (&secure, settings.tls.plain) {
            (Some(secure), PlainHttp::Nowhere) => secure,
            _ => &plain,
        };
        print_line(&format!("KEW_BUS_CONNECTION_STRING='{usable}'"));
        if let Some(secure) = &secure {
            print_line(&format!("KEW_BUS_CONNECTION_STRING_TLS='{secure}'"));
        }
    }
    if !all.is_empty() {
        tracing::info!(
            "ready: Service Bus on {}{}",
            listed(&all),
            if tls.is_some() { " with TLS" } else { "" },
        );
    }
    Ok(())
}

/// The port where SDKs expect AMQP with TLS, some of them regardless of the connection string.
const TLS_PORT: u16 = 5671;

fn connection_string(endpoint: &str, flag: &str) -> String {
    format!(
        "Endpoint={endpoint};SharedAccessKeyName={WELL_KNOWN_RULE};\
         SharedAccessKey={WELL_KNOWN_KEY};{flag}"
    )
}

/// The endpoint in a connection string. Some SDKs accept the emulator's flag only for the name
/// `localhost`, which is 127.0.0.1 and no other loopback address.
pub(crate) fn endpoint(address: SocketAddr) -> String {
    if address.ip() == Ipv4Addr::LOCALHOST {
        format!("sb://localhost:{}", address.port())
    } else {
        format!("sb://{address}")
    }
}

/// Serves the connections of one listener.
pub(crate) struct BusAcceptor {
    /// Whether the rule with the public key is served here.
    pub(crate) may_use_public_key: bool,
    pub(crate) api: BusApi,
    pub(crate) door: Door,
    pub(crate) plain: PlainHttp,
    pub(crate) turned_away: TurnedAwayPlaces,
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
            // It counts from now on, before its first byte.
            if let Some(place) = self.api.admit(peer) {
                serving.spawn(connection.serve(stream, place));
            } else if let Some(place) = self.turned_away.take() {
                serving.spawn(async move {
                    connection.turn_away(stream).await;
                    drop(place);
                });
            }
        })
        .await;
    }
}

/// An accepted connection.
struct BusConnection {
    api: BusApi,
    door: Door,
    plain: PlainHttp,
    may_use_public_key: bool,
    peer: SocketAddr,
    stopping: watch::Receiver<bool>,
}

impl BusConnection {
    async fn serve(self, stream: TcpStream, place: Place) {
        let mut stopping = self.stopping.clone();
        let notice = place.notice();
        let opened = tokio::select! {
            biased;
            () = notice.given() => return self.api.note_gave_way(self.peer),
            opened = self.door.open(stream) => opened,
            // The client has sent no request yet.
            () = stopped(&mut stopping) => return,
        };
        let origin = self.origin(matches!(opened, Ok(Opened::Secure(_))));
        let shutdown = stopped(&mut stopping);
        // Boxed, so that each connection takes only the space for its own kind.
        match opened {
            Ok(Opened::Plain(stream)) if self.plain.admits(self.peer) => {
                Box::pin(self.api.serve(stream, origin, place, shutdown)).await;
            }
            Ok(Opened::Plain(stream)) => tokio::select! {
                biased;
                () = notice.given() => self.api.note_gave_way(self.peer),
                () = Box::pin(self.api.turn_away(stream, origin, TurnedAway::Plain)) => {}
            },
            Ok(Opened::Secure(stream)) => {
                Box::pin(self.api.serve(stream, origin, place, shutdown)).await;
            }
            Err(error) => tracing::debug!(peer = %self.peer, %error, "connection not opened"),
        }
    }

    async fn turn_away(self, stream: TcpStream) {
        if let Some(stream) = self.door.turn_away(stream).await {
            let origin = self.origin(false);
            Box::pin(self.api.turn_away(stream, origin, TurnedAway::Crowded)).await;
        }
    }

    fn origin(&self, is_secure: bool) -> Origin {
        Origin {
            peer: self.peer,
            is_secure,
            public_key: if self.may_use_public_key {
                Ok(())
            } else {
                Err(Barred::Listener)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_default_port_is_skipped_and_a_configured_one_is_an_error() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|address| (taken, address));
        let (_listener, address) = taken.expect("an address");
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let mut listen = BusListen {
            addresses: vec![address, any],
            is_default: true,
        };
        let bound = bind(&listen).expect("one of them");
        assert_eq!(open(bound, true).expect("one of them").len(), 1);
        listen.is_default = false;
        let error = bind(&listen).expect_err("it is taken");
        let error = format!("{error:#}");
        assert!(
            error.contains(&format!("{address} (--bus-listen)")),
            "{error}"
        );
    }

    #[test]
    fn only_one_loopback_address_is_localhost() {
        for (address, expected) in [
            ("127.0.0.1:5672", "sb://localhost:5672"),
            ("127.77.1.2:5672", "sb://127.77.1.2:5672"),
            ("[::1]:5672", "sb://[::1]:5672"),
        ] {
            assert_eq!(endpoint(address.parse().expect("an address")), expected);
        }
    }
}
