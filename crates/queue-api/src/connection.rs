//! Connections: which ones are served, and the part of this service in the front door of all HTTP.
//!
//! Three kinds of connection end without an answer: the client is too slow with a head, it speaks HTTP/2, or
//! it sent no request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::Request;
use hyper::body::Incoming;
use kew_http_front::{Activity, Answer, Event, Front, Refusal, Service, say_farewell, serve};
use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::api::{QueueApi, Shared};
use crate::origin::Origin;
use crate::reply::Reply;
use crate::spelling::Spellings;

impl QueueApi {
    /// Serves one connection until the client closes it, a limit ends it, or, after `shutdown` resolves, its
    /// current request is answered.
    ///
    /// Dropping the future closes the connection at once. Errors on one connection are logged and not
    /// returned.
    pub async fn serve_connection<IO, S>(&self, io: IO, origin: Origin, shutdown: S)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        match self.admit(origin.peer) {
            Some(place) => self.serve_admitted(io, origin, place, shutdown).await,
            None => self.turn_away(io, origin).await,
        }
    }

    /// Takes a place for one more connection. If the maximum is reached, a connection without an authentic
    /// request gives way to the new one. Returns `None` if all connections have had an authentic request.
    /// For listeners that work with a connection before it is served.
    pub fn admit(&self, peer: SocketAddr) -> Option<Place> {
        let place = self.0.places.take(peer.ip())?;
        self.0.instruments.accepted.increment();
        Some(place)
    }

    /// Counts and logs a connection that gave way to a newer one.
    pub fn note_gave_way(&self, peer: SocketAddr) {
        self.0.instruments.gave_way.increment();
        if let Some(count) = self.0.gave_way_log.note(SystemTime::now()) {
            tracing::warn!(
                %peer,
                count,
                "Queue Storage connections closed before their first authentic request, to make room \
                 for new ones"
            );
        }
    }

    /// Answers that there is no room for the connection, and closes it.
    pub async fn turn_away<IO>(&self, io: IO, origin: Origin)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.note_turned_away(origin.peer);
        self.refuse_connection(io, self.0.busy()).await;
    }

    /// Counts and logs a connection that is closed without an answer, because there is no room even for
    /// that.
    pub fn note_turned_away(&self, peer: SocketAddr) {
        tracing::debug!(%peer, "connection turned away: too many are open");
        self.0.instruments.turned_away.increment();
    }

    /// Answers any request that HTTPS is required, and closes the connection.
    pub async fn refuse_plain<IO>(&self, io: IO, origin: Origin)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        tracing::debug!(peer = %origin.peer, "connection refused: it is not encrypted");
        self.refuse_connection(io, self.0.requires_https()).await;
    }

    async fn refuse_connection<IO>(&self, io: IO, reply: Reply)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let answer = reply.to_bytes(self.0.now());
        say_farewell(io, &answer, &self.0.front.limits.farewell).await;
    }

    /// Serves an admitted connection, as [`QueueApi::serve_connection`] does. A connection that loses its
    /// place is closed at once: it has had no authentic request.
    pub async fn serve_admitted<IO, S>(&self, io: IO, origin: Origin, place: Place, shutdown: S)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let notice = place.notice();
        let connection = Connection {
            shared: Arc::clone(&self.0),
            origin,
            place,
        };
        tokio::select! {
            biased;
            () = notice.given() => self.note_gave_way(origin.peer),
            // No answer of this service ends HTTP on a connection, so no socket is returned.
            _ = serve(&connection, io, shutdown) => {}
        }
    }
}

/// The service, as one connection sees it.
struct Connection {
    shared: Arc<Shared>,
    origin: Origin,
    place: Place,
}

impl Service for Connection {
    type Spelling = Spellings;

    fn front(&self) -> &Front {
        &self.shared.front
    }

    fn place(&self) -> &Place {
        &self.place
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        spelling: Spellings,
        activity: &Activity<'_, Spellings>,
    ) -> Answer {
        let prove = || activity.prove();
        let answered = self
            .shared
            .answer(&self.origin, request, &spelling, prove)
            .await;
        activity.spell(answered.spellings);
        answered.response
    }

    fn refuse_unsound(&self, request: Request<Incoming>) -> Answer {
        let (head, _) = request.into_parts();
        self.shared.refuse_unsound(&self.origin, &head).response
    }

    fn refusal(&self, why: Refusal) -> Vec<u8> {
        let reply = match why {
            Refusal::Crowded => self.shared.busy(),
            Refusal::InvalidHead(status) => self.shared.refuse_head(status),
        };
        reply.to_bytes(self.shared.now())
    }

    fn note(&self, event: Event<'_>) {
        let instruments = &self.shared.instruments;
        let peer = self.origin.peer;
        match event {
            Event::TurnCut => instruments.turns_cut.increment(),
            Event::Turn(requests) => instruments.turn_requests_max.note(requests.into()),
            Event::Overdue(overdue) => {
                tracing::debug!(%peer, ?overdue, "connection timed out");
                instruments.note_overdue(overdue);
            }
            Event::Failed(error) => {
                tracing::debug!(%peer, %error, "connection failed");
                instruments.broken.increment();
            }
        }
    }
}
