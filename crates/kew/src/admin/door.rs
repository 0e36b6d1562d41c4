//! The door of the administration: HTTP/1.1 with JSON on a Unix domain socket.
//!
//! Whoever may open the socket may do everything, so only the server's own user and root may. What
//! they send is bounded in size, number and time all the same.

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
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::accept::ACCEPT_PAUSE;

use super::bus::{NewRule, RuleAct};
use super::{Act, Administered, Answer, Failure, NewAccount, carry_out, socket};

/// How many connections are served at once; others wait.
const CONNECTIONS_MAX: usize = 16;

/// How large a request may be, in bytes.
const BODY_SIZE_BYTES_MAX: usize = 64 * 1024;

/// How long a connection may last, with its request and the answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);

/// The socket, open to whoever may administer. It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Door {
    fn drop(&mut self) {
        // Left there it would do no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Door {
    /// Opens the socket at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let open = || UnixListener::from_std(socket::bind(path)?);
        Ok(Self {
            listener: open().with_context(|| {
                format!(
                    "cannot open the socket for administration {}",
                    path.display()
                )
            })?,
            path: path.to_owned(),
        })
    }

    /// Answers until the server stops, and then what is under way.
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
                            tracing::debug!("a connection to the administration took too long");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the administration");
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
            tracing::warn!(%error, "cannot tell who connects to the administration");
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
        // One request a connection, so that a stop need not wait for idle ones.
        .keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to the administration failed");
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
    let by = by.to_owned();
    let act = match read(request).await {
        Ok(act) => act,
        Err(refused) => return refused,
    };
    let created = matches!(
        act,
        Act::AddAccount(_)
            | Act::Rule {
                what: RuleAct::Add(_),
                ..
            }
    );
    // In a task of its own: what was begun is ended though nobody waits for it any more.
    let carried = tokio::spawn(async move { carry_out(&room, act, &by).await });
    match carried.await {
        Ok(Ok(answer)) if created => json(StatusCode::CREATED, &answer),
        Ok(Ok(answer)) => json(StatusCode::OK, &answer),
        Ok(Err(failure)) => json(status(&failure), &failure),
        Err(_) => {
            let failure = Failure::new("internal", "the server panicked, which is a bug");
            json(StatusCode::INTERNAL_SERVER_ERROR, &failure)
        }
    }
}

fn status(failure: &Failure) -> StatusCode {
    match &*failure.error {
        "invalid" | "well-known" => StatusCode::BAD_REQUEST,
        "not-found" => StatusCode::NOT_FOUND,
        "exists" | "not-empty" | "refused" => StatusCode::CONFLICT,
        "busy" | "stopped" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What a request asks for: the table of all routes.
async fn read(request: Request<Incoming>) -> Result<Act, Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().trim_start_matches('/');
    let segments: Vec<&str> = path.split('/').collect();
    let method = &head.method;
    match *segments {
        ["v1", "accounts"] => match *method {
            Method::GET => Ok(Act::ListAccounts),
            Method::POST => Ok(Act::AddAccount(parse::<NewAccount>(body).await?)),
            _ => Err(not_allowed("GET, POST")),
        },
        ["v1", "accounts", name] => match *method {
            Method::PATCH => Ok(Act::ChangeAccount {
                name: name.into(),
                change: parse(body).await?,
            }),
            Method::DELETE => Ok(Act::RemoveAccount {
                name: name.into(),
                with_queues: with_queues(head.uri.query())
                    .map_err(|failure| json(StatusCode::BAD_REQUEST, &failure))?,
            }),
            _ => Err(not_allowed("DELETE, PATCH")),
        },
        ["v1", "accounts", name, "rotate"] => match *method {
            Method::POST => Ok(Act::RotateKey {
                name: name.into(),
                key: parse::<super::Rotation>(body).await?.key,
            }),
            _ => Err(not_allowed("POST")),
        },
        ["v1", "bus", "config"] => match *method {
            Method::GET => Ok(Act::ExportBus),
            _ => Err(not_allowed("GET")),
        },
        ["v1", "bus", "rules", ref rest @ ..] => {
            let entity = entity(head.uri.query())
                .map_err(|failure| json(StatusCode::BAD_REQUEST, &failure))?;
            let what = read_rule(method, rest, body).await?;
            Ok(Act::Rule { entity, what })
        }
        _ => Err(no_such_path()),
    }
}

/// The routes below `/v1/bus/rules`.
async fn read_rule(
    method: &Method,
    path: &[&str],
    body: Incoming,
) -> Result<RuleAct, Response<Full<Bytes>>> {
    let decoded = |name: &str| percent_decode_str(name).decode_utf8_lossy().into_owned();
    match *path {
        [] => match *method {
            Method::GET => Ok(RuleAct::List),
            Method::POST => Ok(RuleAct::Add(parse::<NewRule>(body).await?)),
            _ => Err(not_allowed("GET, POST")),
        },
        [name] => match *method {
            Method::DELETE => Ok(RuleAct::Remove {
                name: decoded(name),
            }),
            _ => Err(not_allowed("DELETE")),
        },
        [name, "keys"] => match *method {
            Method::GET => Ok(RuleAct::Keys {
                name: decoded(name),
            }),
            _ => Err(not_allowed("GET")),
        },
        [name, "regenerate"] => match *method {
            Method::POST => Ok(RuleAct::Regenerate {
                name: decoded(name),
                key: parse::<super::Rotation>(body).await?.key,
            }),
            _ => Err(not_allowed("POST")),
        },
        _ => Err(no_such_path()),
    }
}

fn no_such_path() -> Response<Full<Bytes>> {
    let failure = Failure::new("no-such-path", "there is nothing of that path");
    json(StatusCode::NOT_FOUND, &failure)
}

/// The queue whose rules are meant, if not those of the namespace.
fn entity(query: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(None);
    };
    let wrong = || Failure::new("invalid", "the query is not entity=NAME");
    let name = query.strip_prefix("entity=").ok_or_else(wrong)?;
    let name = percent_decode_str(name)
        .decode_utf8()
        .map_err(|_| wrong())?;
    Ok(Some(name.into_owned()))
}

fn with_queues(query: Option<&str>) -> Result<bool, Failure> {
    match query {
        None | Some("" | "with_queues=false") => Ok(false),
        Some("with_queues=true") => Ok(true),
        Some(_) => Err(Failure::new(
            "invalid",
            "the query is not with_queues=true or with_queues=false",
        )),
    }
}

async fn parse<T: DeserializeOwned>(body: Incoming) -> Result<T, Response<Full<Bytes>>> {
    let read = Limited::new(body, BODY_SIZE_BYTES_MAX).collect().await;
    let Ok(body) = read else {
        return Err(json(
            StatusCode::PAYLOAD_TOO_LARGE,
            &Failure::new(
                "invalid",
                format!("the request is cut off, or above {BODY_SIZE_BYTES_MAX} bytes"),
            ),
        ));
    };
    serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        // Its text may repeat what was sent, and that may be a key: its place must do.
        let (line, column) = (error.line(), error.column());
        json(
            StatusCode::BAD_REQUEST,
            &Failure::new(
                "invalid",
                format!(
                    "the request is not the JSON that is wanted, at line {line}, column {column}"
                ),
            ),
        )
    })
}

fn not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let failure = Failure::new("method", format!("the path takes {allowed}"));
    let mut response = json(StatusCode::METHOD_NOT_ALLOWED, &failure);
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let bytes = serde_json::to_vec(body).expect("plain structures can be written as JSON");
    let mut response = Response::new(Full::new(bytes.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reads an answer, as a client does.
pub(super) fn read_answer(status: u16, body: &[u8]) -> Result<Result<Answer, Failure>> {
    let read = if (200..300).contains(&status) {
        serde_json::from_slice(body).map(Ok)
    } else {
        serde_json::from_slice(body).map(Err)
    };
    read.with_context(|| format!("the server's answer with status {status} cannot be read"))
}
