//! Connections over HTTP/1.1: made when they are needed, kept for the next request, and bounded.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body as _;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{Effect, Error};
use crate::transport::{Route, Stream};

/// The most that an answer may be: 5,000 queues with all the metadata they may have, and some.
const ANSWER_SIZE_BYTES_MAX: usize = 64 << 20;

/// How long a connection is kept for the next request, up to twice of it. Services close them after a minute or more.
const IDLE_MAX: Duration = Duration::from_secs(30);

type Sender = SendRequest<Full<Bytes>>;

/// What reads and writes for a sender, until it is over.
type Socket = Option<Box<Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

/// A connection. It works only while somebody waits for it, in the task that waits: a task of its own would cost two
/// switches for each request. So it is noticed late that the service has closed it: at the next request, or when it is old.
struct Open {
    sender: Sender,
    socket: Socket,
}

/// Waits for something that comes over a connection.
async fn drive<F: Future>(socket: &mut Socket, awaited: F) -> F::Output {
    let mut awaited = pin!(awaited);
    poll_fn(|context| {
        // Twice: what is awaited may have something to write first.
        for _ in 0..2 {
            if let Some(open) = socket
                && Pin::new(open).poll(context).is_ready()
            {
                *socket = None;
            }
            if let Poll::Ready(output) = awaited.as_mut().poll(context) {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

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
    idle: Arc<Mutex<Idle>>,
}

/// Connections that wait for a request, and since when. The one that was used last is at the end, and is taken first.
#[derive(Default)]
struct Idle {
    open: Vec<(Open, Instant)>,
    /// The task that closes old ones. It may have ended with its runtime.
    closer: Option<AbortHandle>,
}

impl Idle {
    fn close_old(&mut self, now: Instant) {
        let is_old = |(_, since): &(Open, Instant)| now - *since >= IDLE_MAX;
        let old = self.open.partition_point(is_old);
        self.open.drain(..old);
    }
}

/// Closes connections that nobody uses, until there is none.
async fn close_old(idle: Weak<Mutex<Idle>>) {
    loop {
        sleep(IDLE_MAX).await;
        let Some(idle) = idle.upgrade() else {
            return;
        };
        let mut idle = lock(&idle);
        idle.close_old(Instant::now());
        if idle.open.is_empty() {
            idle.closer = None;
            return;
        }
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(crate) fn new(route: Route, connections_max: usize) -> Self {
        Self {
            route,
            places: Arc::new(Semaphore::new(connections_max.max(1))),
            idle: Arc::default(),
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
            let (mut open, is_new) = match self.take() {
                // The last answer may just have been read.
                Some(mut open) => {
                    let ready = drive(&mut open.socket, open.sender.ready());
                    match timeout_at(deadline, ready).await {
                        Ok(Ok(())) => (open, false),
                        Ok(Err(_)) | Err(_) => continue,
                    }
                }
                None => {
                    let connecting = self.connect();
                    let connected = timeout_at(deadline, connecting).await;
                    (connected.map_err(not_in_time)??, true)
                }
            };
            let began = Instant::now();
            let sent = drive(&mut open.socket, open.sender.try_send_request(request));
            let sent = timeout_at(deadline, sent).await;
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
            let body = match body.is_end_stream() {
                true => Bytes::new(),
                false => {
                    let body = Limited::new(body, ANSWER_SIZE_BYTES_MAX).collect();
                    match timeout_at(deadline, drive(&mut open.socket, body)).await {
                        Err(_) => return Err(Error::no_answer_within(effect, began.elapsed())),
                        Ok(Err(error)) => {
                            return Err(Error::later(error.to_string()).lost_under_way(effect));
                        }
                        Ok(Ok(body)) => body.to_bytes(),
                    }
                }
            };
            self.give_back(open);
            return Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            });
        }
    }

    /// A connection that was kept, and is open as far as is known.
    fn take(&self) -> Option<Open> {
        let mut idle = lock(&self.idle);
        idle.close_old(Instant::now());
        idle.open.pop().map(|(open, _)| open)
    }

    fn give_back(&self, open: Open) {
        let mut idle = lock(&self.idle);
        idle.open.push((open, Instant::now()));
        if idle.closer.as_ref().is_none_or(AbortHandle::is_finished) {
            let closer = tokio::spawn(close_old(Arc::downgrade(&self.idle)));
            idle.closer = Some(closer.abort_handle());
        }
    }

    async fn connect(&self) -> Result<Open, Error> {
        let prepare = |stream| async move {
            // Requests are small: one buffer costs less than a vector of parts.
            let connecting = Builder::new().writev(false).handshake(TokioIo::new(stream));
            let connected = connecting.await;
            let (sender, socket) = connected.map_err(io::Error::other)?;
            let socket = Some(Box::new(socket));
            Ok(Open { sender, socket })
        };
        self.route.connect(prepare).await
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("host", &self.route.host())
            .field("idle", &lock(&self.idle).open.len())
            .finish_non_exhaustive()
    }
}

fn told(error: &hyper::Error) -> String {
    format!("the connection broke: {error}")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::transport::{Dial, DialFuture};

    /// Connects to a service within the test.
    struct Pipe(Mutex<Option<DuplexStream>>);

    impl Dial for Pipe {
        fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
            let stream = self.0.lock().unwrap().take().unwrap();
            Box::pin(async move { Ok(Box::new(stream) as Box<dyn Stream>) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_nobody_uses_are_closed() {
        let (ours, mut service) = duplex(1 << 16);
        let dial = Arc::new(Pipe(Mutex::new(Some(ours))));
        let route = Route::new("service", 80, false, None, Some(dial), IDLE_MAX).unwrap();
        let pool = Pool::new(route, 1);
        let (answered, is_answered) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(async move {
            let mut asked = vec![0; 1_024];
            assert!(service.read(&mut asked).await.unwrap() > 0);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            service.write_all(answer).await.unwrap();
            answered.send(Instant::now()).unwrap();
            let rest = service.read_to_end(&mut asked).await.unwrap();
            (rest, Instant::now())
        });
        let request = Request::builder().uri("/").header("host", "service");
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let answer = pool.send(request, Effect::Read, Instant::now() + IDLE_MAX);
        assert_eq!(answer.await.unwrap().body, "ok");
        let (rest, closed) = serving.await.unwrap();
        let after = closed - is_answered.await.unwrap();
        assert_eq!(rest, 0);
        assert!(after >= IDLE_MAX && after < 2 * IDLE_MAX, "{after:?}");
        assert!(lock(&pool.idle).closer.is_none());
    }
}
