//! A connection of HTTP/1.1, over which one request at a time is answered.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;
use tokio::task::unconstrained;

use super::answer::{Answer, Malformed, Reading};
use super::request::Request;
use crate::transport::Stream;

/// How much room there is for a read at least, and how much is made, in bytes.
const READ_SIZE_MIN: usize = 2 << 10;
const READ_SIZE: usize = 8 << 10;

/// The most room that is made because an answer says that it is so long.
const READ_SIZE_MAX: usize = 256 << 10;

/// After a longer answer the room for it is given up: connections are kept for a while.
const KEPT_SIZE_MAX: usize = 64 << 10;

/// A connection. It works only while somebody waits for it, in the task that waits: a task of its own would cost two
/// switches for each request. So it is noticed late that the service has closed it: at the next request, or when it is
/// old.
pub(super) struct Open {
    stream: Box<dyn Stream>,
    /// What has come, and is not read.
    input: BytesMut,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    Connection(io::Error),
    Answer(Malformed),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "the connection broke: {error}"),
            Self::Answer(error) => write!(f, "the answer cannot be read: {error}"),
        }
    }
}

impl From<Malformed> for Broken {
    fn from(error: Malformed) -> Self {
        Self::Answer(error)
    }
}

impl Open {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
        }
    }

    /// Whether a request can be sent, as far as is known: the service has not closed it, and has sent nothing that was
    /// not asked for.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // A task that has used up its budget would see no stream as ready, whatever has come.
        let read = unconstrained(self.stream.read_buf(&mut self.input));
        let is_quiet = pin!(read).poll(&mut context).is_pending();
        is_quiet && self.input.is_empty()
    }

    /// Sends a request, waits for the whole answer, and says whether the connection can be used again. After an error,
    /// or if the future was dropped, it cannot.
    pub(super) async fn exchange(&mut self, request: &Request) -> Result<(Answer, bool), Broken> {
        let mut sending = Sending {
            unsent: request.bytes(),
            is_done: false,
            error: None,
        };
        let mut reading = Reading::new(request.is_head());
        let (answer, is_kept) = poll_fn(|context| {
            // An answer can come before all is sent: a refusal of a large body, for example.
            sending.poll(Pin::new(&mut *self.stream), context);
            loop {
                let room = reading.missing(&self.input).min(READ_SIZE_MAX);
                if self.input.capacity() - self.input.len() < room.max(READ_SIZE_MIN) {
                    self.input.reserve(room.max(READ_SIZE));
                }
                let came = match ready!(self.poll_read(context)) {
                    Err(error) => return Poll::Ready(Err(sending.why(Broken::Connection(error)))),
                    Ok(0) => {
                        let ended = reading.end(&mut self.input);
                        let ended = ended.map_err(|cut| sending.why(cut.into()));
                        return Poll::Ready(ended.map(|answer| (answer, false)));
                    }
                    Ok(_) => reading.take(&mut self.input)?,
                };
                if let Some(whole) = came {
                    return Poll::Ready(Ok(whole));
                }
            }
        })
        .await?;
        let is_clean = sending.is_done && self.input.is_empty();
        if answer.body.len() > KEPT_SIZE_MAX {
            self.input = BytesMut::new();
        }
        Ok((answer, is_kept && is_clean))
    }

    /// To do it once only loses nothing.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        pin!(self.stream.read_buf(&mut self.input)).poll(context)
    }
}

/// A request on its way.
struct Sending<'a> {
    unsent: &'a [u8],
    /// All of it has left.
    is_done: bool,
    error: Option<io::Error>,
}

impl Sending<'_> {
    /// Sends what can be sent now. After an error the answer is still awaited: it may say why the service reads no more.
    fn poll(&mut self, mut stream: Pin<&mut dyn Stream>, context: &mut Context<'_>) {
        while !self.is_done && self.error.is_none() {
            let polled = match self.unsent {
                [] => stream.as_mut().poll_flush(context).map_ok(|()| 0),
                unsent => stream.as_mut().poll_write(context, unsent),
            };
            match (polled, self.unsent) {
                (Poll::Pending, _) => return,
                (Poll::Ready(Err(error)), _) => self.error = Some(error),
                (Poll::Ready(Ok(_)), []) => self.is_done = true,
                (Poll::Ready(Ok(0)), _) => self.error = Some(io::ErrorKind::WriteZero.into()),
                (Poll::Ready(Ok(sent)), unsent) => {
                    self.unsent = unsent.get(sent..).unwrap_or_default();
                }
            }
        }
    }

    /// Why there is no answer: because the request did not leave, if that is so.
    fn why(&mut self, broken: Broken) -> Broken {
        self.error.take().map_or(broken, Broken::Connection)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};
    use tokio::task::coop::consume_budget;

    use super::*;

    /// Whether a connection is used again by a task that has done so much that nothing is ready for it any more.
    async fn is_usable_without_budget(open: &mut Open) -> bool {
        poll_fn(|context| {
            while pin!(consume_budget()).poll(context).is_ready() {}
            Poll::Ready(open.is_usable())
        })
        .await
    }

    #[tokio::test]
    async fn a_busy_task_sees_what_has_come_over_a_kept_connection() {
        let (ours, theirs) = duplex(100);
        let mut open = Open::new(Box::new(ours));
        assert!(is_usable_without_budget(&mut open).await);
        drop(theirs);
        assert!(!is_usable_without_budget(&mut open).await);

        let (ours, mut theirs) = duplex(100);
        let mut open = Open::new(Box::new(ours));
        theirs
            .write_all(b"HTTP/1.1 408 Request Timeout\r\n")
            .await
            .unwrap();
        assert!(!is_usable_without_budget(&mut open).await);
    }
}
