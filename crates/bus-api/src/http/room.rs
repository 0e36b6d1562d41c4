//! Bounds on what the requests of all connections hold together: one for heads, and one for bodies.
//!
//! Each connection has bounds of its own, but thousands of times those is more than a machine has. So
//! heads that are not short and bodies take their size from a room as they grow, and give it back
//! when they are dropped. The two rooms are apart because anybody can send a head, and only clients
//! with a token send bodies: strangers leave no less room for these. Answers that may be large have
//! their part of the room that answers over AMQP have too.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body as _;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::answer::{Answer, HttpError};
use crate::api::Shared;
use crate::holdings::{resize, units_of, units_of_page};

/// In what the room is counted: nothing smaller is worth it.
const UNIT_SIZE_BYTES: usize = 1024;
/// How long a request waits for room for its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// Room for so much at once.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

/// What one request has taken of the room.
#[derive(Debug)]
pub(crate) struct Share {
    room: Room,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new(size_bytes: usize) -> Self {
        let units = (size_bytes / UNIT_SIZE_BYTES).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units)))
    }

    /// A share with nothing in it.
    pub(super) fn share(&self) -> Share {
        Share {
            room: self.clone(),
            taken: None,
        }
    }
}

impl Share {
    /// Grows to so much, or stays and refuses with 503.
    pub(super) fn cover(&mut self, size_bytes: usize) -> Result<(), HttpError> {
        let has = self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let wants = size_bytes.div_ceil(UNIT_SIZE_BYTES);
        let Some(missing) = wants.checked_sub(has).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        let missing = u32::try_from(missing).map_err(|_| crowded())?;
        let more = Arc::clone(&self.room.0).try_acquire_many_owned(missing);
        let more = more.map_err(|_| crowded())?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Ok(())
    }

    /// Gives everything back.
    pub(super) fn clear(&mut self) {
        self.taken = None;
    }

    /// The bytes, which give the share back when the last part of them is dropped.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        held(bytes, self)
    }
}

fn crowded() -> HttpError {
    let text = "The server has as many requests as it can hold.";
    HttpError::busy(text)
}

/// What the answer to one request has taken of the room that all answers with messages in them have,
/// those over AMQP too. HTTP has a part of it only: its clients have their answers until they read them,
/// and others are not to wait for that.
///
/// It is taken before anything is read or locked, so that a request that finds no room has done nothing.
#[derive(Debug)]
pub(super) struct AnswerRoom {
    of_http: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl AnswerRoom {
    /// Room for an answer of about this size, if there is some now.
    pub(super) fn try_of(shared: &Shared, size_bytes: usize) -> Option<Self> {
        let units = units_of(size_bytes);
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(units).ok();
        Some(Self {
            of_http: take(&shared.http_answers)?,
            of_all: take(&shared.answers)?,
        })
    }

    /// Room for an answer of about this size, or 503 if there is none for a while.
    pub(super) async fn of(shared: &Shared, size_bytes: usize) -> Result<Self, HttpError> {
        Self::once_there_is(shared, units_of(size_bytes)).await
    }

    /// The same for a page of many things.
    pub(super) async fn of_page(shared: &Shared) -> Result<Self, HttpError> {
        Self::once_there_is(shared, units_of_page()).await
    }

    async fn once_there_is(shared: &Shared, units: u32) -> Result<Self, HttpError> {
        let take = |room: &Arc<Semaphore>| Arc::clone(room).acquire_many_owned(units);
        let taking = async {
            Ok::<_, AcquireError>(Self {
                of_http: take(&shared.http_answers).await?,
                of_all: take(&shared.answers).await?,
            })
        };
        let taken = timeout(ANSWER_PATIENCE, taking).await;
        taken.ok().and_then(Result::ok).ok_or_else(crowded)
    }

    /// The answer, which keeps as much of the room as it needs until its body is written. `size_bytes`
    /// is what that holds, with what the answer has in its head.
    pub(super) fn hold(mut self, size_bytes: usize, answer: Answer) -> Answer {
        let units = units_of(size_bytes) as usize;
        resize(&mut self.of_http, units);
        resize(&mut self.of_all, units);
        answer.map(|body| held(bytes_of(body), self).into())
    }

    /// The same for an answer that is nothing but its body.
    pub(super) fn hold_body(self, answer: Answer) -> Answer {
        let size_bytes = answer.body().size_hint().lower();
        self.hold(usize::try_from(size_bytes).unwrap_or(usize::MAX), answer)
    }
}

/// The bytes of a body, all of which are there.
fn bytes_of(mut body: Full<Bytes>) -> Bytes {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut body).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}

/// Bytes that keep something until the last part of them is dropped. If there are none, it goes now.
fn held(bytes: Bytes, kept: impl Send + 'static) -> Bytes {
    match bytes.is_empty() {
        true => bytes,
        false => Bytes::from_owner(Held { bytes, _kept: kept }),
    }
}

struct Held<T> {
    bytes: Bytes,
    _kept: T,
}

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_with_the_last_byte() {
        let room = Room::new(10 * UNIT_SIZE_BYTES);
        let (mut one, mut two) = (room.share(), room.share());
        one.cover(1).unwrap();
        one.cover(4 * UNIT_SIZE_BYTES).unwrap();
        two.cover(6 * UNIT_SIZE_BYTES).unwrap();
        assert!(one.cover(4 * UNIT_SIZE_BYTES + 1).is_err());
        one.cover(4 * UNIT_SIZE_BYTES).unwrap();
        let held = two.hold(Bytes::from_static(b"0123456789"));
        let part = held.slice(2..3);
        drop(held);
        assert!(one.cover(5 * UNIT_SIZE_BYTES).is_err());
        drop(part);
        one.cover(10 * UNIT_SIZE_BYTES).unwrap();
        one.clear();
        room.share().cover(10 * UNIT_SIZE_BYTES).unwrap();
    }
}
