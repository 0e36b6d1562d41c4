//! One connection, from accept to close.
//!
//! hyper reads and writes HTTP/1.1; this module drives it and watches the clock. There are two deadlines
//! that hyper's own timer cannot tell apart: the head of a request, once begun, must arrive soon, but a
//! connection may be idle between requests for long. So the socket is wrapped in one that notes when the
//! first byte of a head arrives. The wrapper also keeps the spelling of metadata, checks how requests are
//! framed, replaces hyper's own answer to an invalid head, and makes sure that the last answer arrives.
//!
//! Three kinds of connection end without an answer: the client is too slow with a head, it speaks HTTP/2, or
//! it sent no request.

mod activity;
mod head_load;
mod heads;
mod watched;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{self, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use self::activity::{Activity, Phase};
use self::watched::Watched;
use crate::api::{QueueApi, Shared};
use crate::limits::Limits;
use crate::origin::Origin;

/// The smallest buffer for a head that hyper accepts.
const HEAD_SIZE_BYTES_MIN: usize = 8 * 1024;

/// How many bytes are read and discarded at once.
const SINK_SIZE_BYTES: usize = 4 * 1024;

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
        let answer = self.0.busy();
        say_farewell(io, answer.to_bytes(self.0.now()), &self.0.limits).await;
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
        let answer = self.0.requires_https();
        say_farewell(io, answer.to_bytes(self.0.now()), &self.0.limits).await;
    }

    /// Serves an admitted connection, as [`QueueApi::serve_connection`] does. A connection that loses its
    /// place is closed at once: it has had no authentic request.
    pub async fn serve_admitted<IO, S>(&self, io: IO, origin: Origin, place: Place, shutdown: S)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let notice = place.notice();
        tokio::select! {
            biased;
            () = notice.given() => self.note_gave_way(origin.peer),
            () = self.serve_in(io, origin, place, shutdown) => {}
        }
    }

    async fn serve_in<IO, S>(&self, io: IO, origin: Origin, place: Place, shutdown: S)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let shared = &self.0;
        let peer = origin.peer;
        let limits = &shared.limits;
        let activity = Arc::new(Activity::new(place));
        let service = service_fn(|request: hyper::Request<Incoming>| {
            let shared = Arc::clone(shared);
            let activity = Arc::clone(&activity);
            activity.enter(Phase::Answering);
            let heard = activity.heads.take();
            async move {
                take_turn(&shared, &activity).await;
                let prove = || activity.prove();
                let answered = shared.answer(&origin, request, heard, prove).await;
                activity.answered(&answered);
                activity.restores.add(answered.spellings);
                Ok::<_, Infallible>(answered.response)
            }
        });
        let io = Watched::new(io, Arc::clone(&activity), Arc::clone(shared));
        // No `pipeline_flush`: it holds an answer back while unread bytes are buffered. The last answer of a
        // connection would then never be sent.
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(limits.header_count_max)
            .max_header_size(limits.head_size_bytes_max.max(HEAD_SIZE_BYTES_MIN))
            .max_buf_size(limits.head_size_bytes_max.max(HEAD_SIZE_BYTES_MIN));
        let mut connection = builder.serve_connection(TokioIo::new(io), service);
        let mut shutdown = pin!(shutdown);
        let mut is_shutting_down = false;
        let mut deadline = pin!(sleep_until(activity.deadline(limits)));
        loop {
            tokio::select! {
                biased;
                result = poll_fn(|cx| {
                    activity.turn_requests.store(0, Ordering::Relaxed);
                    pin::Pin::new(&mut connection).poll(cx)
                }) => {
                    if let Err(error) = result {
                        shared.instruments.broken.increment();
                        tracing::debug!(%peer, %error, "connection failed");
                    }
                    break;
                }
                () = &mut shutdown, if !is_shutting_down => {
                    is_shutting_down = true;
                    pin::Pin::new(&mut connection).graceful_shutdown();
                }
                () = &mut deadline => {
                    let (next, now) = (activity.deadline(limits), Instant::now());
                    if next <= now {
                        tracing::debug!(%peer, phase = ?activity.phase(), "connection timed out");
                        shared.instruments.note_overdue(activity.overdue());
                        return;
                    }
                    // A head that begins in the meantime has less time than an idle connection.
                    deadline.as_mut().reset(next.min(now + limits.head_timeout));
                }
            }
        }
        if activity.is_crowded.load(Ordering::Relaxed) {
            let io = connection.into_parts().io.into_inner().io;
            say_farewell(io, shared.busy().to_bytes(shared.now()), limits).await;
        }
    }
}

/// Lets other connections have their turn after some requests. Otherwise a client that sends one request
/// after the other could keep the thread.
async fn take_turn(shared: &Shared, activity: &Activity) {
    let instruments = &shared.instruments;
    let mut count = activity.count_request();
    if count > shared.limits.turn_requests_max {
        instruments.turns_cut.increment();
        tokio::task::yield_now().await;
        count = activity.count_request();
    }
    instruments.turn_requests_max.note(u64::from(count));
}

/// Sends a client its only answer, and gives it time to read it.
async fn say_farewell<IO>(mut io: IO, answer: Vec<u8>, limits: &Limits)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let farewell = async {
        io.write_all(&answer).await?;
        io.shutdown().await?;
        let mut sink = [0; SINK_SIZE_BYTES];
        while io.read(&mut sink).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // The connection is closed in any case.
    let _ = timeout(limits.farewell_timeout, farewell).await;
}
