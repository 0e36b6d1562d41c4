//! Pages for operators: metrics and health.
//!
//! Metrics need no credential, and name accounts and queues. So the protocol's listeners show them
//! to this machine only. A separate listener, which serves nothing else, shows them to others.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kew_http_front::Connection;
use kew_listen::ServerNames;
use kew_metrics::{Family, Format, Unit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api::{QueueApi, Shared};
use crate::health;
use crate::limits::Limits;
use crate::origin::Origin;
use crate::reply::Reply;
use crate::request::host;

const PATH: &str = "/metrics";

/// How long the partition may take to report its queues. After that a page is shown without them.
const PARTITION_PATIENCE: Duration = Duration::from_secs(3);

/// How long a page may wait for earlier ones: they are made one at a time.
const PAGE_PATIENCE: Duration = Duration::from_secs(5);

/// Headers with which a proxy marks forwarded requests.
const FORWARDED: [&str; 3] = ["forwarded", "via", "x-real-ip"];

/// The options for metrics and health.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// How many queues have metrics of their own: those with the most messages. The others are
    /// added up.
    pub metrics_queues_max: usize,
    /// The shortest duration of a request that is logged as slow; `None` logs none.
    pub slow_request: Option<Duration>,
    /// The directory of the messages, to report the free space of its disk.
    pub data_dir: Option<PathBuf>,
    /// When the process started.
    pub started: SystemTime,
    /// The counters of other parts of the process.
    pub others: Vec<OtherMetrics>,
}

/// Metrics of another part of the process, made anew for each page.
#[derive(Clone)]
pub struct OtherMetrics(Arc<dyn Fn() -> Vec<Family> + Send + Sync>);

impl OtherMetrics {
    /// Metrics that a function makes. It must not block.
    pub fn new(make: impl Fn() -> Vec<Family> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl fmt::Debug for OtherMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtherMetrics")
    }
}

impl Default for OperatorOptions {
    /// 100 queues, no slow requests, nothing on disk, started now.
    fn default() -> Self {
        Self {
            metrics_queues_max: 100,
            slow_request: None,
            data_dir: None,
            started: SystemTime::now(),
            others: Vec::new(),
        }
    }
}

/// Which clients can reach a listener for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only this machine.
    Loopback,
    /// Other machines too: the operator opened it to them, so metrics are shown under any name.
    Anywhere,
}

impl Reach {
    fn admits(self, names: &ServerNames, head: &Parts) -> bool {
        match self {
            Self::Loopback => names_this_server(names, head),
            Self::Anywhere => true,
        }
    }
}

/// The answer to a request for metrics under another name.
const NOT_BY_THIS_NAME: &str = "metrics are shown here only if the Host of the request is localhost, a \
     loopback address, a name in the server's certificate, or one that was given with --server-name\n";

/// The limits for requests for metrics.
#[derive(Debug)]
pub(crate) struct Bounds {
    pages: Semaphore,
    connections: Semaphore,
}

impl Bounds {
    pub(crate) fn new(limits: &Limits) -> Self {
        let connections_max = limits.operator_connections_max;
        Self {
            pages: Semaphore::new(1),
            connections: Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)),
        }
    }
}

/// Whether the request has the form of one for metrics or health. The paths could also name queues
/// or accounts, but requests for those have a query.
pub(crate) fn is_own(head: &Parts) -> bool {
    is_read(head) && (head.uri.path() == PATH || head.uri.path().starts_with("/health/"))
}

fn is_read(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD) && head.uri.query().is_none()
}

/// Whether the client is on this machine, as far as Kew can tell.
///
/// A page in a local browser does not count: it uses a name that it made point to this machine.
fn is_local(names: &ServerNames, origin: &Origin, head: &Parts) -> bool {
    let is_forwarded = head.headers.keys().any(|name| {
        let name = name.as_str();
        FORWARDED.contains(&name) || name.starts_with("x-forwarded-")
    });
    origin.peer.ip().to_canonical().is_loopback() && !is_forwarded && names_this_server(names, head)
}

/// Whether the host in the request is a name of this server that only this machine can have.
fn names_this_server(names: &ServerNames, head: &Parts) -> bool {
    host(head).is_ok_and(|host| names.admits_public_key(host))
}

/// Answers `GET /metrics` of clients on this machine, and nothing else.
pub(crate) async fn answer(shared: &Arc<Shared>, origin: &Origin, head: &Parts) -> Option<Reply> {
    if head.uri.path() != PATH || !is_read(head) || !is_local(&shared.names, origin, head) {
        return None;
    }
    Some(metrics(shared, head).await)
}

async fn metrics(shared: &Arc<Shared>, head: &Parts) -> Reply {
    let accepts = head.headers.get_all(ACCEPT).iter();
    let accepts: Vec<&str> = accepts.filter_map(|it| it.to_str().ok()).collect();
    let format = Format::accepted(&accepts.join(","));
    match page(shared, format).await {
        Some(page) => Reply::page(format.content_type(), page).with_no_cache(),
        None => Reply::text(StatusCode::SERVICE_UNAVAILABLE, "busy\n"),
    }
}

/// The page, made outside of the partition's thread; `None` if too many are requested.
async fn page(shared: &Arc<Shared>, format: Format) -> Option<Bytes> {
    let permit = timeout(PAGE_PATIENCE, shared.bounds.pages.acquire()).await;
    let _permit = permit.ok()?.ok()?;
    let queues_max = shared.operator.metrics_queues_max;
    let mut families = shared.broker.metrics(queues_max, PARTITION_PATIENCE).await;
    let shared = Arc::clone(shared);
    let made = tokio::task::spawn_blocking(move || {
        families.extend(shared.instruments.families(shared.places.count()));
        let others = shared.operator.others.iter();
        families.extend(others.flat_map(|other| (other.0)()));
        families.extend(own_families(&shared.operator));
        Bytes::from(kew_metrics::page_in(families, format))
    });
    made.await.ok()
}

fn own_families(options: &OperatorOptions) -> Vec<Family> {
    let free = options
        .data_dir
        .as_deref()
        .and_then(kew_metrics::disk_free_bytes);
    let disk = Family::gauge(
        "kew_disk_free",
        Unit::Bytes,
        "Free space on the disk that holds the messages",
    );
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let mut families = kew_metrics::process(options.started);
    families.push(match free {
        Some(free) => disk.count(Vec::new(), free),
        None => disk,
    });
    families.push(
        Family::gauge(
            "kew_build_info",
            Unit::None,
            "Always 1, with the version of the server as label",
        )
        .count(version, 1),
    );
    families
}

impl QueueApi {
    /// Serves one connection of a listener for operators: `GET /metrics`, `/health/live` and
    /// `/health/ready` for any client, and nothing else. The limits bound how many are served at
    /// once; each ends after one answer, or when its time is over. If only this machine can
    /// connect, requests for `/metrics` must use a name of this server: a web page may have another
    /// name point here.
    pub async fn serve_operator_connection<IO, S>(&self, io: IO, reach: Reach, shutdown: S)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let shared = &self.0;
        let Ok(_permit) = shared.bounds.connections.try_acquire() else {
            return;
        };
        let service = service_fn(|request: hyper::Request<Incoming>| async move {
            let (head, _) = request.into_parts();
            Ok::<_, Infallible>(answer_operator(shared, reach, &head).await)
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(10))
            .keep_alive(false)
            .max_headers(64)
            .max_buf_size(16 * 1024);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let mut shutdown = pin!(shutdown);
        let serve = async {
            tokio::select! {
                biased;
                result = &mut connection => return result,
                () = &mut shutdown => connection.as_mut().graceful_shutdown(),
            }
            connection.await
        };
        if let Ok(Err(error)) = timeout(shared.limits.operator_timeout, serve).await {
            tracing::debug!(%error, "connection for metrics failed");
        }
    }
}

async fn answer_operator(
    shared: &Arc<Shared>,
    reach: Reach,
    head: &Parts,
) -> Response<Full<Bytes>> {
    let reply = if !matches!(head.method, Method::GET | Method::HEAD) {
        Reply::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n")
    } else if head.uri.path() == PATH && !reach.admits(&shared.names, head) {
        Reply::text(StatusCode::FORBIDDEN, NOT_BY_THIS_NAME)
    } else if head.uri.path() == PATH {
        metrics(shared, head).await
    } else if let Some(reply) = health::answer(&shared.broker, head) {
        reply
    } else {
        Reply::text(StatusCode::NOT_FOUND, "see /metrics and /health/ready\n")
    };
    reply.into_answered(Connection::Reusable).response
}
