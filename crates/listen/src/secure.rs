//! A TLS connection that always ends with `close_notify`.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A TLS connection after its handshake. However it ends, also when it is dropped, it sends
/// `close_notify` as far as the socket accepts it at once. Without it, the client cannot tell an
/// end from a cut.
#[derive(Debug)]
pub struct SecureStream(TlsStream<TcpStream>);

impl SecureStream {
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Self {
        Self(stream)
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(&mut self.get_mut().0)
    }
}

impl Drop for SecureStream {
    fn drop(&mut self) {
        let (stream, connection) = self.0.get_mut();
        // Does nothing if it was sent before.
        connection.send_close_notify();
        let mut socket = WithoutWaiting(stream);
        while connection.wants_write() {
            // What cannot be written now is lost with the connection.
            if !matches!(connection.write_tls(&mut socket), Ok(1..)) {
                break;
            }
        }
    }
}

/// Writes only what the socket accepts at once.
struct WithoutWaiting<'a>(&'a TcpStream);

impl Write for WithoutWaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for SecureStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buffer)
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
