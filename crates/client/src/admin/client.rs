//! The operations of management.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::read::{self, BadAnswer};
use super::request::{Operation, Shared, VERSION};
use super::settings::{NamespaceInfo, QueueDescription, QueuePage, QueueSettings};
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

/// How many queues a page has: the most that the service gives.
const PAGE_SIZE: u64 = 100;

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

/// Management of the queues of one namespace. It is cheap to clone, and clones share their connections.
///
/// A change that was sent and not answered has an unknown outcome, and is not sent again: read the queue to find
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

    /// Creates a queue, and returns it with all settings that the service gave it. With code `40900` there is an
    /// entity of that name.
    pub async fn create_queue(
        &self,
        name: &str,
        settings: &QueueSettings,
    ) -> Result<QueueDescription, Error> {
        let mut create = Operation::of_queue("PUT", name, Effect::Change)?;
        create.settings = Some((settings, false));
        self.queue_of(&create).await
    }

    /// Reads a queue: its settings, counts and times. With code `40400` there is none of that name.
    pub async fn queue(&self, name: &str) -> Result<QueueDescription, Error> {
        let mut read = Operation::of_queue("GET", name, Effect::Read)?;
        read.query = format!("enrich=false&{VERSION}");
        self.queue_of(&read).await
    }

    /// Whether there is a queue of that name.
    pub async fn queue_exists(&self, name: &str) -> Result<bool, Error> {
        match self.queue(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces all settings of a queue, and returns them as they are now.
    ///
    /// What `settings` says nothing of gets the service's default: send what [`queue`](Self::queue) returned, with
    /// changes. The service does not notice when somebody else has changed the queue since then.
    pub async fn update_queue(
        &self,
        name: &str,
        settings: &QueueSettings,
    ) -> Result<QueueDescription, Error> {
        let mut update = Operation::of_queue("PUT", name, Effect::Change)?;
        update.settings = Some((settings, true));
        self.queue_of(&update).await
    }

    /// Deletes a queue with everything in it.
    pub async fn delete_queue(&self, name: &str) -> Result<(), Error> {
        let delete = Operation::of_queue("DELETE", name, Effect::Change)?;
        self.call(&delete).await.map(drop)
    }

    /// A page of the queues after the first `skip`, with their settings, counts and times. Begin with 0, and go on
    /// with [`QueuePage::next`].
    ///
    /// Queues that are created or deleted meanwhile can move others to another page.
    pub async fn queues(&self, skip: u64) -> Result<QueuePage, Error> {
        let list = Operation {
            method: "GET",
            path: "$Resources/queues".to_owned(),
            query: format!("$skip={skip}&$top={PAGE_SIZE}&{VERSION}"),
            audience: String::new(),
            settings: None,
            effect: Effect::Read,
        };
        let answer = self.call(&list).await?;
        let host = self.shared.namespace.host();
        let page = read::page(&answer.body, host, skip, PAGE_SIZE);
        page.map_err(|bad| error_of_answer(bad, list.effect))
    }

    /// Reads what the service says of the namespace.
    pub async fn namespace(&self) -> Result<NamespaceInfo, Error> {
        let read = Operation {
            method: "GET",
            path: "$namespaceinfo".to_owned(),
            query: VERSION.to_owned(),
            audience: String::new(),
            settings: None,
            effect: Effect::Read,
        };
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
        let shared = &self.shared;
        if !is_method(method) {
            return Err(Error::refused("the method is none of HTTP"));
        }
        let effect = match method == "GET" {
            true => Effect::Read,
            false => Effect::Change,
        };
        let deadline = Instant::now() + shared.timeout;
        let attempt = || async {
            let audience = format!("sb://{}/", shared.namespace.host());
            let mut request = shared.begun(method, target, &audience).await?;
            request = request.header("accept", "application/json");
            if json.is_some() {
                request = request.header("content-type", "application/json");
            }
            let request = request.finish(json.as_deref().unwrap_or_default())?;
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

    async fn queue_of(&self, operation: &Operation<'_>) -> Result<QueueDescription, Error> {
        let answer = self.call(operation).await?;
        let queue = read::queue(&answer.body, self.shared.namespace.host());
        queue.map_err(|bad| error_of_answer(bad, operation.effect))
    }

    /// Sends a request until it succeeds, or fails in a way that another try does not change.
    async fn call(&self, operation: &Operation<'_>) -> Result<Answer, Error> {
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
fn error_of_answer(bad: BadAnswer, effect: Effect) -> Error {
    match (bad, effect) {
        (BadAnswer::NoQueue(what), Effect::Read) => Error::no_such_entity(what),
        (BadAnswer::NoQueue(what) | BadAnswer::Unreadable(what), effect) => {
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
