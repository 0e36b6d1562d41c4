//! One connection, from accept to close.
//!
//! hyper reads and writes HTTP/1.1; this drives it and watches the clock. Two deadlines hold, and
//! hyper's own timer cannot tell them apart: the head of a request, once begun, must arrive soon,
//! while a connection between requests may be idle for long. So the socket is wrapped in one that
//! notes when the first byte of a head arrives. The same wrapper minds how metadata is spelled.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::QueueApi;
use crate::limits::Limits;
use crate::spelling::{Listener, Spellings};

/// The smallest buffer for a head that hyper takes.
const HEAD_SIZE_BYTES_MIN: usize = 8 * 1024;

/// How long a client that is turned away has to read why.
const FAREWELL: Duration = Duration::from_secs(1);

impl QueueApi {
    /// Serves one connection until the client closes it, a limit ends it, or, after `shutdown`
    /// resolves, its current request is answered.
    ///
    /// `peer` is named in log lines only. Dropping the future closes the connection at once.
    /// Nothing here fails: what goes wrong on one connection is its own matter, and is logged.
    pub async fn serve_connection<IO, S>(&self, io: IO, peer: SocketAddr, shutdown: S)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let shared = &self.0;
        let Ok(_permit) = shared.connections.try_acquire() else {
            tracing::debug!(%peer, "connection turned away: too many are open");
            turn_away(io, shared.busy().to_bytes()).await;
            return;
        };
        let limits = &shared.limits;
        let activity = Arc::new(Activity::new());
        let service = service_fn(|mut request: hyper::Request<Incoming>| {
            let shared = Arc::clone(shared);
            let activity = Arc::clone(&activity);
            activity.enter(Phase::Answering);
            let heard = std::mem::take(&mut *activity.heard());
            if !heard.is_empty() {
                request.extensions_mut().insert(heard);
            }
            async move {
                let mut response = shared.answer(request).await;
                if let Some(spellings) = response.extensions_mut().remove::<Spellings>() {
                    activity.to_restore().append(spellings);
                }
                activity.enter(Phase::Idle);
                Ok::<_, Infallible>(response)
            }
        });
        let io = Watched::new(io, Arc::clone(&activity));
        // Not `pipeline_flush`: it keeps an answer back while unread bytes are buffered, also the last
        // one of a connection, which would then never be sent.
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(limits.head_size_bytes_max.max(HEAD_SIZE_BYTES_MIN));
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let mut shutdown = pin!(shutdown);
        let mut is_shutting_down = false;
        let mut deadline = pin!(sleep_until(activity.deadline(limits)));
        loop {
            tokio::select! {
                biased;
                result = &mut connection => {
                    if let Err(error) = result {
                        tracing::debug!(%peer, %error, "connection failed");
                    }
                    return;
                }
                () = &mut shutdown, if !is_shutting_down => {
                    is_shutting_down = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut deadline => {
                    let next = activity.deadline(limits);
                    if next <= Instant::now() {
                        tracing::debug!(%peer, phase = ?activity.phase(), "connection timed out");
                        return;
                    }
                    deadline.as_mut().reset(next);
                }
            }
        }
    }
}

/// Tells a client that there is no room, and gives it time to read that: closing with unread bytes
/// would destroy the answer on its way.
async fn turn_away<IO>(mut io: IO, answer: Vec<u8>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let farewell = async {
        io.write_all(&answer).await?;
        io.shutdown().await?;
        let mut sink = [0; 1024];
        while io.read(&mut sink).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Whether it got there is nobody's business any more.
    let _ = timeout(FAREWELL, farewell).await;
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
    /// How the metadata in the current head is spelled.
    heard: Mutex<Spellings>,
    /// How the metadata in answers not yet written is spelled.
    to_restore: Mutex<Spellings>,
}

impl Activity {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            state: AtomicU64::new(0),
            heard: Mutex::default(),
            to_restore: Mutex::default(),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Spellings> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn to_restore(&self) -> MutexGuard<'_, Spellings> {
        self.to_restore
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

    /// When to look at the connection again, and to close it if nothing has changed.
    fn deadline(&self, limits: &Limits) -> Instant {
        let since = self.start + Duration::from_millis(self.state.load(Ordering::Relaxed) / 4);
        match self.phase() {
            Phase::Head => since + limits.head_timeout,
            Phase::Answering => Instant::now() + limits.head_timeout,
            Phase::Idle => since + limits.keep_alive,
        }
    }
}

/// A socket that notes when the first byte of a request arrives, and that hears and restores the
/// spelling of metadata.
struct Watched<IO> {
    io: IO,
    activity: Arc<Activity>,
    listener: Listener,
    /// Bytes that were taken to be changed, and are not all written yet. Usually empty.
    changed: BytesMut,
}

impl<IO> Watched<IO> {
    fn new(io: IO, activity: Arc<Activity>) -> Self {
        let mut listener = Listener::default();
        listener.begin_head();
        Self {
            io,
            activity,
            listener,
            changed: BytesMut::new(),
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
            this.listener.begin_head();
        }
        this.listener.listen(new, &mut this.activity.heard());
        result
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
        self.activity.to_restore().restore(&mut self.changed);
        match self.poll_changed(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(taken),
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_changed(cx))?;
        if self.activity.to_restore().is_empty() {
            Pin::new(&mut self.io).poll_write(cx, bytes)
        } else {
            Poll::Ready(self.change(cx, &[IoSlice::new(bytes)]))
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_changed(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_changed(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_changed(cx))?;
        if self.activity.to_restore().is_empty() {
            Pin::new(&mut self.io).poll_write_vectored(cx, slices)
        } else {
            Poll::Ready(self.change(cx, slices))
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
