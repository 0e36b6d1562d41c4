//! What a credential allows: signatures of rules, names of rules with a key, tokens of an issuer.
//!
//! Rules of the namespace are at hand; those of an entity are asked of the broker, and only if none of
//! the namespace has signed.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use aws_lc_rs::constant_time::verify_slices_are_equal;
use kew_broker::Rejection;
use kew_engine::Refusal;
use kew_engine::bus::BusRefusal;
use kew_issuer::Role;
use kew_listen::Barred;
use thiserror::Error;

use crate::address::path_of;
use crate::api::{Shared, WELL_KNOWN_KEY, WELL_KNOWN_RULE};
use crate::origin::Origin;
use crate::rights::{AuthorizationRule, Right, Rights};
use crate::rules::RuleError;
use crate::sas::{self, SignedToken};

/// What bearer tokens are for.
const RESOURCE: &str = "https://servicebus.azure.net";

/// What a role allows, if it is one of this service's: who owns may manage, and so do everything.
fn right_of(role: Role) -> Option<Right> {
    match role {
        Role::BusOwner => Some(Right::Manage),
        Role::BusSender => Some(Right::Send),
        Role::BusReceiver => Some(Right::Listen),
        Role::Reader | Role::Processor | Role::Sender | Role::Contributor | Role::Delegator => None,
    }
}

/// What a credential that was found to be right allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The path that it is for, in lower case; empty for the whole namespace.
    pub(crate) path: String,
    pub(crate) rights: Rights,
    /// Until when, in seconds since 1970.
    pub(crate) expires_at_s: u64,
    /// The queue whose own rule has signed, if it was no rule of the namespace. Names of queues may
    /// begin with those of others: it is that queue alone, with its sub-queues.
    pub(crate) queue: Option<Box<str>>,
    /// Who has it, in words for the audit log: a rule, or the user that the issuer names. The name of
    /// either has at most 256 bytes, and is to be logged escaped.
    pub(crate) holder: Box<str>,
}

impl Grant {
    /// Everything, for ever.
    #[cfg(test)]
    pub(crate) fn of_everything(holder: &str) -> Self {
        Self {
            path: String::new(),
            rights: Rights::ALL,
            expires_at_s: u64::MAX,
            queue: None,
            holder: holder.into(),
        }
    }

    /// Whether it allows something with a node, such as `queue`, `queue/$deadletterqueue` or
    /// `queue/$management`; `path` is in lower case, without slashes around it.
    pub(crate) fn allows(&self, right: Right, path: &str) -> bool {
        self.allows_request(right, queue_of(path), path)
    }

    /// Whether it allows something with a queue by a request to a path within it, such as
    /// `queue/messages/head`.
    pub(crate) fn allows_request(&self, right: Right, queue: &str, path: &str) -> bool {
        self.rights.has(right)
            && self.covers(path)
            && self.queue.as_deref().is_none_or(|own| own == queue)
    }

    /// Whether its path is the beginning of another, segment by segment.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => self.path.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// The queue of a node's path: what comes before the first name that begins with `$`.
pub(crate) fn queue_of(path: &str) -> &str {
    path.split_once("/$").map_or(path, |(queue, _)| queue)
}

/// What is wrong with a token. It says nothing about the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadToken {
    #[error(
        "the credential is no token of the form 'SharedAccessSignature sr=…&sig=…&se=…&skn=…', nor \
         one of an issuer that is trusted"
    )]
    Unknown,
    #[error("the token is longer than 8 KiB")]
    TooLong,
    #[error("the token has no {0}, or more than one")]
    Field(&'static str),
    #[error("the expiry 'se' of the token is not a number of seconds")]
    Expiry,
    #[error("ExpiredToken: the token expired at {0} seconds since 1970")]
    Expired(u64),
    #[error("InvalidSignature: the token has an invalid signature")]
    Signature,
    #[error("InvalidToken: {0}")]
    Bearer(&'static str),
    #[error("PublicKeyRefused: {0}")]
    PublicKey(Barred),
    #[error("bearer tokens are taken over TLS only")]
    NotPrivate,
    #[error(
        "Unauthorized: the token grants nothing here: none of its roles is one of Service Bus, such as \
         'Azure Service Bus Data Sender'"
    )]
    NoRights,
    #[error("InvalidAudience: the token is for '{granted}', and not for '{asked}'")]
    Elsewhere { granted: String, asked: String },
    #[error("the server is busy and cannot check the token: please try again")]
    Unavailable,
    /// The token is right, but what it was put for is not there.
    #[error("The messaging entity '{0}' could not be found.")]
    NotFound(String),
}

impl BadToken {
    /// The status that goes with it, in answers of `$cbs` and over HTTP.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Unavailable => 503,
            Self::NotFound(_) => 404,
            Self::Unknown
            | Self::TooLong
            | Self::Field(_)
            | Self::Expiry
            | Self::Expired(_)
            | Self::Signature
            | Self::Bearer(_)
            | Self::PublicKey(_)
            | Self::NotPrivate
            | Self::NoRights
            | Self::Elsewhere { .. } => 401,
        }
    }
}

impl Shared {
    /// What the header `Authorization` of a request allows.
    ///
    /// Refuses a credential that does not hold, or that is not for `path`, the path of the request's
    /// URL in any form. What it allows there is to be asked of the grant.
    pub(crate) async fn grant_of(
        &self,
        authorization: &str,
        path: &str,
        origin: Origin,
    ) -> Result<Grant, BadToken> {
        let token = match authorization.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => authorization,
        };
        self.grant_for(token, path, origin).await
    }

    /// What a token allows that is put for an audience.
    pub(crate) async fn grant_for(
        &self,
        token: &str,
        audience: &str,
        origin: Origin,
    ) -> Result<Grant, BadToken> {
        let grant = if token.starts_with(sas::PREFIX) {
            self.grant_of_signature(token, origin).await?
        } else {
            self.grant_of_bearer(token, origin)?
        };
        if grant.rights.is_empty() {
            return Err(BadToken::NoRights);
        }
        let asked = path_of(audience);
        if !grant.covers(&asked) {
            let granted = grant.path;
            return Err(BadToken::Elsewhere { granted, asked });
        }
        Ok(grant)
    }

    async fn grant_of_signature(&self, token: &str, origin: Origin) -> Result<Grant, BadToken> {
        let token = SignedToken::read(token)?;
        let by_public_key = || token.rights_by(&[AuthorizationRule::well_known()]);
        let of_namespace = token.rights_by(&self.rules.served());
        let of_public_key = match of_namespace {
            Some(_) => None,
            None => by_public_key(),
        };
        let (rights, queue) = match (of_namespace, of_public_key, origin.public_key) {
            (Some(rights), ..) | (None, Some(rights), Ok(())) => (rights, None),
            (None, None, _) => self.rights_of_queue(&token).await?,
            // A queue may have a rule of that name and key of its own.
            (None, Some(_), Err(barred)) => match self.rights_of_queue(&token).await {
                Err(BadToken::Signature) => return Err(BadToken::PublicKey(barred)),
                found => found?,
            },
        };
        if token.expires_at_s <= self.now_s() {
            return Err(BadToken::Expired(token.expires_at_s));
        }
        let holder = match &queue {
            None => format!("rule {}", token.rule),
            Some(queue) => format!("rule {} of the queue {queue}", token.rule),
        };
        Ok(Grant {
            path: token.path,
            rights,
            expires_at_s: token.expires_at_s,
            queue,
            holder: holder.into(),
        })
    }

    /// What a token of an issuer allows, in the whole namespace.
    ///
    /// Source: Service Bus, *Authenticate and authorize an application with Microsoft Entra ID*.
    fn grant_of_bearer(&self, token: &str, origin: Origin) -> Result<Grant, BadToken> {
        if self.issuers.is_empty() {
            return Err(BadToken::Unknown);
        }
        let issuer = self.issuers.select(token).map_err(BadToken::Bearer)?;
        if !issuer.is_private(origin.peer.ip(), origin.is_secure) {
            return Err(BadToken::NotPrivate);
        }
        let is_audience =
            |audience: &str| audience.strip_suffix('/').unwrap_or(audience) == RESOURCE;
        let bearer = issuer
            .verify(token, is_audience, self.now())
            .map_err(BadToken::Bearer)?;
        Ok(Grant {
            path: String::new(),
            rights: bearer.roles.into_iter().filter_map(right_of).collect(),
            expires_at_s: bearer.expires_at_s,
            queue: None,
            holder: format!("user {}", bearer.user).into(),
        })
    }

    /// The rights of the rule of a queue that has signed a token, and that queue.
    async fn rights_of_queue(
        &self,
        token: &SignedToken<'_>,
    ) -> Result<(Rights, Option<Box<str>>), BadToken> {
        for queue in token.queues() {
            let rules = match self.rules_of_queue(queue).await {
                Ok(rules) => rules,
                Err(RuleError::Rejected(Rejection::Refused(Refusal::Bus(
                    BusRefusal::QueueNotFound { .. },
                ))))
                | Err(RuleError::NoQueueName(_)) => continue,
                Err(_) => return Err(BadToken::Unavailable),
            };
            if let Some(rights) = token.rights_by(&rules) {
                return Ok((rights, Some(queue.into())));
            }
        }
        Err(BadToken::Signature)
    }

    /// What the name of a rule of the namespace and one of its keys allow, if they belong together.
    /// They hold as long as the connection.
    pub(crate) fn grant_of_password(
        &self,
        name: &str,
        key: &[u8],
        origin: Origin,
    ) -> Option<Grant> {
        let rules = self.rules.served();
        let mut named = rules.iter().filter(|rule| rule.is_named(name));
        let own = named.find(|rule| rule.has_key(key)).map(|rule| rule.rights);
        let is_well_known = origin.public_key.is_ok() && is_public(name, key);
        let rights = own.or(is_well_known.then_some(Rights::ALL))?;
        Some(Grant {
            path: String::new(),
            rights,
            expires_at_s: u64::MAX,
            queue: None,
            holder: format!("rule {name}").into(),
        })
    }
}

/// Whether these are the rule and the key that everybody knows.
pub(crate) fn is_public(name: &str, key: &[u8]) -> bool {
    name.eq_ignore_ascii_case(WELL_KNOWN_RULE)
        && verify_slices_are_equal(WELL_KNOWN_KEY.as_bytes(), key).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(path: &str, rights: &[Right], queue: Option<&str>) -> Grant {
        Grant {
            path: path.into(),
            rights: rights.iter().copied().collect(),
            expires_at_s: 1,
            queue: queue.map(Into::into),
            holder: "rule r".into(),
        }
    }

    #[test]
    fn a_grant_reaches_what_its_path_begins() {
        let orders = grant("orders", &[Right::Listen], None);
        assert!(orders.allows(Right::Listen, "orders"));
        assert!(orders.allows(Right::Listen, "orders/$deadletterqueue"));
        assert!(orders.allows(Right::Listen, "orders/more"));
        assert!(!orders.allows(Right::Send, "orders"));
        assert!(!orders.allows(Right::Listen, "orders2"));
        assert!(!orders.allows(Right::Listen, ""));
        let everything = grant("", &[Right::Manage], None);
        assert!(everything.allows(Right::Send, "any/where"));
    }

    #[test]
    fn a_rule_of_a_queue_reaches_no_other() {
        let orders = grant("orders", &[Right::Send], Some("orders"));
        assert!(orders.allows(Right::Send, "orders/$management"));
        assert!(!orders.allows(Right::Send, "orders/more"));
        assert!(!orders.allows(Right::Send, "orders/messages"));
        assert!(orders.allows_request(Right::Send, "orders", "orders/messages"));
        let sending = grant("orders/messages", &[Right::Send], Some("orders"));
        assert!(sending.allows_request(Right::Send, "orders", "orders/messages"));
        assert!(!sending.allows(Right::Send, "orders"));
    }
}
