//! Which protocol a connection speaks, by its first byte.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// The first byte of the headers of AMQP and of its SASL layer. No supported HTTP method begins
/// with it.
const AMQP: u8 = b'A';

/// The protocol, and the byte that was read to detect it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    Amqp([u8; 1]),
    Http([u8; 1]),
}

/// Reads the first byte.
pub(super) async fn first_of<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<First> {
    let first = [stream.read_u8().await?];
    Ok(if first == [AMQP] {
        First::Amqp(first)
    } else {
        First::Http(first)
    })
}

/// A stream whose first byte was read, and will be read again.
pub(super) struct Begun<S> {
    first: Option<u8>,
    stream: S,
}

impl<S> Begun<S> {
    pub(super) fn new([first]: [u8; 1], stream: S) -> Self {
        Self {
            first: Some(first),
            stream,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
