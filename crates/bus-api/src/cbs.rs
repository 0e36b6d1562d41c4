//! Tokens: what a connection may do, and until when.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kew_amqp::codec::{Map, Raw, Text};
use kew_engine::EntityName;

use crate::request::{Request, encode_answer, text_of};
use crate::rights::{AuthorizationRule, Right};
use crate::sas::{self, Grant};

/// What the tokens of a connection allow. Every rule has all rights today, so a grant says only
/// where and until when.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// By the audience that each was put for.
    grants: Vec<(String, Grant)>,
}

/// Now, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

impl Grants {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Everything, for as long as the connection lives: its client has told a rule's key.
    pub(crate) fn add_whole_namespace(&mut self) {
        let grant = Grant {
            path: String::new(),
            expires_at_s: u64::MAX,
        };
        self.grants.push((String::new(), grant));
    }

    /// Whether something is allowed with an entity now.
    pub(crate) fn allow(&self, entity: &EntityName, _right: Right) -> bool {
        self.reach(&entity.name)
    }

    /// Whether requests about an entity are allowed now: some SDKs put a token for these alone.
    pub(crate) fn allow_management(&self, entity: &EntityName) -> bool {
        self.reach(&format!("{}/$management", entity.name))
    }

    fn reach(&self, path: &str) -> bool {
        let now_s = now_s();
        self.grants
            .iter()
            .any(|(_, grant)| grant.expires_at_s > now_s && grant.covers(path))
    }

    /// When the next one expires, in seconds since 1970.
    pub(crate) fn next_expiry_s(&self) -> Option<u64> {
        let expiries = self.grants.iter().map(|(_, grant)| grant.expires_at_s);
        expiries.min().filter(|&at| at < u64::MAX)
    }

    /// Forgets those that have expired, and says whether there were any.
    pub(crate) fn expire(&mut self) -> bool {
        let (before, now_s) = (self.grants.len(), now_s());
        self.grants.retain(|(_, grant)| grant.expires_at_s > now_s);
        self.grants.len() < before
    }

    /// Answers a request to `$cbs`.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        rules: &[AuthorizationRule],
        tokens_max: usize,
    ) -> (i32, Bytes) {
        let (code, text) = match self.put_token(request, rules, tokens_max) {
            Ok(()) => (202, "Accepted".to_owned()),
            Err(refused) => refused,
        };
        let properties = Map::build(|map| {
            map.entry("status-code", &code);
            map.entry("status-description", text.as_str());
        });
        let body = Raw::of(&Text::from(text.as_str()));
        (code, encode_answer(&request.asked, &properties, &body))
    }

    fn put_token(
        &mut self,
        request: &Request,
        rules: &[AuthorizationRule],
        tokens_max: usize,
    ) -> Result<(), (i32, String)> {
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
        let grant = sas::check(token, rules, now_s()).map_err(|error| (401, error.to_string()))?;
        let audience = crate::address::path_of(&audience);
        if !grant.covers(&audience) {
            let text = format!(
                "the token is for '{}', and not for '{audience}'",
                grant.path
            );
            return Err((401, text));
        }
        self.grants.retain(|(own, _)| *own != audience);
        if self.grants.len() >= tokens_max {
            return Err((403, format!("a connection has at most {tokens_max} tokens")));
        }
        self.grants.push((audience, grant));
        Ok(())
    }
}
