//! Where Service Bus is served.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Layer, SettingsError, parse_address};

/// The ports where clients expect it without TLS: that of AMQP, and the emulator's for HTTP. Each
/// of them serves all protocols.
const PORTS: [u16; 2] = [5672, 5300];
/// The additional ports with TLS: that of AMQP, and that of WebSockets and HTTP.
const PORTS_TLS: [u16; 2] = [5671, 443];
/// The value that turns Service Bus off.
const NONE: &str = "none";

/// The addresses, and whether they are configured.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BusListen {
    pub(crate) addresses: Vec<SocketAddr>,
    /// They are not configured: Kew starts without those that it cannot bind.
    pub(crate) is_default: bool,
}

impl BusListen {
    /// Whether Service Bus is off although it is not configured as off: if a listener of Queue
    /// Storage is configured, only configured listeners are opened.
    pub(crate) fn is_off_unasked(&self) -> bool {
        self.is_default && self.addresses.is_empty()
    }

    /// The addresses from the first place that has any. Without any, the usual ports of this
    /// machine, unless the listeners of Queue Storage are configured: then only configured
    /// listeners are opened.
    pub(super) fn of_layers(layers: &[Layer], has_tls: bool) -> Result<Self, SettingsError> {
        let named = layers.iter().find_map(|layer| layer.bus_listen.as_ref());
        let Some(named) = named else {
            let is_named = layers.iter().any(|layer| layer.queue_listen.is_some());
            let ports = PORTS.iter();
            let ports = ports.chain(PORTS_TLS.iter().filter(|_| has_tls));
            let local = |port: &u16| SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            return Ok(Self {
                addresses: ports.filter(|_| !is_named).map(local).collect(),
                is_default: true,
            });
        };
        let is_none = |address: &String| address.eq_ignore_ascii_case(NONE);
        let addresses = if named.len() == 1 && named.iter().all(is_none) {
            Vec::new()
        } else if named.iter().any(is_none) {
            return Err(SettingsError::new(
                "--bus-listen has both none and addresses: give either none or addresses",
            ));
        } else {
            let addresses = named.iter().map(|address| parse_address(address));
            addresses.collect::<Result<Vec<_>, _>>()?
        };
        Ok(Self {
            addresses,
            is_default: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(bus: Option<&[&str]>, queue: Option<&str>) -> Layer {
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        Layer {
            bus_listen: bus.map(texts),
            queue_listen: queue.map(|address| texts(&[address])),
            ..Layer::default()
        }
    }

    fn check(layers: &[Layer], has_tls: bool, ports: &[u16], is_default: bool) {
        let is_off_unasked = is_default && ports.is_empty();
        let found = BusListen::of_layers(layers, has_tls).unwrap();
        let found_ports: Vec<u16> = found.addresses.iter().map(SocketAddr::port).collect();
        assert_eq!(found_ports, ports, "{layers:?}");
        assert_eq!(found.is_default, is_default);
        assert_eq!(found.is_off_unasked(), is_off_unasked);
        assert!(found.addresses.iter().all(|it| it.ip().is_loopback()));
    }

    #[test]
    fn by_default_it_is_where_clients_look_for_it() {
        check(&[layer(None, None)], false, &[5672, 5300], true);
        check(&[layer(None, None)], true, &[5672, 5300, 5671, 443], true);
    }

    #[test]
    fn only_configured_listeners_are_opened() {
        let file = || layer(None, Some("127.0.0.1:1"));
        check(&[layer(None, None), file()], true, &[], true);
        check(
            &[layer(Some(&["127.0.0.1:9"]), None), file()],
            true,
            &[9],
            false,
        );
        let flags = layer(Some(&["127.0.0.1:9", "localhost:8"]), None);
        check(&[flags, layer(Some(&["x"]), None)], true, &[9, 8], false);
    }

    #[test]
    fn it_can_be_switched_off() {
        check(&[layer(Some(&["none"]), None)], true, &[], false);
        let both = layer(Some(&["none", "127.0.0.1:1"]), None);
        assert!(BusListen::of_layers(&[both], false).is_err());
        let wrong = layer(Some(&["nowhere"]), None);
        assert!(BusListen::of_layers(&[wrong], false).is_err());
    }
}
