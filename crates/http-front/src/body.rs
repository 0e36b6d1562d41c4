//! Reads the body of a request within its limits of size and time.
//!
//! The limit holds while reading, whatever `Content-Length` says, and the bodies of all connections
//! together have a budget. The body of a refused request is read to its end within limits, so that the
//! connection can take the next request. If that would take too long, the connection ends after the
//! answer.

use std::fmt::Display;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{EXPECT, HeaderMap};
use tokio::time::timeout_at;

use crate::budget::{NoRoom, Share};
use crate::limits::{BodyLimits, Patience};

/// Whether a connection can take another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The body was read to its end.
    Reusable,
    /// A part of the body may still arrive, or the body was not well-formed.
    Spent,
}

/// Why there is no body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is larger than the limit.
    TooLarge,
    /// There is no room for it beside all others.
    NoRoom,
    /// It did not arrive in time.
    TooSlow,
    /// It was cut off or not framed as HTTP requires. Holds the reason that the library gives.
    Broken(Box<str>),
}

/// The result of reading a body.
#[derive(Debug)]
pub struct Read {
    /// The body, or why there is none.
    pub result: Result<Bytes, BodyError>,
    /// Whether the connection can continue.
    pub connection: Connection,
    /// What the body has taken of its budget. Keep it as long as the body.
    pub share: Share,
}

/// Reads the body of an admitted request, and counts it in `share`. The part beyond the size limit is read and
/// dropped.
///
/// `headers` are the request's: a client that waits for `100 Continue` with a body that is too
/// large is not asked to send it.
pub async fn read<B>(mut body: B, headers: &HeaderMap, limits: &BodyLimits, share: Share) -> Read
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let mut share = share;
    let patience = Patience::new(limits.discarded_size_bytes_max, limits.timeout);
    let (result, connection) = if body.is_end_stream() {
        (Ok(Bytes::new()), Connection::Reusable)
    } else if is_above(body.size_hint().lower(), limits.size_bytes_max) {
        let connection = discard(body, headers, patience).await;
        (Err(BodyError::TooLarge), connection)
    } else {
        let collected = collect(&mut body, limits.size_bytes_max, &mut share);
        match timeout_at(patience.deadline, collected).await {
            Ok(Ok(bytes)) => (Ok(bytes), Connection::Reusable),
            Ok(Err(error)) => {
                // Nothing of it is kept.
                share.clear();
                let connection = match &error {
                    BodyError::Broken(_) | BodyError::TooSlow => Connection::Spent,
                    BodyError::TooLarge | BodyError::NoRoom => drain(body, patience).await,
                };
                (Err(error), connection)
            }
            Err(_) => (Err(BodyError::TooSlow), Connection::Spent),
        }
    };
    Read {
        result,
        connection,
        share,
    }
}

fn is_above(size_bytes: u64, limit_bytes: usize) -> bool {
    usize::try_from(size_bytes).map_or(true, |size_bytes| size_bytes > limit_bytes)
}

/// The whole body, unless it is too large, does not fit the budget, or is not well-formed.
async fn collect<B>(
    body: &mut B,
    size_bytes_max: usize,
    share: &mut Share,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    // Nearly every body comes in one piece, and then nothing is copied.
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string().into()))?;
        let Ok(piece) = frame.into_data() else {
            // Trailers are ignored.
            continue;
        };
        if first.len() + rest.len() + piece.len() > size_bytes_max {
            return Err(BodyError::TooLarge);
        }
        share
            .grow(piece.len())
            .map_err(|NoRoom| BodyError::NoRoom)?;
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

/// Reads and discards the body of a refused request, within limits.
///
/// A client that waits for `100 Continue` before it sends the body is not asked to.
pub async fn discard<B>(body: B, headers: &HeaderMap, patience: Patience) -> Connection
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
    // Without patience, do not wait for the next piece.
    if patience.size_bytes_max == 0 || body.size_hint().lower() > patience.size_bytes_max {
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
    use std::time::Duration;

    use hyper::body::{Frame, SizeHint};
    use hyper::header::HeaderValue;
    use tokio::time::Instant;

    use super::*;
    use crate::budget::Budget;
    use crate::limits::LIMITS;

    /// A body in pieces; one that never ends stalls after them.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends: bool,
        /// The value of `Content-Length`.
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

    async fn read_within(body: Pieces, budget_bytes: usize) -> Read {
        let share = Budget::new(budget_bytes).share();
        read(body, &HeaderMap::new(), &LIMITS.body, share).await
    }

    /// Discards a body as that of an unauthenticated client.
    async fn discarded(body: Pieces) -> Connection {
        let patience = Patience::new(4, Duration::from_secs(5));
        discard(body, &HeaderMap::new(), patience).await
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
        assert_eq!(read.result, Err(BodyError::TooLarge));
        assert_eq!(read.connection, Connection::Reusable);
        let long = pieces(&["123456789", "0123456789", "0123456789"], true);
        let read = read_within(long, 100).await;
        assert_eq!(read.result, Err(BodyError::TooLarge));
        assert_eq!(read.connection, Connection::Spent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_fit_the_budget_is_dropped() {
        let read = read_within(pieces(&["1234", "5678"], true), 7).await;
        assert_eq!(read.result, Err(BodyError::NoRoom));
        assert_eq!(read.connection, Connection::Reusable);
        let budget = Budget::new(8);
        for _ in 0..3 {
            let body = pieces(&["1234", "5678"], true);
            let read = super::read(body, &HeaderMap::new(), &LIMITS.body, budget.share()).await;
            assert!(read.result.is_ok());
            assert!(budget.check_room(1).is_err());
        }
        assert!(budget.check_room(8).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_leaves_its_room_to_others_at_once() {
        let budget = Budget::new(10);
        let headers = HeaderMap::new();
        let body = pieces(&["12345678", "9"], false);
        let mut reading = std::pin::pin!(read(body, &headers, &LIMITS.body, budget.share()));
        let begun = tokio::time::timeout(Duration::from_secs(1), &mut reading).await;
        assert!(begun.is_err(), "its rest is waited for");
        assert!(budget.check_room(10).is_ok());
        assert_eq!(reading.await.result, Err(BodyError::TooLarge));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_times_out() {
        let start = Instant::now();
        let read = read_within(pieces(&["1"], false), 8).await;
        assert_eq!(read.result, Err(BodyError::TooSlow));
        assert_eq!(read.connection, Connection::Spent);
        assert_eq!(start.elapsed().as_secs(), 60);
        let start = Instant::now();
        let refused = discarded(pieces(&["1"], false)).await;
        assert_eq!(refused, Connection::Spent);
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_clients_may_send_little() {
        for (parts, expected) in [
            (&["1234"][..], Connection::Reusable),
            (&["1234", "5"], Connection::Spent),
        ] {
            let refused = discarded(pieces(parts, true)).await;
            assert_eq!(refused, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_patience_nothing_more_is_read() {
        let limits = BodyLimits {
            discarded_size_bytes_max: 0,
            ..LIMITS.body
        };
        let mut told = pieces(&["123456789"], false);
        told.length = 9;
        for body in [told, pieces(&["12345678", "9"], false)] {
            let start = Instant::now();
            let share = Budget::new(100).share();
            let read = read(body, &HeaderMap::new(), &limits, share).await;
            assert_eq!(read.result, Err(BodyError::TooLarge));
            assert_eq!(read.connection, Connection::Spent);
            assert_eq!(start.elapsed().as_secs(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_announces_an_oversized_body_is_not_told_to_continue() {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        let mut body = pieces(&["123456789"], false);
        body.length = 9;
        let start = Instant::now();
        let read = read(body, &headers, &LIMITS.body, Budget::new(100).share()).await;
        assert_eq!(read.result, Err(BodyError::TooLarge));
        assert_eq!(read.connection, Connection::Spent);
        assert_eq!(start.elapsed().as_secs(), 0);
    }
}
