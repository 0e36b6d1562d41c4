//! The issuers of bearer tokens that a server trusts, and their public keys.
//!
//! An [`Issuer`] checks tokens and fetches nothing. Its owner supplies the keys with
//! [`Issuer::replace_keys`]: at the start, from time to time, and when [`Issuer::keys_wanted`]
//! reports that a token came with an unknown key. Keys that cannot be read replace nothing.
//!
//! Sources: OpenID Connect Discovery 1.0; RFC 7517 (keys), RFC 7519 (tokens), RFC 8725 (best
//! practices).

mod issuers;
mod role;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::Notify;

pub use issuers::Issuers;
pub use role::Role;

/// Accepted signature algorithms. Only asymmetric ones: with a symmetric one, anyone could sign
/// with the public key.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// How many keys of a document are looked at.
const KEYS_MAX: usize = 100;

/// How far the issuer's clock may be from ours, in seconds.
const CLOCK_SKEW_SECONDS: u64 = 60;

/// The longest accepted names of users and tenants.
const NAME_SIZE_BYTES_MAX: usize = 256;

/// The longest first part of a token. Kew reads it before it has checked the signature, and parsed
/// JSON can take many times its size. Issuers send some hundred bytes; with certificates, a few
/// KiB.
const TOKEN_HEADER_SIZE_BYTES_MAX: usize = 16 << 10;

const UNREADABLE: &str = "The token cannot be read.";
const OTHER_ISSUER: &str = "Issuer validation failed. Issuer did not match.";

/// The tenant of a token that names none.
const NO_TENANT: &str = "00000000-0000-0000-0000-000000000000";

/// Which issuer to trust, and how to read its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOptions {
    /// The exact value of the claim `iss`.
    pub issuer: Box<str>,
    /// The accepted values of the claim `aud`, for all services. Empty means the values that each
    /// service documents.
    pub audiences: Vec<Box<str>>,
    /// The claim that names roles: a string, or a list of strings. Default `roles`.
    pub role_claim: Box<str>,
    /// The role that each string in that claim means. Empty means the names of the built-in roles,
    /// with or without their spaces.
    pub roles: BTreeMap<Box<str>, Role>,
    /// Whether to accept tokens over connections without TLS from this machine. A token that others
    /// can read on the way can be stolen, so use it for development only. Default `false`.
    pub allow_plain_loopback: bool,
}

impl IssuerOptions {
    /// Trusts the issuer, with everything else at its default.
    pub fn new(issuer: &str) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: Vec::new(),
            role_claim: "roles".into(),
            roles: BTreeMap::new(),
            allow_plain_loopback: false,
        }
    }
}

/// Why a document with keys is refused.
#[derive(Debug, Error)]
pub enum InvalidKeys {
    /// It is not a JSON Web Key Set.
    #[error("the document is not a JSON Web Key Set")]
    Document(#[source] serde_json::Error),
    /// It has no public key of a kind that signs tokens.
    #[error("the document has no public RSA, EC or Ed25519 key to verify signatures with")]
    NoKey,
}

/// A key of the issuer.
struct Key {
    id: Option<Box<str>>,
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

/// An issuer of bearer tokens.
pub struct Issuer {
    options: IssuerOptions,
    keys: RwLock<Arc<[Key]>>,
    wanted: Notify,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The bearer that a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The claim `oid`, or `sub`.
    pub user: Box<str>,
    /// The claim `tid`, or zeros.
    pub tenant: Box<str>,
    /// The roles of the bearer. Unknown values in the claim grant nothing.
    pub roles: Vec<Role>,
    /// When the token expires, in seconds since 1970: 60 s after its claim `exp`.
    pub expires_at_s: u64,
}

/// The claims that Kew reads, with their exact types: a date that is a string or has a fraction is
/// refused, not skipped. All but `nbf` are mandatory, although RFC 7519 requires none of them.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: u64,
    #[serde(default, deserialize_with = "present")]
    nbf: Option<u64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// An optional claim. If it is present, it must have its type.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    u64::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn any(&self, is_right: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::One(audience) => is_right(audience),
            Self::Several(audiences) => audiences.iter().any(|audience| is_right(audience)),
        }
    }
}

impl Issuer {
    /// An issuer without keys. It accepts no token until it has some.
    pub fn new(options: IssuerOptions) -> Self {
        Self {
            options,
            keys: RwLock::new(Arc::new([])),
            wanted: Notify::new(),
        }
    }

    /// The options that this issuer was made with.
    pub fn options(&self) -> &IssuerOptions {
        &self.options
    }

    /// Replaces the keys with those of a JSON Web Key Set, and returns how many it uses. It skips
    /// secret keys, keys of other kinds and keys for other uses.
    ///
    /// After an error the old keys stay.
    pub fn replace_keys(&self, document: &[u8]) -> Result<usize, InvalidKeys> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document = serde_json::from_slice(document).map_err(InvalidKeys::Document)?;
        let keys: Vec<Key> = document
            .keys
            .into_iter()
            .take(KEYS_MAX)
            .filter_map(Key::read)
            .collect();
        if keys.is_empty() {
            return Err(InvalidKeys::NoKey);
        }
        let count = keys.len();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
        Ok(count)
    }

    /// Waits until a token arrives that was signed with an unknown key. Several such tokens resolve
    /// it once. The caller limits how often it fetches keys.
    pub async fn keys_wanted(&self) {
        self.wanted.notified().await;
    }

    /// The value of a `WWW-Authenticate` header that sends clients to the issuer for a token of a
    /// resource. SDKs read both parameters.
    pub fn challenge(&self, resource: &str) -> String {
        let issuer = self.options.issuer.trim_end_matches('/');
        let issuer = issuer.strip_suffix("/v2.0").unwrap_or(issuer);
        format!("Bearer authorization_uri={issuer}/oauth2/authorize resource_id={resource}")
    }

    /// Whether tokens are accepted from a connection: it is encrypted, or it is from this machine
    /// and that is allowed.
    pub fn is_private(&self, peer: IpAddr, is_secure: bool) -> bool {
        is_secure || (self.options.allow_plain_loopback && peer.to_canonical().is_loopback())
    }

    fn keys(&self) -> Arc<[Key]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The bearer that the token names, or why the token is refused, in the service's words.
    ///
    /// `is_audience` decides which values of the claim `aud` are accepted if none were configured.
    pub fn verify(
        &self,
        token: &str,
        is_audience: impl Fn(&str) -> bool,
        now: SystemTime,
    ) -> Result<Bearer, &'static str> {
        const SIGNATURE: &str = "Signature validation failed.";
        let header_size_bytes = token.find('.').unwrap_or(token.len());
        if header_size_bytes > TOKEN_HEADER_SIZE_BYTES_MAX {
            return Err("The token's header is longer than 16 KiB.");
        }
        let header = decode_header(token).map_err(|_| UNREADABLE)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err("Signature validation failed. The algorithm is not supported.");
        }
        if header.crit.is_some() || header.zip.is_some() || header.enc.is_some() {
            return Err("The token's header asks for an extension that is not supported.");
        }
        let keys = self.keys();
        let key = match (&header.kid, &*keys) {
            (Some(id), keys) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let Some(key) = key else {
            self.wanted.notify_one();
            return Err("Signature validation failed. The key is not known.");
        };
        if key.algorithm.is_some_and(|only| only != header.alg) {
            return Err(SIGNATURE);
        }
        let mut validation = Validation::new(header.alg);
        // All of these are checked below, by Kew's clock and without leeway.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        let decoded = decode::<Map<String, Value>>(token, &key.key, &validation);
        let claims = decoded.map_err(|_| SIGNATURE)?.claims;
        let claims: Claims = serde_json::from_value(Value::Object(claims)).map_err(|_| {
            "The token must have the claims iss, aud and exp. The claims exp and nbf must be whole \
             numbers."
        })?;
        self.check(&claims, is_audience, now)?;
        self.bearer(&claims)
    }

    fn check(
        &self,
        claims: &Claims,
        is_audience: impl Fn(&str) -> bool,
        now: SystemTime,
    ) -> Result<(), &'static str> {
        if *claims.iss != *self.options.issuer {
            return Err(OTHER_ISSUER);
        }
        let configured = &self.options.audiences;
        let is_right = |audience: &str| match configured.is_empty() {
            true => is_audience(audience),
            false => configured.iter().any(|one| **one == *audience),
        };
        if !claims.aud.any(is_right) {
            return Err("Audience validation failed. Audience did not match.");
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if claims.exp.saturating_add(CLOCK_SKEW_SECONDS) <= now {
            return Err("Lifetime validation failed. The token is expired.");
        }
        let not_before = claims.nbf.unwrap_or(0);
        if not_before > now.saturating_add(CLOCK_SKEW_SECONDS) {
            return Err("Lifetime validation failed. The token is not yet valid.");
        }
        Ok(())
    }

    fn bearer(&self, claims: &Claims) -> Result<Bearer, &'static str> {
        let others = &claims.others;
        let name = |claim: &str| match others.get(claim) {
            None => Ok(None),
            Some(Value::String(name))
                if (1..=NAME_SIZE_BYTES_MAX).contains(&name.len())
                    && !name.contains(char::is_control) =>
            {
                Ok(Some(&**name))
            }
            Some(_) => Err("The token's claim oid, sub or tid is not a valid name."),
        };
        let user = match name("oid")? {
            Some(user) => user,
            None => name("sub")?.ok_or("The token names no user: it has neither oid nor sub.")?,
        };
        let tenant = name("tid")?.unwrap_or(NO_TENANT);
        Ok(Bearer {
            user: user.into(),
            tenant: tenant.into(),
            roles: self.roles(others.get(&*self.options.role_claim)),
            expires_at_s: claims.exp.saturating_add(CLOCK_SKEW_SECONDS),
        })
    }

    /// The roles in the claim. Unknown values grant nothing.
    fn roles(&self, claim: Option<&Value>) -> Vec<Role> {
        let texts = match claim {
            Some(Value::Array(values)) => &**values,
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        texts
            .iter()
            .filter_map(|value| self.role(value.as_str()?))
            .collect()
    }

    fn role(&self, text: &str) -> Option<Role> {
        if !self.options.roles.is_empty() {
            return self.options.roles.get(text).copied();
        }
        Role::ALL
            .into_iter()
            .find(|role| role.name() == text || role.name().replace(' ', "") == text)
    }
}

impl Key {
    /// One key of a set, if it can verify signatures of tokens.
    fn read(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let is_for_signatures =
            matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
        let algorithm = match common.key_algorithm {
            None => None,
            Some(algorithm) => Some(algorithm.to_string().parse::<Algorithm>().ok()?),
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let is_asymmetric = ALGORITHMS
            .iter()
            .any(|algorithm| algorithm.family() == key.family());
        (is_for_signatures
            && is_asymmetric
            && algorithm.is_none_or(|algorithm| ALGORITHMS.contains(&algorithm)))
        .then(|| Self {
            id: common.key_id.as_deref().map(Into::into),
            algorithm,
            key,
        })
    }
}
