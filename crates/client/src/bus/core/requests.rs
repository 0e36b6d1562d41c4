//! Requests to nodes and their answers, as messages.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Text, Timestamp, Value};
use kew_amqp::message::{
    Message, MessageId, Properties, write_application_properties, write_value,
};
use kew_amqp::performative::{Attach, Role, SenderSettleMode, Source, Target};

use super::{LinkKey, Token};
use crate::error::{Effect, Error};

/// What is asked of an entity's node.
#[derive(Clone, Debug)]
pub(in crate::bus) struct Request {
    pub(in crate::bus) operation: &'static str,
    pub(in crate::bus) body: Map,
    /// The link that holds the lock that the request is about.
    pub(in crate::bus) link: Option<LinkKey>,
    /// How long the service may take, in milliseconds.
    pub(in crate::bus) timeout_ms: u32,
}

/// What a node answered, with success.
#[derive(Clone, Debug)]
pub(in crate::bus) struct Answer {
    pub(in crate::bus) body: Map,
}

#[derive(Debug)]
pub(super) enum Content {
    Request(Request),
    Token { audience_url: String, token: Token },
}

impl Content {
    /// As it is sent. A request can name the link that it is about.
    pub(super) fn encode(&self, number: u64, reply_to: &str, link: Option<&str>) -> Bytes {
        let mut out = BytesMut::new();
        let properties = Properties {
            message_id: Some(MessageId::Ulong(number)),
            reply_to: Some(reply_to.into()),
            ..Properties::default()
        };
        properties.encode(&mut out);
        match self {
            Self::Token {
                audience_url,
                token,
            } => {
                write_application_properties(&mut out, &token_properties(audience_url, token));
                write_value(&mut out, &Text::from(token.text.expose()));
            }
            Self::Request(request) => {
                write_application_properties(&mut out, &request_properties(request, link));
                write_value(&mut out, &request.body);
            }
        }
        out.freeze()
    }
}

pub(super) fn attach_for_requests(node: &str, own: &str) -> Attach {
    let mut attach = Attach::new(format!("{own}-requests").into(), Role::Sender);
    attach.snd_settle_mode = SenderSettleMode::Settled;
    attach.source = Some(Source::new(own.into()));
    attach.target = Some(Target::new(node.into()));
    attach
}

pub(super) fn attach_for_answers(node: &str, own: &str, size_max: u64) -> Attach {
    let mut attach = Attach::new(format!("{own}-answers").into(), Role::Receiver);
    attach.source = Some(Source::new(node.into()));
    attach.target = Some(Target::new(own.into()));
    attach.max_message_size = Some(size_max);
    attach
}

fn token_properties(audience_url: &str, token: &Token) -> Map {
    Map::build(|map| {
        map.entry("operation", "put-token");
        map.entry("type", token.kind);
        map.entry("name", audience_url);
        let lifetime_ms = i64::try_from(token.lifetime.as_millis()).unwrap_or(i64::MAX);
        if let Some(expiration) = token.issued_at_ms.checked_add(lifetime_ms) {
            map.entry("expiration", &Timestamp(expiration));
        }
    })
}

fn request_properties(request: &Request, link: Option<&str>) -> Map {
    Map::build(|map| {
        map.entry("operation", request.operation);
        map.entry("type", "entity-mgmt");
        map.entry("com.microsoft:server-timeout", &request.timeout_ms);
        if let Some(link) = link {
            map.entry("associated-link-name", link);
        }
    })
}

pub(super) fn number_answered(message: &Message) -> Option<u64> {
    match message.properties().ok()?.correlation_id? {
        MessageId::Ulong(number) => Some(number),
        MessageId::Uuid(_) | MessageId::Binary(_) | MessageId::String(_) => None,
    }
}

pub(super) fn result_of(message: &Message, effect: Effect) -> Result<Answer, Error> {
    let properties = message.application_properties();
    let find = |names: [&str; 2]| {
        let mut names = names.into_iter();
        names
            .find_map(|name| properties.get(name))
            .map(|raw| raw.value())
    };
    let status = find(["statusCode", "status-code"]).and_then(|value| value.as_integer());
    let status = status.unwrap_or(-1);
    if (200..300).contains(&status) {
        let body = match message.body_values().next().map(|raw| raw.value()) {
            Some(Value::Map(body)) => body,
            Some(_) | None => Map::default(),
        };
        return Ok(Answer { body });
    }
    let condition = find(["errorCondition", "error-condition"]);
    let text = find(["statusDescription", "status-description"]);
    let text = text.as_ref().and_then(Value::as_str);
    Err(Error::of_status(
        status,
        condition.as_ref().and_then(Value::as_str),
        text.unwrap_or("the service gave no explanation"),
        effect,
    ))
}
