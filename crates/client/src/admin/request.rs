//! Requests of management, with what signs them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::elements::{Elements, Part, Settings};
use super::path::Place;
use super::{forward, write};
use crate::connection_string::BusNamespace;
use crate::credential::BusCredential;
use crate::error::{Effect, Error};
use crate::http::pool::Pool;
use crate::http::request::{Builder, Request};
use crate::http::tokens::Tokens;
use crate::retry::Retry;
use crate::secret::Secret;

/// The first version in which queues have a largest size of messages.
const VERSION: &str = "api-version=2021-05";

const ENTRY_TYPE: &str = "application/atom+xml;type=entry;charset=utf-8";

/// The headers with tokens for the entities that another one forwards to, by the elements that name them.
const SUPPLEMENTS: [(&str, &str); 2] = [
    ("ForwardTo", "ServiceBusSupplementaryAuthorization"),
    (
        "ForwardDeadLetteredMessagesTo",
        "ServiceBusDlqSupplementaryAuthorization",
    ),
];

/// How long a signed token holds, which is for one request: so that clocks need not agree.
const TOKEN_LIFETIME: Duration = Duration::from_mins(20);

/// What the clones of a client share.
pub(super) struct Shared {
    pub(super) namespace: BusNamespace,
    pub(super) authority: String,
    pub(super) pool: Pool,
    pub(super) tokens: Option<Tokens>,
    pub(super) timeout: Duration,
    pub(super) retry: Retry,
}

/// A request that is not signed yet.
pub(super) struct Operation {
    method: &'static str,
    place: Place,
    query: String,
    body: Option<Body>,
    pub(super) effect: Effect,
}

/// A description to be written.
struct Body {
    document: Vec<u8>,
    /// Whether the entity must be there.
    must_exist: bool,
    /// Addresses of the entities that it forwards to, and the header for a token of each.
    targets: Vec<(&'static str, String)>,
}

impl Operation {
    pub(super) fn read(place: Place) -> Self {
        Self::new("GET", place, Effect::Read)
    }

    /// Reads an entity with its counts.
    pub(super) fn read_entity(place: Place) -> Self {
        let mut read = Self::read(place);
        read.query = format!("enrich=true&{VERSION}");
        read
    }

    pub(super) fn read_page(list: Place, skip: u64, top: u64) -> Self {
        let mut read = Self::read(list);
        read.query = format!("$skip={skip}&$top={top}&{VERSION}");
        read
    }

    pub(super) fn delete(place: Place) -> Self {
        Self::new("DELETE", place, Effect::Change)
    }

    /// Creates something, or replaces what `must_exist`.
    pub(super) fn put<S: Settings>(
        place: Place,
        settings: &S,
        must_exist: bool,
        host: &str,
    ) -> Result<Self, Error> {
        let mut targets = Targets {
            host,
            found: Vec::new(),
        };
        settings.clone().each(&mut targets);
        let mut put = Self::new("PUT", place, Effect::Change);
        put.body = Some(Body {
            document: write::entry(settings, host)?,
            must_exist,
            targets: targets.found,
        });
        Ok(put)
    }

    fn new(method: &'static str, place: Place, effect: Effect) -> Self {
        Self {
            method,
            place,
            query: VERSION.to_owned(),
            body: None,
            effect,
        }
    }
}

/// Finds the entities that settings forward to.
struct Targets<'a> {
    host: &'a str,
    found: Vec<(&'static str, String)>,
}

impl Elements for Targets<'_> {
    fn value<T: Part>(&mut self, _: &'static str, _: &mut Option<T>) {}

    fn required<T: Part>(&mut self, _: &'static str, _: &mut T) {}

    fn target(&mut self, name: &'static str, target: &mut Option<String>) {
        let header = SUPPLEMENTS.iter().find(|(element, _)| *element == name);
        let target = target.as_deref().filter(|it| !it.is_empty());
        if let (Some((_, header)), Some(target)) = (header, target) {
            let address = forward::address(target, self.host);
            self.found.push((header, address));
        }
    }
}

impl Shared {
    /// A request as it is sent now.
    pub(super) async fn signed(&self, operation: &Operation) -> Result<Request, Error> {
        let host = self.namespace.host();
        let Place { path, audience } = &operation.place;
        let audience = format!("sb://{host}/{audience}");
        let target = format!("{path}?{}", operation.query);
        let request = self.begun(operation.method, &target, &audience).await?;
        let mut request = request.header("accept", "application/atom+xml, application/xml");
        let Some(body) = &operation.body else {
            return request.finish(&[]);
        };
        request = request.header("content-type", ENTRY_TYPE);
        if body.must_exist {
            request = request.header("if-match", "*");
        }
        // An entity may forward only to those that the caller may manage.
        for (header, address) in &body.targets {
            let token = self.token(address).await?;
            request = request.header(header, token.expose());
        }
        request.finish(&body.document)
    }

    /// What every request begins with. The target has no slash before it.
    pub(super) async fn begun(
        &self,
        method: &str,
        target: &str,
        audience: &str,
    ) -> Result<Builder, Error> {
        let token = self.token(audience).await?;
        let target = format!("/{target}");
        let request = Request::begin(method, &target, &self.authority);
        Ok(request.header("authorization", token.expose()))
    }

    /// What opens a resource such as `sb://host/queue`, as the value of a header.
    async fn token(&self, resource: &str) -> Result<Secret, Error> {
        match (self.namespace.credential(), &self.tokens) {
            (BusCredential::Rule(rule), _) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let ends_at = now.unwrap_or_default() + TOKEN_LIFETIME;
                Ok(rule.token(resource, ends_at.as_secs()))
            }
            (BusCredential::Signature(text), _) => Ok(text.clone()),
            (BusCredential::Bearer(_), Some(tokens)) => {
                let token = tokens.token().await?;
                Ok(Secret::new(format!("Bearer {}", token.expose())))
            }
            (BusCredential::Bearer(_), None) => Err(Error::refused("there is no bearer token")),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("namespace", &self.namespace)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
