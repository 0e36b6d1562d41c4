//! What a connection announces about itself, and the limits for its peer.

use std::time::Duration;

use bytes::Bytes;

use crate::codec::{Map, Symbol, Symbols, Text};
use crate::error::condition;

/// What a connection announces when it opens. It does not change afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The container's name.
    pub container_id: Text,
    /// The client's name for the server's host.
    pub hostname: Option<Text>,
    /// The largest accepted frame, in bytes, at least 512. Default 65,536, as in Azure.
    pub frame_size_max: u32,
    /// The largest accepted frame before the peer's open, in bytes. The specification says 512, but
    /// some SDKs send a larger open. Default 8,192.
    pub frame_size_max_before_open: u32,
    /// The highest channel number. Default 8,191: some SDKs use a session for every link.
    pub channel_max: u16,
    /// The highest handle of a session. Default 8,191.
    pub handle_max: u32,
    /// How many transfers a session accepts before it sends a new window. Default 8,192: some SDKs
    /// count messages where they should count transfers.
    pub incoming_window: u32,
    /// How long a peer may be silent before the connection is closed. Half of it is announced to
    /// the peer. `None`: no limit. Default 4 minutes.
    pub idle_timeout: Option<Duration>,
    /// The number of the first transfer and of the first delivery of a session. Default 0.
    pub first_id: u32,
    /// The extensions that it supports.
    pub offered_capabilities: Symbols,
    /// Other properties: product, version, …
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
    /// Without authentication. If a client wants to authenticate, the server answers with the AMQP
    /// header and closes the connection.
    None,
    /// A server's: it offers these, and its caller decides.
    Server {
        /// The offered mechanisms.
        mechanisms: Vec<Symbol>,
        /// Whether a client may also begin without.
        is_optional: bool,
    },
    /// A client's.
    Client {
        /// The chosen mechanism, if the server offers it.
        mechanism: Symbol,
        /// The client's first response.
        initial_response: Option<Bytes>,
    },
}

/// The limits for the memory that a peer can use. They can change at any time: small before a peer
/// is authenticated, larger afterwards.
///
/// Values nest at most [`crate::codec::DEPTH_MAX`] deep; that limit is fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once. One more closes the connection. Default 8,192.
    pub sessions_max: usize,
    /// Links at once, of all sessions. One more is refused. Default 8,192.
    pub links_max: usize,
    /// Unsettled deliveries of a session, for each direction. An incoming delivery above it
    /// detaches its link; no outgoing delivery exceeds it. Default 65,536.
    pub unsettled_max: usize,
    /// Size of an incoming message, in bytes, on links whose attach announces no other. Default 1
    /// MiB.
    pub message_size_max: u64,
    /// A message larger than its link allows is discarded part by part, and can be rejected when it
    /// is complete. If it exceeds this size, in bytes, its link is detached instead. Default 128
    /// MiB: more than the largest message that Service Bus accepts.
    pub discarded_size_max: u64,
    /// Parts of incomplete messages, of all links, in bytes. A part that exceeds it detaches its
    /// link. Default 16 MiB.
    pub reassembly_size_max: u64,
    /// The error condition of that detach. Default `amqp:resource-limit-exceeded`. A caller that is
    /// out of memory itself can set a condition of its own protocol.
    pub reassembly_condition: &'static str,
    /// Size of messages that are partly sent, of all sessions, in bytes. Above it no other message
    /// is sent. Default 8 MiB.
    pub sending_size_max: usize,
    /// Size of waiting output, in bytes. Above it no message is sent, and above twice the size no
    /// input is read. Default 1 MiB.
    pub output_size_max: usize,
    /// Time from the start to the peer's open. Default 20 s.
    pub handshake_timeout: Duration,
    /// From our close to the peer's. Default 5 s.
    pub close_timeout: Duration,
    /// The shortest idle time-out that a peer may announce. Default 200 ms.
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
    /// For a peer that is not authenticated yet: 64 sessions, 64 links, 1,024 unsettled deliveries,
    /// 64 KiB of incomplete messages, 1 MiB of a discarded one.
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
