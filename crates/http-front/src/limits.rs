//! Bounds of connections and requests.

use std::time::Duration;

use tokio::time::Instant;

/// Bounds on what clients can make a service hold, and for how long. Each service derives them from its own
/// limits, which its documentation lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of all bodies, and of the parts of heads above 8 KiB on connections that have had an authentic
    /// request, in bytes, all connections together.
    pub in_flight_size_bytes_max: usize,
    /// Size of the parts of heads above 8 KiB on connections without an authentic request, in bytes, all of
    /// these connections together.
    pub unproven_heads_size_bytes_max: usize,
    /// Size of a request's head, in bytes; at least 8,192.
    pub head_size_bytes_max: usize,
    /// Headers of a request.
    pub header_count_max: usize,
    /// Time from the first byte of a head to its last, and from the start of a connection to the end of the
    /// first head.
    pub head_timeout: Duration,
    /// Time for a client to read an answer.
    pub write_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub keep_alive: Duration,
    /// The same as long as no request on the connection was authentic.
    pub unproven_keep_alive: Duration,
    /// Requests of a connection that are answered before other connections have their turn.
    pub turn_requests_max: u32,
    /// The end of a connection.
    pub farewell: FarewellLimits,
    /// The body of a request.
    pub body: BodyLimits,
}

/// Limits for a client that reads the last answer of a connection and may still be sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarewellLimits {
    /// Its time.
    pub timeout: Duration,
    /// How many bytes the client may send meanwhile.
    pub size_bytes_max: usize,
}

/// Bounds of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Its size, in bytes.
    pub size_bytes_max: usize,
    /// Time for it to arrive.
    pub timeout: Duration,
    /// How many bytes of an oversized body are read, so that the connection stays usable. A longer body ends
    /// the connection after its answer.
    pub discarded_size_bytes_max: u64,
}

/// How much of a refused request's body is read, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub(crate) size_bytes_max: u64,
    pub(crate) deadline: Instant,
}

impl Patience {
    /// Reads at most this many bytes, for this long from now.
    pub fn new(size_bytes_max: u64, timeout: Duration) -> Self {
        Self {
            size_bytes_max,
            deadline: Instant::now() + timeout,
        }
    }
}

#[cfg(test)]
pub(crate) const LIMITS: Limits = Limits {
    in_flight_size_bytes_max: 1 << 20,
    unproven_heads_size_bytes_max: 1 << 20,
    head_size_bytes_max: 64 << 10,
    header_count_max: 100,
    head_timeout: Duration::from_secs(30),
    write_timeout: Duration::from_secs(60),
    keep_alive: Duration::from_secs(180),
    unproven_keep_alive: Duration::from_secs(20),
    turn_requests_max: 4,
    farewell: FarewellLimits {
        timeout: Duration::from_secs(2),
        size_bytes_max: 1 << 20,
    },
    body: BodyLimits {
        size_bytes_max: 8,
        timeout: Duration::from_secs(60),
        discarded_size_bytes_max: 16,
    },
};
