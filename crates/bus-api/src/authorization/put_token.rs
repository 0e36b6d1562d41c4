//! Tokens that clients put to the node `$cbs`.

use std::sync::Arc;

use bytes::Bytes;
use kew_amqp::codec::{Map, Raw, Text};
use kew_broker::Broker;
use percent_encoding::percent_decode_str;

use super::bad_token::BadToken;
use super::credential::{Credential, Refused, Shown};
use super::grant::Grant;
use super::sas;
use crate::ground::address::{Node, node_at, path_of};
use crate::ground::lookup::is_there;
use crate::messages::request::{Asked, Request, encode_answer, text_of};

/// A request to put a token.
pub(crate) struct PutToken {
    /// As the client writes it.
    pub(crate) audience: String,
    pub(crate) token: Arc<str>,
}

/// The longest token that is accepted, in bytes. Tokens wait in memory until they are judged.
const TOKEN_SIZE_BYTES_MAX: usize = 64 << 10;

impl PutToken {
    pub(crate) fn read(request: &Request) -> Result<Self, Refused> {
        if request.operation != "put-token" {
            let text = format!(
                "operation '{}' is unknown: use put-token",
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
            let text = format!(
                "the token has {size_bytes} bytes, at most {TOKEN_SIZE_BYTES_MAX} are allowed"
            );
            return Err((400, text));
        }
        Ok(Self {
            audience,
            token: token.into(),
        })
    }

    /// Refuses an audience that names a missing entity. Accepts an audience without an entity, such as the
    /// namespace. While the broker is too busy to answer, accepts every audience: attaching a link checks it again.
    ///
    /// Source: observed at Azure, which checks the token first.
    pub(crate) async fn check_entity(&self, broker: &Broker) -> Result<(), BadToken> {
        let entity = match node_at(&self.audience) {
            Some(Node::Entity(entity) | Node::Management(entity)) => entity,
            Some(Node::Tokens) | None => return Ok(()),
        };
        match is_there(broker, entity).await {
            Ok(true) | Err(_) => Ok(()),
            Ok(false) => Err(BadToken::NotFound(shown_address(&self.audience))),
        }
    }

    /// The credential, if the token is valid.
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

/// An audience as the service shows it: `sb://HOST/NAME`, without a port.
fn shown_address(audience: &str) -> String {
    let (host, path) = match audience.split_once("://") {
        Some((_, rest)) => rest.split_once('/').unwrap_or((rest, "")),
        None => ("", audience),
    };
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let path = percent_decode_str(path).decode_utf8_lossy();
    match (host, path.trim_matches('/')) {
        ("", path) => path.to_owned(),
        (host, path) => format!("sb://{host}/{path}"),
    }
}

/// The status for an accepted token.
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
