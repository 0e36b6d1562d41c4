//! Messages to be sent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Symbol, Timestamp, Value};
use kew_amqp::message::{
    Header, MessageId, Properties, write_application_properties, write_data, write_head,
};

use crate::error::Error;

/// A message to be sent. What is `None` is not said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The body.
    pub body: Bytes,
    /// A business id. A queue that detects duplicates drops a second message of the same id.
    pub id: Option<String>,
    /// The message session that it belongs to.
    pub session_id: Option<String>,
    /// The message that it answers, or whatever else it belongs to.
    pub correlation_id: Option<String>,
    /// What it is about.
    pub subject: Option<String>,
    /// What the body is, such as `application/json`. ASCII.
    pub content_type: Option<String>,
    /// Where it goes, for applications that route messages.
    pub to: Option<String>,
    /// Where answers go.
    pub reply_to: Option<String>,
    /// The message session of answers.
    pub reply_to_session_id: Option<String>,
    /// What decides on the partition, in entities that have partitions.
    pub partition_key: Option<String>,
    /// After how long it is worth nothing, counted from its arrival.
    pub time_to_live: Option<Duration>,
    /// When it is to become visible.
    pub scheduled_at: Option<SystemTime>,
    /// What the application says of it: names, and values of simple types.
    pub properties: Vec<(String, Value)>,
}

impl Message {
    /// A message of these bytes.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..Self::default()
        }
    }

    /// As it is sent.
    pub(super) fn encode(&self) -> Result<Bytes, Error> {
        let mut out = BytesMut::with_capacity(self.body.len() + 256);
        let mut properties = self.amqp_properties()?;
        let ttl = self.time_to_live.map(|ttl| expiring(&mut properties, ttl));
        let header = Header {
            durable: true,
            ttl,
            ..Header::default()
        };
        write_head(&mut out, &header, &Map::default(), &self.annotations());
        properties.encode(&mut out);
        let application = Map::build(|map| {
            for (name, value) in &self.properties {
                map.entry(name.as_str(), value);
            }
        });
        write_application_properties(&mut out, &application);
        write_data(&mut out, &self.body);
        Ok(out.freeze())
    }

    pub(super) fn annotations(&self) -> Map {
        Map::build(|map| {
            if let Some(at) = self.scheduled_at {
                let key = Symbol::from_static("x-opt-scheduled-enqueue-time");
                map.entry(&key, &timestamp_of(at));
            }
            if let Some(partition) = &self.partition_key {
                let key = Symbol::from_static("x-opt-partition-key");
                map.entry(&key, partition.as_str());
            }
        })
    }

    pub(super) fn amqp_properties(&self) -> Result<Properties, Error> {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let id = |text: &Option<String>| text.as_deref().map(|id| MessageId::String(id.into()));
        let content_type = self.content_type.as_deref().map(Symbol::new).transpose();
        let not_ascii = |_| Error::refused("the content type of a message must be ASCII");
        Ok(Properties {
            message_id: id(&self.id),
            correlation_id: id(&self.correlation_id),
            group_id: text(&self.session_id),
            subject: text(&self.subject),
            content_type: content_type.map_err(not_ascii)?,
            to: text(&self.to),
            reply_to: text(&self.reply_to),
            reply_to_group_id: text(&self.reply_to_session_id),
            ..Properties::default()
        })
    }
}

/// The time to live as the header has it. One that is too long for it is also said as a time.
fn expiring(properties: &mut Properties, ttl: Duration) -> u32 {
    let ms = u32::try_from(ttl.as_millis());
    ms.unwrap_or_else(|_| {
        let now = SystemTime::now();
        properties.creation_time = Some(timestamp_of(now));
        properties.absolute_expiry_time = now.checked_add(ttl).map(timestamp_of);
        u32::MAX
    })
}

pub(super) fn timestamp_of(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

pub(super) fn time_of(timestamp: Timestamp) -> Option<SystemTime> {
    let ms = u64::try_from(timestamp.0).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use kew_amqp::message::Message as Scanned;

    use super::*;

    #[test]
    fn all_that_is_said_is_written() {
        let at = UNIX_EPOCH + Duration::from_secs(5);
        let some = |text: &str| Some(text.to_owned());
        let message = Message {
            id: some("id"),
            session_id: some("s"),
            correlation_id: some("c"),
            subject: some("sub"),
            content_type: some("text/plain"),
            to: some("to"),
            reply_to: some("r"),
            reply_to_session_id: some("rs"),
            partition_key: some("s"),
            time_to_live: Some(Duration::from_secs(3)),
            scheduled_at: Some(at),
            properties: vec![("n".to_owned(), Value::Long(7))],
            ..Message::new("body")
        };
        let scanned = Scanned::scan(message.encode().unwrap()).unwrap();
        let header = scanned.header().unwrap();
        assert_eq!((header.durable, header.ttl), (true, Some(3_000)));
        let properties = scanned.properties().unwrap();
        assert_eq!(properties, message.amqp_properties().unwrap());
        assert_eq!(properties.group_id, Some("s".into()));
        let annotations = scanned.message_annotations();
        let scheduled = annotations.get("x-opt-scheduled-enqueue-time").unwrap();
        assert_eq!(scheduled.value(), Value::Timestamp(Timestamp(5_000)));
        assert!(annotations.get("x-opt-partition-key").is_some());
        let n = scanned.application_properties().get("n").unwrap();
        assert_eq!(n.value(), Value::Long(7));
    }

    #[test]
    fn a_time_to_live_beyond_the_header_is_a_time() {
        let message = Message {
            time_to_live: Some(Duration::from_hours(24 * 365)),
            ..Message::new("x")
        };
        let scanned = Scanned::scan(message.encode().unwrap()).unwrap();
        assert_eq!(scanned.header().unwrap().ttl, Some(u32::MAX));
        let properties = scanned.properties().unwrap();
        let [begin, end] =
            [properties.creation_time, properties.absolute_expiry_time].map(|time| time.unwrap().0);
        assert_eq!(end - begin, 365 * 24 * 3_600_000);
    }

    #[test]
    fn a_content_type_is_ascii() {
        let message = Message {
            content_type: Some("é".to_owned()),
            ..Message::new("x")
        };
        assert!(message.encode().is_err());
    }
}
