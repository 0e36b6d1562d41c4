//! A proxy in this process: what goes through it arrives later, in both directions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kew_client::{Dial, DialFuture, Stream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How many pieces are on their way in one direction. With one more, the proxy stops reading.
const PIECES_MAX: usize = 1_024;

/// The size of a piece, at most.
const PIECE_SIZE_MAX: usize = 16 << 10;

/// Makes connections over which an answer takes `round_trip` longer.
pub(crate) struct Delayed {
    pub(crate) inner: Arc<dyn Dial>,
    pub(crate) round_trip: Duration,
}

impl Dial for Delayed {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let (from_service, to_service) = split(self.inner.dial(host, port).await?);
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let (from_client, to_client) = split(theirs);
            let one_way = self.round_trip / 2;
            // Each ends with the connection.
            tokio::spawn(relay(from_client, to_service, one_way));
            tokio::spawn(relay(from_service, to_client, one_way));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// Passes everything on, each piece after the delay. It reads on meanwhile, so that it delays and does not slow down.
async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
) -> io::Result<()> {
    let (pieces, mut waiting) = mpsc::channel(PIECES_MAX);
    let read = async move {
        loop {
            let mut piece = Vec::with_capacity(PIECE_SIZE_MAX);
            let size = from.read_buf(&mut piece).await?;
            let is_gone = pieces.send((Instant::now() + delay, piece)).await.is_err();
            if size == 0 || is_gone {
                return Ok::<(), io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((at, piece)) = waiting.recv().await {
            sleep_until(at).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(drop)
}
