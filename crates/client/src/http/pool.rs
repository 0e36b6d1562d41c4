//! Connections over HTTP/1.1: made when they are needed, kept for the next request, and bounded.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::select;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::answer::Answer;
use super::exchange::Open;
use super::request::Request;
use crate::error::{Effect, Error};
use crate::transport::Route;

/// How long a connection is kept for the next request, up to twice of it. Services close them after a minute or more.
const IDLE_MAX: Duration = Duration::from_secs(30);

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
        request: &Request,
        effect: Effect,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        let asked = Instant::now();
        let not_in_time = || {
            let seconds = asked.elapsed().as_secs_f64();
            Error::later(format!(
                "the request could not be sent within {seconds:.1} s"
            ))
        };
        // A place that is free needs no timer.
        let place = match self.places.try_acquire() {
            Ok(place) => Ok(place),
            Err(_) => timeout_at(deadline, self.places.acquire())
                .await
                .map_err(|_| not_in_time())?,
        };
        let _place = place.map_err(|_| Error::later("the client was closed"))?;
        let mut open = match self.take(asked) {
            Some(open) => open,
            None => {
                let connecting = self.route.connect(|stream| ready(Ok(Open::new(stream))));
                let connected = timeout_at(deadline, connecting).await;
                let mut open = connected.map_err(|_| not_in_time())??;
                if !open.is_usable() {
                    return Err(Error::later("the service closed a new connection"));
                }
                open
            }
        };
        let began = Instant::now();
        let exchanged = select! {
            biased;
            exchanged = open.exchange(request) => exchanged,
            () = sleep_until(deadline) => return Err(Error::no_answer_within(effect, began.elapsed())),
        };
        let (answer, is_kept) = exchanged.map_err(|broken| Error::no_answer(effect, &broken))?;
        if is_kept {
            self.give_back(open);
        }
        Ok(answer)
    }

    /// A connection that was kept, and is open as far as is known.
    fn take(&self, now: Instant) -> Option<Open> {
        loop {
            let mut idle = lock(&self.idle);
            idle.close_old(now);
            let (mut open, _) = idle.open.pop()?;
            drop(idle);
            if open.is_usable() {
                return Some(open);
            }
        }
    }

    fn give_back(&self, open: Open) {
        let mut idle = lock(&self.idle);
        idle.open.push((open, Instant::now()));
        if idle.closer.as_ref().is_none_or(AbortHandle::is_finished) {
            let closer = tokio::spawn(close_old(Arc::downgrade(&self.idle)));
            idle.closer = Some(closer.abort_handle());
        }
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use std::pin::pin;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::error::ErrorKind;
    use crate::transport::{Dial, DialFuture, Stream};

    /// Connects to services within the test, one after the other.
    struct Pipes(Mutex<VecDeque<DuplexStream>>);

    impl Dial for Pipes {
        fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
            let stream = self.0.lock().unwrap().pop_front().unwrap();
            Box::pin(async move { Ok(Box::new(stream) as Box<dyn Stream>) })
        }
    }

    /// A pool, and the other ends of its connections, which hold so many bytes.
    fn pool_to<const N: usize>(size: usize) -> (Pool, [DuplexStream; N]) {
        let mut ours = VecDeque::new();
        let services = [(); N].map(|()| {
            let (one, other) = duplex(size);
            ours.push_back(one);
            other
        });
        let dial = Arc::new(Pipes(Mutex::new(ours)));
        let route = Route::new("service", 80, false, None, Some(dial), IDLE_MAX).unwrap();
        (Pool::new(route, 1), services)
    }

    fn request(body: &[u8]) -> Request {
        let request = Request::begin("PUT", "/", "service");
        request.finish(body).unwrap()
    }

    async fn send(pool: &Pool, body: &[u8]) -> Result<Answer, Error> {
        let deadline = Instant::now() + IDLE_MAX;
        pool.send(&request(body), Effect::Change, deadline).await
    }

    const EMPTY: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

    /// Reads a request without a body, and answers.
    async fn answer(service: &mut DuplexStream, answer: &[u8]) {
        let mut asked = vec![0; request(b"").bytes().len()];
        service.read_exact(&mut asked).await.unwrap();
        service.write_all(answer).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_is_used_again_if_its_answer_has_a_clear_end() {
        for (first, is_kept) in [
            (EMPTY, true),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                true,
            ),
            // Something follows it, and the next one would begin with that.
            (b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1", false),
            (
                b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
                false,
            ),
            (b"HTTP/1.0 204 No Content\r\n\r\n", false),
        ] {
            let (pool, [mut one, mut other]) = pool_to(1 << 10);
            let (sent, ()) = tokio::join!(send(&pool, b""), answer(&mut one, first));
            assert!(sent.unwrap().is_success());
            assert_eq!(lock(&pool.idle).open.len(), usize::from(is_kept));
            let next = match is_kept {
                true => &mut one,
                false => &mut other,
            };
            let (sent, ()) = tokio::join!(send(&pool, b""), answer(next, EMPTY));
            assert_eq!(sent.unwrap().status, 204);
        }
    }

    #[tokio::test]
    async fn a_request_is_not_sent_over_a_connection_that_was_closed_or_says_more() {
        for more in [&b""[..], b"HTTP/1.1 408 Request Timeout\r\n\r\n"] {
            let (pool, [mut one, mut other]) = pool_to(1 << 10);
            let (sent, ()) = tokio::join!(send(&pool, b""), answer(&mut one, EMPTY));
            sent.unwrap();
            one.write_all(more).await.unwrap();
            one.shutdown().await.unwrap();
            let (sent, ()) = tokio::join!(send(&pool, b""), answer(&mut other, EMPTY));
            assert_eq!(sent.unwrap().status, 204);
            let mut rest = Vec::new();
            one.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"");
        }
        let (pool, [one]) = pool_to(1 << 10);
        drop(one);
        let error = send(&pool, b"").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_or_not_http_leaves_the_outcome_open() {
        for bad in [
            &b""[..],
            b"HTTP/1.1 204",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            b"SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            let (pool, [mut one]) = pool_to(1 << 10);
            let service = async {
                answer(&mut one, bad).await;
                drop(one);
            };
            let (sent, ()) = tokio::join!(send(&pool, b""), service);
            let error = sent.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
            assert!(lock(&pool.idle).open.is_empty());
        }
    }

    #[tokio::test]
    async fn an_answer_ends_with_its_connection_if_it_says_nothing_else() {
        let (pool, [mut one]) = pool_to(1 << 10);
        let service = async {
            answer(&mut one, b"HTTP/1.1 200 OK\r\n\r\nall").await;
            drop(one);
        };
        let (sent, ()) = tokio::join!(send(&pool, b""), service);
        assert_eq!(sent.unwrap().body, "all");
        assert!(lock(&pool.idle).open.is_empty());
    }

    #[tokio::test]
    async fn an_answer_counts_that_comes_before_all_is_sent() {
        for reads_more in [false, true] {
            let (pool, [mut one, mut other]) = pool_to(64);
            let service = async {
                let refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
                answer(&mut one, refusal).await;
                if !reads_more {
                    drop(one);
                }
            };
            let body = [b'a'; 1 << 10];
            let (sent, ()) = tokio::join!(send(&pool, &body), service);
            assert_eq!(sent.unwrap().status, 413);
            // What is left of the request would be taken for the next one.
            let (sent, ()) = tokio::join!(send(&pool, b""), answer(&mut other, EMPTY));
            assert_eq!(sent.unwrap().status, 204);
        }
    }

    #[tokio::test]
    async fn large_requests_and_answers_go_through_a_small_pipe() {
        let (pool, [mut one]) = pool_to(100);
        let body = vec![b'a'; 300_000];
        let service = async {
            let mut asked = vec![0; request(&body).bytes().len()];
            one.read_exact(&mut asked).await.unwrap();
            assert!(asked.ends_with(&body));
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            one.write_all(head.as_bytes()).await.unwrap();
            one.write_all(&body).await.unwrap();
            answer(&mut one, EMPTY).await;
        };
        let sending = async {
            assert_eq!(send(&pool, &body).await.unwrap().body, body);
            assert_eq!(send(&pool, b"").await.unwrap().status, 204);
        };
        tokio::join!(sending, service);
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_closes_its_connection() {
        let (pool, [mut one, mut other]) = pool_to(1 << 10);
        {
            let mut sending = pin!(send(&pool, b""));
            assert!((&mut sending).now_or_never().is_none());
        }
        let mut asked = Vec::new();
        one.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, request(b"").bytes());
        let (sent, ()) = tokio::join!(send(&pool, b""), answer(&mut other, EMPTY));
        assert_eq!(sent.unwrap().status, 204);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_nobody_uses_are_closed() {
        let (pool, [mut service]) = pool_to(1 << 16);
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
        let request = Request::begin("GET", "/", "service").finish(b"").unwrap();
        let answer = pool.send(&request, Effect::Read, Instant::now() + IDLE_MAX);
        assert_eq!(answer.await.unwrap().body, "ok");
        let (rest, closed) = serving.await.unwrap();
        let after = closed - is_answered.await.unwrap();
        assert_eq!(rest, 0);
        assert!(after >= IDLE_MAX && after < 2 * IDLE_MAX, "{after:?}");
        assert!(lock(&pool.idle).closer.is_none());
    }
}
