//! A durable stream of messages with one receiver: the ceiling of a broker on this machine.
//!
//! A client selects its end with its first byte: `S` sends, `R` receives. Messages are frames:
//! their size in four bytes, big-endian, and their body. The sender gets counts of durable
//! messages, in four bytes. The receiver sends counts of completed messages in the same way, and
//! gets counts of durable completions, with the highest bit set to distinguish them from a frame.
//! The bytes of one read are one record of the log.

use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Mutex, mpsc};

use crate::log::Log;

/// Distinguishes a count from the size of a frame.
const COUNT: u32 = 1 << 31;
/// How many bytes one read reads at least.
const READ_SIZE: usize = 64 * 1024;
/// The log record of a completed message, in bytes.
const COMPLETION_SIZE_BYTES: usize = 64;

/// The stream. The sender bounds its content.
pub(crate) struct Stream {
    log: Option<Arc<Log>>,
    to_receiver: mpsc::UnboundedSender<Bytes>,
    for_receiver: Mutex<mpsc::UnboundedReceiver<Bytes>>,
}

impl Stream {
    pub(crate) fn new(log: Option<Arc<Log>>) -> Self {
        let (to_receiver, for_receiver) = mpsc::unbounded_channel();
        Self {
            log,
            to_receiver,
            for_receiver: Mutex::new(for_receiver),
        }
    }

    /// Serves a client until it hangs up.
    pub(crate) async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        if stream.read_u8().await? == b'S' {
            self.take_messages(stream).await
        } else {
            let (reading, mut writing) = stream.into_split();
            let deliver = async {
                let mut messages = self.for_receiver.lock().await;
                while let Some(bytes) = messages.recv().await {
                    writing.write_all(&bytes).await?;
                }
                Ok(())
            };
            tokio::select! {
                result = self.take_completions(reading) => result,
                result = deliver => result,
            }
        }
    }

    async fn take_messages(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut input = BytesMut::new();
        loop {
            input.reserve(READ_SIZE);
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            let (size, count) = whole_frames(&input);
            if count == 0 {
                continue;
            }
            let frames = input.split_to(size).freeze();
            self.make_durable(&frames).await;
            // The receiver's half lives as long as this.
            let _ = self.to_receiver.send(frames);
            stream.write_u32(count).await?;
        }
    }

    async fn take_completions(&self, mut reading: OwnedReadHalf) -> io::Result<()> {
        let mut input = BytesMut::new();
        while reading.read_buf(&mut input).await? > 0 {
            let mut count = 0;
            while let Ok(more) = input.try_get_u32() {
                count += more;
            }
            if count > 0 {
                let record = vec![1; COMPLETION_SIZE_BYTES * count as usize];
                self.make_durable(&record).await;
                let told = (COUNT | count).to_be_bytes();
                let _ = self.to_receiver.send(Bytes::copy_from_slice(&told));
            }
        }
        Ok(())
    }

    async fn make_durable(&self, record: &[u8]) {
        if let Some(log) = &self.log {
            log.append(record).await;
        }
    }
}

/// The size of the whole frames, in bytes, and their number.
fn whole_frames(input: &[u8]) -> (usize, u32) {
    let (mut at, mut count) = (0, 0);
    while let Some(head) = input.get(at..).and_then(|left| left.first_chunk()) {
        let end = at + 4 + u32::from_be_bytes(*head) as usize;
        if end > input.len() {
            break;
        }
        at = end;
        count += 1;
    }
    (at, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_counts_when_it_is_whole() {
        let bytes = [0, 0, 0, 2, 7, 7, 0, 0, 0, 1, 7, 0, 0, 0, 1];
        for (length, expected) in [
            (0, (0, 0)),
            (5, (0, 0)),
            (6, (6, 1)),
            (11, (11, 2)),
            (15, (11, 2)),
        ] {
            assert_eq!(whole_frames(&bytes[..length]), expected, "{length}");
        }
    }
}
