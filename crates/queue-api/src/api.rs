//! The front end as a whole: the state that its connections share, and the way of a request.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use kew_broker::{Broker, Rejection};
use kew_http_front::{Answer, Connection, Front, Patience, Read, discard, read};
use kew_listen::{ServerNames, Share};
use kew_metrics::{FewASecond, OnceASecond};
use kew_principals::InForce;

use crate::accounts::{Accounts, ServedAccounts};
use crate::auth::Issuers;
use crate::deletions::Deletions;
use crate::error::Error;
use crate::id::RequestIds;
use crate::limits::Limits;
use crate::metrics::{Asked, Instruments};
use crate::observe::{FAILURES_TOLD_MAX, Seen};
use crate::operator::{self, OperatorOptions};
use crate::origin::Origin;
use crate::properties::PropertyStore;
use crate::query::Query;
use crate::reply::{Envelope, Reply};
use crate::request::{Refused, Request};
use crate::spelling::Spellings;
use crate::version::{Version, X_MS_VERSION};
use crate::{health, operation, sharing};

/// Returns the time of day. Requests with an older signature than the limit are refused.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Azure Queue Storage over HTTP, for any number of connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueueApi(pub(crate) Arc<Shared>);

/// The options of a [`QueueApi`].
pub struct QueueApiOptions {
    /// The accounts to serve at first.
    pub accounts: Accounts,
    /// The limits for connections and requests.
    pub limits: Limits,
    /// The clock that the dates of requests are compared with.
    pub clock: WallClock,
    /// The options for metrics and health.
    pub operator: OperatorOptions,
    /// The issuers of accepted bearer tokens. Default none.
    pub issuers: Issuers,
    /// The names of the server: only by these it accepts the public key. Default the names of
    /// loopback.
    pub names: ServerNames,
    /// How long the name of a deleted queue stays reserved: Create Queue answers
    /// `QueueBeingDeleted`. The default is zero, not at all; Azure takes half a minute. A restart
    /// frees the names.
    pub queue_deletion_delay: Duration,
    /// The share from which connections take their places, if other protocols take places too.
    /// Default: a share of its own with `connections_max` places.
    pub places: Option<Share>,
}

impl Default for QueueApiOptions {
    /// No accounts, default limits, and the clock of the system.
    fn default() -> Self {
        Self {
            accounts: Accounts::default(),
            limits: Limits::default(),
            clock: Arc::new(SystemTime::now),
            operator: OperatorOptions::default(),
            issuers: Issuers::default(),
            names: ServerNames::default(),
            queue_deletion_delay: Duration::ZERO,
            places: None,
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

/// The state that connections share.
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) accounts: ServedAccounts,
    pub(crate) limits: Limits,
    /// The bounds of HTTP connections, and the memory that they hold together.
    pub(crate) front: Front,
    pub(crate) properties: PropertyStore,
    pub(crate) deletions: Deletions,
    clock: WallClock,
    pub(crate) issuers: Issuers,
    pub(crate) names: ServerNames,
    /// The challenge for a missing or bad token, if not the default.
    challenge: Option<HeaderValue>,
    request_ids: RequestIds,
    /// Where connections have their places.
    pub(crate) places: Share,
    pub(crate) operator: OperatorOptions,
    pub(crate) instruments: Instruments,
    pub(crate) busy_log: OnceASecond,
    pub(crate) gave_way_log: OnceASecond,
    pub(crate) failed_log: FewASecond,
    pub(crate) barred_log: OnceASecond,
    /// Limits on requests for metrics.
    pub(crate) bounds: operator::Bounds,
}

/// An answer, and facts about it for the connection and the operator.
pub(crate) struct Answered {
    pub(crate) response: Answer,
    /// The spelling of the names of metadata in the answer's head.
    pub(crate) spellings: Spellings,
    /// For metrics and logs.
    pub(crate) seen: Seen,
}

impl Answered {
    fn having_seen(mut self, seen: Seen) -> Self {
        self.seen = seen;
        self
    }

    fn asked(self, asked: Asked) -> Self {
        self.having_seen(Seen {
            asked,
            body_bytes: 0,
        })
    }
}

/// A complete answer, except for the headers for the web page that sent the request.
struct Sealed {
    reply: Reply,
    connection: Connection,
    seen: Seen,
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
            operator,
            issuers,
            names,
            queue_deletion_delay,
            places,
        } = options;
        let places = places.unwrap_or_else(|| Share::alone(limits.connections_max));
        Self(Arc::new(Shared {
            broker,
            accounts: ServedAccounts::new(accounts),
            front: Front::new(limits.of_front()),
            bounds: operator::Bounds::new(&limits),
            limits,
            properties: PropertyStore::default(),
            deletions: Deletions::new(queue_deletion_delay),
            clock,
            challenge: issuers.first().and_then(|issuer| {
                let challenge = issuer.challenge(crate::auth::RESOURCE);
                HeaderValue::try_from(challenge).ok()
            }),
            issuers,
            names,
            request_ids: RequestIds::new(),
            places,
            operator,
            instruments: Instruments::new(),
            busy_log: OnceASecond::default(),
            gave_way_log: OnceASecond::default(),
            failed_log: FewASecond::new(FAILURES_TOLD_MAX),
            barred_log: OnceASecond::default(),
        }))
    }

    /// The accounts of this server, which can change at any time.
    pub fn accounts(&self) -> &ServedAccounts {
        &self.0.accounts
    }

    /// How many connections are open.
    pub fn connection_count(&self) -> usize {
        self.0.places.count()
    }
}

impl Shared {
    pub(crate) fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Answers a request, counts and logs it. Every request gets an answer.
    ///
    /// `heard` has the spellings of metadata names in its head; it is empty if it is not certain
    /// where the request ends. `prove` is called if the request is authentic, before its body is
    /// read.
    pub(crate) async fn answer<B>(
        self: &Arc<Self>,
        origin: &Origin,
        request: hyper::Request<B>,
        heard: &Spellings,
        prove: impl FnOnce(),
    ) -> Answered
    where
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let answered = self.answer_to(origin, &head, body, heard, prove).await;
        self.observe(origin, &head, &answered, began.elapsed());
        answered
    }

    async fn answer_to<B>(
        self: &Arc<Self>,
        origin: &Origin,
        head: &Parts,
        body: B,
        heard: &Spellings,
        prove: impl FnOnce(),
    ) -> Answered
    where
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        if let Some(reply) = health::answer(&self.broker, head) {
            let connection = self.discard(head, body).await;
            return reply.into_answered(connection).asked(Asked::Health);
        }
        if let Some(reply) = operator::answer(self, origin, head).await {
            let connection = self.discard(head, body).await;
            return reply.into_answered(connection).asked(Asked::Metrics);
        }
        // Looked up at the same time, so that a request of a page takes no longer than others.
        let (sealed, shared) = tokio::join!(
            self.carry_out(origin, head, body, heard, prove),
            sharing::rules(self, origin, head)
        );
        let Sealed {
            mut reply,
            connection,
            seen,
        } = sealed;
        shared.put(head, &mut reply);
        reply.into_answered(connection).having_seen(seen)
    }

    /// Admits a request and carries it out, or explains why not.
    async fn carry_out<B>(
        &self,
        origin: &Origin,
        head: &Parts,
        body: B,
        heard: &Spellings,
        prove: impl FnOnce(),
    ) -> Sealed
    where
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        let envelope = self.envelope(head);
        let accounts = self.accounts.current().await;
        let (request, is_authentic) = match &accounts {
            Ok(accounts) => self.admit(accounts, origin, head, heard).await,
            Err(rejection) => (Err(unjudged(rejection)), false),
        };
        if is_authentic {
            prove();
        }
        let changed;
        let (result, connection, seen) = match request {
            Ok(mut request) => {
                let share = self.front.budget.share();
                let read = if is_authentic {
                    read(body, &head.headers, &self.front.limits.body, share).await
                } else {
                    Read {
                        result: Ok(Bytes::new()),
                        connection: self.discard(head, body).await,
                        share,
                    }
                };
                let seen = Seen {
                    asked: Asked::Operation(request.operation),
                    body_bytes: read.result.as_ref().map_or(0, |body| body.len() as u64),
                };
                // A body may take long. The account or the key may have been removed meanwhile, also
                // by another owner, and then the request must be refused: a queue created now would
                // belong to the next account of that name.
                changed = self.accounts.current().await;
                let admitted = match (&accounts, &changed) {
                    (Ok(before), Ok(now)) if now.is(before) => Ok(()),
                    (_, Ok(now)) => {
                        let (again, _) = self.admit(now, origin, head, heard).await;
                        again.map(|again| request = again)
                    }
                    (_, Err(rejection)) => Err(unjudged(rejection)),
                };
                let result = match admitted {
                    Ok(()) => operation::run(&request, read.result.map_err(Error::from)).await,
                    Err(error) => Err(error),
                };
                (result, read.connection, seen)
            }
            Err(error) => {
                let connection = self.discard(head, body).await;
                (Err(error), connection, self.seen_of_refused(head))
            }
        };
        Sealed {
            reply: match result {
                Ok(reply) => envelope.seal(reply),
                Err(error) => self.explain(envelope, &error, &head.method),
            },
            connection,
            seen,
        }
    }

    /// Admits a request, or says why not. Also returns whether its sender is known to have a key.
    async fn admit<'a>(
        &'a self,
        accounts: &'a InForce<Accounts>,
        origin: &'a Origin,
        head: &'a Parts,
        heard: &'a Spellings,
    ) -> (Result<Request<'a>, Error>, bool) {
        match Request::admit(self, accounts, origin, head, heard).await {
            Ok(request) => {
                let is_authentic = request.is_authentic();
                (Ok(request), is_authentic)
            }
            Err(Refused {
                error,
                is_authentic,
            }) => (Err(error), is_authentic),
        }
    }

    /// Reads and drops the body of a request that is refused for its head. Its client is not authenticated, so
    /// the patience is short.
    async fn discard<B>(&self, head: &Parts, body: B) -> Connection
    where
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        let limits = &self.limits;
        let patience = Patience::new(limits.refused_size_bytes_max, limits.refused_body_timeout);
        discard(body, &head.headers, patience).await
    }

    /// Refuses a request whose end is not certain, then counts and logs it.
    pub(crate) fn refuse_unsound(&self, origin: &Origin, head: &Parts) -> Answered {
        let began = Instant::now();
        let reply = self.explain(self.envelope(head), &Error::InvalidInput, &head.method);
        let answered = reply.into_answered(Connection::Spent);
        self.observe(origin, head, &answered, began.elapsed());
        answered
    }

    fn envelope(&self, head: &Parts) -> Envelope {
        let sent = head.headers.get(X_MS_VERSION);
        let speaks = Version::of_request(sent).ok();
        let mut envelope = Envelope::new(&head.headers, speaks, self.request_ids.next());
        if sent.is_none()
            && let Ok(query) = Query::parse(head.uri.query())
            && let Some(version) = Version::named_in_query(&head.headers, &query)
        {
            envelope.speak(version);
        }
        envelope
    }

    fn explain(&self, envelope: Envelope, error: &Error, method: &Method) -> Reply {
        let mut reply = envelope.seal_error(error, method == Method::HEAD, self.now());
        if let Some(challenge) = &self.challenge
            && let Some(usual) = reply.headers_mut().get_mut(WWW_AUTHENTICATE)
        {
            *usual = challenge.clone();
        }
        reply
    }

    /// The answer to an invalid head, in place of the HTTP library's answer with this status.
    pub(crate) fn refuse_head(&self, status: StatusCode) -> Reply {
        let error = match status {
            StatusCode::URI_TOO_LONG => Error::InvalidUri,
            _ => Error::InvalidInput,
        };
        self.bare_envelope().seal_error(&error, false, self.now())
    }

    /// The answer to a connection above the limit.
    pub(crate) fn busy(&self) -> Reply {
        self.bare_envelope()
            .seal_error(&Error::ServerBusy, false, self.now())
    }

    /// The answer to a connection that must be encrypted and is not.
    pub(crate) fn requires_https(&self) -> Reply {
        self.bare_envelope()
            .seal_error(&Error::AccountRequiresHttps, false, self.now())
    }

    /// The envelope of an answer to an unreadable request.
    fn bare_envelope(&self) -> Envelope {
        Envelope {
            request_id: self.request_ids.next(),
            version: HeaderValue::try_from(Version::NEWEST.to_string()).ok(),
            client_request_id: None,
            is_oldest: false,
        }
    }
}

/// The error for a request that nobody can judge, because the accounts are not known now. It is for
/// its client to try again.
fn unjudged(rejection: &Rejection) -> Error {
    Error::of_rejection(rejection.clone(), Version::NEWEST)
}
