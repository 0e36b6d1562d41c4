//! The front end as a whole: what its connections share, and what happens to a request.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::{Method, Response};
use kew_broker::Broker;
use tokio::sync::Semaphore;

use crate::accounts::Accounts;
use crate::error::Error;
use crate::id::RequestIds;
use crate::limits::Limits;
use crate::query::Query;
use crate::reply::{Envelope, Reply};
use crate::request::Request;
use crate::version::Version;
use crate::{body, health, operation};

/// Tells the time of day. Requests that were signed too long ago by it are refused.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Azure Queue Storage over HTTP, for any number of connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueueApi(pub(crate) Arc<Shared>);

/// What a [`QueueApi`] is made with.
pub struct QueueApiOptions {
    /// The accounts to serve.
    pub accounts: Accounts,
    /// What bounds connections and requests.
    pub limits: Limits,
    /// The clock that the dates of requests are compared with.
    pub clock: WallClock,
}

impl Default for QueueApiOptions {
    /// No accounts, default limits, and the clock of the system.
    fn default() -> Self {
        Self {
            accounts: Accounts::default(),
            limits: Limits::default(),
            clock: Arc::new(SystemTime::now),
        }
    }
}

impl fmt::Debug for QueueApiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueApiOptions")
            .field("accounts", &self.accounts)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What connections share.
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) accounts: Accounts,
    pub(crate) limits: Limits,
    clock: WallClock,
    request_ids: RequestIds,
    /// A permit for each connection that may be open.
    pub(crate) connections: Semaphore,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("accounts", &self.accounts)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl QueueApi {
    /// A front end to `broker`.
    pub fn new(broker: Broker, options: QueueApiOptions) -> Self {
        let QueueApiOptions {
            accounts,
            limits,
            clock,
        } = options;
        let connections_max = limits.connections_max.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Shared {
            broker,
            accounts,
            limits,
            clock,
            request_ids: RequestIds::new(),
            connections: Semaphore::new(connections_max),
        }))
    }

    /// How many connections are open.
    pub fn connection_count(&self) -> usize {
        let shared = &self.0;
        shared
            .limits
            .connections_max
            .saturating_sub(shared.connections.available_permits())
    }
}

impl Shared {
    pub(crate) fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Answers a request. There is an answer to every one.
    pub(crate) async fn answer<B>(&self, request: hyper::Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        if let Some(reply) = health::answer(&self.broker, &head) {
            let connection = body::discard(body, &head.headers, &self.limits).await;
            return reply.into_response(connection);
        }
        let version = Version::of_request(head.headers.get("x-ms-version")).map_err(|value| {
            Error::InvalidHeaderValue {
                name: "x-ms-version",
                value: String::from_utf8_lossy(value.as_bytes()).into(),
            }
        });
        let speaks = version.as_ref().ok().copied();
        let envelope = Envelope::new(&head.headers, speaks, self.request_ids.next());
        let query = Query::parse(head.uri.query());
        let (result, connection) = match Request::admit(self, &head, &query, version) {
            Ok(request) => {
                let (body, connection) = body::read(body, &self.limits).await;
                (operation::run(&request, body).await, connection)
            }
            Err(error) => {
                let connection = body::discard(body, &head.headers, &self.limits).await;
                (Err(error), connection)
            }
        };
        let reply = match result {
            Ok(reply) => envelope.seal(reply),
            Err(error) => self.explain(envelope, &error, &head.method),
        };
        reply.into_response(connection)
    }

    fn explain(&self, envelope: Envelope, error: &Error, method: &Method) -> Reply {
        let wire = error.wire();
        if wire.status.is_server_error() {
            let request_id = String::from_utf8_lossy(&envelope.request_id).into_owned();
            tracing::warn!(code = wire.code, request_id, "request failed");
        }
        envelope.seal_error(error, method == Method::HEAD, self.now())
    }

    /// The answer to a connection that is one too many.
    pub(crate) fn busy(&self) -> Reply {
        let envelope = Envelope {
            request_id: self.request_ids.next(),
            version: None,
            client_request_id: None,
        };
        envelope.seal_error(&Error::ServerBusy, false, self.now())
    }
}
