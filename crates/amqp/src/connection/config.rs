//! What a connection says of itself, and what bounds its peer.

use std::time::Duration;

use bytes::Bytes;

use crate::codec::{Map, Symbol, Symbols, Text};
use crate::error::condition;

/// What a connection says of itself when it opens. It does not change afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who speaks.
    pub container_id: Text,
    /// A client's name for the host that it speaks to.
    pub hostname: Option<Text>,
    /// The largest frame that is taken, in bytes, at least 512. Default 65,536, which is what
    /// Azure answers.
    pub frame_size_max: u32,
    /// The largest frame that is taken before the peer's open, in bytes. The specification says
    /// 512, and SDKs send more in an open. Default 8,192.
    pub frame_size_max_before_open: u32,
    /// The highest channel number. Default 8,191: some SDKs use a session for every link.
    pub channel_max: u16,
    /// The highest handle of a session. Default 8,191.
    pub handle_max: u32,
    /// How many transfers a session takes before it says so again. Default 8,192: some SDKs count
    /// messages where they should count transfers.
    pub incoming_window: u32,
    /// After what silence a peer counts as lost; the peer is told half of it. `None`: never.
    /// Default 4 minutes.
    pub idle_timeout: Option<Duration>,
    /// The number of the first transfer and of the first delivery of a session. Default 0.
    pub first_id: u32,
    /// Extensions that it has.
    pub offered_capabilities: Symbols,
    /// What else it says: product, version, …
    pub properties: Option<Map>,
    /// Authentication.
    pub sasl: Sasl,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            container_id: Text::from_static("kew"),
            hostname: None,
            frame_size_max: 65_536,
            frame_size_max_before_open: 8_192,
            channel_max: 8_191,
            handle_max: 8_191,
            incoming_window: 8_192,
            idle_timeout: Some(Duration::from_mins(4)),
            first_id: 0,
            offered_capabilities: Symbols::default(),
            properties: None,
            sasl: Sasl::None,
        }
    }
}

/// How a connection begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Sasl {
    /// Without authentication. A server answers a client that wants it with the AMQP header and
    /// hangs up.
    None,
    /// A server's: it offers these, and its caller decides.
    Server {
        /// What it offers.
        mechanisms: Vec<Symbol>,
        /// Whether a client may also begin without.
        is_optional: bool,
    },
    /// A client's.
    Client {
        /// What it takes, if the server offers it.
        mechanism: Symbol,
        /// What it says first.
        initial_response: Option<Bytes>,
    },
}

/// What bounds the memory that a peer can take. Can be changed at any time: small before a peer
/// has shown who it is, larger afterwards.
///
/// Values nest at most [`crate::codec::DEPTH_MAX`] deep; that does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once. One more closes the connection. Default 8,192.
    pub sessions_max: usize,
    /// Links at once, of all sessions. One more is refused. Default 8,192.
    pub links_max: usize,
    /// Unsettled deliveries of a session, for each direction. One more that comes in detaches its
    /// link; none more goes out. Default 65,536.
    pub unsettled_max: usize,
    /// Size of a message that comes in, in bytes, on links whose attach says nothing else. Default
    /// 1 MiB.
    pub message_size_max: u64,
    /// Size of a message that is larger than its link takes, in bytes, up to which its parts are
    /// thrown away, so that it can be rejected when it is complete. A larger one detaches its link.
    /// Default 128 MiB: more than the largest message that Service Bus takes.
    pub discarded_size_max: u64,
    /// Parts of messages that wait for the rest, of all links, in bytes. What finds no room
    /// detaches its link. Default 16 MiB.
    pub reassembly_size_max: u64,
    /// The condition of that. Default `amqp:resource-limit-exceeded`; a caller whose own room has
    /// ended says so in its protocol's words.
    pub reassembly_condition: &'static str,
    /// Messages of which a part is still to be sent, of all sessions, in bytes. From there on no other
    /// message goes out. Default 8 MiB.
    pub sending_size_max: usize,
    /// Output that waits, in bytes. From there on no message goes out, and at the double of it
    /// nothing more is read. Default 1 MiB.
    pub output_size_max: usize,
    /// From the beginning to the peer's open. Default 20 s.
    pub handshake_timeout: Duration,
    /// From our close to the peer's. Default 5 s.
    pub close_timeout: Duration,
    /// The shortest time-out that a peer may ask to be kept alive for. Default 200 ms.
    pub peer_idle_timeout_min: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_max: 8_192,
            links_max: 8_192,
            unsettled_max: 65_536,
            message_size_max: 1 << 20,
            discarded_size_max: 128 << 20,
            reassembly_size_max: 16 << 20,
            reassembly_condition: condition::RESOURCE_LIMIT_EXCEEDED,
            sending_size_max: 8 << 20,
            output_size_max: 1 << 20,
            handshake_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(5),
            peer_idle_timeout_min: Duration::from_millis(200),
        }
    }
}

impl Limits {
    /// For a peer that has not yet shown who it is: 64 sessions, 64 links, 1,024 unsettled
    /// deliveries, 64 KiB of messages in parts, 1 MiB of one that is thrown away.
    pub fn before_trust() -> Self {
        Self {
            sessions_max: 64,
            links_max: 64,
            unsettled_max: 1_024,
            message_size_max: 64 << 10,
            discarded_size_max: 1 << 20,
            reassembly_size_max: 64 << 10,
            ..Self::default()
        }
    }
}
