//! The socket of a connection, as hyper reads and writes it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use hyper::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::{Activity, Phase};
use crate::head_load::HeadLoad;
use crate::listener::Listener;
use crate::service::{Refusal, Service};

/// How much is read at once before a request was authentic. hyper's buffer grows with the input, up to the limit
/// of a head, and unauthenticated clients can have thousands of connections.
const STRANGERS_READ_SIZE_BYTES_MAX: usize = 8 * 1024;

/// A socket that notes the first byte of a request, passes input to the listener, restores the spelling of names, and
/// replaces hyper's own answers by the service's.
pub(crate) struct Watched<'a, IO, S: Service> {
    io: IO,
    service: &'a S,
    activity: &'a Activity<'a, S::Spelling>,
    listener: Listener<S::Spelling>,
    load: HeadLoad,
    /// Changed bytes that are not all written yet. Usually empty.
    changed: BytesMut,
}

impl<'a, IO, S: Service> Watched<'a, IO, S> {
    pub(crate) fn new(io: IO, service: &'a S, activity: &'a Activity<'a, S::Spelling>) -> Self {
        Self {
            io,
            load: HeadLoad::new(service.front().unproven_heads.share()),
            service,
            activity,
            listener: Listener::default(),
            changed: BytesMut::new(),
        }
    }

    /// The socket itself.
    pub(crate) fn into_inner(self) -> IO {
        self.io
    }

    /// Whether the client has sent whole requests only, and hyper has passed on all of them.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.listener.is_between_requests() && self.activity.heads.are_all_taken()
    }

    /// Counts the bytes of heads. If there is no room for them, the connection is not read any more.
    fn weigh_heads(&mut self) -> io::Result<()> {
        let size_bytes = self.listener.take_size_bytes();
        let limits = &self.service.front().limits;
        self.load.grow(size_bytes, limits).map_err(|_| {
            self.activity.crowded();
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no room for the head of a request",
            )
        })
    }

    /// Releases the room of heads whose requests are answered.
    fn settle_heads(&mut self) {
        let is_settled =
            self.activity.phase() != Phase::Answering && self.activity.heads.are_all_taken();
        if self.load.size_bytes == 0 || !is_settled {
            return;
        }
        let left = self.listener.unfinished_size_bytes();
        if left < self.load.size_bytes {
            let front = self.service.front();
            let budget = match self.activity.is_proven() {
                true => &front.budget,
                false => &front.unproven_heads,
            };
            self.load.begin_anew(budget.share(), left, &front.limits);
        }
    }

    /// Starts the timeout of a head whose first bytes have just arrived. The rest of a refused body is none, and a head
    /// that begins before the last answer is written has its time from then on.
    fn look_for_head_in_new(&self) {
        let activity = self.activity;
        let is_idle = activity.phase() == Phase::Idle && !activity.is_writing();
        let listener = &self.listener;
        let is_head =
            listener.is_within_head() || listener.is_lost() || !activity.heads.are_all_taken();
        if is_idle && is_head {
            activity.enter(Phase::Head);
        }
    }

    /// Starts the timeout of a head whose first bytes arrived with the previous request.
    fn look_for_head(&self) {
        let activity = self.activity;
        let is_idle = activity.phase() == Phase::Idle && activity.heads.are_all_taken();
        if is_idle && self.listener.is_within_head() {
            activity.enter(Phase::Head);
        }
    }

    /// Whether hyper is writing its own answer to an invalid head: no request is being answered, and every
    /// earlier answer was completely written.
    fn is_automatic(&self) -> bool {
        !self.activity.is_writing() && self.activity.phase() != Phase::Answering
    }

    fn is_to_be_changed(&self) -> bool {
        self.activity.restores.is_needed() || self.is_automatic()
    }
}

/// The status in an answer's first line.
fn status_of(answer: &[u8]) -> StatusCode {
    let digits = answer.get(b"HTTP/1.1 ".len()..).unwrap_or_default();
    let status = digits.get(..3).map(StatusCode::from_bytes);
    status
        .and_then(Result::ok)
        .unwrap_or(StatusCode::BAD_REQUEST)
}

/// Reads no more than [`STRANGERS_READ_SIZE_BYTES_MAX`] into a buffer that may have more room.
fn poll_read_some<IO: AsyncRead + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buffer.remaining() <= STRANGERS_READ_SIZE_BYTES_MAX {
        return Pin::new(io).poll_read(cx, buffer);
    }
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(STRANGERS_READ_SIZE_BYTES_MAX));
    ready!(Pin::new(io).poll_read(cx, &mut part))?;
    let size_bytes = part.filled().len();
    buffer.advance(size_bytes);
    Poll::Ready(Ok(()))
}

impl<IO: AsyncRead + Unpin, S: Service> AsyncRead for Watched<'_, IO, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let filled = buffer.filled().len();
        let result = match this.activity.is_proven() {
            true => Pin::new(&mut this.io).poll_read(cx, buffer),
            false => poll_read_some(&mut this.io, cx, buffer),
        };
        let new = buffer.filled().get(filled..).unwrap_or_default();
        if new.is_empty() {
            return result;
        }
        let heads = &this.activity.heads;
        this.listener.listen(new, |spelling| heads.add(spelling));
        this.look_for_head_in_new();
        this.weigh_heads()?;
        result
    }
}

impl<IO: AsyncWrite + Unpin, S: Service> Watched<'_, IO, S> {
    /// Writes the changed bytes, so that further bytes can follow.
    fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.changed.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.changed))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.changed.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes all the bytes, changes them, and writes as many as possible now. The rest is written with the
    /// next write or flush.
    fn change(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        for slice in slices {
            self.changed.extend_from_slice(slice);
        }
        let taken = self.changed.len();
        if self.is_automatic() {
            let why = Refusal::InvalidHead(status_of(&self.changed));
            self.changed = self.service.refusal(why).as_slice().into();
        } else {
            self.activity.restores.restore(&mut self.changed);
        }
        match self.poll_changed(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(taken),
        }
    }
}

impl<IO: AsyncWrite + Unpin, S: Service> AsyncWrite for Watched<'_, IO, S> {
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
        // hyper flushes only after it has passed on everything.
        self.activity.written();
        self.settle_heads();
        self.look_for_head();
        Poll::Ready(Ok(()))
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
        if self.is_to_be_changed() {
            Poll::Ready(self.change(cx, slices))
        } else {
            Pin::new(&mut self.io).poll_write_vectored(cx, slices)
        }
    }

    /// Always true, so that hyper keeps an answer's body until it is written, without a copy: the body's
    /// share of the budget is released with it.
    fn is_write_vectored(&self) -> bool {
        true
    }
}
