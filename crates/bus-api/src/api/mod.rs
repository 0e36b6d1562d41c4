//! The front end's handle, which the server holds.

mod first;
mod rules;
mod turn_away;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use kew_broker::Broker;
use kew_issuer::Issuers;
use kew_listen::{Place, ServerNames, Share};
use kew_metrics::Family;
use kew_principals::PrincipalError;
use tokio::io::{AsyncRead, AsyncWrite};

use self::first::{Begun, First, first_of};
use crate::authorization::authority::Authority;
use crate::configuration::export::{ExportError, export};
use crate::configuration::file::BusConfig;
use crate::connection::Driver;
use crate::ground::clock::Clock;
use crate::ground::limits::Limits;
use crate::ground::origin::Origin;
use crate::http::{self, HttpService};
use crate::memory::answers::RoomForAnswers;
use crate::memory::holdings::Memory;
use crate::metrics::{Observer, Overdue};
use crate::shared::Shared;

/// Service Bus over AMQP. Clones share it.
#[derive(Clone, Debug)]
pub struct BusApi {
    /// In one place: each connection has a clone.
    pub(crate) parts: Arc<Parts>,
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    http: Arc<HttpService>,
    /// Where connections have their places.
    places: Share,
}

/// The options of a front end.
#[derive(Clone, Debug)]
pub struct BusApiOptions {
    /// The limits for clients.
    pub limits: Limits,
    /// The trusted issuers of bearer tokens. Without any, bearer tokens are refused.
    pub issuers: Issuers,
    /// The names of the server: which addresses are its own, and which names admit the public key.
    /// Default: the names of loopback.
    pub names: ServerNames,
    /// The clock for the expiry of tokens. Default: the system's clock.
    pub clock: fn() -> SystemTime,
    /// The share from which connections take their places, if other protocols take places too.
    /// Default: a share of its own with `connections_max` places.
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
    /// Opens a front end for a broker, with the rules in the log.
    pub async fn open(broker: Broker, options: BusApiOptions) -> Result<Self, PrincipalError> {
        let BusApiOptions {
            limits,
            issuers,
            names,
            clock,
            places,
        } = options;
        let clock = Clock(clock);
        let observer = Arc::new(Observer::new());
        let shared = Arc::new(Shared {
            authority: Authority::open(broker.clone(), issuers, clock).await?,
            broker,
            names,
            clock,
            started_at_ms: clock.now_ms(),
            memory: Memory::new(Arc::clone(&observer), limits.held_size_bytes_max),
            answers: RoomForAnswers::new(limits.held_size_bytes_max),
            observer,
            claims: Arc::default(),
            limits,
        });
        Ok(Self {
            parts: Arc::new(Parts {
                places: places.unwrap_or_else(|| Share::alone(shared.limits.connections_max)),
                http: Arc::new(HttpService::new(Arc::clone(&shared))),
                shared,
            }),
        })
    }

    /// The settings of all queues, topics and subscriptions, and rules, as a configuration file of the emulator.
    pub async fn export(&self) -> Result<BusConfig, ExportError> {
        export(&self.parts.shared.broker).await
    }

    /// A place for one more connection. At the limit, a connection without a token gives way. If
    /// all have one, this returns `None`, and has counted and logged that: close the new
    /// connection.
    pub fn admit(&self, peer: SocketAddr) -> Option<Place> {
        let place = self.parts.places.take(peer.ip());
        if place.is_some() {
            self.parts.shared.observer.instruments.accepted.increment();
        } else {
            let open = self.parts.places.count();
            self.parts.shared.observer.note_turned_away(peer, open);
        }
        place
    }

    /// Counts and logs a connection that gave way to a newer one before it was served.
    pub fn note_gave_way(&self, peer: SocketAddr) {
        self.parts.shared.observer.note_gave_way(peer);
    }

    /// The counted values, for a page of metrics. Does not block.
    pub fn metrics(&self) -> Vec<Family> {
        let open = self.parts.places.count();
        self.parts.shared.observer.instruments.families(open)
    }

    /// Serves one connection until it ends. Its first byte decides the protocol. When `shutdown`
    /// completes, the client is asked to reconnect later. A connection that loses its place is
    /// closed at once: it has no token yet.
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
        let patience = self.parts.shared.limits.token_timeout;
        let first = tokio::select! {
            first = tokio::time::timeout(patience, first_of(&mut stream)) => first,
            // The client has sent no request yet.
            () = &mut shutdown => return,
        };
        match first {
            Ok(Ok(First::Amqp(begun))) => {
                let driver = Driver::new(Arc::clone(&self.parts.shared), origin, place, &begun);
                Box::new(driver).run(stream, shutdown).await;
            }
            Ok(Ok(First::Http(begun))) => {
                let stream = Begun::new(begun, stream);
                // Its state must not make AMQP connections larger.
                Box::pin(http::serve(
                    Arc::clone(&self.parts.http),
                    stream,
                    origin,
                    place,
                    shutdown,
                ))
                .await;
            }
            Ok(Err(error)) => {
                self.parts.shared.observer.instruments.broken.increment();
                tracing::debug!(target: "kew::access", peer = %origin.peer, %error, "the client \
                                                                                     sent nothing");
            }
            Err(_) => {
                self.parts
                    .shared
                    .observer
                    .instruments
                    .note_overdue(Overdue::Handshake);
                tracing::debug!(target: "kew::access", peer = %origin.peer, "the client sent \
                                                                             nothing in time");
            }
        }
    }
}
