//! The limits for clients.

use std::time::Duration;

use kew_http_front::{BodyLimits, FarewellLimits};

/// The most headers that a request over HTTP has.
const HEADERS_MAX: usize = 100;

/// The limits for a client that reads the last answer of a connection over HTTP.
const FAREWELL: FarewellLimits = FarewellLimits {
    timeout: Duration::from_secs(2),
    size_bytes_max: 2 << 20,
};

/// Bounds on the memory and the time that clients can take. Sessions, frames, partial messages and
/// output are bounded by [`kew_amqp::Limits`]: by [`kew_amqp::Limits::before_trust`] until a token is
/// accepted, and by the values here and the defaults there from then on.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; one more is closed when it is accepted. Default 10,000; Azure's quota
    /// is 5,000 for each namespace.
    pub connections_max: usize,
    /// Links of a connection. One more is refused. Default 8,192.
    pub links_max: usize,
    /// Unsettled deliveries of a session, in each direction, and of a connection those to its
    /// client. Default 65,536.
    pub unsettled_max: usize,
    /// Size of a connection's messages and requests in progress, in bytes. Above it no more input
    /// is read from the connection. Default 8 MiB.
    pub sending_size_bytes_max: usize,
    /// A message that is larger than its link allows is discarded, and rejected when it is
    /// complete, up to this size in bytes. A larger one detaches its link. Default 128 MiB; before
    /// a token is accepted 1 MiB.
    pub discarded_size_bytes_max: u64,
    /// Requests of a connection to the broker in progress. Above it no more input is read from the
    /// connection. Default 1,024. Receives that wait for messages do not count: there is at most
    /// one for each link.
    pub requests_max: usize,
    /// Entities of links that a connection looks up at once, without those with sessions. Above it
    /// no more input is read from the connection. Each is a task, and tasks of other connections
    /// wait behind it. Default 64.
    pub looks_max: usize,
    /// Tokens of a connection, each for a different audience. One more is refused. Default 1,024.
    pub tokens_max: usize,
    /// Open transactions of a connection. One more is refused. Default 100.
    pub transactions_max: usize,
    /// Memory of the open transactions of a connection, in bytes: sent messages and changes to
    /// properties, plus 256 for each of them and for each settlement. An operation above it is
    /// refused, and its transaction rolled back. Default 8 MiB.
    pub transactions_size_bytes_max: usize,
    /// From the first operation of a transaction to its end; then it is rolled back. Default 2 min,
    /// as in Azure.
    pub transaction_timeout: Duration,
    /// Answers of one link that wait for credit. One more detaches the link. Default 64.
    pub replies_max: usize,
    /// Size of the answers of a connection that wait for credit, in bytes. One more detaches its link.
    /// Default 16 MiB.
    pub replies_size_bytes_max: usize,
    /// Memory of all connections together, in bytes: unread input, messages and parts of messages
    /// in both directions, requests and their answers, output, links with their names, and 128 for
    /// each delivery that its receiver has not settled. Above it, a connection with more than 64
    /// KiB gets no more messages, and parts of messages and requests are refused with
    /// `com.microsoft:server-busy`; above three halves of it, such a connection is closed. Clients
    /// without a token have a quarter of it, and 8 KiB each. Default 256 MiB.
    pub held_size_bytes_max: usize,
    /// Size of the messages that wait to be sent over a connection, in bytes. Above it no more are
    /// received for it. Default 8 MiB.
    pub ready_size_bytes_max: usize,
    /// From the start to the first token. Default 20 s, as in Azure.
    pub token_timeout: Duration,
    /// How much an AMQP connection visits, decodes and queues before others have their turn, in
    /// steps of about a microsecond: a frame, an event, a message, a settlement, some links that
    /// are searched. Work that cannot be split, such as the answer to a transaction, is charged
    /// afterwards. Default 1,024.
    pub turn_steps_max: u32,
    /// Requests of an HTTP connection that are answered before others have their turn. Default 4.
    pub http_turn_requests_max: u32,
    /// How long a client may take to read output. Default 60 s.
    pub write_timeout: Duration,
    /// The longest time that a client can wait for the next session. Default 10 min.
    pub session_wait_max: Duration,
    /// From the first byte of an HTTP request to the end of its head. Default 20 s.
    pub http_head_timeout: Duration,
    /// From the end of the head to the end of the body. Default 60 s.
    pub http_body_timeout: Duration,
    /// How long an HTTP connection may be idle after a valid token; another has the time to the
    /// first token. Default 120 s.
    pub http_keep_alive: Duration,
    /// The head of an HTTP request. At least 8 KiB; default 64 KiB.
    pub http_head_size_bytes_max: usize,
    /// The body of an HTTP request: a message of 1 MiB with its properties. Default 1,088 KiB.
    pub http_body_size_bytes_max: usize,
    /// Memory of the heads of all HTTP requests in progress, above 8 KiB each, also of clients
    /// without a token. One more is refused with 503. Default 16 MiB.
    pub http_heads_size_bytes_max: usize,
    /// Memory of the bodies of all HTTP requests in progress. Only clients with a token can send
    /// one. One more is refused with 503. Default 64 MiB.
    pub http_size_bytes_max: usize,
}

impl Limits {
    /// The limits of the front door of HTTP.
    pub(crate) const fn of_front(&self) -> kew_http_front::Limits {
        kew_http_front::Limits {
            in_flight_size_bytes_max: self.http_size_bytes_max,
            unproven_heads_size_bytes_max: self.http_heads_size_bytes_max,
            head_size_bytes_max: self.http_head_size_bytes_max,
            header_count_max: HEADERS_MAX,
            head_timeout: self.http_head_timeout,
            write_timeout: self.write_timeout,
            keep_alive: self.http_keep_alive,
            // As long as for a client of AMQP.
            unproven_keep_alive: self.token_timeout,
            turn_requests_max: self.http_turn_requests_max,
            farewell: FAREWELL,
            body: BodyLimits {
                size_bytes_max: self.http_body_size_bytes_max,
                timeout: self.http_body_timeout,
                // A connection with a body that is too large ends.
                discarded_size_bytes_max: 0,
            },
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            links_max: 8_192,
            unsettled_max: 65_536,
            sending_size_bytes_max: 8 << 20,
            discarded_size_bytes_max: 128 << 20,
            requests_max: 1_024,
            looks_max: 64,
            tokens_max: 1_024,
            transactions_max: 100,
            transactions_size_bytes_max: 8 << 20,
            transaction_timeout: Duration::from_mins(2),
            replies_max: 64,
            replies_size_bytes_max: 16 << 20,
            held_size_bytes_max: 256 << 20,
            ready_size_bytes_max: 8 << 20,
            turn_steps_max: 1_024,
            http_turn_requests_max: 4,
            token_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(60),
            session_wait_max: Duration::from_mins(10),
            http_head_timeout: Duration::from_secs(20),
            http_body_timeout: Duration::from_secs(60),
            http_keep_alive: Duration::from_secs(120),
            http_head_size_bytes_max: 64 << 10,
            http_body_size_bytes_max: (1 << 20) + (64 << 10),
            http_heads_size_bytes_max: 16 << 20,
            http_size_bytes_max: 64 << 20,
        }
    }
}
