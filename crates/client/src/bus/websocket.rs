//! AMQP in WebSockets: a stream of bytes in binary messages, whose borders mean nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::transport::Stream;

const PATH: &str = "/$servicebus/websocket";
const PROTOCOL: &str = "AMQPWSB10";

/// The largest message that is taken. The service sends frames of AMQP, which are 64 KiB at most.
const MESSAGE_SIZE_MAX: usize = 1 << 20;

/// The largest message that is sent.
const WRITE_SIZE_MAX: usize = 64 << 10;

pub(super) async fn open(
    stream: Box<dyn Stream>,
    host: &str,
    port: u16,
    is_tls: bool,
) -> io::Result<Box<dyn Stream>> {
    let scheme = if is_tls { "wss" } else { "ws" };
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    let url = format!("{scheme}://{host}:{port}{PATH}");
    let mut request = url.into_client_request().map_err(io_error)?;
    let protocol = HeaderValue::from_static(PROTOCOL);
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocol);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_SIZE_MAX))
        .max_frame_size(Some(MESSAGE_SIZE_MAX));
    let opened = client_async_with_config(request, stream, Some(config)).await;
    let (socket, _) = opened.map_err(io_error)?;
    Ok(Box::new(Carried {
        socket,
        input: Bytes::new(),
    }))
}

struct Carried {
    socket: WebSocketStream<Box<dyn Stream>>,
    /// What of the last message was not read yet.
    input: Bytes,
}

impl AsyncRead for Carried {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        while own.input.is_empty() {
            let next = ready!(Pin::new(&mut own.socket).poll_next(context));
            match next.transpose().map_err(io_error)? {
                Some(Message::Binary(bytes)) => own.input = bytes,
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                None | Some(Message::Close(_)) => return Poll::Ready(Ok(())),
                Some(Message::Text(_) | Message::Frame(_)) => {
                    let text = "a WebSocket message that is not binary";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
            }
        }
        let size = own.input.len().min(out.remaining());
        out.put_slice(&own.input.split_to(size));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Carried {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let mut socket = Pin::new(&mut own.socket);
        ready!(socket.as_mut().poll_ready(context)).map_err(io_error)?;
        let part = bytes.get(..WRITE_SIZE_MAX).unwrap_or(bytes);
        let message = Message::Binary(Bytes::copy_from_slice(part));
        socket.start_send(message).map_err(io_error)?;
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Pin::new(&mut self.get_mut().socket);
        socket.poll_flush(context).map_err(io_error)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Pin::new(&mut self.get_mut().socket);
        socket.poll_close(context).map_err(io_error)
    }
}

/// What a WebSocket says went wrong. An answer that is none to a WebSocket comes again.
fn io_error(error: WsError) -> io::Error {
    match error {
        WsError::Io(error) => error,
        WsError::Http(answer) if answer.status().is_client_error() => {
            let text = format!("the service takes no WebSockets there: {}", answer.status());
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        error => io::Error::other(error.to_string()),
    }
}
