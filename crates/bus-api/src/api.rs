//! The handle that the server holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kew_broker::{Broker, Rejection};
use kew_issuer::Issuers;
use kew_listen::{Place, ServerNames, Share};
use kew_metrics::{Family, FewASecond, OnceASecond};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::claims::Claims;
use crate::driver::Driver;
use crate::export::export;
use crate::first::{Begun, First, first_of};
use crate::holdings::room_for_answers;
use crate::metrics::{Instruments, Overdue};
use crate::observe::FAILURES_TOLD_MAX;
use crate::rules::{RuleError, Rules};
use crate::{BusConfig, Limits, Origin, http};

/// The one namespace, under the name that the emulator's configuration gives it.
pub const NAMESPACE: &str = "sbemulatorns";
/// The rule of the emulator's connection string.
pub const WELL_KNOWN_RULE: &str = "RootManageSharedAccessKey";
/// Its key, which is public: it must only be served to this machine.
pub const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

/// Service Bus over AMQP. Clones share it.
#[derive(Clone, Debug)]
pub struct BusApi {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    /// For long heads of HTTP requests, whoever sends them.
    pub(crate) heads: http::Room,
    /// For bodies of HTTP requests, of clients with a token: strangers have no part in it.
    pub(crate) bodies: http::Room,
    /// Work that operators have begun.
    pub(crate) jobs: http::Jobs,
    pub(crate) issuers: Issuers,
    /// What this server is called.
    pub(crate) names: ServerNames,
    clock: fn() -> SystemTime,
    /// When this server was started, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    /// Where connections have their places.
    places: Share,
    pub(crate) instruments: Instruments,
    /// Room for answers with messages in them.
    pub(crate) answers: Arc<Semaphore>,
    /// The part of it that those over HTTP take at most: they have it until they are read.
    pub(crate) http_answers: Arc<Semaphore>,
    /// Locks that open transactions are to end.
    pub(crate) claims: Arc<Claims>,
    pub(crate) busy_log: OnceASecond,
    pub(crate) refused_log: OnceASecond,
    pub(crate) gave_way_log: OnceASecond,
    pub(crate) refused_acts: http::RefusedActs,
    pub(crate) failed_log: FewASecond,
    pub(crate) barred_log: OnceASecond,
}

impl Shared {
    pub(crate) fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Now, in seconds since 1970.
    pub(crate) fn now_s(&self) -> u64 {
        self.now_ms() / 1000
    }

    /// Now, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        ms_since_1970(self.now())
    }
}

fn ms_since_1970(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// What a front end is given besides a broker.
#[derive(Clone, Debug)]
pub struct BusApiOptions {
    /// What bounds clients.
    pub limits: Limits,
    /// The issuers of the bearer tokens to take; none are taken without one.
    pub issuers: Issuers,
    /// What the server is called: which addresses are its own, and by which names it may be called with
    /// the public key. Those of loopback, if nothing else is said.
    pub names: ServerNames,
    /// By what tokens are judged to have expired: the system's clock, if nothing else is said.
    pub clock: fn() -> SystemTime,
    /// Where connections have their places, if others have places there too: then `connections_max` is
    /// what that share may have.
    pub places: Option<Share>,
}

impl Default for BusApiOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            issuers: Issuers::default(),
            names: ServerNames::default(),
            clock: SystemTime::now,
            places: None,
        }
    }
}

impl BusApi {
    /// A front end for a broker, with the rules that the log has.
    pub async fn open(broker: Broker, options: BusApiOptions) -> Result<Self, RuleError> {
        let connections_max = options.limits.connections_max;
        let places = options.places;
        let shared = Arc::new(Shared {
            places: places.unwrap_or_else(|| Share::alone(connections_max)),
            broker,
            rules: Rules::default(),
            heads: http::Room::new(options.limits.http_heads_size_bytes_max),
            bodies: http::Room::new(options.limits.http_size_bytes_max),
            answers: room_for_answers(options.limits.held_size_bytes_max),
            http_answers: room_for_answers(options.limits.held_size_bytes_max / 2),
            limits: options.limits,
            jobs: http::Jobs::default(),
            issuers: options.issuers,
            names: options.names,
            clock: options.clock,
            started_at_ms: ms_since_1970((options.clock)()),
            instruments: Instruments::new(),
            claims: Arc::default(),
            busy_log: OnceASecond::default(),
            refused_log: OnceASecond::default(),
            gave_way_log: OnceASecond::default(),
            refused_acts: http::RefusedActs::default(),
            failed_log: FewASecond::new(FAILURES_TOLD_MAX),
            barred_log: OnceASecond::default(),
        });
        shared.load_rules().await?;
        Ok(Self { shared })
    }

    /// The settings of all queues, as a configuration file of the emulator.
    pub async fn export(&self) -> Result<BusConfig, Rejection> {
        export(&self.shared.broker).await
    }

    /// A place for one more connection. If there are as many as there may be, one without a token gives
    /// way to it; if all have one, the new connection is to be closed, and was counted and logged.
    pub fn admit(&self, peer: SocketAddr) -> Option<Place> {
        let place = self.shared.places.take(peer.ip());
        if place.is_some() {
            self.shared.instruments.accepted.increment();
        } else {
            let open = self.shared.places.count();
            self.shared.note_turned_away(peer, open);
        }
        place
    }

    /// Counts and logs a connection that gave way to a newer one before it was served.
    pub fn note_gave_way(&self, peer: SocketAddr) {
        self.shared.note_gave_way(peer);
    }

    /// What it has counted, for a page of metrics. Does not block.
    pub fn metrics(&self) -> Vec<Family> {
        let open = self.shared.places.count();
        self.shared.instruments.families(open)
    }

    /// Serves one connection until it ends, in the protocol that its first byte tells. When
    /// `shutdown` completes, the client is told to come back later. One that loses its place is closed
    /// at once: it has shown no token.
    pub async fn serve<S>(
        &self,
        stream: S,
        origin: Origin,
        place: Place,
        shutdown: impl Future<Output = ()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let notice = place.notice();
        tokio::select! {
            biased;
            () = notice.given() => self.note_gave_way(origin.peer),
            () = self.serve_in(stream, origin, Arc::new(place), shutdown) => {}
        }
    }

    async fn serve_in<S>(
        &self,
        mut stream: S,
        origin: Origin,
        place: Arc<Place>,
        shutdown: impl Future<Output = ()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut shutdown = std::pin::pin!(shutdown);
        let patience = self.shared.limits.token_timeout;
        let first = tokio::select! {
            first = tokio::time::timeout(patience, first_of(&mut stream)) => first,
            // Nothing was asked yet.
            () = &mut shutdown => return,
        };
        match first {
            Ok(Ok(First::Amqp(begun))) => {
                let driver = Driver::new(Arc::clone(&self.shared), origin, place, &begun);
                Box::new(driver).run(stream, shutdown).await;
            }
            Ok(Ok(First::Http(begun))) => {
                let stream = Begun::new(begun, stream);
                // Its state must not make AMQP connections larger.
                Box::pin(http::serve(
                    Arc::clone(&self.shared),
                    stream,
                    origin,
                    place,
                    shutdown,
                ))
                .await;
            }
            Ok(Err(error)) => {
                self.shared.instruments.broken.increment();
                tracing::debug!(target: "kew::access", peer = %origin.peer, %error, "nothing was said");
            }
            Err(_) => {
                self.shared.instruments.note_overdue(Overdue::Handshake);
                tracing::debug!(target: "kew::access", peer = %origin.peer, "nothing was said in time");
            }
        }
    }
}
