//! Requests of management, with what signs them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::settings::QueueSettings;
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
pub(super) const VERSION: &str = "api-version=2021-05";

const ENTRY_TYPE: &str = "application/atom+xml;type=entry;charset=utf-8";

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
pub(super) struct Operation<'a> {
    pub(super) method: &'static str,
    /// Without the slash before it.
    pub(super) path: String,
    pub(super) query: String,
    /// What the token is for, as a path in the namespace.
    pub(super) audience: String,
    /// What is written, and whether the queue must be there.
    pub(super) settings: Option<(&'a QueueSettings, bool)>,
    pub(super) effect: Effect,
}

impl Operation<'_> {
    pub(super) fn of_queue(
        method: &'static str,
        name: &str,
        effect: Effect,
    ) -> Result<Self, Error> {
        let name = name.trim_matches('/');
        if name.is_empty() {
            return Err(Error::refused("the name of the queue is empty"));
        }
        Ok(Self {
            method,
            path: forward::path(name),
            query: VERSION.to_owned(),
            audience: name.to_owned(),
            settings: None,
            effect,
        })
    }
}

impl Shared {
    /// A request as it is sent now.
    pub(super) async fn signed(&self, operation: &Operation<'_>) -> Result<Request, Error> {
        let host = self.namespace.host();
        let audience = format!("sb://{host}/{}", operation.audience);
        let target = format!("{}?{}", operation.path, operation.query);
        let request = self.begun(operation.method, &target, &audience).await?;
        let mut request = request.header("accept", "application/atom+xml, application/xml");
        let mut body = Vec::new();
        if let Some((settings, must_exist)) = operation.settings {
            body = write::entry(settings, host)?;
            request = request.header("content-type", ENTRY_TYPE);
            if must_exist {
                request = request.header("if-match", "*");
            }
            // A queue may forward only to those that the caller may manage.
            for (target, header) in [
                (&settings.forward_to, "ServiceBusSupplementaryAuthorization"),
                (
                    &settings.forward_dead_letters_to,
                    "ServiceBusDlqSupplementaryAuthorization",
                ),
            ] {
                if let Some(target) = target.as_deref().filter(|it| !it.is_empty()) {
                    let token = self.token(&forward::address(target, host)).await?;
                    request = request.header(header, token.expose());
                }
            }
        }
        request.finish(&body)
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
