//! Connections over HTTP/1.1: made when they are needed, kept for the next request, and bounded.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::{Effect, Error};
use crate::transport::Route;

/// The most that an answer may be: 5,000 queues with all the metadata they may have, and some.
const ANSWER_SIZE_BYTES_MAX: usize = 64 << 20;

/// How long a connection is kept for the next request. Services close them after a minute or more.
const IDLE_MAX: Duration = Duration::from_secs(30);

type Sender = SendRequest<Full<Bytes>>;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct Pool {
    route: Route,
    /// How many requests are under way, each on a connection of its own.
    places: Arc<Semaphore>,
    idle: Mutex<Vec<(Sender, Instant)>>,
}

impl Pool {
    pub(crate) fn new(route: Route, connections_max: usize) -> Self {
        Self {
            route,
            places: Arc::new(Semaphore::new(connections_max.max(1))),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Sends a request once, and waits for the whole answer.
    ///
    /// To drop the future closes the connection that it was sent on, and leaves the outcome open.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        effect: Effect,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        let asked = Instant::now();
        let not_in_time = |_| {
            let seconds = asked.elapsed().as_secs_f64();
            Error::later(format!(
                "the request could not be sent within {seconds:.1} s"
            ))
        };
        let place = timeout_at(deadline, self.places.acquire()).await;
        let _place = place
            .map_err(not_in_time)?
            .map_err(|_| Error::later("the client was closed"))?;
        let mut request = request;
        loop {
            let (mut sender, is_new) = match self.take() {
                // The last answer may just have been read.
                Some(mut sender) => match timeout_at(deadline, sender.ready()).await {
                    Ok(Ok(())) => (sender, false),
                    Ok(Err(_)) | Err(_) => continue,
                },
                None => {
                    let connecting = self.connect();
                    let connected = timeout_at(deadline, connecting).await;
                    (connected.map_err(not_in_time)??, true)
                }
            };
            let began = Instant::now();
            let sent = timeout_at(deadline, sender.try_send_request(request)).await;
            let answer = match sent {
                Err(_) => return Err(Error::no_answer_within(effect, began.elapsed())),
                Ok(Ok(answer)) => answer,
                Ok(Err(mut error)) => match error.take_message() {
                    // The service closed the connection while it was kept.
                    Some(unsent) if !is_new => {
                        request = unsent;
                        continue;
                    }
                    Some(_) => return Err(Error::later(told(error.error()))),
                    None => {
                        let lost = Error::later(told(error.error()));
                        return Err(lost.lost_under_way(effect));
                    }
                },
            };
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_SIZE_BYTES_MAX).collect();
            let body = match timeout_at(deadline, body).await {
                Err(_) => return Err(Error::no_answer_within(effect, began.elapsed())),
                Ok(Err(error)) => {
                    return Err(Error::later(error.to_string()).lost_under_way(effect));
                }
                Ok(Ok(body)) => body.to_bytes(),
            };
            self.give_back(sender);
            return Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            });
        }
    }

    /// A connection that was kept, and is open as far as is known.
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle();
        while let Some((sender, since)) = idle.pop() {
            if !sender.is_closed() && since.elapsed() < IDLE_MAX {
                return Some(sender);
            }
        }
        None
    }

    fn give_back(&self, sender: Sender) {
        let mut idle = self.idle();
        idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_MAX);
        idle.push((sender, Instant::now()));
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Sender, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Sender, Error> {
        let prepare = |stream| async move {
            let (sender, connection) = handshake(TokioIo::new(stream))
                .await
                .map_err(io::Error::other)?;
            // It ends with its sender.
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(target: "kew::client", %error, "a connection over HTTP ended");
                }
            });
            Ok(sender)
        };
        self.route.connect(prepare).await
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("host", &self.route.host())
            .field("idle", &self.idle().len())
            .finish_non_exhaustive()
    }
}

fn told(error: &hyper::Error) -> String {
    format!("the connection broke: {error}")
}
