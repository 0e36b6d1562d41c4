//! A service that answers every request with its target, and the limits of its connections.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Request, Response, StatusCode};
use kew_http_front::{
    Activity, Answer, BodyLimits, Event, FarewellLimits, Front, Limits, Refusal, Service, Switched,
    read, serve,
};
use kew_listen::{Place, Share};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::task::JoinHandle;

pub(crate) const LIMITS: Limits = Limits {
    in_flight_size_bytes_max: 100_000,
    unproven_heads_size_bytes_max: 80_000,
    head_size_bytes_max: 128 << 10,
    header_count_max: 10,
    head_timeout: Duration::from_secs(20),
    write_timeout: Duration::from_secs(60),
    keep_alive: Duration::from_secs(180),
    unproven_keep_alive: Duration::from_secs(30),
    turn_requests_max: 2,
    farewell: FarewellLimits {
        timeout: Duration::from_secs(2),
        size_bytes_max: 10_000,
    },
    body: BodyLimits {
        size_bytes_max: 1000,
        timeout: Duration::from_secs(60),
        discarded_size_bytes_max: 2000,
    },
};

/// What happened on all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

struct Plain {
    front: Arc<Front>,
    place: Place,
    told: Told,
}

/// Connections to the service.
pub(crate) struct Server {
    front: Arc<Front>,
    places: Share,
    pub(crate) told: Told,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            front: Arc::new(Front::new(LIMITS)),
            places: Share::alone(1000),
            told: Told::default(),
        }
    }

    /// The size of a connection's task, without what it allocates.
    pub(crate) fn size_bytes_of_connection(&self) -> usize {
        let service = self.service();
        let (_, theirs) = tokio::io::duplex(1);
        size_of_val(&serve(&service, theirs, std::future::pending()))
    }

    fn service(&self) -> Plain {
        Plain {
            front: Arc::clone(&self.front),
            place: self.places.take(Ipv4Addr::LOCALHOST.into()).unwrap(),
            told: self.told.clone(),
        }
    }

    pub(crate) fn connect(&self) -> (DuplexStream, JoinHandle<Option<Switched<DuplexStream>>>) {
        self.connect_until(std::future::pending())
    }

    pub(crate) fn connect_until(
        &self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> (DuplexStream, JoinHandle<Option<Switched<DuplexStream>>>) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let service = self.service();
        let serving = tokio::spawn(async move { serve(&service, theirs, shutdown).await });
        (ours, serving)
    }
}

/// Everything that the server sends.
pub(crate) async fn rest(stream: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    // A cut is an end too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

impl Service for Plain {
    type Spelling = ();

    fn front(&self) -> &Front {
        &self.front
    }

    fn place(&self) -> &Place {
        &self.place
    }

    /// A request with the header `known` is authentic. `/switch` ends HTTP.
    async fn answer(
        &self,
        request: Request<Incoming>,
        (): (),
        activity: &Activity<'_, ()>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        self.told.add(format!("asked {}", head.uri));
        if head.headers.contains_key("known") {
            activity.prove();
        }
        if head.uri.path() == "/switch" {
            let mut answer = Response::new(Full::default());
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let upgrade = HeaderValue::from_static("upgrade");
            answer.headers_mut().insert(CONNECTION, upgrade);
            return answer;
        }
        let share = self.front.budget.share();
        let read = read(body, &head.headers, &self.front.limits.body, share).await;
        let (status, text) = match read.result {
            Ok(body) => (StatusCode::OK, format!("{} {}", head.uri, body.len())),
            Err(error) => (StatusCode::BAD_REQUEST, format!("{error:?}")),
        };
        let mut answer = Response::new(Full::new(Bytes::from(text)));
        *answer.status_mut() = status;
        answer
    }

    fn refuse_unsound(&self, _: Request<Incoming>) -> Answer {
        let mut answer = Response::new(Full::new(Bytes::from_static(b"unsound")));
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        answer
    }

    fn refusal(&self, why: Refusal) -> Vec<u8> {
        let (status, text) = match why {
            Refusal::Crowded => (StatusCode::SERVICE_UNAVAILABLE, "crowded"),
            Refusal::InvalidHead(status) => (status, "invalid"),
        };
        let length = text.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}").into_bytes()
    }

    fn note(&self, event: Event<'_>) {
        match event {
            Event::TurnCut => self.told.add("turn cut".to_owned()),
            Event::Turn(_) => {}
            Event::Overdue(overdue) => self.told.add(format!("overdue {overdue:?}")),
            Event::Failed(_) => self.told.add("failed".to_owned()),
        }
    }
}
