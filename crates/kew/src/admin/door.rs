//! The administration socket: HTTP/1.1 with JSON on a Unix domain socket.
//!
//! A process that can open the socket can do everything, so only the server's own user and root can open it.
//! Nevertheless, the number, size and duration of their requests are bounded.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kew_bus_api::BusRules;
use kew_queue_api::StorageAccounts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::accept::ACCEPT_PAUSE;

use super::backup::lines;
use super::routes::{self, NoRoute, VerbName};
use super::verb::{Administrable, Asked, New, Rotation, Verb};
use super::{Act, Administered, Answer, Failure, carry_out, socket};

/// How many connections are served at once. Others wait.
const CONNECTIONS_MAX: usize = 16;

/// How large a request may be, in bytes.
const BODY_SIZE_BYTES_MAX: usize = 64 * 1024;

/// How long a connection may last, with its request and the answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);

/// The open socket. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Door {
    fn drop(&mut self) {
        // A socket file that stays does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Door {
    /// Opens the socket at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let open = || UnixListener::from_std(socket::bind(path)?);
        Ok(Self {
            listener: open().with_context(|| {
                format!("cannot open the administration socket {}", path.display())
            })?,
            path: path.to_owned(),
        })
    }

    /// Answers until the server stops. Then it finishes the requests in progress.
    pub(crate) async fn run(self, administered: Administered, mut stopping: watch::Receiver<bool>) {
        let room = Arc::new(administered);
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut serving = JoinSet::new();
        loop {
            let accept = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                accepted = accept => accepted,
                _ = stopping.wait_for(|stopping| *stopping) => break,
            };
            while serving.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    let room = Arc::clone(&room);
                    serving.spawn(async move {
                        let _permit = permit;
                        let served = serve(room, stream);
                        if tokio::time::timeout(CONNECTION_TIME_MAX, served)
                            .await
                            .is_err()
                        {
                            tracing::debug!("a connection to the administration socket timed out");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the administration socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        while serving.join_next().await.is_some() {}
    }
}

async fn serve(room: Arc<Administered>, stream: UnixStream) {
    let by = match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own_uid() => format!("uid {}", peer.uid()),
        Ok(peer) => {
            tracing::warn!(target: "audit", uid = peer.uid(), "audit: refused a connection");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read the user of a connection to the administration socket");
            return;
        }
    };
    let by = Arc::<str>::from(by);
    let service = service_fn(move |request| {
        let (room, by) = (Arc::clone(&room), Arc::clone(&by));
        async move { Ok::<_, Infallible>(answer(room, request, &by).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(10))
        .max_buf_size(16 * 1024)
        // One request a connection, so that a stop does not wait for idle connections.
        .keep_alive(false);
    let served = http.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.with_upgrades().await {
        tracing::debug!(%error, "a connection to the administration socket failed");
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

async fn answer(
    room: Arc<Administered>,
    request: Request<Incoming>,
    by: &str,
) -> Response<Full<Bytes>> {
    if request.uri().path() == lines::PATH {
        return begin_backup(&room, request, by).await;
    }
    let by = by.to_owned();
    let act = match read(request).await {
        Ok(act) => act,
        Err(refused) => return refused,
    };
    let created = act.creates();
    // In a task of its own: it runs to its end even if the client no longer waits.
    let carried = tokio::spawn(async move { carry_out(&room, act, &by).await });
    match carried.await {
        Ok(Ok(answer)) if created => json(StatusCode::CREATED, &answer),
        Ok(Ok(answer)) => json(StatusCode::OK, &answer),
        Ok(Err(failure)) => json(failure.status(), &failure),
        Err(_) => {
            let failure = Failure::new("internal", "the server panicked, which is a bug");
            json(StatusCode::INTERNAL_SERVER_ERROR, &failure)
        }
    }
}

/// A backup has a connection of its own, which lasts longer than an answer.
async fn begin_backup(
    room: &Administered,
    request: Request<Incoming>,
    by: &str,
) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return refused(NoRoute::Method("POST".into()));
    }
    let Some(backups) = &room.backups else {
        return refused(NoRoute::Path);
    };
    match backups.begin(request, by).await {
        Ok(response) => response,
        Err(failure) => json(failure.status(), &failure),
    }
}

/// The act that a request asks for.
async fn read(request: Request<Incoming>) -> Result<Act, Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let (method, query) = (&head.method, head.uri.query());
    if let Some(below) = path.strip_prefix(StorageAccounts::PATH) {
        let asked = read_asked(method, below, query, body).await?;
        return Ok(Act::Account(asked));
    }
    if let Some(below) = path.strip_prefix(BusRules::PATH) {
        let asked = read_asked(method, below, query, body).await?;
        return Ok(Act::Rule(asked));
    }
    match (path, method) {
        ("/v1/bus/config", &Method::GET) => Ok(Act::ExportBus),
        ("/v1/damage", &Method::GET) => Ok(Act::ListDamage),
        ("/v1/bus/config" | "/v1/damage", _) => Err(refused(NoRoute::Method("GET".into()))),
        _ => Err(refused(NoRoute::Path)),
    }
}

/// The same for a path below that of a kind.
async fn read_asked<K: Administrable>(
    method: &Method,
    below: &str,
    query: Option<&str>,
    body: Incoming,
) -> Result<Asked<K>, Response<Full<Bytes>>> {
    let (verb, name) = routes::find(method, below).map_err(refused)?;
    let (scope, removal) = read_query::<K>(query).ok_or_else(|| {
        let text = format!("the query is not {}=VALUE", K::PARAMETER);
        json(StatusCode::BAD_REQUEST, &Failure::new("invalid", text))
    })?;
    let verb = match verb {
        VerbName::List => Verb::List,
        VerbName::Add => Verb::Add(read_new::<K>(parse(body).await?).map_err(unreadable)?),
        VerbName::Show => Verb::Show { name },
        VerbName::Keys => Verb::Keys { name },
        VerbName::Rotate => {
            let Rotation { key } = parse(body).await?;
            Verb::Rotate { name, key }
        }
        VerbName::Set => Verb::Set {
            name,
            settings: parse(body).await?,
        },
        VerbName::Remove => Verb::Remove { name, removal },
    };
    Ok(Asked { scope, verb })
}

fn read_query<K: Administrable>(query: Option<&str>) -> Option<(K::Scope, K::Removal)> {
    let value = match query {
        None | Some("") => None,
        Some(query) => Some(query.strip_prefix(K::PARAMETER)?.strip_prefix('=')?),
    };
    K::of_parameter(value.map(routes::decoded).as_deref())
}

/// Reads a principal to add: its name, maybe a key, and its settings.
fn read_new<K: Administrable>(
    mut fields: Map<String, Value>,
) -> Result<New<K::Settings>, serde_json::Error> {
    let mut take = |name| fields.remove(name).unwrap_or_default();
    Ok(New {
        name: serde_json::from_value(take("name"))?,
        key: serde_json::from_value(take("key"))?,
        settings: serde_json::from_value(Value::Object(fields))?,
    })
}

async fn parse<T: DeserializeOwned>(body: Incoming) -> Result<T, Response<Full<Bytes>>> {
    let read = Limited::new(body, BODY_SIZE_BYTES_MAX).collect().await;
    let Ok(body) = read else {
        return Err(json(
            StatusCode::PAYLOAD_TOO_LARGE,
            &Failure::new(
                "invalid",
                format!("the request is incomplete or larger than {BODY_SIZE_BYTES_MAX} bytes"),
            ),
        ));
    };
    serde_json::from_slice(&body.to_bytes()).map_err(unreadable)
}

/// The text of the error may repeat its input, which may be a key. So the answer has only the position.
fn unreadable(error: serde_json::Error) -> Response<Full<Bytes>> {
    let place = match (error.line(), error.column()) {
        (0, _) => String::new(),
        (line, column) => format!(", at line {line}, column {column}"),
    };
    let text = format!("the request is not the expected JSON{place}");
    json(StatusCode::BAD_REQUEST, &Failure::new("invalid", text))
}

fn refused(why: NoRoute) -> Response<Full<Bytes>> {
    match why {
        NoRoute::Path => {
            let failure = Failure::new("no-such-path", "there is no such path");
            json(StatusCode::NOT_FOUND, &failure)
        }
        NoRoute::Method(allowed) => {
            let failure = Failure::new("method", format!("the path accepts only {allowed}"));
            let mut response = json(StatusCode::METHOD_NOT_ALLOWED, &failure);
            let allowed = HeaderValue::try_from(allowed).expect("names of methods are ASCII");
            response.headers_mut().insert(ALLOW, allowed);
            response
        }
    }
}

fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let bytes = serde_json::to_vec(body).expect("plain structures can be written as JSON");
    let mut response = Response::new(Full::new(bytes.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reads an answer, for a client.
pub(super) fn read_answer(status: u16, body: &[u8]) -> Result<Result<Answer, Failure>> {
    let read = if (200..300).contains(&status) {
        serde_json::from_slice(body).map(Ok)
    } else {
        serde_json::from_slice(body).map(Err)
    };
    read.with_context(|| format!("the server's answer with status {status} cannot be read"))
}
