//! The limits for connections and requests.

use std::time::Duration;

use kew_http_front::{BodyLimits, FarewellLimits};

/// The largest message text of any version, in bytes of UTF-8: 64 KiB.
pub(crate) const TEXT_SIZE_BYTES_MAX: usize = 65_536;

/// Limits for the memory of clients in the front end, and for its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections. One more gets the answer `ServerBusy` and is closed. Default 10,000.
    pub connections_max: usize,
    /// Memory of all connections together, in bytes: bodies of requests in progress, bodies of
    /// answers being written, and heads above 8 KiB on connections with an authentic request.
    /// Requests that find no room get the answer `ServerBusy`. Keep it at 16 MiB or more: one
    /// answer may have eleven. Default 256 MiB.
    pub in_flight_size_bytes_max: usize,
    /// Memory of heads above 8 KiB on connections without an authentic request, in bytes, of all
    /// these connections together. Requests that find no room get the answer `ServerBusy`. Default
    /// 16 MiB.
    pub unproven_heads_size_bytes_max: usize,
    /// Size of a request's head, in bytes; at least 8,192. Default 65,536.
    pub head_size_bytes_max: usize,
    /// Headers of a request. Default 1,000: metadata of 8 KiB may consist of short pairs.
    pub header_count_max: usize,
    /// Size of a request's body, in bytes. Default 397,312: a text of 64 KiB with every character
    /// escaped, and its envelope.
    pub body_size_bytes_max: usize,
    /// How many bytes of an oversized body are read, so that the connection stays usable. A longer
    /// body ends the connection after its answer. Default 1 MiB.
    pub discarded_size_bytes_max: u64,
    /// The same for the body of a request that is refused because of its head, for example without
    /// a valid signature, in bytes. Default 64 KiB.
    pub refused_size_bytes_max: u64,
    /// Time from the first to the last byte of a request's head, and from accept to the end of the
    /// first head. Default 30 s.
    pub head_timeout: Duration,
    /// Time for a request's body to arrive, and for the client to read an answer. Default 60 s.
    pub body_timeout: Duration,
    /// The same for a request that is refused because of its head. Default 5 s.
    pub refused_body_timeout: Duration,
    /// How long a connection may be idle between requests. Client pools reuse sockets for
    /// minutes, so keep it at 120 s or more. Default 180 s.
    pub keep_alive: Duration,
    /// The same until a request on the connection is authentic. Default 30 s.
    pub unproven_keep_alive: Duration,
    /// How long a client has to read the last answer of a connection on which it is still sending.
    /// Closing earlier would destroy the answer. Default 2 s.
    pub farewell_timeout: Duration,
    /// How many bytes the client may send meanwhile. Default 8 MiB.
    pub farewell_size_bytes_max: usize,
    /// Open connections of listeners for operators. One more is closed. Default 32.
    pub operator_connections_max: usize,
    /// How long each of those may last. Default 30 s.
    pub operator_timeout: Duration,
    /// How far a request's date may differ from the server's clock, in both directions. Default 15
    /// minutes.
    pub clock_skew_max: Duration,
    /// Requests of a connection that are answered before others have their turn. Default 4.
    pub turn_requests_max: u32,
}

impl Limits {
    /// The limits of the front door.
    pub(crate) const fn of_front(&self) -> kew_http_front::Limits {
        kew_http_front::Limits {
            in_flight_size_bytes_max: self.in_flight_size_bytes_max,
            unproven_heads_size_bytes_max: self.unproven_heads_size_bytes_max,
            head_size_bytes_max: self.head_size_bytes_max,
            header_count_max: self.header_count_max,
            head_timeout: self.head_timeout,
            write_timeout: self.body_timeout,
            keep_alive: self.keep_alive,
            unproven_keep_alive: self.unproven_keep_alive,
            turn_requests_max: self.turn_requests_max,
            farewell: FarewellLimits {
                timeout: self.farewell_timeout,
                size_bytes_max: self.farewell_size_bytes_max,
            },
            body: BodyLimits {
                size_bytes_max: self.body_size_bytes_max,
                timeout: self.body_timeout,
                discarded_size_bytes_max: self.discarded_size_bytes_max,
            },
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            in_flight_size_bytes_max: 256 * 1024 * 1024,
            unproven_heads_size_bytes_max: 16 * 1024 * 1024,
            head_size_bytes_max: 64 * 1024,
            header_count_max: 1_000,
            body_size_bytes_max: 6 * TEXT_SIZE_BYTES_MAX + 4096,
            discarded_size_bytes_max: 1024 * 1024,
            refused_size_bytes_max: 64 * 1024,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            refused_body_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(180),
            unproven_keep_alive: Duration::from_secs(30),
            farewell_timeout: Duration::from_secs(2),
            farewell_size_bytes_max: 8 * 1024 * 1024,
            operator_connections_max: 32,
            operator_timeout: Duration::from_secs(30),
            clock_skew_max: Duration::from_secs(15 * 60),
            turn_requests_max: 4,
        }
    }
}
