//! What a connection is doing and since when, and the socket that tells.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::room::{Room, Share};
use crate::ground::limits::Limits;

/// What the head of a request may take that is not counted. Nearly every head is shorter.
const HEAD_SIZE_BYTES_FREE: usize = 8 * 1024;
/// How much is read at once. What was read with the end of a request and is of the next one is not
/// counted: it is no more than this.
const READ_SIZE_BYTES_MAX: usize = 8 * 1024;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for the rest of a head.
    Head,
    /// Reading a body, or working. Each has limits of its own.
    Answering,
    /// Waiting for the next request, and maybe still writing the last answer.
    Idle,
}

/// What a connection is doing, and since when. Written and read by the connection's own task, so that
/// no lock is ever waited for.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// Milliseconds from `start`, times four, plus the phase.
    state: AtomicU64,
    /// Requests since others had their turn.
    turn_requests: AtomicU32,
    /// Whether an answer was made that is not all written yet.
    is_writing: AtomicBool,
    /// Whether some request had a token that was right.
    is_proven: AtomicBool,
    /// Whether a head found no room, and its client is to be told so.
    is_crowded: AtomicBool,
    /// The connection's among all.
    place: Arc<Place>,
}

impl Activity {
    pub(super) fn new(place: Arc<Place>) -> Self {
        Self {
            start: Instant::now(),
            state: AtomicU64::new(0),
            turn_requests: AtomicU32::new(0),
            is_writing: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            place,
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        let since_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let code = match phase {
            Phase::Head => 0,
            Phase::Answering => 1,
            Phase::Idle => 2,
        };
        let state = since_ms.saturating_mul(4) | code;
        self.state.store(state, Ordering::Relaxed);
    }

    /// Others had their turn.
    pub(super) fn begin_turn(&self) {
        self.turn_requests.store(0, Ordering::Relaxed);
    }

    /// Counts a request of this turn, and says which one it is.
    pub(super) fn count_request(&self) -> u32 {
        self.turn_requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An answer is to be written.
    pub(super) fn answered(&self) {
        self.is_writing.store(true, Ordering::Relaxed);
        self.enter(Phase::Idle);
    }

    /// A request had a token that was right.
    pub(super) fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
        self.place.prove();
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Relaxed)
    }

    pub(super) fn phase(&self) -> Phase {
        match self.state.load(Ordering::Relaxed) & 3 {
            0 => Phase::Head,
            1 => Phase::Answering,
            _ => Phase::Idle,
        }
    }

    /// When to look at the connection again, and to close it if nothing has changed.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let since = self.start + Duration::from_millis(self.state.load(Ordering::Relaxed) / 4);
        match self.phase() {
            Phase::Head => since + limits.http_head_timeout,
            Phase::Answering => Instant::now() + limits.http_head_timeout,
            Phase::Idle if self.is_writing() => since + limits.write_timeout,
            Phase::Idle if self.is_proven.load(Ordering::Relaxed) => since + limits.http_keep_alive,
            // As long as a client of AMQP has.
            Phase::Idle => since + limits.token_timeout,
        }
    }
}

/// A socket that notes when the first byte of a request arrives, and when an answer is written, and
/// that reads no head for which there is no room.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    share: Share,
    head_size_bytes: usize,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, room: &Room) -> Self {
        Self {
            stream,
            activity,
            share: room.share(),
            head_size_bytes: 0,
        }
    }

    /// The socket, which nobody watches any more.
    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    fn heard(&mut self, size_bytes: usize) -> io::Result<()> {
        let activity = &self.activity;
        if activity.phase() == Phase::Idle {
            activity.enter(Phase::Head);
            self.head_size_bytes = 0;
            self.share.clear();
        }
        if activity.phase() != Phase::Head {
            return Ok(());
        }
        self.head_size_bytes = self.head_size_bytes.saturating_add(size_bytes);
        let counted = self.head_size_bytes.saturating_sub(HEAD_SIZE_BYTES_FREE);
        self.share.cover(counted).map_err(|_| {
            // Unless another answer is on its way.
            activity
                .is_crowded
                .store(!activity.is_writing(), Ordering::Relaxed);
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no room for the head of a request",
            )
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size_bytes_max = buffer.remaining().min(READ_SIZE_BYTES_MAX);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(size_bytes_max));
        let result = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        match part.filled().len() {
            0 => result,
            size_bytes => {
                buffer.advance(size_bytes);
                self.heard(size_bytes)?;
                result
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = &flushed {
            // hyper flushes only when it has handed over all that it has.
            self.activity.is_writing.store(false, Ordering::Relaxed);
            if self.activity.phase() == Phase::Idle {
                // The request is gone, with its head.
                self.share.clear();
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
