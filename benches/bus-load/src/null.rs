//! The two ends of the null stream: see `kew-null-server --stream`.
//!
//! A client selects its end with its first byte. Messages are frames: their size in four bytes,
//! big-endian, and their body. Durable messages are confirmed by a count in four bytes.

use std::io::ErrorKind;

use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ends::{Received, Receiving, Sending, stamp_of};
use crate::options::Target;

/// Set in a count for a receiver, to distinguish it from the size of a frame.
const COUNT: u32 = 1 << 31;
/// How many bytes one read reads at least.
const READ_SIZE: usize = 64 * 1024;
/// At most this much is written at once.
const OUTPUT_SIZE_MAX: usize = 1 << 20;

struct Wire {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
}

impl Wire {
    async fn connect(target: &Target, end: u8) -> Result<Self> {
        let mut stream = TcpStream::connect(target.address)
            .await
            .with_context(|| format!("cannot connect to {}", target.address))?;
        stream.set_nodelay(true)?;
        stream.write_all(&[end]).await?;
        Ok(Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
        })
    }

    /// Writes pending output, and waits until something was read or written.
    async fn exchange(&mut self) -> Result<()> {
        let (mut reading, mut writing) = self.stream.split();
        self.input.reserve(READ_SIZE);
        tokio::select! {
            biased;
            written = writing.write_buf(&mut self.output), if !self.output.is_empty() => {
                written?;
            }
            read = reading.read_buf(&mut self.input) => {
                if read? == 0 {
                    bail!(std::io::Error::from(ErrorKind::UnexpectedEof));
                }
            }
        }
        Ok(())
    }
}

/// The sending end.
pub(crate) struct Sender(Wire);

impl Sender {
    pub(crate) async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(Wire::connect(target, b'S').await?))
    }
}

impl Sending for Sender {
    async fn send(&mut self, body: Bytes) -> Result<bool> {
        let output = &mut self.0.output;
        if output.len() >= OUTPUT_SIZE_MAX {
            return Ok(false);
        }
        output.put_u32(u32::try_from(body.len())?);
        output.put_slice(&body);
        Ok(true)
    }

    async fn settled(&mut self) -> Result<usize> {
        let mut count = 0;
        while let Ok(more) = self.0.input.try_get_u32() {
            count += more as usize;
        }
        if count == 0 {
            self.0.exchange().await?;
        }
        Ok(count)
    }
}

/// The receiving end.
pub(crate) struct Receiver(Wire);

impl Receiver {
    pub(crate) async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(Wire::connect(target, b'R').await?))
    }
}

impl Receiving for Receiver {
    async fn received(&mut self, received: &mut Received) -> Result<()> {
        let Wire { input, output, .. } = &mut self.0;
        let mut has_any = false;
        let mut count = 0;
        while let Some(head) = input.first_chunk() {
            let head = u32::from_be_bytes(*head);
            if head & COUNT == 0 {
                let size = head as usize;
                if input.len() < 4 + size {
                    break;
                }
                input.advance(4);
                received.stamps.push(stamp_of(&input.split_to(size))?);
                count += 1;
            } else {
                input.advance(4);
                received.completed += (head & !COUNT) as usize;
            }
            has_any = true;
        }
        if count > 0 {
            output.put_u32(count);
        }
        if !has_any {
            self.0.exchange().await?;
        }
        Ok(())
    }

    async fn leave(&mut self) -> Result<()> {
        // Every completion was confirmed.
        Ok(())
    }
}
