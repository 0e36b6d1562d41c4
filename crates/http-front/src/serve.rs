//! The loop that drives one connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use crate::activity::{Activity, Phase};
use crate::farewell::say_farewell;
use crate::service::{Event, Refusal, Service};
use crate::watched::Watched;

/// The smallest buffer for a head that hyper accepts.
const HEAD_SIZE_BYTES_MIN: usize = 8 * 1024;

/// A connection on which HTTP has ended with the status 101.
#[derive(Debug)]
pub struct Switched<IO> {
    /// The socket.
    pub io: IO,
    /// The bytes that were already read from it.
    pub begun: Bytes,
}

/// Serves one connection until the client closes it, a limit ends it, or, after `shutdown` resolves, its current
/// request is answered. Returns the socket if an answer has ended HTTP on it.
///
/// `shutdown` is not polled after it has resolved. Dropping the future closes the connection at once.
pub async fn serve<S, IO>(
    service: &S,
    io: IO,
    shutdown: impl Future<Output = ()>,
) -> Option<Switched<IO>>
where
    S: Service,
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let limits = &service.front().limits;
    let activity = &Activity::new(service.place());
    let answering = service_fn(|request: Request<Incoming>| {
        activity.enter(Phase::Answering);
        let heard = activity.heads.take();
        async move {
            take_turn(service, activity).await;
            let answer = match heard {
                // In a box: hyper keeps space for this future as long as the connection exists, idle or not.
                Some(spelling) => Box::pin(service.answer(request, spelling, activity)).await,
                None => {
                    let mut answer = service.refuse_unsound(request);
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(CONNECTION, close);
                    answer
                }
            };
            activity.answered(&answer);
            Ok::<_, Infallible>(answer)
        }
    });
    // No `pipeline_flush`: it holds an answer back while unread bytes are buffered. The last answer of a
    // connection would then never be sent.
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(limits.header_count_max)
        .max_header_size(limits.head_size_bytes_max.max(HEAD_SIZE_BYTES_MIN))
        .max_buf_size(limits.head_size_bytes_max.max(HEAD_SIZE_BYTES_MIN));
    let io = TokioIo::new(Watched::new(io, service, activity));
    let mut connection = builder.serve_connection(io, answering);
    let mut shutdown = pin!(shutdown);
    let mut is_shutting_down = false;
    let mut deadline = pin!(sleep_until(activity.deadline(limits)));
    let is_broken = loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| {
                activity.begin_turn();
                Pin::new(&mut connection).poll(cx)
            }) => {
                if let Err(error) = &result {
                    service.note(Event::Failed(error));
                }
                break result.is_err();
            }
            () = &mut shutdown, if !is_shutting_down => {
                is_shutting_down = true;
                activity.stop();
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = &mut deadline => {
                let (next, now) = (activity.deadline(limits), Instant::now());
                if next <= now {
                    service.note(Event::Overdue(activity.overdue()));
                    return None;
                }
                // A head that begins in the meantime has less time than an idle connection.
                deadline.as_mut().reset(next.min(now + limits.head_timeout));
            }
        }
    };
    let parts = connection.into_parts();
    let watched = parts.io.into_inner();
    let may_be_sending = is_broken || activity.is_cut() || !watched.is_between_requests();
    let io = watched.into_inner();
    if activity.is_switched() {
        let begun = parts.read_buf;
        return Some(Switched { io, begun });
    }
    if activity.is_crowded() {
        let answer = service.refusal(Refusal::Crowded);
        say_farewell(io, &answer, &limits.farewell).await;
    } else if may_be_sending {
        say_farewell(io, &[], &limits.farewell).await;
    }
    None
}

/// Gives other connections their turn after some requests. Otherwise a client that pipelines requests could
/// keep the thread.
async fn take_turn<S: Service>(service: &S, activity: &Activity<'_, S::Spelling>) {
    let mut count = activity.count_request();
    if count > service.front().limits.turn_requests_max {
        service.note(Event::TurnCut);
        tokio::task::yield_now().await;
        count = activity.count_request();
    }
    service.note(Event::Turn(count));
}
