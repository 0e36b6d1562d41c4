//! Room for answers that may be large: HTTP's part of the room that it shares with AMQP.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body as _;
use kew_http_front::{Answer, held};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::super::service::HttpService;
use super::answer::HttpError;
use crate::memory::answers::{resize, units_of, units_of_page};

/// How long a request waits for room for its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// The room that the answer to one request has taken. All answers with messages in them share one room, also
/// those over AMQP. HTTP may use only a part of it: an answer over HTTP keeps its room until the client has
/// read it, and clients of AMQP do not have to wait for that.
///
/// A request takes room before it reads or locks anything, so that without room it has done nothing.
#[derive(Debug)]
pub(in crate::http) struct AnswerRoom {
    of_http: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl AnswerRoom {
    /// Room for an answer of about this size, if there is enough now.
    pub(in crate::http) fn try_of(service: &HttpService, size_bytes: usize) -> Option<Self> {
        let units = units_of(size_bytes);
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(units).ok();
        Some(Self {
            of_http: take(&service.answers.0)?,
            of_all: take(&service.shared.answers.0)?,
        })
    }

    /// Room for an answer of about this size, or 503 if there is not enough for a while.
    pub(in crate::http) async fn of(
        service: &HttpService,
        size_bytes: usize,
    ) -> Result<Self, HttpError> {
        Self::once_there_is(service, units_of(size_bytes)).await
    }

    /// The same for a page of many things.
    pub(in crate::http) async fn of_page(service: &HttpService) -> Result<Self, HttpError> {
        Self::once_there_is(service, units_of_page()).await
    }

    async fn once_there_is(service: &HttpService, units: u32) -> Result<Self, HttpError> {
        let take = |room: &Arc<Semaphore>| Arc::clone(room).acquire_many_owned(units);
        let taking = async {
            Ok::<_, AcquireError>(Self {
                of_http: take(&service.answers.0).await?,
                of_all: take(&service.shared.answers.0).await?,
            })
        };
        let taken = timeout(ANSWER_PATIENCE, taking).await;
        taken
            .ok()
            .and_then(Result::ok)
            .ok_or_else(HttpError::no_room)
    }

    /// The answer, which keeps the room that it needs until its body is written. `size_bytes` is the size of
    /// the body and of the properties in its head.
    pub(in crate::http) fn hold(mut self, size_bytes: usize, answer: Answer) -> Answer {
        let units = units_of(size_bytes) as usize;
        resize(&mut self.of_http, units);
        resize(&mut self.of_all, units);
        answer.map(|body| held(bytes_of(body), self).into())
    }

    /// The same for an answer that has only a body.
    pub(in crate::http) fn hold_body(self, answer: Answer) -> Answer {
        let size_bytes = answer.body().size_hint().lower();
        self.hold(usize::try_from(size_bytes).unwrap_or(usize::MAX), answer)
    }
}

/// The bytes of a body that is complete.
fn bytes_of(mut body: Full<Bytes>) -> Bytes {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut body).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}
