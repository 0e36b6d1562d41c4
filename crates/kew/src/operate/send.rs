//! `kew bus send`: messages over HTTP, in batches.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::connection::Asked;
use super::{Session, in_path, typed};
use crate::bus_message_args::{PropertyArgs, SendArgs};
use crate::input::Input;
use crate::queue_command::{Failure, printable};

/// The type of a body that is a batch.
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// The size of a batch: larger ones are not faster, and the server accepts about 1 MiB.
const BATCH_SIZE_BYTES_MAX: usize = 256 << 10;
const BATCH_COUNT_MAX: usize = 1000;

/// The largest request that the server accepts.
const REQUEST_SIZE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// The service's own properties of each message, under its names; those that are not set are left
/// out. `scheduled_at` is a time of RFC 1123.
fn broker_properties(args: &PropertyArgs, scheduled_at: Option<&str>) -> Map<String, Value> {
    let texts = [
        ("MessageId", args.message_id.as_deref()),
        ("SessionId", args.session.as_deref()),
        ("Label", args.subject.as_deref()),
        ("ContentType", args.content_type.as_deref()),
        ("CorrelationId", args.correlation_id.as_deref()),
        ("To", args.to.as_deref()),
        ("ReplyTo", args.reply_to.as_deref()),
        ("ReplyToSessionId", args.reply_to_session.as_deref()),
        ("PartitionKey", args.partition_key.as_deref()),
        ("ScheduledEnqueueTimeUtc", scheduled_at),
    ];
    let texts = texts.map(|(name, text)| (name, text.map(Value::from)));
    let seconds = args.ttl.map(|ttl| Value::from(ttl.as_secs_f64()));
    let all = texts.into_iter().chain([("TimeToLive", seconds)]);
    all.filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The end of the last year of the wire's date format, in seconds since 1970.
const LAST_S: u64 = 253_402_300_799;

/// When the messages become active, if not at once.
fn scheduled_at(args: &PropertyArgs, now: SystemTime) -> Result<Option<String>, Failure> {
    match (args.at, args.delay) {
        (Some(at), _) => scheduled(Some(at)).map(Some),
        (None, Some(delay)) => scheduled(now.checked_add(delay)).map(Some),
        (None, None) => Ok(None),
    }
}

/// A time in a request: in whole seconds, and never earlier than requested.
fn scheduled(at: Option<SystemTime>) -> Result<String, Failure> {
    let at = at.and_then(|at| at.checked_add(Duration::from_millis(999)));
    let since_1970 = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    match (at, since_1970) {
        (Some(at), Some(since)) if since.as_secs() <= LAST_S => Ok(httpdate::fmt_http_date(at)),
        _ => {
            let message = "--at and --delay must give a time from 1970 to the end of the year 9999";
            Err(Failure::Usage(message.into()))
        }
    }
}

/// The properties that all messages of a command share.
struct Common {
    scheduled_at: Option<String>,
    broker_properties: Map<String, Value>,
    user_properties: Map<String, Value>,
}

impl Common {
    fn of(args: &PropertyArgs, now: SystemTime) -> Result<Self, Failure> {
        let mut user_properties = Map::new();
        for (name, text) in &args.property {
            let value = typed(text);
            let is_whole = text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-');
            if is_whole && value.is_f64() {
                let message = format!("--property {name}: {text} has more than 64 bits");
                return Err(Failure::Usage(message));
            }
            if user_properties.insert(name.clone(), value).is_some() {
                let message = format!("--property {name} is given twice");
                return Err(Failure::Usage(message));
            }
        }
        let scheduled_at = scheduled_at(args, now)?;
        Ok(Self {
            broker_properties: broker_properties(args, scheduled_at.as_deref()),
            scheduled_at,
            user_properties,
        })
    }

    /// A message of a batch.
    fn message(&self, body: &[u8]) -> String {
        let mut message = Map::new();
        match std::str::from_utf8(body) {
            Ok(text) => message.insert("Body".into(), text.into()),
            Err(_) => {
                message.insert("IsBodyBase64".into(), true.into());
                message.insert("Body".into(), STANDARD.encode(body).into())
            }
        };
        message.insert(
            "BrokerProperties".into(),
            self.broker_properties.clone().into(),
        );
        if !self.user_properties.is_empty() {
            message.insert("UserProperties".into(), self.user_properties.clone().into());
        }
        Value::from(message).to_string()
    }
}

pub(super) fn send(it: &mut Session, args: &SendArgs) -> Result<(), Failure> {
    let common = Common::of(&args.properties, SystemTime::now())?;
    let sent = if args.lines {
        send_lines(it, args, &common)?
    } else {
        let bodies = bodies(args)?;
        match &bodies[..] {
            [body] => send_one(it, args, &common, body)?,
            bodies => {
                let mut batch = Batch::default();
                for body in bodies {
                    batch.add(it, args, &common.message(body))?;
                }
                batch.end(it, args)?
            }
        }
    };
    if it.output.json {
        let at = &common.scheduled_at;
        let mut report = json!({"queue": args.queue, "sent": sent});
        if let (Some(at), Some(report)) = (at, report.as_object_mut()) {
            report.insert(
                "scheduled_for".into(),
                super::received::rfc3339_of(at).into(),
            );
        }
        return Ok(it.output.object(&report)?);
    }
    let messages = if sent == 1 { "message" } else { "messages" };
    let line = format!("sent {sent} {messages} to {}", printable(&args.queue));
    Ok(it.output.line(&line)?)
}

/// The bodies to send, except for lines.
fn bodies(args: &SendArgs) -> Result<Vec<Vec<u8>>, Failure> {
    if args.text.is_empty() {
        return Ok(vec![Input::open(args.file.as_deref())?.whole()?]);
    }
    if args.text.len() > 1 && args.properties.message_id.is_some() {
        let message = "--message-id is for one message: the second would be a duplicate";
        return Err(Failure::Usage(message.into()));
    }
    Ok(args
        .text
        .iter()
        .map(|text| text.clone().into_bytes())
        .collect())
}

fn send_lines(it: &Session, args: &SendArgs, common: &Common) -> Result<u64, Failure> {
    let mut input = Input::open(args.file.as_deref())?;
    let mut batch = Batch::default();
    loop {
        match input.line() {
            Ok(Some(line)) => batch.add(it, args, &common.message(&line))?,
            Ok(None) => return batch.end(it, args),
            Err(failure) => return Err(batch.failed(failure)),
        }
    }
}

/// Sends one message. In a batch its properties keep the spelling of their names, which headers do
/// not. But a large message may fit into a request only without a batch.
fn send_one(it: &Session, args: &SendArgs, common: &Common, body: &[u8]) -> Result<u64, Failure> {
    let message = common.message(body);
    let is_small = message.len() + 2 <= REQUEST_SIZE_BYTES_MAX;
    if !is_small && !common.user_properties.is_empty() {
        let message = format!(
            "with --property a body goes within JSON, as base64 if it is no text; this one makes {} bytes, \
             and a request can have {REQUEST_SIZE_BYTES_MAX}",
            message.len() + 2
        );
        return Err(Failure::Usage(message));
    }
    if is_small {
        let mut batch = Batch::default();
        batch.add(it, args, &message)?;
        return batch.end(it, args);
    }
    let properties = ascii(&json!(common.broker_properties).to_string());
    let mut headers = vec![("brokerproperties", properties.as_str())];
    // Without a type the server would have to guess.
    headers.extend([(
        "content-type",
        args.properties.content_type.as_deref().unwrap_or(""),
    )]);
    headers.retain(|(_, value)| !value.is_empty());
    post(it, args, &headers, body.to_vec())?;
    Ok(1)
}

/// Messages of the next batch, and the number of those that were sent.
#[derive(Default)]
struct Batch {
    text: String,
    count: usize,
    sent: u64,
}

impl Batch {
    /// Adds a message. Sends those before first, if there is no room for it.
    fn add(&mut self, it: &Session, args: &SendArgs, message: &str) -> Result<(), Failure> {
        let is_full =
            self.count >= BATCH_COUNT_MAX || self.text.len() + message.len() > BATCH_SIZE_BYTES_MAX;
        if is_full {
            self.send(it, args)?;
        }
        self.text.push(if self.count == 0 { '[' } else { ',' });
        self.text.push_str(message);
        self.count += 1;
        Ok(())
    }

    /// Sends the rest, and returns how many were sent in all.
    fn end(mut self, it: &Session, args: &SendArgs) -> Result<u64, Failure> {
        self.send(it, args)?;
        Ok(self.sent)
    }

    fn send(&mut self, it: &Session, args: &SendArgs) -> Result<(), Failure> {
        if self.count == 0 {
            return Ok(());
        }
        let body = std::mem::take(&mut self.text) + "]";
        let sent = post(it, args, &[("content-type", BATCH)], body.into_bytes());
        sent.map_err(|failure| self.failed(failure))?;
        self.sent += self.count as u64;
        self.count = 0;
        Ok(())
    }

    /// Adds what was sent before to a failure.
    fn failed(&self, failure: Failure) -> Failure {
        match self.sent {
            0 => failure,
            sent => failure.after(format!("{sent} messages were sent before")),
        }
    }
}

fn post(
    it: &Session,
    args: &SendArgs,
    headers: &[(&'static str, &str)],
    body: Vec<u8>,
) -> Result<(), Failure> {
    it.client.ask(Asked {
        headers,
        body: Some(body),
        ..Asked::new(Method::POST, &format!("{}/messages", in_path(&args.queue)))
    })?;
    Ok(())
}

/// JSON that a header can hold: characters that are not ASCII occur only within strings, where they
/// can be escaped.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        if char.is_ascii() {
            out.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_requested_properties() {
        let args = PropertyArgs {
            message_id: Some("1".into()),
            session: Some("s".into()),
            subject: None,
            content_type: None,
            correlation_id: None,
            to: None,
            reply_to: None,
            reply_to_session: None,
            partition_key: None,
            property: vec![("Tries".into(), "2".into()), ("by".into(), "me".into())],
            ttl: Some(Duration::from_millis(1500)),
            delay: Some(Duration::from_millis(1)),
            at: None,
        };
        let common = Common::of(&args, SystemTime::UNIX_EPOCH).unwrap();
        let message: Value = serde_json::from_str(&common.message(b"\xff")).unwrap();
        let expected = json!({
            "Body": "/w==",
            "IsBodyBase64": true,
            "BrokerProperties": {
                "MessageId": "1",
                "SessionId": "s",
                "TimeToLive": 1.5,
                "ScheduledEnqueueTimeUtc": "Thu, 01 Jan 1970 00:00:01 GMT",
            },
            "UserProperties": {"Tries": 2, "by": "me"},
        });
        assert_eq!(message, expected);
        assert_eq!(ascii("\"a\u{e4}\u{1f600}\""), "\"a\\u00e4\\ud83d\\ude00\"");
    }
}
