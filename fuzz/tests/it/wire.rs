//! Shared code of the harnesses for both front ends: bytes into a connection, and its answers.

use std::net::{Ipv4Addr, SocketAddr};

use kew_fuzz::mutate::{Input, changes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::{Builder, Runtime};

/// The memory of a connection for 64 KiB of unauthenticated input.
pub(crate) const MEMORY_MAX_BYTES: usize = 1 << 20;

/// How much is sent at most.
pub(crate) const SENT_SIZE_BYTES: usize = 64 << 10;

/// The client's address, as a front end sees it.
pub(crate) const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A runtime that serves on this thread, so that its memory is counted.
pub(crate) fn runtime() -> Runtime {
    let built = Builder::new_current_thread().enable_all().build();
    built.expect("a runtime")
}

/// A connection: one end for the client, the other for the server.
pub(crate) fn connection() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(8 << 10)
}

/// When a client stops sending.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// When it has sent everything, answered or not.
    OfSending,
    /// When the server has closed the connection, as requested.
    OfAnswer,
}

/// Sends pieces, and returns the beginning of the answer until the server closes.
pub(crate) async fn exchange<'a>(
    stream: DuplexStream,
    pieces: impl Iterator<Item = &'a [u8]>,
    end: End,
) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let send = async move {
        for piece in pieces {
            if writer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if end == End::OfSending {
            // It may be closed already.
            let _ = writer.shutdown().await;
        }
        writer
    };
    let receive = async move {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            if kept.len() < 1 << 16 {
                kept.extend_from_slice(&buffer[..count]);
            }
        }
        (kept, reader)
    };
    let (writer, (kept, reader)) = tokio::join!(send, receive);
    // After the last answer both halves are closed, so that neither side waits for more.
    drop((reader, writer));
    kept
}

/// How an input becomes the bytes to send: from known parts, and its own bytes.
pub(crate) struct Mix<'a> {
    pub(crate) parts: &'a [&'a [u8]],
    /// From this first byte on, a part is repeated.
    pub(crate) often_from: u8,
    /// How often at most.
    pub(crate) often_max: usize,
    /// Whether some parts are changed.
    pub(crate) is_changed: bool,
}

impl Mix<'_> {
    /// Up to 64 KiB of them.
    pub(crate) fn sent(&self, input: &mut Input<'_>) -> Vec<u8> {
        let mut sent = Vec::new();
        while !input.is_empty() && sent.len() < SENT_SIZE_BYTES {
            let kind = input.byte();
            let mut part = match kind % 4 {
                0 => input.piece().to_vec(),
                _ => self.parts[usize::from(input.byte()) % self.parts.len()].to_vec(),
            };
            if self.is_changed && kind % 16 == 5 {
                changes(&mut part, input);
            }
            let count = if kind < self.often_from {
                1
            } else {
                1 + input.below(self.often_max)
            };
            for _ in 0..count {
                if sent.len() < SENT_SIZE_BYTES {
                    sent.extend_from_slice(&part);
                }
            }
        }
        sent
    }
}
