//! A decoded message: what encoded ones with overlays are compared with. It uses nothing of the crate.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Raw, Symbol, Timestamp, Value as Amqp};
use kew_amqp::message::{
    Header, Message as Encoded, MessageId, Properties, write_application_properties, write_data,
    write_head,
};
use kew_bus_message::{Merged, value_of};
use kew_filter::{Change, Message, OwnedValue, SystemProperty as It, Target, Value, same_name};

/// The properties that actions may change.
pub(crate) const SETTABLE: [It; 12] = [
    It::MessageId,
    It::CorrelationId,
    It::To,
    It::ReplyTo,
    It::Label,
    It::SessionId,
    It::ReplyToSessionId,
    It::ContentType,
    It::TimeToLive,
    It::ScheduledEnqueueTimeUtc,
    It::PartitionKey,
    It::ViaPartitionKey,
];

const TICKS_PER_MS: i64 = 10_000;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plain {
    pub(crate) user: Vec<(String, OwnedValue)>,
    pub(crate) system: BTreeMap<It, OwnedValue>,
    pub(crate) created_ms: Option<i64>,
}

impl Message for Plain {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let exact = self.user.iter().find(|(it, _)| it == name);
        let found = exact.or_else(|| self.user.iter().find(|(it, _)| same_name(it, name)));
        found.map(|(_, value)| value.as_value())
    }

    fn system(&self, property: It) -> Value<'_> {
        let found = self.system.get(&property);
        found.map_or(Value::Null, OwnedValue::as_value)
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in &self.user {
            visit(name, value.as_value());
        }
    }
}

impl Plain {
    /// What an action changes.
    pub(crate) fn change(&mut self, changes: &[Change]) {
        for change in changes {
            match (&change.target, &change.to) {
                (Target::User(name), _) => self.user.retain(|(it, _)| **it != **name),
                (Target::System(property), Some(value)) => {
                    self.system.insert(*property, rounded(value));
                }
                (Target::System(property), None) => {
                    self.system.remove(property);
                }
            }
        }
        for change in changes {
            if let (Target::User(name), Some(value)) = (&change.target, &change.to) {
                self.user.push((name.to_string(), value.clone()));
            }
        }
    }

    /// What a settlement changes.
    pub(crate) fn settle(&mut self, changes: &BTreeMap<String, OwnedValue>) {
        self.user.retain(|(name, _)| !changes.contains_key(name));
        let changes = changes.iter();
        self.user
            .extend(changes.map(|(name, value)| (name.clone(), value.clone())));
    }

    /// A life that the header cannot say is known only with the time when the message was made.
    pub(crate) fn as_sent(&self) -> Self {
        let mut sent = self.clone();
        let most = i64::from(u32::MAX) * TICKS_PER_MS;
        if let Some(OwnedValue::Plain(Value::Duration(ticks))) =
            sent.system.get_mut(&It::TimeToLive)
            && self.created_ms.is_none()
        {
            *ticks = most.min(*ticks);
        }
        sent
    }

    fn text(&self, property: It) -> Option<&str> {
        self.system.get(&property)?.as_value().as_text()
    }

    pub(crate) fn encoded(&self) -> Bytes {
        let id = |property| self.text(property).map(|it| MessageId::String(it.into()));
        let text = |property| self.text(property).map(Into::into);
        let life_ms = self.system.get(&It::TimeToLive).map(|it| match it {
            OwnedValue::Plain(Value::Duration(ticks)) => ticks / TICKS_PER_MS,
            other => panic!("{other:?}"),
        });
        let header = Header {
            ttl: life_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
            ..Header::default()
        };
        let key = Symbol::from_static;
        let annotations = Map::build(|map| {
            if let Some(text) = self.text(It::PartitionKey) {
                map.entry(&key("x-opt-partition-key"), text);
            }
            map.entry(&key("x-opt-other"), &1);
            if let Some(text) = self.text(It::ViaPartitionKey) {
                map.entry(&key("x-opt-via-partition-key"), text);
            }
            if let Some(OwnedValue::Plain(Value::Timestamp(ms))) =
                self.system.get(&It::ScheduledEnqueueTimeUtc)
            {
                map.entry(&key("x-opt-scheduled-enqueue-time"), &Timestamp(*ms));
            }
        });
        let ends = |from: i64| Some(Timestamp(from + life_ms?));
        let properties = Properties {
            message_id: id(It::MessageId),
            correlation_id: id(It::CorrelationId),
            to: text(It::To),
            reply_to: text(It::ReplyTo),
            subject: text(It::Label),
            group_id: text(It::SessionId),
            reply_to_group_id: text(It::ReplyToSessionId),
            content_type: self
                .text(It::ContentType)
                .map(|it| Symbol::new(it).unwrap()),
            user_id: Some(Bytes::from_static(b"u")),
            creation_time: self.created_ms.map(Timestamp),
            absolute_expiry_time: self.created_ms.and_then(ends),
            ..Properties::default()
        };
        let user = Map::build(|map| {
            for (name, value) in &self.user {
                map.entry(&**name, &amqp(value));
            }
        });
        let mut out = BytesMut::new();
        write_head(&mut out, &header, &Map::default(), &annotations);
        properties.encode(&mut out);
        write_application_properties(&mut out, &user);
        write_data(&mut out, b"body");
        out.freeze()
    }

    pub(crate) fn decoded(message: &Bytes) -> Self {
        let message = Encoded::scan(message.clone()).unwrap();
        let (header, properties) = (message.header().unwrap(), message.properties().unwrap());
        let annotations = message.message_annotations();
        assert_eq!(
            annotations.get("x-opt-other").unwrap().value(),
            Amqp::Int(1)
        );
        assert_eq!(properties.user_id.as_deref(), Some(&b"u"[..]));
        assert_eq!(message.data().as_deref(), Some(&b"body"[..]));
        let created_ms = properties.creation_time.map(|it| it.0);
        let mut plain = Self {
            created_ms,
            ..Self::default()
        };
        let id = |id: Option<MessageId>| match id {
            Some(MessageId::String(text)) => Some(text.as_str().to_owned()),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        let annotated = |key| annotations.get(key).map(|raw| raw.value());
        let annotated_text = |key| annotated(key).map(|it| it.as_str().unwrap().to_owned());
        let texts = [
            (It::MessageId, id(properties.message_id)),
            (It::CorrelationId, id(properties.correlation_id)),
            (It::To, properties.to.map(|it| it.to_string())),
            (It::ReplyTo, properties.reply_to.map(|it| it.to_string())),
            (It::Label, properties.subject.map(|it| it.to_string())),
            (It::SessionId, properties.group_id.map(|it| it.to_string())),
            (
                It::ReplyToSessionId,
                properties.reply_to_group_id.map(|it| it.to_string()),
            ),
            (
                It::ContentType,
                properties.content_type.map(|it| it.to_string()),
            ),
            (It::PartitionKey, annotated_text("x-opt-partition-key")),
            (
                It::ViaPartitionKey,
                annotated_text("x-opt-via-partition-key"),
            ),
        ];
        for (property, text) in texts {
            if let Some(text) = text {
                plain.system.insert(property, OwnedValue::Text(text.into()));
            }
        }
        let life_ms = match (header.ttl, created_ms, properties.absolute_expiry_time) {
            (Some(u32::MAX), Some(from), Some(Timestamp(until))) => Some(until - from),
            (ttl, _, _) => ttl.map(i64::from),
        };
        if let Some(ms) = life_ms {
            let life = OwnedValue::Plain(Value::Duration(ms * TICKS_PER_MS));
            plain.system.insert(It::TimeToLive, life);
        }
        if let Some(Amqp::Timestamp(Timestamp(ms))) = annotated("x-opt-scheduled-enqueue-time") {
            let at = OwnedValue::Plain(Value::Timestamp(ms));
            plain.system.insert(It::ScheduledEnqueueTimeUtc, at);
        }
        let user = message.application_properties();
        plain.user = user
            .iter()
            .map(|(name, value)| {
                let Amqp::String(name) = name.value() else {
                    panic!("a name is a string, not {name:?}");
                };
                let value = value_of(value.as_bytes()).unwrap().to_owned();
                (name.to_string(), value)
            })
            .collect();
        plain
    }

    /// What anything with these properties shows.
    pub(crate) fn shown(message: &dyn Message) -> String {
        let mut shown = Vec::new();
        message.visit_user(&mut |name, value| shown.push(format!("{name}={value:?}")));
        for property in SETTABLE {
            match message.system(property) {
                Value::Null => {}
                value => shown.push(format!("sys.{}={value:?}", property.name())),
            }
        }
        shown.join(", ")
    }
}

/// A message with its overlays, as receivers get it.
pub(crate) fn sent(message: &Bytes, overlays: &[Bytes]) -> Bytes {
    let message = Encoded::scan(message.clone()).unwrap();
    let merged = Merged::of(&message, overlays).unwrap();
    let mut out = BytesMut::new();
    write_head(
        &mut out,
        &merged.header,
        &Map::default(),
        &merged.message_annotations,
    );
    merged.properties.encode(&mut out);
    write_application_properties(&mut out, &merged.application_properties);
    out.extend_from_slice(&message.body());
    out.freeze()
}

/// A life is stored in whole milliseconds, rounded up.
fn rounded(value: &OwnedValue) -> OwnedValue {
    match value {
        OwnedValue::Plain(Value::Duration(ticks)) => {
            let ms = ticks.div_euclid(TICKS_PER_MS) + i64::from(ticks % TICKS_PER_MS != 0);
            OwnedValue::Plain(Value::Duration(ms.saturating_mul(TICKS_PER_MS)))
        }
        other => other.clone(),
    }
}

/// The values that generated messages have.
pub(crate) fn amqp(value: &OwnedValue) -> Amqp {
    match value.as_value() {
        Value::Null => Amqp::Null,
        Value::Boolean(it) => Amqp::Boolean(it),
        Value::Int(it) => Amqp::Int(it),
        Value::Long(it) => Amqp::Long(it),
        Value::Double(it) => Amqp::Double(it),
        Value::Text(text) => Amqp::String(text.into()),
        Value::Binary(bytes) => Amqp::Binary(Bytes::copy_from_slice(bytes)),
        Value::Other => Amqp::Map(Map::default()),
        other => panic!("{other:?} is in no generated message"),
    }
}

/// A change of a settlement.
pub(crate) fn settled(changes: &BTreeMap<String, OwnedValue>) -> Map {
    Map::build(|map| {
        for (name, value) in changes {
            map.entry(&**name, &Raw::of(&amqp(value)));
        }
    })
}
