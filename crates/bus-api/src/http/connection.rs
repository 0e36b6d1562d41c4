//! One connection, by hyper.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::{Answer, HttpError};
use super::audit::Actor;
use super::call::{Call, Head, Stopped};
use super::route::Route;
use super::{atom, data, health, operator};
use crate::api::Shared;
use crate::origin::Origin;

/// How long a client may be silent before a request, and take to send its head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest head.
const HEAD_SIZE_BYTES_MAX: usize = 64 * 1024;
/// The most headers that a request has.
const HEADERS_MAX: usize = 100;
/// The largest body: a message of 1 MiB, with room for what describes it.
const BODY_SIZE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Serves one connection until the client closes it, or after `shutdown` its request is answered.
pub(crate) async fn serve<S>(
    shared: Arc<Shared>,
    stream: S,
    origin: Origin,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stop, stopped) = watch::channel(false);
    let service = service_fn(|request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        let stopped = Stopped(stopped.clone());
        async move { Ok::<_, Infallible>(answer(&shared, origin, request, stopped).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_SIZE_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut shutdown = pin!(shutdown);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            result = &mut connection => {
                if let Err(error) = result {
                    tracing::debug!(peer = %origin.peer, %error, "an HTTP connection broke");
                }
                return;
            }
            () = &mut shutdown, if !is_stopping => {
                is_stopping = true;
                // What waits for a message answers that there is none.
                let _ = stop.send(true);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn answer(
    shared: &Arc<Shared>,
    origin: Origin,
    request: Request<Incoming>,
    stopped: Stopped,
) -> Answer {
    let (parts, body) = request.into_parts();
    let head = match Head::new(origin, parts) {
        Ok(head) => head,
        Err(error) => return error.into_answer(),
    };
    let has_api_version = head.parameter("api-version").is_some();
    let route = Route::of(&head.method, &head.path, has_api_version);
    let answered = dispatch(shared, route, head, body, stopped).await;
    answered.unwrap_or_else(|error| match route {
        Route::Operator => error.into_json_answer(),
        _ => error.into_answer(),
    })
}

async fn dispatch(
    shared: &Arc<Shared>,
    route: Route,
    head: Head,
    body: Incoming,
    stopped: Stopped,
) -> Result<Answer, HttpError> {
    if route == Route::Health {
        return Ok(health::answer(shared));
    }
    let origin = head.origin;
    // Nothing is read for somebody who has no token.
    let authorization = head.authorization().ok_or_else(|| {
        HttpError::unauthorized("MissingToken: The Authorization header is missing.")
    })?;
    let grant = shared.grant_of(authorization, &head.path, origin).await?;
    let body = read_body(body).await?;
    let call = Call {
        head,
        grant,
        body,
        stopped,
    };
    match route {
        Route::Atom => {
            let answered = atom::answer(shared, &call).await;
            let head = &call.head;
            Actor::of(&call).managed(&head.method, &head.path, &answered);
            answered
        }
        Route::Data => data::answer(shared, &call).await,
        Route::Operator => operator::answer(shared, &call).await,
        Route::Health | Route::WebSocket => Err(HttpError::not_found(&call.head.path)),
    }
}

async fn read_body(body: Incoming) -> Result<Bytes, HttpError> {
    let too_large = || {
        let detail = format!("the body is larger than {BODY_SIZE_BYTES_MAX} bytes");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    if body.size_hint().lower() > BODY_SIZE_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let collecting = Limited::new(body, BODY_SIZE_BYTES_MAX).collect();
    match timeout(BODY_TIMEOUT, collecting).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(HttpError::bad_request(format!(
            "the body broke off: {error}"
        ))),
        Err(_) => {
            let seconds = BODY_TIMEOUT.as_secs();
            let detail = format!("the body did not come within {seconds} s");
            Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}
