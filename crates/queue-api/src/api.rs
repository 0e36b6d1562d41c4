//! The front end as a whole: what its connections share, and what happens to a request.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use kew_broker::Broker;
use tokio::sync::Semaphore;

use crate::accounts::Accounts;
use crate::body::Connection;
use crate::budget::Budget;
use crate::error::Error;
use crate::id::RequestIds;
use crate::limits::Limits;
use crate::origin::Origin;
use crate::reply::{Envelope, Reply};
use crate::request::{Refused, Request};
use crate::spelling::Spellings;
use crate::version::{Version, X_MS_VERSION};
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
    /// What bodies may take, of requests and of answers.
    pub(crate) budget: Arc<Budget>,
    clock: WallClock,
    request_ids: RequestIds,
    /// A permit for each connection that may be open.
    pub(crate) connections: Semaphore,
}

/// An answer, and what its connection must know.
pub(crate) struct Answered {
    pub(crate) response: Response<Full<Bytes>>,
    /// What is left of the connection after it.
    pub(crate) connection: Connection,
    /// Whether the request was.
    pub(crate) is_authentic: bool,
    /// How the names of metadata in the answer's head are to be spelled.
    pub(crate) spellings: Spellings,
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
            budget: Budget::new(limits.in_flight_size_bytes_max),
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
    ///
    /// `heard` is how its head spells the names of metadata. Nothing was heard of a head if it is not
    /// certain where the request ends.
    pub(crate) async fn answer<B>(
        &self,
        origin: &Origin,
        request: hyper::Request<B>,
        heard: Option<Spellings>,
    ) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        let Some(heard) = heard else {
            let error = Error::InvalidInput;
            let reply = self.explain(self.envelope(&head), &error, &head.method);
            return reply.into_answered(Connection::Spent, false);
        };
        if let Some(reply) = health::answer(&self.broker, &head) {
            let connection = body::refuse(body, &head.headers, &self.limits).await;
            return reply.into_answered(connection, false);
        }
        let envelope = self.envelope(&head);
        match Request::admit(self, origin, &head, &heard) {
            Ok(request) => {
                let read = body::read(body, &head.headers, &self.limits, &self.budget).await;
                let reply = match operation::run(&request, read.result).await {
                    Ok(reply) => envelope.seal(reply),
                    Err(error) => self.explain(envelope, &error, &head.method),
                };
                reply.into_answered(read.connection, true)
            }
            Err(Refused {
                error,
                is_authentic,
            }) => {
                let connection = body::refuse(body, &head.headers, &self.limits).await;
                let reply = self.explain(envelope, &error, &head.method);
                reply.into_answered(connection, is_authentic)
            }
        }
    }

    fn envelope(&self, head: &Parts) -> Envelope {
        let speaks = Version::of_request(head.headers.get(X_MS_VERSION)).ok();
        Envelope::new(&head.headers, speaks, self.request_ids.next())
    }

    fn explain(&self, envelope: Envelope, error: &Error, method: &Method) -> Reply {
        let wire = error.wire();
        if wire.status.is_server_error() {
            let request_id = String::from_utf8_lossy(&envelope.request_id).into_owned();
            match error {
                Error::InternalError => {
                    tracing::warn!(code = wire.code, request_id, "request failed");
                }
                // A server that is busy has better things to do than to say so each time.
                _ => tracing::debug!(code = wire.code, request_id, "request failed"),
            }
        }
        envelope.seal_error(error, method == Method::HEAD, self.now())
    }

    /// The answer to a head that is none, in place of `automatic`, which is hyper's.
    pub(crate) fn refuse_head(&self, automatic: &[u8]) -> Reply {
        let error = match automatic.get(9..12) {
            Some(b"414") => Error::InvalidUri,
            _ => Error::InvalidInput,
        };
        self.bare_envelope().seal_error(&error, false, self.now())
    }

    /// The answer to a connection that is one too many.
    pub(crate) fn busy(&self) -> Reply {
        self.bare_envelope()
            .seal_error(&Error::ServerBusy, false, self.now())
    }

    /// The answer to a connection that is not encrypted and has to be.
    pub(crate) fn requires_https(&self) -> Reply {
        self.bare_envelope()
            .seal_error(&Error::AccountRequiresHttps, false, self.now())
    }

    /// The envelope of an answer to nothing that could be read.
    fn bare_envelope(&self) -> Envelope {
        Envelope {
            request_id: self.request_ids.next(),
            version: HeaderValue::try_from(Version::NEWEST.to_string()).ok(),
            client_request_id: None,
        }
    }
}
