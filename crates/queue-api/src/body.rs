//! Reads the body of a request within its limits of size and time.
//!
//! The limit holds while reading, whatever `Content-Length` says; and what all connections hold
//! together has a budget. A body is read to its end before
//! the request is answered, also when it is of no use, so that the next request on the connection
//! is found; where that would take too long the connection ends after the answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{EXPECT, HeaderMap};
use tokio::time::{Instant, timeout_at};

use crate::budget::{Budget, Share};
use crate::error::Error;
use crate::limits::Limits;

/// Whether a connection can take another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The body was read to its end.
    Reusable,
    /// Something of the body may still come, or it was not well-formed.
    Spent,
}

/// What came of reading a body.
pub(crate) struct Read {
    /// The error is `RequestBodyTooLarge`, `ServerBusy`, `OperationTimedOut` or, where the body was
    /// cut or not framed as HTTP demands, `InvalidInput`.
    pub(crate) result: Result<Bytes, Error>,
    pub(crate) connection: Connection,
    /// What the body takes of the budget, to be kept as long as the body.
    pub(crate) _share: Share,
}

impl Read {
    /// What comes of a body that nobody wanted.
    pub(crate) fn nothing(connection: Connection, budget: &Arc<Budget>) -> Self {
        Self {
            result: Ok(Bytes::new()),
            connection,
            _share: budget.share(),
        }
    }
}

/// Reads the body of a request that was let in. Beyond the size limit it is read on and dropped.
///
/// `headers` are the request's: a client that waits for `100 Continue` with a body that is too
/// large is not asked to send it.
pub(crate) async fn read<B>(
    mut body: B,
    headers: &HeaderMap,
    limits: &Limits,
    budget: &Arc<Budget>,
) -> Read
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut share = budget.share();
    let deadline = Instant::now() + limits.body_timeout;
    let (result, connection) = if body.is_end_stream() {
        (Ok(Bytes::new()), Connection::Reusable)
    } else if is_above(body.size_hint().lower(), limits.body_size_bytes_max) {
        let connection = discard(body, headers, Patience::of_large(limits, deadline)).await;
        (Err(Error::body_too_large()), connection)
    } else {
        let collected = collect(&mut body, limits.body_size_bytes_max, &mut share);
        match timeout_at(deadline, collected).await {
            Ok(Ok(bytes)) => (Ok(bytes), Connection::Reusable),
            Ok(Err(error @ Error::InvalidInput)) => (Err(error), Connection::Spent),
            Ok(Err(error)) => {
                let patience = Patience::of_large(limits, deadline);
                (Err(error), drain(body, patience).await)
            }
            Err(_) => (Err(Error::OperationTimedOut), Connection::Spent),
        }
    };
    Read {
        result,
        connection,
        _share: share,
    }
}

fn is_above(size_bytes: u64, limit_bytes: usize) -> bool {
    usize::try_from(size_bytes).map_or(true, |size_bytes| size_bytes > limit_bytes)
}

/// The whole body, unless it is too large, does not fit the budget, or is not well-formed.
async fn collect<B>(body: &mut B, size_bytes_max: usize, share: &mut Share) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    // Nearly every body comes in one piece, and then nothing is copied.
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Error::InvalidInput)?.into_data() else {
            // Trailers mean nothing here.
            continue;
        };
        if first.len() + rest.len() + piece.len() > size_bytes_max {
            return Err(Error::body_too_large());
        }
        share.grow(piece.len())?;
        if first.is_empty() && rest.is_empty() {
            first = piece;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
                first.clear();
            }
            rest.extend_from_slice(&piece);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// How much of a body that is of no use is read, and for how long.
struct Patience {
    size_bytes_max: u64,
    deadline: Instant,
}

impl Patience {
    fn of_large(limits: &Limits, deadline: Instant) -> Self {
        Self {
            size_bytes_max: limits.discarded_size_bytes_max,
            deadline,
        }
    }
}

/// Reads away the body of a request that was refused for its head. Whoever sent it has proven
/// nothing, so patience is short.
pub(crate) async fn refuse<B>(body: B, headers: &HeaderMap, limits: &Limits) -> Connection
where
    B: Body<Data = Bytes> + Unpin,
{
    let patience = Patience {
        size_bytes_max: limits.refused_size_bytes_max,
        deadline: Instant::now() + limits.refused_body_timeout,
    };
    discard(body, headers, patience).await
}

/// Reads a body that nobody wants, within limits.
///
/// A client that waits for `100 Continue` before it sends the body is not asked to.
async fn discard<B>(body: B, headers: &HeaderMap, patience: Patience) -> Connection
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        Connection::Reusable
    } else if headers.contains_key(EXPECT) || body.size_hint().lower() > patience.size_bytes_max {
        Connection::Spent
    } else {
        drain(body, patience).await
    }
}

async fn drain<B>(mut body: B, patience: Patience) -> Connection
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > patience.size_bytes_max {
        return Connection::Spent;
    }
    let drain = async {
        let mut size_bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Connection::Spent;
            };
            size_bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if size_bytes > patience.size_bytes_max {
                return Connection::Spent;
            }
        }
        Connection::Reusable
    };
    timeout_at(patience.deadline, drain)
        .await
        .unwrap_or(Connection::Spent)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::{Frame, SizeHint};
    use hyper::header::HeaderValue;

    use super::*;

    /// A body in pieces; one that never ends stalls after them.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends: bool,
        /// What `Content-Length` says.
        length: u64,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.left.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn size_hint(&self) -> SizeHint {
            let mut hint = SizeHint::new();
            hint.set_lower(self.length);
            hint
        }
    }

    fn pieces(pieces: &[&'static str], ends: bool) -> Pieces {
        Pieces {
            left: pieces.iter().map(|piece| Bytes::from(*piece)).collect(),
            ends,
            length: 0,
        }
    }

    fn limits() -> Limits {
        Limits {
            body_size_bytes_max: 8,
            discarded_size_bytes_max: 16,
            refused_size_bytes_max: 4,
            ..Limits::default()
        }
    }

    async fn read_within(body: Pieces, budget_bytes: usize) -> Read {
        let budget = Budget::new(budget_bytes);
        read(body, &HeaderMap::new(), &limits(), &budget).await
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_are_joined() {
        for parts in [&["12345678"][..], &["1234", "56", "78"], &["", "12345678"]] {
            let read = read_within(pieces(parts, true), 8).await;
            assert_eq!(read.result.unwrap(), "12345678");
            assert_eq!(read.connection, Connection::Reusable);
        }
        let read = read_within(pieces(&[], true), 0).await;
        assert!(read.result.unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_holds_while_reading() {
        let read = read_within(pieces(&["12345678", "9"], true), 100).await;
        assert!(matches!(
            read.result,
            Err(Error::RequestBodyTooLarge { .. })
        ));
        assert_eq!(read.connection, Connection::Reusable);
        let long = pieces(&["123456789", "0123456789", "0123456789"], true);
        let read = read_within(long, 100).await;
        assert!(matches!(
            read.result,
            Err(Error::RequestBodyTooLarge { .. })
        ));
        assert_eq!(read.connection, Connection::Spent);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_the_budget_is_dropped() {
        let read = read_within(pieces(&["1234", "5678"], true), 7).await;
        assert!(matches!(read.result, Err(Error::ServerBusy)));
        assert_eq!(read.connection, Connection::Reusable);
        let budget = Budget::new(8);
        for _ in 0..3 {
            let body = pieces(&["1234", "5678"], true);
            let read = super::read(body, &HeaderMap::new(), &limits(), &budget).await;
            assert!(read.result.is_ok());
            assert!(budget.check_room(1).is_err());
        }
        assert!(budget.check_room(8).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_times_out() {
        let start = Instant::now();
        let read = read_within(pieces(&["1"], false), 8).await;
        assert!(matches!(read.result, Err(Error::OperationTimedOut)));
        assert_eq!(read.connection, Connection::Spent);
        assert_eq!(start.elapsed().as_secs(), 60);
        let start = Instant::now();
        let refused = refuse(pieces(&["1"], false), &HeaderMap::new(), &limits()).await;
        assert_eq!(refused, Connection::Spent);
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn the_unproven_may_send_little() {
        for (parts, expected) in [
            (&["1234"][..], Connection::Reusable),
            (&["1234", "5"], Connection::Spent),
        ] {
            let refused = refuse(pieces(parts, true), &HeaderMap::new(), &limits()).await;
            assert_eq!(refused, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hopeless_body_is_not_asked_for() {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        let mut body = pieces(&["123456789"], false);
        body.length = 9;
        let start = Instant::now();
        let read = read(body, &headers, &limits(), &Budget::new(100)).await;
        assert!(matches!(
            read.result,
            Err(Error::RequestBodyTooLarge { .. })
        ));
        assert_eq!(read.connection, Connection::Spent);
        assert_eq!(start.elapsed().as_secs(), 0);
    }
}
