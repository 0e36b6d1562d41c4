//! Tokens: what a connection may do, and until when.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kew_amqp::codec::{Map, Raw, Text};
use kew_engine::EntityName;

use crate::address::path_of;
use crate::authorize::{BadToken, Grant};
use crate::request::{Asked, Request, encode_answer, text_of};
use crate::rights::{Right, Rights};
use crate::sas;

/// What a client has shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A token that a rule has signed.
    Signature(Arc<str>),
    /// A token of the issuer. It is not kept: no change of rules is anything to it.
    Bearer,
    /// A rule and its key.
    Password(Arc<Password>),
}

impl fmt::Debug for Credential {
    /// Shows nothing that others could use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// The name of a rule and what a client says is its key.
#[derive(PartialEq, Eq)]
pub(crate) struct Password {
    pub(crate) name: Box<str>,
    pub(crate) key: Box<[u8]>,
}

/// What allows a connection something.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The audience that it was put for, as a path; none for a password.
    pub(crate) audience: Option<String>,
    pub(crate) credential: Credential,
    pub(crate) grant: Grant,
}

/// What the credentials of a connection allow.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    all: Vec<Shown>,
}

impl Grants {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shown> {
        self.all.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes one in the place of that for the same audience, unless there are too many.
    pub(crate) fn add(&mut self, shown: Shown, tokens_max: usize) -> Result<(), Refused> {
        self.all.retain(|own| own.audience != shown.audience);
        if self.all.len() >= tokens_max {
            let text = format!("a connection has at most {tokens_max} tokens");
            return Err((403, text));
        }
        self.all.push(shown);
        Ok(())
    }

    /// A credential was judged again, by other rules than before. It may have been replaced since.
    /// Says whether something else is allowed than before.
    pub(crate) fn judged_again(&mut self, credential: &Credential, grant: Option<Grant>) -> bool {
        let is_same = |own: &Shown| own.credential == *credential;
        let mut is_changed = false;
        match grant {
            Some(grant) => {
                let all = self.all.iter_mut();
                for own in all.filter(|own| is_same(own) && own.grant != grant) {
                    own.grant = grant.clone();
                    is_changed = true;
                }
            }
            None => {
                let before = self.all.len();
                self.all.retain(|own| !is_same(own));
                is_changed = self.all.len() < before;
            }
        }
        is_changed
    }

    /// Whether something is allowed with an entity.
    pub(crate) fn allow(&self, entity: &EntityName, right: Right) -> bool {
        self.all
            .iter()
            .any(|own| own.grant.allows(right, &entity.name))
    }

    /// What requests about an entity may do: some SDKs put a token for these alone.
    pub(crate) fn rights_of_requests(&self, entity: &EntityName) -> Rights {
        let path = format!("{}/$management", entity.name);
        let has = |right: &Right| self.all.iter().any(|own| own.grant.allows(*right, &path));
        Right::ALL.into_iter().filter(has).collect()
    }

    /// When the next one expires, in seconds since 1970.
    pub(crate) fn next_expiry_s(&self) -> Option<u64> {
        let expiries = self.all.iter().map(|own| own.grant.expires_at_s);
        expiries.min().filter(|&at| at < u64::MAX)
    }

    /// Forgets those that have expired, and says whether there were any.
    pub(crate) fn expire(&mut self, now_s: u64) -> bool {
        let before = self.all.len();
        self.all.retain(|own| own.grant.expires_at_s > now_s);
        self.all.len() < before
    }
}

/// A status, and why.
pub(crate) type Refused = (i32, String);

/// A request to take a token.
pub(crate) struct PutToken {
    /// As the client writes it.
    pub(crate) audience: String,
    pub(crate) token: Arc<str>,
}

/// The longest token that is taken, in bytes: some time waits until it is judged.
const TOKEN_SIZE_BYTES_MAX: usize = 64 << 10;

impl PutToken {
    pub(crate) fn read(request: &Request) -> Result<Self, Refused> {
        if request.operation != "put-token" {
            let text = format!(
                "operation '{}' is not known: put-token is",
                request.operation
            );
            return Err((400, text));
        }
        let audience = text_of(&request.properties, "name")
            .ok_or((400, "the application property 'name' is missing".to_owned()))?;
        let token = request
            .body
            .as_str()
            .ok_or((400, "the body is not a token".to_owned()))?;
        if token.len() > TOKEN_SIZE_BYTES_MAX {
            let size_bytes = token.len();
            let text =
                format!("the token has {size_bytes} bytes, and may have {TOKEN_SIZE_BYTES_MAX}");
            return Err((400, text));
        }
        Ok(Self {
            audience,
            token: token.into(),
        })
    }

    /// What the client has shown, if the token holds.
    pub(crate) fn shown(self, judged: Result<Grant, BadToken>) -> Result<Shown, Refused> {
        let grant = judged.map_err(|error| (i32::from(error.status()), error.to_string()))?;
        Ok(Shown {
            audience: Some(path_of(&self.audience)),
            credential: match self.token.starts_with(sas::PREFIX) {
                true => Credential::Signature(self.token),
                false => Credential::Bearer,
            },
            grant,
        })
    }
}

/// The status of a token that was taken.
pub(crate) const TAKEN: i32 = 202;

/// An answer of `$cbs`, encoded.
pub(crate) fn answer(asked: &Asked, result: Result<(), Refused>) -> Bytes {
    let (code, text) = match result {
        Ok(()) => (TAKEN, "Accepted".to_owned()),
        Err(refused) => refused,
    };
    let properties = Map::build(|map| {
        map.entry("status-code", &code);
        map.entry("status-description", text.as_str());
    });
    encode_answer(asked, &properties, &Raw::of(&Text::from(text.as_str())))
}
