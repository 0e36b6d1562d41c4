//! Connections of KEDA, of which only so many are open at a time: see [`places`](super::places).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::places::{Caller, Place, Places};

/// Connections at the same time. KEDA's operator has one.
const CONNECTIONS_MAX: usize = 64;
/// From an error of the listener, such as too many open files, to the next try.
const PAUSE: Duration = Duration::from_millis(100);

/// A client of HTTP/2 begins with so many bytes.
const PREFACE: usize = 24;
/// They come within this time, or the connection ends: one that says nothing keeps no place.
const PREFACE_WITHIN: Duration = Duration::from_secs(10);

/// A connection, and its place among those that are open.
pub(super) struct Connection {
    stream: TcpStream,
    /// Until when how many bytes must come, until they have.
    opening: Option<(Pin<Box<Sleep>>, usize)>,
    place: Place,
}

/// Accepts connections while the stream is used. If there are as many as may be, another one ends for the next.
pub(super) fn incoming(listener: TcpListener) -> impl Stream<Item = Result<Connection, io::Error>> {
    let (accepted, connections) = mpsc::channel(1);
    let places = Places::new(CONNECTIONS_MAX);
    tokio::spawn(async move {
        loop {
            let next = async {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let place = places.take().await?;
                Ok::<_, io::Error>(Connection {
                    stream,
                    opening: Some((Box::pin(sleep(PREFACE_WITHIN)), PREFACE)),
                    place,
                })
            };
            let next = tokio::select! {
                next = next => next,
                () = accepted.closed() => return,
            };
            match next {
                Ok(connection) => {
                    if accepted.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!("a connection of KEDA was not accepted: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(connections)
}

impl Connection {
    /// An error as soon as another connection gets its place.
    fn check_place(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.place.must_leave(context) {
            true => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "another connection gets the place of this one",
            )),
            false => Ok(()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.place.caller()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_place(context)?;
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let Some((end, missing)) = &mut self.opening else {
            return read;
        };
        match &read {
            Poll::Pending if end.as_mut().poll(context).is_ready() => {
                let silent = io::Error::new(io::ErrorKind::TimedOut, "the client says nothing");
                return Poll::Ready(Err(silent));
            }
            Poll::Pending | Poll::Ready(Err(_)) => {}
            Poll::Ready(Ok(())) => *missing = missing.saturating_sub(into.filled().len() - before),
        }
        if *missing == 0 {
            self.opening = None;
            self.place.opened();
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_place(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_place(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
