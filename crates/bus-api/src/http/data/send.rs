//! Sends: one message, or a batch of them as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use kew_amqp::codec::{Encode as _, Map, Symbol, Timestamp as WireTime, Value};
use kew_amqp::error::condition;
use kew_amqp::message::{
    Header, MessageId, Properties, write_application_properties, write_data, write_head,
};
use kew_bus_message::SCHEDULED_ENQUEUE_TIME;
use kew_engine::EntityName;
use kew_engine::bus::{BusCommand, BusMessage, ITEMS_MAX};
use serde::Deserialize;

use super::super::answers::{Answer, HttpError, answer_of};
use super::super::call::Call;
use super::broker_properties::Given;
use super::headers::{PROPERTIES_HEADER, is_custom};
use super::values;
use crate::ground::refusal::{bus_condition, text_of};
use crate::ground::submit::Submitted;
use crate::messages::inbound::message_of;
use crate::shared::Shared;

/// The type of a body that is a batch.
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// A message of a batch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InBatch {
    #[serde(default)]
    body: String,
    #[serde(default)]
    is_body_base64: bool,
    #[serde(default)]
    broker_properties: Option<Given>,
    #[serde(default)]
    user_properties: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Source: Service Bus, REST, *Send Message* and *Send Message Batch*.
pub(super) async fn send(
    shared: &Shared,
    call: &Call,
    queue: EntityName,
) -> Result<Answer, HttpError> {
    let content_type = call.head.header(CONTENT_TYPE);
    let is_batch = content_type.is_some_and(|text| {
        let (kind, _) = text.split_once(';').unwrap_or((text, ""));
        kind.trim().eq_ignore_ascii_case(BATCH)
    });
    let messages = if is_batch {
        batch(&call.body)?
    } else {
        vec![single(call, content_type)?]
    };
    let send = BusCommand::Send { queue, messages };
    Submitted::new(&shared.broker, send).answer().await?;
    Ok(answer_of(StatusCode::CREATED))
}

fn single(call: &Call, content_type: Option<&str>) -> Result<BusMessage, HttpError> {
    let given = match call.head.headers.get(PROPERTIES_HEADER) {
        None => Given::default(),
        Some(header) => {
            let text = std::str::from_utf8(header.as_bytes());
            Given::read(text.map_err(|_| HttpError::bad_request("BrokerProperties is not UTF-8"))?)?
        }
    };
    let mut custom = Vec::new();
    for name in call
        .head
        .headers
        .keys()
        .filter(|name| is_custom(name.as_str()))
    {
        // HTTP treats a repeated header as a list.
        let parts = call.head.headers.get_all(name).iter();
        let parts = parts.map(|part| String::from_utf8_lossy(part.as_bytes()));
        let text = parts.collect::<Vec<_>>().join(",");
        custom.push((name.as_str().to_owned(), values::read(&text)));
    }
    let encoding = call.head.header(CONTENT_ENCODING);
    encode(&given, &custom, content_type, encoding, &call.body)
}

fn batch(body: &[u8]) -> Result<Vec<BusMessage>, HttpError> {
    let wrong = |error: serde_json::Error| {
        HttpError::bad_request(format!("the batch is not valid: {error}"))
    };
    let messages: Vec<InBatch> = serde_json::from_slice(body).map_err(wrong)?;
    if messages.is_empty() || messages.len() > ITEMS_MAX {
        let text = format!("a batch must have 1 to {ITEMS_MAX} messages");
        return Err(HttpError::bad_request(text));
    }
    messages.into_iter().map(of_batch).collect()
}

fn of_batch(message: InBatch) -> Result<BusMessage, HttpError> {
    let mut custom = Vec::new();
    for (name, value) in message.user_properties.unwrap_or_default() {
        let value = property(&value).ok_or_else(|| {
            let text =
                format!("the user property '{name}' must be a string, a number, true or false");
            HttpError::bad_request(text)
        })?;
        custom.push((name, value));
    }
    let body = if message.is_body_base64 {
        let decoded = STANDARD.decode(message.body);
        decoded.map_err(|_| HttpError::bad_request("a body is not valid Base64"))?
    } else {
        message.body.into_bytes()
    };
    let given = message.broker_properties.unwrap_or_default();
    encode(&given, &custom, None, None, &body)
}

/// A user property of JSON.
pub(in super::super) fn property(value: &serde_json::Value) -> Option<Value> {
    match value {
        serde_json::Value::Null => Some(Value::Null),
        serde_json::Value::Bool(flag) => Some(Value::Boolean(*flag)),
        serde_json::Value::Number(number) => values::of_number(number),
        serde_json::Value::String(text) => Some(Value::String(text.as_str().into())),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => None,
    }
}

/// The message as AMQP would have sent it, with a body of one data section.
fn encode(
    given: &Given,
    custom: &[(String, Value)],
    content_type: Option<&str>,
    content_encoding: Option<&str>,
    body: &[u8],
) -> Result<BusMessage, HttpError> {
    given.check()?;
    let time_to_live_ms = given.time_to_live_ms()?;
    let header = Header {
        durable: true,
        ttl: time_to_live_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
        ..Header::default()
    };
    let scheduled_at = given.scheduled_at()?;
    let annotations = Map::build(|map| {
        let mut put = |name, value: &Option<String>| {
            if let Some(value) = value {
                map.entry(&Symbol::from_static(name), value.as_str());
            }
        };
        put("x-opt-partition-key", &given.partition_key);
        put("x-opt-via-partition-key", &given.via_partition_key);
        if let Some(at) = scheduled_at {
            let at = WireTime(i64::try_from(at.as_ms()).unwrap_or(i64::MAX));
            map.entry(&Symbol::from_static(SCHEDULED_ENQUEUE_TIME), &at);
        }
    });
    let mut out = BytesMut::with_capacity(body.len() + 512);
    write_head(&mut out, &header, &Map::default(), &annotations);
    properties(given, content_type, content_encoding)?.encode(&mut out);
    let custom = Map::build(|map| {
        for (name, value) in custom {
            map.entry(name.as_str(), value);
        }
    });
    write_application_properties(&mut out, &custom);
    write_data(&mut out, body);
    let message = message_of(&out.freeze()).map_err(refused)?;
    Ok(BusMessage {
        // The header of AMQP cannot hold more than 49 days.
        time_to_live_ms,
        ..message
    })
}

fn properties(
    given: &Given,
    content_type: Option<&str>,
    content_encoding: Option<&str>,
) -> Result<Properties, HttpError> {
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    let id = |id: &Option<String>| id.as_deref().map(|id| MessageId::String(id.into()));
    let symbol = |text: Option<&str>| {
        let ascii = |_| HttpError::bad_request("a content type or encoding is not ASCII");
        text.map(Symbol::new).transpose().map_err(ascii)
    };
    Ok(Properties {
        message_id: id(&given.message_id),
        correlation_id: id(&given.correlation_id),
        to: text(&given.to),
        subject: text(&given.label),
        reply_to: text(&given.reply_to),
        group_id: text(&given.session_id),
        reply_to_group_id: text(&given.reply_to_session_id),
        content_type: symbol(given.content_type.as_deref().or(content_type))?,
        content_encoding: symbol(content_encoding)?,
        ..Properties::default()
    })
}

/// Why a message cannot be stored.
fn refused(error: kew_amqp::error::Error) -> HttpError {
    let text = text_of(&error);
    if error.condition == bus_condition::SERVER_BUSY {
        return HttpError::new(StatusCode::SERVICE_UNAVAILABLE, text).with_sub_code(50_004);
    }
    if error.condition == condition::MESSAGE_SIZE_EXCEEDED {
        return HttpError::new(StatusCode::FORBIDDEN, text).with_sub_code(40_300);
    }
    HttpError::bad_request(text)
}
