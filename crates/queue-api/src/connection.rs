//! One connection, from accept to close.
//!
//! hyper reads and writes HTTP/1.1; this drives it and watches the clock. Two deadlines hold, and
//! hyper's own timer cannot tell them apart: the head of a request, once begun, must arrive soon,
//! while a connection between requests may be idle for long. So the socket is wrapped in one that
//! notes when the first byte of a head arrives. The same wrapper minds how metadata is spelled and
//! requests are framed, replaces what hyper answers by itself to a head that is none, and sees to it
//! that the last answer arrives.
//!
//! Three kinds of connection end without an answer: one whose client is too slow with a head, one
//! that speaks HTTP/2, and one on which nothing was asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, BytesMut};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use crate::api::{Answered, QueueApi, Shared};
use crate::body::Connection;
use crate::budget::Share;
use crate::error::Error;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::metrics::Overdue;
use crate::origin::Origin;
use crate::spelling::Spellings;

/// The smallest buffer for a head that hyper takes.
const HEAD_SIZE_BYTES_MIN: usize = 8 * 1024;

/// What the heads of one connection may take that is not counted against the budget of all. Nearly every
/// head is shorter by far, and for those there is nothing to count.
const HEAD_SIZE_BYTES_FREE: usize = 8 * 1024;

/// How many bytes that nobody wants are read at once.
const SINK_SIZE_BYTES: usize = 4 * 1024;

impl QueueApi {
    /// Serves one connection until the client closes it, a limit ends it, or, after `shutdown`
    /// resolves, its current request is answered.
    ///
    /// Dropping the future closes the connection at once.
    /// Nothing here fails: what goes wrong on one connection is its own matter, and is logged.
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

    /// A place for one more connection. If there are as many as there may be, one without an authentic
    /// request gives way to it; `None` if all have had one.
    /// For a listener that has work with a connection before it is served.
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

    /// Tells a client that there is no room for its connection, and ends it.
    pub async fn turn_away<IO>(&self, io: IO, origin: Origin)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.note_turned_away(origin.peer);
        let answer = self.0.busy();
        say_farewell(io, answer.to_bytes(self.0.now()), &self.0.limits).await;
    }

    /// Counts and logs a connection that is closed without a word because there is no room for it, not
    /// even to tell its client so.
    pub fn note_turned_away(&self, peer: SocketAddr) {
        tracing::debug!(%peer, "connection turned away: too many are open");
        self.0.instruments.turned_away.increment();
    }

    /// Tells a client that it has to use HTTPS, whatever it asks, and ends its connection.
    pub async fn refuse_plain<IO>(&self, io: IO, origin: Origin)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        tracing::debug!(peer = %origin.peer, "connection refused: it is not encrypted");
        let answer = self.0.requires_https();
        say_farewell(io, answer.to_bytes(self.0.now()), &self.0.limits).await;
    }

    /// Serves a connection that was admitted, as [`QueueApi::serve_connection`] does. One that loses its
    /// place is closed at once: nothing authentic was asked on it.
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
        // Not `pipeline_flush`: it keeps an answer back while unread bytes are buffered, also the last
        // one of a connection, which would then never be sent.
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
                    Pin::new(&mut connection).poll(cx)
                }) => {
                    if let Err(error) = result {
                        shared.instruments.broken.increment();
                        tracing::debug!(%peer, %error, "connection failed");
                    }
                    break;
                }
                () = &mut shutdown, if !is_shutting_down => {
                    is_shutting_down = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                () = &mut deadline => {
                    let (next, now) = (activity.deadline(limits), Instant::now());
                    if next <= now {
                        tracing::debug!(%peer, phase = ?activity.phase(), "connection timed out");
                        shared.instruments.note_overdue(activity.overdue());
                        return;
                    }
                    // A head that begins meanwhile has less time than idling has.
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

/// Requests can come one behind the other, and each be answered at once: after some of them, others have their
/// turn first.
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

/// Gives a client its only answer, and time to read it.
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
    // Whether it got there is nobody's business any more.
    let _ = timeout(limits.farewell_timeout, farewell).await;
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the rest of a head.
    Head,
    /// Reading a body, working, or writing the answer. Each has limits of its own.
    Answering,
    /// Waiting for the next request, and maybe still writing the last answer.
    Idle,
}

/// What a connection is doing, and since when. Written and read by the connection's own task, so
/// that no lock is ever waited for.
struct Activity {
    start: Instant,
    /// Milliseconds from `start`, times four, plus the phase.
    state: AtomicU64,
    /// Requests since others had their turn.
    turn_requests: AtomicU32,
    /// Whether an answer was made that is not all written yet.
    is_writing: AtomicBool,
    /// Whether some request was authentic.
    is_proven: AtomicBool,
    /// Whether the client may still be sending when the connection ends.
    is_cut: AtomicBool,
    /// Whether a head found no room, and its client is to be told so.
    is_crowded: AtomicBool,
    heads: Heads,
    restores: Restores,
    /// The connection's among all.
    place: Place,
}

impl Activity {
    fn new(place: Place) -> Self {
        Self {
            start: Instant::now(),
            state: AtomicU64::new(0),
            turn_requests: AtomicU32::new(0),
            is_writing: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            heads: Heads::default(),
            restores: Restores::default(),
            place,
        }
    }

    /// A request was authentic.
    fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
        self.place.prove();
    }

    /// Counts a request of this turn, and says which one it is.
    fn count_request(&self) -> u32 {
        self.turn_requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes note of an answer that is to be written now.
    fn answered(&self, answered: &Answered) {
        self.is_writing.store(true, Ordering::Relaxed);
        if answered.connection == Connection::Spent {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        self.enter(Phase::Idle);
    }

    fn enter(&self, phase: Phase) {
        let since_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let code = match phase {
            Phase::Head => 0,
            Phase::Answering => 1,
            Phase::Idle => 2,
        };
        self.state
            .store(since_ms.saturating_mul(4) | code, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.state.load(Ordering::Relaxed) & 3 {
            0 => Phase::Head,
            1 => Phase::Answering,
            _ => Phase::Idle,
        }
    }

    /// What was waited for in vain.
    fn overdue(&self) -> Overdue {
        match self.phase() {
            Phase::Head => Overdue::Head,
            Phase::Answering => Overdue::Answer,
            Phase::Idle if self.is_writing.load(Ordering::Relaxed) => Overdue::Answer,
            Phase::Idle => Overdue::Idle,
        }
    }

    /// When to look at the connection again, and to close it if nothing has changed.
    fn deadline(&self, limits: &Limits) -> Instant {
        let since = self.start + Duration::from_millis(self.state.load(Ordering::Relaxed) / 4);
        match self.phase() {
            Phase::Head => since + limits.head_timeout,
            Phase::Answering => Instant::now() + limits.head_timeout,
            Phase::Idle if self.is_writing.load(Ordering::Relaxed) => since + limits.body_timeout,
            Phase::Idle if self.is_proven.load(Ordering::Relaxed) => since + limits.keep_alive,
            Phase::Idle => since + limits.unproven_keep_alive,
        }
    }
}

/// What was heard of the heads that hyper has not handed over yet. Most spell no metadata and are
/// only counted.
#[derive(Default)]
struct Heads {
    heard_count: AtomicU64,
    taken_count: AtomicU64,
    has_spellings: AtomicBool,
    /// With the head's place in the connection, counted from zero.
    spellings: Mutex<VecDeque<(u64, Spellings)>>,
}

impl Heads {
    fn add(&self, spellings: Spellings) {
        let index = self.heard_count.fetch_add(1, Ordering::Relaxed);
        if !spellings.is_empty() {
            lock(&self.spellings).push_back((index, spellings));
            self.has_spellings.store(true, Ordering::Relaxed);
        }
    }

    /// Whether every head that was heard has been handed over.
    fn are_all_taken(&self) -> bool {
        self.heard_count.load(Ordering::Relaxed) <= self.taken_count.load(Ordering::Relaxed)
    }

    /// The names that the next request's head spells, or nothing if the head was not heard.
    fn take(&self) -> Option<Spellings> {
        let index = self.taken_count.fetch_add(1, Ordering::Relaxed);
        if index >= self.heard_count.load(Ordering::Relaxed) {
            return None;
        }
        if !self.has_spellings.load(Ordering::Relaxed) {
            return Some(Spellings::default());
        }
        let mut queued = lock(&self.spellings);
        let found = queued.pop_front_if(|(of, _)| *of == index);
        self.has_spellings
            .store(!queued.is_empty(), Ordering::Relaxed);
        Some(found.map(|(_, spellings)| spellings).unwrap_or_default())
    }
}

/// How the metadata in answers not yet written is spelled. Usually there is none.
#[derive(Default)]
struct Restores {
    is_needed: AtomicBool,
    spellings: Mutex<Spellings>,
}

impl Restores {
    fn add(&self, spellings: Spellings) {
        if !spellings.is_empty() {
            lock(&self.spellings).append(spellings);
            self.is_needed.store(true, Ordering::Relaxed);
        }
    }

    fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    fn restore(&self, bytes: &mut [u8]) {
        let mut spellings = lock(&self.spellings);
        spellings.restore(bytes);
        self.is_needed
            .store(!spellings.is_empty(), Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket that notes when the first byte of a request arrives, hears heads, restores the spelling of
/// metadata, and ends with care.
struct Watched<IO> {
    io: IO,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
    listener: Listener,
    load: HeadLoad,
    /// Bytes that were taken to be changed, and are not all written yet. Usually empty.
    changed: BytesMut,
    farewell: Option<Farewell>,
}

/// What the heads of a connection take, until their requests are answered.
struct HeadLoad {
    size_bytes: usize,
    share: Share,
    /// What others left no room for when it was to be counted again: it goes with the next bytes.
    owed_bytes: usize,
}

impl HeadLoad {
    /// Takes so many bytes more, or refuses with `ServerBusy`.
    fn grow(&mut self, size_bytes: usize, limits: &Limits) -> Result<(), Error> {
        // What hyper has read ahead, and the head of the request that is being answered.
        let size_bytes_max = limits.head_size_bytes_max.saturating_mul(2);
        let before = self.size_bytes.saturating_sub(HEAD_SIZE_BYTES_FREE);
        let all = self
            .size_bytes
            .saturating_add(self.owed_bytes)
            .saturating_add(size_bytes)
            .min(size_bytes_max);
        let after = all.saturating_sub(HEAD_SIZE_BYTES_FREE);
        if after > before {
            self.share.grow(after - before)?;
        }
        self.size_bytes = all;
        self.owed_bytes = 0;
        Ok(())
    }

    /// Counts only what is left of heads, in another share. If others took the room meanwhile, the next byte
    /// finds none either.
    fn begin_anew(&mut self, share: Share, left_bytes: usize, limits: &Limits) {
        self.share = share;
        self.size_bytes = 0;
        self.owed_bytes = 0;
        if self.grow(left_bytes, limits).is_err() {
            self.owed_bytes = left_bytes;
        }
    }
}

/// What is left of the patience with a client that was given its last answer.
struct Farewell {
    end: Pin<Box<Sleep>>,
    left_bytes: usize,
}

impl<IO> Watched<IO> {
    fn new(io: IO, activity: Arc<Activity>, shared: Arc<Shared>) -> Self {
        Self {
            io,
            load: HeadLoad {
                size_bytes: 0,
                share: shared.unproven_heads.share(),
                owed_bytes: 0,
            },
            activity,
            shared,
            listener: Listener::default(),
            changed: BytesMut::new(),
            farewell: None,
        }
    }

    /// Counts what was heard of heads. Where there is no room for them the connection is not read any
    /// more; its client can be told so unless another answer is on its way.
    fn weigh_heads(&mut self) -> io::Result<()> {
        let size_bytes = self.listener.take_size_bytes();
        let grown = self.load.grow(size_bytes, &self.shared.limits);
        grown.map_err(|_| {
            let activity = &self.activity;
            let is_heard =
                activity.phase() == Phase::Head && !activity.is_writing.load(Ordering::Relaxed);
            activity.is_crowded.store(is_heard, Ordering::Relaxed);
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no room for the head of a request",
            )
        })
    }

    /// Gives back what the heads took whose requests are answered.
    fn settle_heads(&mut self) {
        let is_settled =
            self.activity.phase() != Phase::Answering && self.activity.heads.are_all_taken();
        if self.load.size_bytes == 0 || !is_settled {
            return;
        }
        let left = self.listener.unfinished_size_bytes();
        if left < self.load.size_bytes {
            let budget = match self.activity.is_proven.load(Ordering::Relaxed) {
                true => &self.shared.budget,
                false => &self.shared.unproven_heads,
            };
            self.load
                .begin_anew(budget.share(), left, &self.shared.limits);
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let filled = buffer.filled().len();
        let result = Pin::new(&mut this.io).poll_read(cx, buffer);
        let new = buffer.filled().get(filled..).unwrap_or_default();
        if new.is_empty() {
            return result;
        }
        if this.activity.phase() == Phase::Idle {
            this.activity.enter(Phase::Head);
        }
        let heads = &this.activity.heads;
        this.listener.listen(new, |spellings| heads.add(spellings));
        this.weigh_heads()?;
        result
    }
}

impl<IO: AsyncRead + Unpin> Watched<IO> {
    /// Reads what the client still sends, until it stops or patience ends.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let farewell = self.farewell.get_or_insert_with(|| Farewell {
            end: Box::pin(sleep(self.shared.limits.farewell_timeout)),
            left_bytes: self.shared.limits.farewell_size_bytes_max,
        });
        while farewell.left_bytes > 0 && farewell.end.as_mut().poll(cx).is_pending() {
            let mut sink = [0; SINK_SIZE_BYTES];
            let mut sink = ReadBuf::new(&mut sink);
            let result = ready!(Pin::new(&mut self.io).poll_read(cx, &mut sink));
            if result.is_err() || sink.filled().is_empty() {
                break;
            }
            farewell.left_bytes = farewell.left_bytes.saturating_sub(sink.filled().len());
        }
        Poll::Ready(())
    }
}

impl<IO: AsyncWrite + Unpin> Watched<IO> {
    /// Writes what was changed before, so that what comes now can follow.
    fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.changed.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.changed))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.changed.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes all the bytes, changes them, and writes as many as go now. The others go with the next
    /// write or flush.
    fn change(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        for slice in slices {
            self.changed.extend_from_slice(slice);
        }
        let taken = self.changed.len();
        if self.is_automatic() {
            let answer = self.shared.refuse_head(&self.changed);
            let answer = answer.to_bytes(self.shared.now());
            self.changed = answer.as_slice().into();
            self.activity.is_cut.store(true, Ordering::Relaxed);
        } else {
            self.activity.restores.restore(&mut self.changed);
        }
        match self.poll_changed(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(taken),
        }
    }

    /// Whether what hyper writes now is its own answer to a head that is none: no request is being
    /// answered, and every answer before was written to its end.
    fn is_automatic(&self) -> bool {
        !self.activity.is_writing.load(Ordering::Relaxed)
            && self.activity.phase() != Phase::Answering
    }

    fn is_to_be_changed(&self) -> bool {
        self.activity.restores.is_needed() || self.is_automatic()
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_changed(cx))?;
        if self.is_to_be_changed() {
            Poll::Ready(self.change(cx, &[IoSlice::new(bytes)]))
        } else {
            Pin::new(&mut self.io).poll_write(cx, bytes)
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_changed(cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        // hyper flushes only when it has handed over all that it has.
        self.activity.is_writing.store(false, Ordering::Relaxed);
        self.settle_heads();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_changed(cx))?;
        if self.farewell.is_none() {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        }
        if self.activity.is_cut.load(Ordering::Relaxed) {
            ready!(self.poll_farewell(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_changed(cx))?;
        if self.is_to_be_changed() {
            Poll::Ready(self.change(cx, slices))
        } else {
            Pin::new(&mut self.io).poll_write_vectored(cx, slices)
        }
    }

    /// Always, so that hyper keeps an answer's body until it is written, and no copy of it: what the
    /// body takes of the budget is given back with it.
    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn what_is_left_of_a_head_is_counted_once_there_is_room_and_not_forgotten_before() {
        let limits = Limits::default();
        let budget = Budget::new(20 << 10);
        let mut load = HeadLoad {
            size_bytes: 0,
            share: budget.share(),
            owed_bytes: 0,
        };
        load.grow(20 << 10, &limits).unwrap();
        // Answered: less of a next head is there, and another connection takes the room.
        load.share = Budget::new(0).share();
        let mut other = budget.share();
        other.grow(20 << 10).unwrap();
        load.begin_anew(budget.share(), 16 << 10, &limits);
        assert!(load.grow(1, &limits).is_err(), "crowded at the next byte");
        drop(other);
        load.grow(1, &limits).unwrap();
        // 8 KiB and a byte are taken: the first 8 KiB are free.
        assert!(budget.check_room((12 << 10) - 1).is_ok());
        assert!(budget.check_room(12 << 10).is_err());
    }
}
