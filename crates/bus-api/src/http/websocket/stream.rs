//! A WebSocket as a stream of bytes.
//!
//! Reading returns the payload of binary messages, in any fragments. Writing makes one message of
//! each AMQP frame, as clients expect it. Pings are answered; of several unanswered ones only the
//! last. At most one batch of output and one part of a header are held in memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{CONTROL_SIZE_BYTES_MAX, CloseCode, Kind, Mask, read_header, write_frame};

/// How much is read at once where a header may begin.
const READ_SIZE_BYTES: usize = 4 * 1024;
/// From how much output on no more is accepted.
const OUTPUT_SIZE_BYTES: usize = 64 * 1024;
/// How many frames without payload are read before other connections have their turn.
const EMPTY_FRAMES_MAX: usize = 256;
/// The header of AMQP and of its layers begins with this; a frame begins with its size.
const AMQP: &[u8; 4] = b"AMQP";
/// The size of such a header, and of the smallest frame.
const AMQP_SIZE_BYTES_MIN: usize = 8;

/// The server's end of a WebSocket.
#[derive(Debug)]
pub(super) struct WebSocketStream<S> {
    stream: S,
    /// Input that is not parsed yet.
    input: BytesMut,
    /// The rest of a frame of a binary message.
    payload: Option<Payload>,
    /// Whether a fragmented message has begun and not ended.
    is_in_message: bool,
    /// The payload of the last ping.
    pong: Option<Bytes>,
    /// Frames that are not completely written.
    output: BytesMut,
    /// The beginning of an incomplete AMQP frame to write.
    partial: BytesMut,
    /// Why no more messages are read.
    ended: Option<Ended>,
    is_close_sent: bool,
}

/// The rest of a frame's payload.
#[derive(Debug)]
struct Payload {
    left_bytes: u64,
    mask: Mask,
}

/// Why no more is read.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// The client has closed.
    ByClient,
    /// The client broke a rule.
    ByFault(&'static str),
}

impl<S> WebSocketStream<S> {
    /// A WebSocket over a connection. `begun` was read already.
    pub(super) fn new(stream: S, begun: Bytes) -> Self {
        Self {
            stream,
            input: begun.into(),
            payload: None,
            is_in_message: false,
            pong: None,
            output: BytesMut::new(),
            partial: BytesMut::new(),
            ended: None,
            is_close_sent: false,
        }
    }

    /// Copies payload that was read already.
    fn take_payload(&mut self, buffer: &mut ReadBuf<'_>) {
        let Some(payload) = &mut self.payload else {
            return;
        };
        let left = usize::try_from(payload.left_bytes).unwrap_or(usize::MAX);
        let size = left.min(self.input.len()).min(buffer.remaining());
        let mut bytes = self.input.split_to(size);
        payload.took(&mut bytes);
        buffer.put_slice(&bytes);
        self.forget_read_payload();
    }

    fn forget_read_payload(&mut self) {
        if self.payload.as_ref().is_some_and(|it| it.left_bytes == 0) {
            self.payload = None;
        }
        if self.input.is_empty() {
            // An idle connection keeps no buffer.
            self.input = BytesMut::new();
        }
    }

    /// Takes the next frame, or its header if it carries payload. Returns whether there was one.
    fn take_frame(&mut self) -> bool {
        match self.try_take_frame() {
            Ok(is_taken) => is_taken,
            Err((code, reason)) => {
                self.ended = Some(Ended::ByFault(reason));
                self.close(code);
                true
            }
        }
    }

    fn try_take_frame(&mut self) -> Result<bool, (CloseCode, &'static str)> {
        let fault = |reason| (CloseCode::ProtocolError, reason);
        let Some((header, size)) = read_header(&self.input).map_err(fault)? else {
            return Ok(false);
        };
        if header.kind.is_control() {
            let payload_size =
                usize::try_from(header.payload_size_bytes).unwrap_or(CONTROL_SIZE_BYTES_MAX);
            if self.input.len() < size + payload_size {
                return Ok(false);
            }
            self.input.advance(size);
            let mut payload = self.input.split_to(payload_size);
            let mut mask = header.mask;
            mask.apply(&mut payload);
            self.on_control(header.kind, payload.freeze());
            return Ok(true);
        }
        match (header.kind, self.is_in_message) {
            (Kind::Continuation, true) | (Kind::Binary, false) => {}
            (Kind::Text, false) => {
                let reason = "a text message arrived, and AMQP uses binary messages";
                return Err((CloseCode::Unsupported, reason));
            }
            (Kind::Continuation, false) => {
                return Err(fault(
                    "a continuation frame arrived without a message to continue",
                ));
            }
            _ => return Err(fault("a message began before the last one ended")),
        }
        self.is_in_message = !header.is_last;
        self.input.advance(size);
        self.payload = Some(Payload {
            left_bytes: header.payload_size_bytes,
            mask: header.mask,
        });
        Ok(true)
    }

    fn on_control(&mut self, kind: Kind, payload: Bytes) {
        match kind {
            Kind::Ping => self.pong = Some(payload),
            Kind::Close => {
                self.ended = Some(Ended::ByClient);
                self.close(CloseCode::Normal);
            }
            _ => {}
        }
    }

    /// Sends a close, unless it was sent before.
    fn close(&mut self, code: CloseCode) {
        if !std::mem::replace(&mut self.is_close_sent, true) {
            let number = code.number().to_be_bytes();
            write_frame(&mut self.output, Kind::Close, &number);
        }
    }

    /// Takes bytes of AMQP up to the end of a frame. Returns how many.
    fn take_amqp(&mut self, bytes: &[u8]) -> usize {
        if self.partial.is_empty()
            && let Some(frame) = amqp_size(bytes).and_then(|size| bytes.get(..size))
        {
            write_frame(&mut self.output, Kind::Binary, frame);
            return frame.len();
        }
        let wanted = amqp_size(&self.partial).unwrap_or(AMQP_SIZE_BYTES_MIN);
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, _) = bytes.split_at(missing.min(bytes.len()));
        self.partial.extend_from_slice(taken);
        if amqp_size(&self.partial) == Some(self.partial.len()) {
            let frame = std::mem::take(&mut self.partial);
            write_frame(&mut self.output, Kind::Binary, &frame);
        }
        taken.len()
    }
}

impl Payload {
    /// Unmasks and counts bytes that were read.
    fn took(&mut self, bytes: &mut [u8]) {
        self.mask.apply(bytes);
        self.left_bytes = self.left_bytes.saturating_sub(bytes.len() as u64);
    }
}

/// The size of the AMQP frame or header that begins here, once it is known.
fn amqp_size(bytes: &[u8]) -> Option<usize> {
    let begin = bytes.get(..AMQP_SIZE_BYTES_MIN)?.first_chunk()?;
    if begin == AMQP {
        return Some(AMQP_SIZE_BYTES_MIN);
    }
    let size = usize::try_from(u32::from_be_bytes(*begin)).unwrap_or(usize::MAX);
    Some(size.max(AMQP_SIZE_BYTES_MIN))
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketStream<S> {
    /// Reads payload, or `None` if no frame with payload is being read.
    fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Option<Poll<io::Result<()>>> {
        if self.payload.is_some() && !self.input.is_empty() {
            self.take_payload(buffer);
            return Some(Poll::Ready(Ok(())));
        }
        let payload = self.payload.as_mut()?;
        let left = usize::try_from(payload.left_bytes).unwrap_or(usize::MAX);
        let size = left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(size));
        match Pin::new(&mut self.stream).poll_read(cx, &mut part) {
            Poll::Ready(Ok(())) => {}
            other => return Some(other),
        }
        let bytes = part.filled_mut();
        payload.took(bytes);
        let size = bytes.len();
        buffer.advance(size);
        if size == 0 {
            return Some(Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        self.forget_read_payload();
        Some(Poll::Ready(Ok(())))
    }

    /// Reads more bytes that may be a header. Returns whether the client has not closed the
    /// connection.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut bytes = [0; READ_SIZE_BYTES];
        let mut bytes = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes))?;
        self.input.extend_from_slice(bytes.filled());
        Poll::Ready(Ok(!bytes.filled().is_empty()))
    }

    /// Writes pending output.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.output.is_empty() {
                match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.output))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    written => self.output.advance(written),
                }
            }
            self.output = BytesMut::new();
            match self.pong.take() {
                Some(payload) if !self.is_close_sent => {
                    write_frame(&mut self.output, Kind::Pong, &payload);
                }
                _ => return Pin::new(&mut self.stream).poll_flush(cx),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut frames = 0;
        loop {
            if let Some(ended) = this.ended {
                ready!(this.poll_output(cx))?;
                return Poll::Ready(match ended {
                    Ended::ByClient => Ok(()),
                    Ended::ByFault(reason) => {
                        Err(io::Error::new(io::ErrorKind::InvalidData, reason))
                    }
                });
            }
            if this.pong.is_some() {
                // A client that does not read its pong can still be read.
                let _ = this.poll_output(cx)?;
            }
            if let Some(read) = this.poll_payload(cx, buffer) {
                return read;
            }
            if this.take_frame() {
                // A frame without payload is over with its header.
                this.forget_read_payload();
                frames += 1;
                if frames > EMPTY_FRAMES_MAX {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if !ready!(this.poll_more(cx))? {
                // The client disconnected without a close.
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_output(cx))?;
        if this.is_close_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty())
            && this.output.len() < OUTPUT_SIZE_BYTES
        {
            taken += this.take_amqp(rest);
        }
        // The rest is written with the next write or flush.
        match this.poll_output(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_output(cx)
    }

    /// Closes, and waits until the client has closed too.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.close(CloseCode::Normal);
        ready!(this.poll_output(cx))?;
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        // If a socket is closed with unread input, the client may lose the output.
        loop {
            this.input.clear();
            if !ready!(this.poll_more(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A frame as a client sends it.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [7, 77, 177, 17];
        let mut bytes = vec![first, 0x80 | u8::try_from(payload.len()).unwrap()];
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
        bytes
    }

    fn pair() -> (DuplexStream, WebSocketStream<DuplexStream>) {
        let (client, server) = duplex(1 << 20);
        (client, WebSocketStream::new(server, Bytes::new()))
    }

    /// The result when a client sends these bytes and disconnects: what was read of it, how that
    /// ended, and what was sent to it.
    async fn exchange(begun: &[u8], sent: &[u8]) -> (Vec<u8>, Result<(), String>, Vec<u8>) {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let mut server = WebSocketStream::new(server, Bytes::copy_from_slice(begun));
        let mut read = Vec::new();
        let result = server.read_to_end(&mut read).await;
        drop(server);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        (
            read,
            result.map(|_| ()).map_err(|error| error.to_string()),
            told,
        )
    }

    #[tokio::test]
    async fn messages_are_one_stream_however_they_are_cut() {
        let sent = [
            masked(0x82, b"AMQP"),
            masked(0x02, b"\0"),
            masked(0x89, b"ping"),
            masked(0x00, b""),
            masked(0x8a, b"unasked"),
            masked(0x80, b"\x01\0\0more"),
            masked(0x82, b""),
            masked(0x82, b" and the rest"),
        ]
        .concat();
        for cut in 0..=sent.len() {
            let (begun, rest) = sent.split_at(cut);
            let (read, result, told) = exchange(begun, rest).await;
            assert_eq!(read, b"AMQP\0\x01\0\0more and the rest", "cut at {cut}");
            assert_eq!(result, Ok(()));
            assert_eq!(told, b"\x8a\x04ping");
        }
    }

    #[tokio::test]
    async fn payload_passes_buffers_of_any_size() {
        let (mut client, mut server) = pair();
        let payload: Vec<u8> = (0..=99).collect();
        for _ in 0..100 {
            client.write_all(&masked(0x82, &payload)).await.unwrap();
        }
        let mut read = Vec::new();
        for size in 1.. {
            let mut part = vec![0; size.min(10_000 - read.len())];
            server.read_exact(&mut part).await.unwrap();
            read.extend(part);
            if read.len() == 10_000 {
                break;
            }
        }
        assert_eq!(read, payload.repeat(100));
    }

    #[tokio::test]
    async fn a_close_is_answered_and_ends_the_stream() {
        let sent = [
            masked(0x82, b"x"),
            masked(0x88, b"\x03\xe9bye"),
            masked(0x82, b"y"),
        ]
        .concat();
        let (read, result, told) = exchange(b"", &sent).await;
        assert_eq!((read, result), (b"x".to_vec(), Ok(())));
        assert_eq!(told, b"\x88\x02\x03\xe8");
    }

    #[tokio::test]
    async fn faults_are_reported_by_their_close_code() {
        for (sent, number) in [
            (masked(0x81, b"text"), 1003_u16),
            (masked(0x80, b"goes on"), 1002),
            ([masked(0x02, b""), masked(0x82, b"")].concat(), 1002),
            ([masked(0x02, b""), masked(0x81, b"")].concat(), 1002),
            (b"\x82\x01x".to_vec(), 1002),
            (masked(0xc2, b""), 1002),
            (masked(0x09, b""), 1002),
        ] {
            let (_, result, told) = exchange(b"", &sent).await;
            assert!(result.is_err(), "{sent:x?}");
            let expected = [&b"\x88\x02"[..], &number.to_be_bytes()].concat();
            assert_eq!(told, expected, "{sent:x?}");
        }
    }

    #[tokio::test]
    async fn frames_of_nothing_let_others_have_their_turn() {
        let (mut client, mut server) = pair();
        for frame in [masked(0x82, b""), masked(0x89, b"")] {
            client.write_all(&frame.repeat(10_000)).await.unwrap();
        }
        client.write_all(&masked(0x82, b"x")).await.unwrap();
        let mut byte = [0];
        let mut reading = std::pin::pin!(server.read_exact(&mut byte));
        let mut turns = 0;
        std::future::poll_fn(|cx| {
            turns += 1;
            reading.as_mut().poll(cx)
        })
        .await
        .unwrap();
        assert!(turns >= 20_000 / (EMPTY_FRAMES_MAX + 1), "{turns} turns");
        assert_eq!(byte, *b"x");
    }

    #[tokio::test]
    async fn a_payload_that_breaks_off_is_an_error() {
        let sent = masked(0x82, b"payload");
        let (read, result, _) = exchange(b"", &sent[..sent.len() - 3]).await;
        assert_eq!(read, b"payl");
        assert!(result.is_err());
    }

    #[tokio::test]
    async fn each_frame_goes_out_as_a_message() {
        let heartbeat = b"\0\0\0\x08\x02\0\0\0";
        let long = [&b"\0\0\x01\0\x02\0\0\0"[..], &[9; 248]].concat();
        let sent = [&b"AMQP\0\x01\0\0"[..], heartbeat, &long, heartbeat].concat();
        let messages = [
            &b"\x82\x08AMQP\0\x01\0\0\x82\x08"[..],
            heartbeat,
            b"\x82\x7e\x01\0",
            &long,
            b"\x82\x08",
            heartbeat,
        ]
        .concat();
        for part in [1, 3, 8, 11, 260, sent.len()] {
            let (mut client, mut server) = pair();
            for bytes in sent.chunks(part) {
                server.write_all(bytes).await.unwrap();
            }
            server.flush().await.unwrap();
            drop(server);
            let mut told = Vec::new();
            client.read_to_end(&mut told).await.unwrap();
            assert_eq!(told, messages, "in parts of {part}");
        }
    }

    #[tokio::test]
    async fn only_one_unread_pong_is_kept() {
        let (mut client, server) = duplex(64);
        let mut server = WebSocketStream::new(server, Bytes::new());
        let pinging = tokio::spawn(async move {
            for number in 0..1_000_u32 {
                let ping = masked(0x89, &number.to_be_bytes());
                client.write_all(&ping).await.unwrap();
            }
            client.write_all(&masked(0x82, b"x")).await.unwrap();
            client
        });
        assert_eq!(server.read_u8().await.unwrap(), b'x');
        assert!(server.output.len() < 64, "{}", server.output.len());
        let mut client = pinging.await.unwrap();
        let telling = tokio::spawn(async move {
            let mut told = Vec::new();
            client.read_to_end(&mut told).await.unwrap();
            told
        });
        server.flush().await.unwrap();
        drop(server);
        let told = telling.await.unwrap();
        let last = [&b"\x8a\x04"[..], &999_u32.to_be_bytes()].concat();
        assert!(told.ends_with(&last), "{told:x?}");
    }

    #[tokio::test]
    async fn a_shutdown_closes_and_waits_for_the_client() {
        let (mut client, mut server) = pair();
        let closing = tokio::spawn(async move { server.shutdown().await });
        let mut told = [0; 4];
        client.read_exact(&mut told).await.unwrap();
        assert_eq!(&told, b"\x88\x02\x03\xe8");
        client.write_all(&masked(0x88, b"\x03\xe8")).await.unwrap();
        drop(client);
        closing.await.unwrap().unwrap();
    }
}
