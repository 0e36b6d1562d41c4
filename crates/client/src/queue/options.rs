//! How a client of Queue Storage behaves, and what a put may ask for.

use std::sync::Arc;
use std::time::Duration;

use crate::retry::Retry;
use crate::transport::Dial;

/// How a client behaves, and what bounds it.
#[derive(Clone)]
pub struct QueueOptions {
    /// How long an operation may take, with all its tries. Default 60 s.
    pub timeout: Duration,
    /// How long the first try of every operation may take, from the wait for a connection to the end of the answer.
    /// Each further try may take twice as long as the one before. Of a change that was sent and not answered in this
    /// time, the outcome is unknown, and it is not tried again.
    ///
    /// Default: an operation that is tried again after a time-out (a read, or a change that is the same once and twice)
    /// divides [`timeout`](Self::timeout) among its tries in the same way: with 60 s and 3 retries 4 s, 8 s, 16 s, and
    /// the rest. Other changes have the whole time. The service is told the time of a try that is shorter than its own
    /// limit of 30 s.
    pub attempt_timeout: Option<Duration>,
    /// How long a connection may take to be made. Default 30 s.
    pub connect_timeout: Duration,
    /// When an operation is tried again.
    pub retry: Retry,
    /// Requests under way, each on a connection of its own. One more waits. Default 64.
    pub connections_max: usize,
    /// How many queues a page of a list has, 1 to 5,000. Default 1,000: fewer are shown sooner.
    pub page_size: u32,
    /// Certificate authorities to be trusted beside those of the system, in PEM.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// The header `User-Agent`, for the logs of the service. Default `kew-client/` and its version.
    pub user_agent: String,
    /// What makes connections in place of TCP.
    pub dial: Option<Arc<dyn Dial>>,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            attempt_timeout: None,
            connect_timeout: Duration::from_secs(30),
            retry: Retry::default(),
            connections_max: 64,
            page_size: 1_000,
            extra_roots_pem: None,
            user_agent: concat!("kew-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            dial: None,
        }
    }
}

impl std::fmt::Debug for QueueOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueOptions")
            .field("timeout", &self.timeout)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("retry", &self.retry)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// What a put may ask for beyond the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Seconds until the message can be received; the service's default is 0.
    pub visibility_timeout: Option<u32>,
    /// Seconds until it expires, or -1 for never; the service's default is seven days.
    pub time_to_live: Option<i64>,
}
