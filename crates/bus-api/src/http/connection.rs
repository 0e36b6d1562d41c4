//! One connection, from its first request to its end.
//!
//! hyper reads and writes HTTP/1.1; this drives it and watches the clock, because two deadlines hold
//! that hyper's own timer cannot tell apart: the head of a request, once begun, must arrive soon,
//! while a connection between requests may be idle for longer. Where AMQP is asked for within a
//! WebSocket, hyper gives the socket back, and the same task goes on with it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use kew_amqp::error::{Error, condition};
use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::activity::{Activity, Phase, Watched};
use super::answer::{Answer, HttpError};
use super::audit::Actor;
use super::call::{Call, Head, Stopped};
use super::route::Route;
use super::service::HttpService;
use super::speaker::{called, speaker};
use super::{atom, body, data, health, operator, websocket};
use crate::authorization::bad_token::BadToken;
use crate::ground::origin::Origin;
use crate::ground::turned_away::TurnedAway;
use crate::metrics::Offered;
use crate::shared::Shared;

/// The most headers that a request has.
const HEADERS_MAX: usize = 100;
/// How long a client may take to read its last answer, and how much is read of what it still sends.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
const FAREWELL_SIZE_BYTES_MAX: u64 = 2 << 20;

/// Serves one connection until the client closes it, a limit ends it, or after `shutdown` its request
/// is answered.
pub(crate) async fn serve<S>(
    service: Arc<HttpService>,
    stream: S,
    origin: Origin,
    place: Arc<Place>,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::new(Arc::clone(&place)));
    let (stop, stopped) = watch::channel(false);
    // Who speaks in the WebSocket that the connection has become.
    let web_socket = OnceLock::new();
    let answering = service_fn(|request: Request<Incoming>| {
        let (service, activity) = (Arc::clone(&service), Arc::clone(&activity));
        let stopped = Stopped(stopped.clone());
        let web_socket = &web_socket;
        activity.enter(Phase::Answering);
        async move {
            take_turn(&service.shared, &activity).await;
            let is_last = request.headers().contains_key(TRANSFER_ENCODING);
            let speaker = speaker(&service.shared.names, origin, &request);
            let mut answer = answer(&service, speaker, request, &activity, stopped).await;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                // It is the last answer of the connection.
                let _ = web_socket.set(speaker);
            } else if is_last {
                // Whoever is between may have seen other requests in what follows.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            activity.answered();
            Ok::<_, Infallible>(answer)
        }
    });
    let limits = &service.shared.limits;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Nothing is copied that waits to be written: what its room is for stays as it is counted.
        .writev(true)
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.http_head_size_bytes_max);
    let stream = Watched::new(stream, Arc::clone(&activity), &service.heads);
    let mut connection = builder.serve_connection(TokioIo::new(stream), answering);
    let mut shutdown = pin!(shutdown);
    let mut is_stopping = false;
    let mut deadline = pin!(sleep_until(activity.deadline(limits)));
    loop {
        tokio::select! {
            biased;
            result = poll_fn(|cx| {
                activity.begin_turn();
                Pin::new(&mut connection).poll(cx)
            }) => {
                if let Err(error) = result {
                    tracing::debug!(peer = %origin.peer, %error, "an HTTP connection broke");
                }
                break;
            }
            () = &mut shutdown, if !is_stopping => {
                is_stopping = true;
                // What waits for a message answers that there is none.
                let _ = stop.send(true);
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = &mut deadline => {
                let (next, now) = (activity.deadline(limits), Instant::now());
                if next <= now {
                    let phase = activity.phase();
                    tracing::debug!(peer = %origin.peer, ?phase, "an HTTP connection timed out");
                    return;
                }
                // A head that begins meanwhile has less time than idling has.
                deadline.as_mut().reset(next.min(now + limits.http_head_timeout));
            }
        }
    }
    let parts = connection.into_parts();
    let stream = parts.io.into_inner().into_inner();
    if let Some(&speaker) = web_socket.get() {
        let shutdown = async {
            if !is_stopping {
                shutdown.await;
            }
        };
        let begun = parts.read_buf;
        let speaker = websocket::Speaker {
            origin: speaker,
            place,
        };
        let serving = websocket::serve(
            Arc::clone(&service.shared),
            stream,
            begun,
            speaker,
            shutdown,
        );
        // Its state must not make other connections larger.
        Box::pin(serving).await;
    } else {
        say_farewell(stream, activity.is_crowded()).await;
    }
}

/// Requests can come one behind the other, and each be answered at once: after some of them, others have their
/// turn first.
async fn take_turn(shared: &Shared, activity: &Activity) {
    let instruments = &shared.observer.instruments;
    let mut count = activity.count_request();
    if count > shared.limits.http_turn_requests_max {
        instruments.http_turns_cut.increment();
        tokio::task::yield_now().await;
        count = activity.count_request();
    }
    instruments.http_turn_requests_max.note(u64::from(count));
}

/// Sees to it that the last answer arrives: what is unread when a socket is closed would take it back.
async fn say_farewell<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, is_crowded: bool) {
    let farewell = async {
        if is_crowded {
            let answer = HttpError::from(TurnedAway::Crowded).into_farewell();
            stream.write_all(&answer).await?;
        }
        stream.shutdown().await?;
        let mut rest = stream.take(FAREWELL_SIZE_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // Whether it was heard is nobody's business any more.
    let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
}

async fn answer(
    service: &Arc<HttpService>,
    origin: Origin,
    request: Request<Incoming>,
    activity: &Activity,
    stopped: Stopped,
) -> Answer {
    let (parts, body) = request.into_parts();
    let head = match head_of(origin, parts) {
        Ok(head) => head,
        Err(error) => return error.into_answer(),
    };
    let has_api_version = head.parameter("api-version").is_some();
    let route = Route::of(&head.method, &head.path, has_api_version);
    let path = head.path.clone();
    let answered = dispatch(service, route, head, body, activity, stopped).await;
    answered.unwrap_or_else(|error| match route {
        Route::Operator => error.into_json_answer(),
        // As the service does, whatever was wrong: with the token, the request or the entity.
        Route::Atom | Route::Data => error.tracked(&path).into_answer(),
        Route::Health | Route::WebSocket => error.into_answer(),
    })
}

fn head_of(origin: Origin, parts: Parts) -> Result<Head, HttpError> {
    let hosts = parts.headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version == Version::HTTP_11) {
        return Err(HttpError::bad_request("a request has one Host header"));
    }
    Head::new(origin, parts)
}

async fn dispatch(
    service: &Arc<HttpService>,
    route: Route,
    head: Head,
    body: Incoming,
    activity: &Activity,
    stopped: Stopped,
) -> Result<Answer, HttpError> {
    let shared = &service.shared;
    if route == Route::Health {
        return Ok(health::answer(&shared.broker));
    }
    if route == Route::WebSocket {
        return websocket::accept(&head.method, &head.headers);
    }
    let origin = head.origin;
    // Nothing is read for somebody who has no token.
    let denied = |offered, error: HttpError| {
        if error.status == StatusCode::UNAUTHORIZED {
            let told = Error::new(condition::UNAUTHORIZED_ACCESS, error.detail());
            shared.observer.note_denied(&origin, offered, &told);
        }
        error
    };
    let authorization = head.authorization().ok_or_else(|| {
        let detail = "MissingToken: The Authorization header is missing.";
        denied(Offered::None, HttpError::unauthorized(detail))
    })?;
    let grant = shared
        .authority
        .grant_of(authorization, &head.path, origin)
        .await;
    let grant = grant.map_err(|error| {
        let BadToken::PublicKey(barred) = error else {
            return denied(Offered::Token, error.into());
        };
        let called = called(&head.headers, barred);
        shared.observer.note_barred(&origin, barred, called);
        let called = called.map_or(String::new(), |called| {
            format!(" (this request: '{called}')")
        });
        let told = HttpError::unauthorized(format!("{error}{called}"));
        denied(Offered::Token, told)
    })?;
    activity.prove();
    let body = body::read(body, service.bodies.share(), &shared.limits).await?;
    let call = Call {
        head,
        grant,
        body,
        stopped,
    };
    match route {
        Route::Data => data::answer(service, call).await,
        _ if call.head.method == Method::GET => manage(Arc::clone(service), route, call).await,
        _ => {
            // What changes something runs to its end, and is recorded, also if the client goes away.
            let managing = tokio::spawn(manage(Arc::clone(service), route, call));
            managing.await.unwrap_or_else(|error| {
                tracing::error!(%error, "a request of management panicked, which is a bug");
                Err(HttpError::internal())
            })
        }
    }
}

/// Carries out what is asked about entities, or by an operator.
async fn manage(service: Arc<HttpService>, route: Route, call: Call) -> Result<Answer, HttpError> {
    if route == Route::Operator {
        return operator::answer(&service, &call).await;
    }
    let answered = atom::answer(&service, &call).await;
    let head = &call.head;
    Actor::of(&service.refused_acts, &call).managed(&head.method, &head.path, &answered);
    answered
}
