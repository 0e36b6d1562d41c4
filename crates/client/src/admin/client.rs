//! The client of management, and how it sends requests. `entities` has its operations on entities.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::description::NamespaceInfo;
use super::path::Place;
use super::read::{self, BadAnswer};
use super::request::{Operation, Shared};
use crate::connection_string::BusNamespace;
use crate::credential::BusCredential;
use crate::error::{Effect, Error};
use crate::http::answer::Answer;
use crate::http::pool::Pool;
use crate::http::request::is_method;
use crate::http::tokens::Tokens;
use crate::http::xml::Element;
use crate::retry::Retry;
use crate::transport::{Dial, Route};

/// What bearer tokens are asked for.
const SCOPE: &str = "https://servicebus.azure.net/.default";

/// How management behaves, and what bounds it.
#[derive(Clone)]
pub struct AdminOptions {
    /// How long an operation may take, with all its tries. Default 60 s, or what the connection string says.
    pub timeout: Option<Duration>,
    /// How long a connection may take to be made. Default 30 s.
    pub connect_timeout: Duration,
    /// When an operation is tried again.
    pub retry: Retry,
    /// Requests under way, each on a connection of its own. One more waits. Default 8.
    pub connections_max: usize,
    /// Certificate authorities to be trusted beside those of the system, in PEM.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// What makes connections in place of TCP.
    pub dial: Option<Arc<dyn Dial>>,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            connect_timeout: Duration::from_secs(30),
            retry: Retry::default(),
            connections_max: 8,
            extra_roots_pem: None,
            dial: None,
        }
    }
}

impl std::fmt::Debug for AdminOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminOptions")
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// Management of the queues, topics, subscriptions and rules of one namespace. It is cheap to clone, and clones share their connections.
///
/// A change that was sent and not answered has an unknown outcome, and is not sent again: read the entity to find
/// out. To drop the future of an operation closes its connection, and leaves the outcome open as well.
#[derive(Clone, Debug)]
pub struct BusAdmin {
    shared: Arc<Shared>,
}

/// The answer to [`BusAdmin::ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// Its status, such as 200.
    pub status: u16,
    /// Its body, whatever that is.
    pub body: Bytes,
}

impl BusAdmin {
    /// Management of a namespace. Nothing is connected yet.
    ///
    /// Fails if TLS cannot be set up, for example because `extra_roots_pem` has no certificate.
    pub fn new(namespace: BusNamespace, options: AdminOptions) -> Result<Self, Error> {
        let port = namespace.http_port();
        let route = Route::new(
            namespace.host(),
            port,
            namespace.is_tls(),
            options.extra_roots_pem.as_deref(),
            options.dial,
            options.connect_timeout,
        )?;
        let default_port = if namespace.is_tls() { 443 } else { 80 };
        let authority = match port == default_port {
            true => namespace.host().to_owned(),
            false => format!("{}:{port}", namespace.host()),
        };
        let tokens = match namespace.credential() {
            BusCredential::Bearer(source) => Some(Tokens::new(source.clone(), SCOPE)),
            BusCredential::Rule(_) | BusCredential::Signature(_) => None,
        };
        let timeout = options.timeout.or(namespace.timeout());
        let shared = Shared {
            authority,
            pool: Pool::new(route, options.connections_max),
            tokens,
            timeout: timeout.unwrap_or(Duration::from_secs(60)),
            retry: options.retry,
            namespace,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Reads what the service says of the namespace.
    pub async fn namespace(&self) -> Result<NamespaceInfo, Error> {
        let read = Operation::read(Place::of_namespace("$namespaceinfo"));
        let answer = self.call(&read).await?;
        let info = read::namespace(&answer.body);
        info.map_err(|bad| error_of_answer(bad, read.effect))
    }

    /// Sends a request that this crate does not know, signed for the whole namespace, and returns the answer of any
    /// status: for interfaces that a service has beside management.
    ///
    /// `target` is a path and perhaps a query, without the slash before it and encoded already; `json` is the body. A
    /// `GET` is tried again if the service is busy or cannot be reached. Anything else counts as a change: if it was
    /// sent and not answered, its outcome is unknown.
    pub async fn ask(
        &self,
        method: &str,
        target: &str,
        json: Option<Bytes>,
    ) -> Result<RawAnswer, Error> {
        let body = json.map(|json| ("application/json", json));
        let deadline = Instant::now() + self.shared.timeout;
        self.asked((method, target), &body, deadline).await
    }

    /// The same with a body of another type: its media type, and its bytes.
    ///
    /// Whatever the method is, the request is sent again while the service is busy (429 or 503), because then it has
    /// done nothing. The last such answer is returned.
    pub async fn ask_with(
        &self,
        method: &str,
        target: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<RawAnswer, Error> {
        let shared = &self.shared;
        let deadline = Instant::now() + shared.timeout;
        let mut failures = 0;
        loop {
            let answer = self.asked((method, target), &body, deadline).await?;
            if !matches!(answer.status, 429 | 503) {
                return Ok(answer);
            }
            failures += 1;
            let busy = Error::of_management(answer.status, None, "it is busy", Effect::Change);
            if shared.retry.pause(busy, failures, deadline).await.is_err() {
                return Ok(answer);
            }
        }
    }

    async fn asked(
        &self,
        (method, target): (&str, &str),
        body: &Option<(&str, Bytes)>,
        deadline: Instant,
    ) -> Result<RawAnswer, Error> {
        let shared = &self.shared;
        if !is_method(method) {
            return Err(Error::refused("the method is none of HTTP"));
        }
        let effect = match method == "GET" {
            true => Effect::Read,
            false => Effect::Change,
        };
        let attempt = || async {
            let audience = format!("sb://{}/", shared.namespace.host());
            let mut request = shared.begun(method, target, &audience).await?;
            request = request.header("accept", "application/json");
            let mut bytes: &[u8] = &[];
            if let Some((media_type, body)) = body {
                request = request.header("content-type", media_type);
                bytes = body;
            }
            let request = request.finish(bytes)?;
            let answer = shared.pool.send(&request, effect, deadline).await?;
            match (effect, answer.status) {
                (Effect::Read, 429 | 503) => Err(error_of(&answer, effect)),
                (Effect::Read | Effect::Change, status) => Ok(RawAnswer {
                    status,
                    body: answer.body,
                }),
            }
        };
        shared.retry.run(deadline, attempt).await
    }

    pub(super) fn host(&self) -> &str {
        self.shared.namespace.host()
    }

    /// Sends a request until it succeeds, or fails in a way that another try does not change.
    pub(super) async fn call(&self, operation: &Operation) -> Result<Answer, Error> {
        let shared = &self.shared;
        let deadline = Instant::now() + shared.timeout;
        let attempt = || async {
            let request = shared.signed(operation).await?;
            let answer = shared.pool.send(&request, operation.effect, deadline);
            let answer = answer.await?;
            match answer.is_success() {
                true => Ok(answer),
                false => Err(error_of(&answer, operation.effect)),
            }
        };
        shared.retry.run(deadline, attempt).await
    }
}

/// An answer with success that is not what was asked for.
pub(super) fn error_of_answer(bad: BadAnswer, effect: Effect) -> Error {
    match (bad, effect) {
        (BadAnswer::NoEntity(what), Effect::Read) => Error::no_such_entity(what),
        (BadAnswer::NoEntity(what) | BadAnswer::Unreadable(what), effect) => {
            let text = format!("the service answered with success and sent {what}");
            match effect {
                Effect::Change => Error::unknown(text),
                Effect::Read => Error::refused(text),
            }
        }
    }
}

/// The error in an answer: `<Error><Code>409</Code><Detail>SubCode=40900. …`.
fn error_of(answer: &Answer, effect: Effect) -> Error {
    let root = Element::parse(&answer.body).ok();
    let root = root.filter(|root| root.local_name() == "Error");
    let detail = root.as_ref().and_then(|root| read::text_of(root, "Detail"));
    let detail = detail.unwrap_or("the service gave no explanation");
    let told = detail.strip_prefix("SubCode=");
    let told = told.and_then(|told| told.split_once('.'));
    let (sub_code, text) = match told {
        Some((sub_code, text)) => (Some(sub_code.trim()), text.trim()),
        None => (None, detail),
    };
    let sub_code = sub_code.filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
    Error::of_management(answer.status, sub_code, text, effect)
}
