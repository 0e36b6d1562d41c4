//! Serves connections, and bounds what each of them can hold: clients may be slow, many, or both.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::calls;
use crate::contract::{Answer, Status};

/// How long a request may take, its body included. Longer than any call takes by itself.
const REQUEST_MAX: Duration = Duration::from_secs(20);

/// How long a last answer may take.
const END_MAX: Duration = Duration::from_secs(25);

/// The largest head of a request, in bytes.
const HEAD_SIZE_MAX: usize = 16 << 10;

/// How long to wait when the system has no place for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time. One more is closed at once. Less than the files that a process may usually open.
    pub connections_max: usize,
    /// How long a client may take for the head of a request, and be idle before it.
    pub head_max: Duration,
    /// How long a connection lives. Then the answer under way is its last one.
    pub life_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 768,
            head_max: Duration::from_secs(10),
            life_max: Duration::from_mins(5),
        }
    }
}

/// Serves until `stop`, and then ends the requests under way.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let (stopping, stopped) = watch::channel(());
    let (mut stop, mut connections) = (pin!(stop), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                // Without a place, it is closed.
                if let Ok(place) = places.clone().try_acquire_owned() {
                    let (router, stopped) = (router.clone(), stopped.clone());
                    connections.spawn(serve_one(stream, router, limits, stopped, place));
                }
            }
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted");
                sleep(PAUSE).await;
            }
        }
    }
    drop((listener, stopped, stopping));
    while connections.join_next().await.is_some() {}
}

fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

async fn serve_one(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<()>,
    _place: OwnedSemaphorePermit,
) {
    // An answer is small, and its client waits for it.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_max)
        .max_buf_size(HEAD_SIZE_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return log_end(ended),
        // The sender is dropped at the end.
        _ = stopped.changed() => {}
        () = sleep(limits.life_max) => {}
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(ended) = timeout(END_MAX, connection).await {
        log_end(ended);
    }
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Answers in time, whatever is still under way.
pub(super) async fn within_time(request: Request, next: Next) -> Response {
    match timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let text = "the request took too long; repeat it with the same MessageId";
            let answer = Answer::new(Status::Failed, text);
            calls::json(StatusCode::REQUEST_TIMEOUT, &answer)
        }
    }
}
