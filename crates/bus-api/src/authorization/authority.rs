//! The rights of a credential: a signature by a rule, a rule's name with a key, or a token of an issuer.
//!
//! Rules of the namespace are in memory. Rules of a queue or topic are read from the broker, and only
//! if no rule of the namespace has signed the token.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use aws_lc_rs::constant_time::verify_slices_are_equal;
use kew_broker::Broker;
use kew_issuer::{Issuers, Role};
use kew_principals::PrincipalError;

use super::bad_token::BadToken;
use super::credential::Password;
use super::grant::{Grant, Owner};
use super::rights::{AuthorizationRule, Right, Rights};
use super::rules::{BusRules, RuleScope, RuleStore};
use super::sas::{self, SignedToken};
use crate::ground::address::{entity_named, path_of};
use crate::ground::clock::Clock;
use crate::ground::constants::{WELL_KNOWN_KEY, WELL_KNOWN_RULE};
use crate::ground::lookup::kind_of;
use crate::ground::origin::Origin;

/// The audience of bearer tokens.
const RESOURCE: &str = "https://servicebus.azure.net";

/// The right of a role, if it is a role of this service. An owner may manage, which includes everything.
fn right_of(role: Role) -> Option<Right> {
    match role {
        Role::BusOwner => Some(Right::Manage),
        Role::BusSender => Some(Right::Send),
        Role::BusReceiver => Some(Right::Listen),
        Role::Reader | Role::Processor | Role::Sender | Role::Contributor | Role::Delegator => None,
    }
}

/// Judges credentials by the current rules and the trusted issuers.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) rules: RuleStore,
    broker: Broker,
    issuers: Issuers,
    clock: Clock,
}

impl Authority {
    /// Reads the rules of the log.
    pub(crate) async fn open(
        broker: Broker,
        issuers: Issuers,
        clock: Clock,
    ) -> Result<Self, PrincipalError> {
        Ok(Self {
            rules: BusRules::open(broker.clone(), clock).await?,
            broker,
            issuers,
            clock,
        })
    }

    /// The grant of the `Authorization` header of a request: what it allows at `path`, the path of the
    /// request's URL in any form.
    ///
    /// Refuses a credential that is invalid or for another path.
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

    /// The grant of a token that a client puts for an audience.
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
        let rules = self.rules.current().await;
        let of_namespace = token.rights_by(&rules.map_err(|_| BadToken::Unavailable)?);
        let of_public_key = match of_namespace {
            Some(_) => None,
            None => by_public_key(),
        };
        let (rights, owner) = match (of_namespace, of_public_key, origin.public_key) {
            (Some(rights), ..) | (None, Some(rights), Ok(())) => (rights, None),
            (None, None, _) => self.rights_of_owner(&token).await?,
            // A queue may have its own rule with that name and key.
            (None, Some(_), Err(barred)) => match self.rights_of_owner(&token).await {
                Err(BadToken::Signature) => return Err(BadToken::PublicKey(barred)),
                found => found?,
            },
        };
        if token.expires_at_s <= self.clock.now_s() {
            return Err(BadToken::Expired(token.expires_at_s));
        }
        let holder = match &owner {
            None => format!("rule {}", token.rule),
            Some(owner) => format!("rule {} of {owner}", token.rule),
        };
        Ok(Grant {
            path: token.path,
            rights,
            expires_at_s: token.expires_at_s,
            owner,
            holder: holder.into(),
        })
    }

    /// The grant of an issuer's token, in the whole namespace.
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
            .verify(token, is_audience, self.clock.now())
            .map_err(BadToken::Bearer)?;
        Ok(Grant {
            path: String::new(),
            rights: bearer.roles.into_iter().filter_map(right_of).collect(),
            expires_at_s: bearer.expires_at_s,
            owner: None,
            holder: format!("user {}", bearer.user).into(),
        })
    }

    /// The rights of the queue's or topic's rule that has signed a token, and whose it is.
    async fn rights_of_owner(
        &self,
        token: &SignedToken<'_>,
    ) -> Result<(Rights, Option<Owner>), BadToken> {
        for name in token.owners() {
            let scope = RuleScope::Queue(name.into());
            let rules = match self.rules.list(&scope).await {
                Ok(rules) => rules,
                // There is no entity with such a name, or there cannot be one.
                Err(PrincipalError::NotFound(..) | PrincipalError::Invalid(_)) => continue,
                Err(_) => return Err(BadToken::Unavailable),
            };
            let Some(rights) = token.rights_by(&rules) else {
                continue;
            };
            let Some(entity) = entity_named(name) else {
                continue;
            };
            let kind = kind_of(&self.broker, entity).await;
            if let Some(kind) = kind.map_err(|_| BadToken::Unavailable)? {
                let name = name.into();
                return Ok((rights, Some(Owner { name, kind })));
            }
        }
        Err(BadToken::Signature)
    }

    /// The grant of the name and a key of a rule of the namespace, if the key is right. It is valid until the
    /// connection ends.
    pub(crate) async fn grant_of_password(
        &self,
        password: &Password,
        origin: Origin,
    ) -> Result<Option<Grant>, BadToken> {
        let rules = self.rules.current().await;
        let rules = rules.map_err(|_| BadToken::Unavailable)?;
        Ok(Self::grant_by(&rules, password, origin))
    }

    /// The same, unless the rules are not known now.
    pub(crate) fn grant_of_password_now(
        &self,
        password: &Password,
        origin: Origin,
    ) -> Result<Option<Grant>, BadToken> {
        let rules = self.rules.in_force().ok_or(BadToken::Unavailable)?;
        Ok(Self::grant_by(&rules, password, origin))
    }

    fn grant_by(rules: &[AuthorizationRule], password: &Password, origin: Origin) -> Option<Grant> {
        let Password { name, key } = password;
        let mut named = rules.iter().filter(|rule| rule.is_named(name));
        let own = named.find(|rule| rule.has_key(key)).map(|rule| rule.rights);
        let is_well_known = origin.public_key.is_ok() && is_public(name, key);
        let rights = own.or(is_well_known.then_some(Rights::ALL))?;
        Some(Grant {
            path: String::new(),
            rights,
            expires_at_s: u64::MAX,
            owner: None,
            holder: format!("rule {name}").into(),
        })
    }
}

/// Whether these are the well-known rule and its public key.
pub(crate) fn is_public(name: &str, key: &[u8]) -> bool {
    name.eq_ignore_ascii_case(WELL_KNOWN_RULE)
        && verify_slices_are_equal(WELL_KNOWN_KEY.as_bytes(), key).is_ok()
}
