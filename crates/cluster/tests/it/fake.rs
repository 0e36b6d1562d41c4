//! The API of Kubernetes, as far as the scale sub-resource of one deployment needs it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) const SCALE: &str = "/apis/apps/v1/namespaces/billing/deployments/worker/scale";
pub(crate) const TOKEN: &str = "the-token";

/// What goes wrong with the next request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It is refused, and the text is the whole answer.
    Answer(u16, String),
    /// The connection ends before an answer.
    Lost,
    /// The connection ends after the change, and before the answer.
    LostAfter,
    /// There is never an answer.
    Silence,
    /// Somebody else changes the deployment before.
    Changed,
}

/// A deployment, and what was asked.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// `None` if there is no such deployment.
    pub(crate) wanted: Option<i64>,
    pub(crate) present: i64,
    version: u64,
    pub(crate) faults: VecDeque<Fault>,
    /// Method and path with the query, and the body.
    pub(crate) requests: Vec<(String, String)>,
}

/// It ends when it is dropped.
pub(crate) struct FakeApi {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl FakeApi {
    pub(crate) async fn start(wanted: i64, present: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            wanted: Some(wanted),
            present,
            version: 100,
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(connection(stream, shared.clone()));
            }
        });
        Self {
            address,
            state,
            serving,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "fake", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "agent", "user": {"token": TOKEN}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "fake", "user": "agent", "namespace": "billing"}},
                {"name": "elsewhere", "context": {"cluster": "fake", "user": "agent", "namespace": "other"}},
            ],
        })
        .to_string()
    }
}

async fn connection(stream: TcpStream, state: Arc<Mutex<State>>) {
    let answer = |request: Request<Incoming>| {
        let state = state.clone();
        async move {
            match answer(request, &state).await {
                Some(answer) => Ok::<_, std::io::Error>(answer),
                None => Err(std::io::Error::other("the connection is lost")),
            }
        }
    };
    let serving = hyper::server::conn::http1::Builder::new();
    let _ = serving
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

/// `None` ends the connection.
async fn answer(request: Request<Incoming>, state: &Mutex<State>) -> Option<Response<Full<Bytes>>> {
    let method = request.method().clone();
    let path = request.uri().to_string();
    let authorization = request.headers().get("authorization").cloned();
    let content_type = request.headers().get("content-type").cloned();
    let body = request.into_body().collect().await.ok()?.to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let fault = {
        let mut state = state.lock().unwrap();
        state
            .requests
            .push((format!("{method} {path}"), body.clone()));
        state.faults.pop_front()
    };
    match fault {
        Some(Fault::Lost) => return None,
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Answer(code, text)) => return Some(response(code, text)),
        Some(Fault::Changed) => {
            let mut state = state.lock().unwrap();
            state.version += 1;
        }
        Some(Fault::LostAfter) | None => {}
    }
    if authorization.is_none_or(|it| it != format!("Bearer {TOKEN}")) {
        return Some(failure(401, "Unauthorized", "Unauthorized"));
    }
    let mut state = state.lock().unwrap();
    let path = path.split('?').next().unwrap();
    if path != SCALE || state.wanted.is_none() {
        return Some(failure(
            404,
            "NotFound",
            "deployments.apps \"worker\" not found",
        ));
    }
    if method == Method::PATCH {
        assert_eq!(content_type.unwrap(), "application/merge-patch+json");
        let patch: Value = serde_json::from_str(&body).unwrap();
        let version = patch.pointer("/metadata/resourceVersion");
        let present = Value::from(state.version.to_string());
        if version.is_some_and(|it| *it != present) {
            let what = "Operation cannot be fulfilled on deployments.apps \"worker\": the object has been modified; \
                        please apply your changes to the latest version and try again";
            return Some(failure(409, "Conflict", what));
        }
        state.wanted = Some(patch.pointer("/spec/replicas").unwrap().as_i64().unwrap());
        state.version += 1;
    }
    match fault {
        Some(Fault::LostAfter) => None,
        _ => Some(response(200, scale(&state).to_string())),
    }
}

/// As the API writes it: a 0 is left out of the specification.
fn scale(state: &State) -> Value {
    let mut spec = json!({});
    if let Some(wanted) = state.wanted.filter(|it| *it != 0) {
        spec["replicas"] = json!(wanted);
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "worker", "namespace": "billing", "uid": "6f4d9f3e-0000-4000-8000-000000000000",
            "resourceVersion": state.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
        "status": {"replicas": state.present, "selector": "app=worker"},
    })
}

pub(crate) fn failure_text(code: u16, reason: &str, message: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
    .to_string()
}

fn failure(code: u16, reason: &str, message: &str) -> Response<Full<Bytes>> {
    response(code, failure_text(code, reason, message))
}

fn response(code: u16, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
