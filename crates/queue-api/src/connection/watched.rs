//! The socket of a connection, as hyper reads and writes it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::SINK_SIZE_BYTES;
use super::activity::{Activity, Phase};
use super::head_load::HeadLoad;
use crate::api::Shared;
use crate::listener::Listener;

/// A socket that notes the first byte of a request, reads heads along, restores the spelling of metadata,
/// and closes in order.
pub(super) struct Watched<IO> {
    pub(super) io: IO,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
    listener: Listener,
    load: HeadLoad,
    /// Bytes that are changed and not all written yet. Usually empty.
    changed: BytesMut,
    farewell: Option<Farewell>,
}

/// The remaining time and bytes for a client that was sent its last answer.
struct Farewell {
    end: Pin<Box<Sleep>>,
    left_bytes: usize,
}

impl<IO> Watched<IO> {
    pub(super) fn new(io: IO, activity: Arc<Activity>, shared: Arc<Shared>) -> Self {
        Self {
            io,
            load: HeadLoad::new(shared.unproven_heads.share()),
            activity,
            shared,
            listener: Listener::default(),
            changed: BytesMut::new(),
            farewell: None,
        }
    }

    /// Counts the bytes of heads. If there is no room for them, the connection is not read any more, and its
    /// client is told so unless another answer is being written.
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

    /// Releases the room of heads whose requests are answered.
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
    /// Reads and discards input until the client stops or its time is over.
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

    /// Whether hyper is writing its own answer to an invalid head: no request is being answered, and every
    /// earlier answer was completely written.
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
        // hyper flushes only after it has passed on everything.
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

    /// Always true, so that hyper keeps an answer's body until it is written, without a copy: the body's
    /// share of the budget is released with it.
    fn is_write_vectored(&self) -> bool {
        true
    }
}
