//! Connections whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use kew_client::{Dial, DialFuture, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What went over all connections, without the headers of TCP and IP.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    connections: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    /// Connections that were made, bytes sent, bytes received.
    pub(super) fn now(&self) -> [u64; 3] {
        [&self.connections, &self.sent, &self.received].map(|it| it.load(Ordering::Relaxed))
    }
}

/// Makes connections over TCP and counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting(pub(super) Arc<Traffic>);

impl Dial for Counting {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            self.0.connections.fetch_add(1, Ordering::Relaxed);
            let traffic = self.0.clone();
            Ok(Box::new(Counted { stream, traffic }) as Box<dyn Stream>)
        })
    }
}

struct Counted {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

fn add(counter: &AtomicU64, size: usize) {
    counter.fetch_add(u64::try_from(size).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        add(&self.traffic.received, buffer.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(size)) = polled {
            add(&self.traffic.sent, size);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
