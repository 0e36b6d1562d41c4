//! Reads the body of a request within its limits of size and time.
//!
//! The limit holds while reading, whatever `Content-Length` says. A body is read to its end before
//! the request is answered, also when it is of no use, so that the next request on the connection
//! is found; where that would take too long the connection ends after the answer.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{EXPECT, HeaderMap};
use tokio::time::{Instant, timeout_at};

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

/// Reads the body. Beyond the size limit it is read on and dropped, as [`discard`] does.
///
/// The error is `RequestBodyTooLarge`, `OperationTimedOut` or, where the body was cut or not framed
/// as HTTP demands, `InvalidInput`.
pub(crate) async fn read<B>(mut body: B, limits: &Limits) -> (Result<Bytes, Error>, Connection)
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return (Ok(Bytes::new()), Connection::Reusable);
    }
    let deadline = Instant::now() + limits.body_timeout;
    match timeout_at(deadline, collect(&mut body, limits.body_size_bytes_max)).await {
        Ok(Ok(Some(bytes))) => (Ok(bytes), Connection::Reusable),
        Ok(Ok(None)) => {
            let connection = discard_until(body, limits, deadline).await;
            (Err(Error::body_too_large()), connection)
        }
        Ok(Err(())) => (Err(Error::InvalidInput), Connection::Spent),
        Err(_) => (Err(Error::OperationTimedOut), Connection::Spent),
    }
}

/// The whole body, or `None` as soon as it is too large.
async fn collect<B>(body: &mut B, size_bytes_max: usize) -> Result<Option<Bytes>, ()>
where
    B: Body<Data = Bytes> + Unpin,
{
    // Nearly every body comes in one piece, and then nothing is copied.
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| ())?.into_data() else {
            // Trailers mean nothing here.
            continue;
        };
        if first.len() + rest.len() + piece.len() > size_bytes_max {
            return Ok(None);
        }
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
    Ok(Some(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    }))
}

/// Reads a body that nobody wants, within limits.
///
/// A client that waits for `100 Continue` before it sends the body is not asked to.
pub(crate) async fn discard<B>(body: B, headers: &HeaderMap, limits: &Limits) -> Connection
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        Connection::Reusable
    } else if headers.contains_key(EXPECT) {
        Connection::Spent
    } else {
        discard_until(body, limits, Instant::now() + limits.body_timeout).await
    }
}

async fn discard_until<B>(mut body: B, limits: &Limits, deadline: Instant) -> Connection
where
    B: Body<Data = Bytes> + Unpin,
{
    let size_bytes_max = limits.discarded_size_bytes_max;
    if body.size_hint().lower() > size_bytes_max {
        return Connection::Spent;
    }
    let drain = async {
        let mut size_bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Connection::Spent;
            };
            size_bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if size_bytes > size_bytes_max {
                return Connection::Spent;
            }
        }
        Connection::Reusable
    };
    timeout_at(deadline, drain)
        .await
        .unwrap_or(Connection::Spent)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// A body in pieces; one that never ends stalls after them.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends: bool,
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
    }

    fn pieces(pieces: &[&'static str], ends: bool) -> Pieces {
        Pieces {
            left: pieces.iter().map(|piece| Bytes::from(*piece)).collect(),
            ends,
        }
    }

    fn limits() -> Limits {
        Limits {
            body_size_bytes_max: 8,
            discarded_size_bytes_max: 16,
            ..Limits::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_are_joined() {
        for parts in [&["12345678"][..], &["1234", "56", "78"], &["", "12345678"]] {
            let (result, connection) = read(pieces(parts, true), &limits()).await;
            assert_eq!(result.unwrap(), "12345678");
            assert_eq!(connection, Connection::Reusable);
        }
        let (result, _) = read(pieces(&[], true), &limits()).await;
        assert!(result.unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_holds_while_reading() {
        let (result, connection) = read(pieces(&["12345678", "9"], true), &limits()).await;
        assert!(matches!(result, Err(Error::RequestBodyTooLarge { .. })));
        assert_eq!(connection, Connection::Reusable);
        let long = pieces(&["123456789", "0123456789", "0123456789"], true);
        let (result, connection) = read(long, &limits()).await;
        assert!(matches!(result, Err(Error::RequestBodyTooLarge { .. })));
        assert_eq!(connection, Connection::Spent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_times_out() {
        let (result, connection) = read(pieces(&["1"], false), &limits()).await;
        assert!(matches!(result, Err(Error::OperationTimedOut)));
        assert_eq!(connection, Connection::Spent);
        let discarded = discard(pieces(&["1"], false), &HeaderMap::new(), &limits()).await;
        assert_eq!(discarded, Connection::Spent);
    }
}
