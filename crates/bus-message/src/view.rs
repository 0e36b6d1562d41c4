//! What a rule sees of an encoded message.

use std::cell::OnceCell;
use std::collections::HashMap;

use bytes::Bytes;
use kew_amqp::codec::{DecodeError, Uuid, hex};
use kew_engine::bus::Known;
use kew_filter::{Message, SystemProperty, Value, same_name};
use smallvec::SmallVec;

use crate::annotation::{PARTITION_KEY, SCHEDULED_ENQUEUE_TIME, VIA_PARTITION_KEY};
use crate::overlay::{Overlay, SystemChange, TextProperty, wrong_type};
use crate::scalar::{time_to_live_ms, value_of};
use crate::sections::{Compound, Malformed, Section, walk};

const TICKS_PER_MS: i64 = 10_000;

/// As many application properties are compared by name one after the other, and kept without an allocation. Of more,
/// the first one that is asked for by its name makes an index: 64 KiB of properties may be 16,000.
const LISTED_MAX: usize = 16;

/// Fields of the properties section.
///
/// Source: AMQP 1.0, 3.2.4.
const FIELDS_MAX: u32 = 13;

/// An encoded message with what is known of it.
#[derive(Debug)]
pub struct View<'a> {
    known: Known<'a>,
    size_bytes: usize,
    header_ttl_ms: Option<u32>,
    /// The one that an overlay gave it, in place of the message's own.
    changed_life_ms: Option<Option<u64>>,
    partition_key: Option<&'a str>,
    via_partition_key: Option<&'a str>,
    scheduled_at_ms: Option<i64>,
    properties: Properties<'a>,
    user: SmallVec<[(&'a str, Value<'a>); LISTED_MAX]>,
    by_name: OnceCell<ByName<'a>>,
    /// Ids that are no texts.
    message_id: OnceCell<Box<str>>,
    correlation_id: OnceCell<Box<str>>,
}

/// The fields of the properties section that rules see.
#[derive(Debug)]
struct Properties<'a> {
    message_id: Value<'a>,
    correlation_id: Value<'a>,
    to: Option<&'a str>,
    subject: Option<&'a str>,
    reply_to: Option<&'a str>,
    content_type: Option<&'a str>,
    group_id: Option<&'a str>,
    reply_to_group_id: Option<&'a str>,
    expires_at_ms: Option<i64>,
    created_at_ms: Option<i64>,
}

/// Places of application properties: by their names, and by their names in lower case. Of several, the first.
#[derive(Debug, Default)]
struct ByName<'a> {
    spelled: HashMap<&'a str, usize>,
    folded: HashMap<String, usize>,
}

impl<'a> View<'a> {
    /// Reads the sections before the body.
    ///
    /// The message is as it is stored: delivery annotations that follow the body are not looked at.
    pub fn read(message: &'a Bytes, known: Known<'a>) -> Result<Self, Malformed> {
        let mut view = Self {
            known,
            size_bytes: message.len(),
            header_ttl_ms: None,
            changed_life_ms: None,
            partition_key: None,
            via_partition_key: None,
            scheduled_at_ms: None,
            properties: Properties::default(),
            user: SmallVec::new(),
            by_name: OnceCell::new(),
            message_id: OnceCell::new(),
            correlation_id: OnceCell::new(),
        };
        walk(message, |section, value| match section {
            Section::Header => view.read_header(&value),
            Section::MessageAnnotations => view.read_annotations(&value),
            Section::Properties => view.properties.read(&value),
            Section::ApplicationProperties => value.named(|name, value| {
                view.user.push((name, value));
                Ok(())
            }),
            Section::DeliveryAnnotations | Section::Rest => value.elements(|_, _| Ok(())),
        })?;
        Ok(view)
    }

    /// The same with the message's overlays, oldest first.
    pub fn read_changed(
        message: &'a Bytes,
        overlays: &'a [Bytes],
        known: Known<'a>,
    ) -> Result<Self, Malformed> {
        let mut view = Self::read(message, known)?;
        for overlay in overlays {
            let changed = Overlay::read(overlay).and_then(|overlay| view.change(&overlay));
            changed.map_err(|error| Malformed {
                section: "changes",
                error,
            })?;
            view.size_bytes += overlay.len();
        }
        Ok(view)
    }

    /// How many application properties the message has.
    pub fn user_count(&self) -> usize {
        self.user.len()
    }

    fn read_header(&mut self, header: &Compound<'a>) -> Result<(), DecodeError> {
        header.elements(|at, field| {
            if at == 2 {
                self.header_ttl_ms = match value_of(field)? {
                    Value::Null => None,
                    Value::Uint(ms) => Some(ms),
                    _ => return Err(wrong_type("a uint", field)),
                };
            }
            Ok(())
        })
    }

    /// Those that have another type than Service Bus gives them are as if they were not there.
    fn read_annotations(&mut self, annotations: &Compound<'a>) -> Result<(), DecodeError> {
        annotations.named(|name, value| {
            match (name, value) {
                (PARTITION_KEY, value) => self.partition_key = value.as_text(),
                (VIA_PARTITION_KEY, value) => self.via_partition_key = value.as_text(),
                (SCHEDULED_ENQUEUE_TIME, Value::Timestamp(ms)) => self.scheduled_at_ms = Some(ms),
                (_, _) => {}
            }
            Ok(())
        })
    }

    fn change(&mut self, overlay: &Overlay<'a>) -> Result<(), DecodeError> {
        let changed = overlay.names()?;
        self.user.retain(|(name, _)| !changed.contains(name));
        overlay.visit_set(|name, value| {
            self.user.push((name, value));
            Ok(())
        })?;
        for change in overlay.system() {
            match *change {
                SystemChange::Text(property, text) => self.set_text(property, text),
                SystemChange::TimeToLiveMs(ms) => self.changed_life_ms = Some(ms),
                SystemChange::ScheduledAtMs(ms) => self.scheduled_at_ms = ms,
            }
        }
        Ok(())
    }

    fn set_text(&mut self, property: TextProperty, to: Option<&'a str>) {
        let properties = &mut self.properties;
        match property {
            TextProperty::MessageId => properties.message_id = text(to),
            TextProperty::CorrelationId => properties.correlation_id = text(to),
            TextProperty::To => properties.to = to,
            TextProperty::ReplyTo => properties.reply_to = to,
            TextProperty::Label => properties.subject = to,
            TextProperty::SessionId => properties.group_id = to,
            TextProperty::ReplyToSessionId => properties.reply_to_group_id = to,
            TextProperty::ContentType => properties.content_type = to,
            TextProperty::PartitionKey => self.partition_key = to,
            TextProperty::ViaPartitionKey => self.via_partition_key = to,
        }
    }

    fn by_name(&self) -> &ByName<'a> {
        self.by_name.get_or_init(|| {
            let mut index = ByName::default();
            for (at, (name, _)) in self.user.iter().enumerate() {
                index.spelled.entry(name).or_insert(at);
                index.folded.entry(folded(name)).or_insert(at);
            }
            index
        })
    }
}

impl Message for View<'_> {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let found = if self.user.len() <= LISTED_MAX {
            let exact = self.user.iter().find(|(it, _)| *it == name);
            exact.or_else(|| self.user.iter().find(|(it, _)| same_name(it, name)))
        } else {
            let index = self.by_name();
            let at = index.spelled.get(name);
            let at = at.or_else(|| index.folded.get(&folded(name)));
            at.and_then(|at| self.user.get(*at))
        };
        found.map(|(_, value)| *value)
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        let (known, properties) = (&self.known, &self.properties);
        let time = |it: Option<i64>| it.map_or(Value::Null, Value::Timestamp);
        let long = |it: Option<i64>| it.map_or(Value::Null, Value::Long);
        let int = |it: Option<i32>| it.map_or(Value::Null, Value::Int);
        match property {
            SystemProperty::MessageId => id(properties.message_id, &self.message_id),
            SystemProperty::CorrelationId => id(properties.correlation_id, &self.correlation_id),
            SystemProperty::To => text(properties.to),
            SystemProperty::ReplyTo => text(properties.reply_to),
            SystemProperty::Label => text(properties.subject),
            SystemProperty::SessionId => text(properties.group_id),
            SystemProperty::ReplyToSessionId => text(properties.reply_to_group_id),
            SystemProperty::ContentType => text(properties.content_type),
            SystemProperty::TimeToLive => {
                let (from, until) = (properties.created_at_ms, properties.expires_at_ms);
                let of_message = || time_to_live_ms(self.header_ttl_ms, from, until);
                let ms = self.changed_life_ms.unwrap_or_else(of_message);
                ms.map_or(Value::Null, |ms| {
                    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
                    Value::Duration(ms.saturating_mul(TICKS_PER_MS))
                })
            }
            SystemProperty::ScheduledEnqueueTimeUtc => time(self.scheduled_at_ms),
            SystemProperty::PartitionKey => text(self.partition_key),
            SystemProperty::ViaPartitionKey => text(self.via_partition_key),
            SystemProperty::EnqueuedTimeUtc => time(known.enqueued_at_ms),
            SystemProperty::ExpiresAtUtc => time(known.expires_at_ms),
            SystemProperty::SequenceNumber => long(known.sequence_number),
            SystemProperty::EnqueuedSequenceNumber => long(known.enqueued_sequence_number),
            SystemProperty::DeliveryCount => int(known.delivery_count),
            SystemProperty::DeadLetterSource => text(known.dead_letter_source),
            SystemProperty::Size => Value::Long(i64::try_from(self.size_bytes).unwrap_or(i64::MAX)),
            SystemProperty::State => int(known.state),
            SystemProperty::LockToken => known.lock_token.map_or(Value::Null, Value::Uuid),
            SystemProperty::LockedUntilUtc => time(known.locked_until_ms),
        }
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in &self.user {
            visit(name, *value);
        }
    }
}

impl Default for Properties<'_> {
    fn default() -> Self {
        Self {
            message_id: Value::Null,
            correlation_id: Value::Null,
            to: None,
            subject: None,
            reply_to: None,
            content_type: None,
            group_id: None,
            reply_to_group_id: None,
            expires_at_ms: None,
            created_at_ms: None,
        }
    }
}

impl<'a> Properties<'a> {
    fn read(&mut self, list: &Compound<'a>) -> Result<(), DecodeError> {
        list.elements(|at, field| {
            let value = value_of(field)?;
            let text = || match value {
                Value::Null => Ok(None),
                Value::Text(text) => Ok(Some(text)),
                _ => Err(wrong_type("a string", field)),
            };
            let time = || match value {
                Value::Null => Ok(None),
                Value::Timestamp(ms) => Ok(Some(ms)),
                _ => Err(wrong_type("a timestamp", field)),
            };
            let an_id = || match value {
                Value::Null
                | Value::Ulong(_)
                | Value::Uuid(_)
                | Value::Binary(_)
                | Value::Text(_) => Ok(value),
                _ => Err(wrong_type("a ulong, a uuid, binary or a string", field)),
            };
            match at {
                0 => self.message_id = an_id()?,
                2 => self.to = text()?,
                3 => self.subject = text()?,
                4 => self.reply_to = text()?,
                5 => self.correlation_id = an_id()?,
                6 => {
                    self.content_type = match value {
                        Value::Null => None,
                        Value::Symbol(text) => Some(text),
                        _ => return Err(wrong_type("a symbol", field)),
                    }
                }
                8 => self.expires_at_ms = time()?,
                9 => self.created_at_ms = time()?,
                10 => self.group_id = text()?,
                12 => self.reply_to_group_id = text()?,
                // The user's id, the encoding and the group's sequence are no properties of rules.
                1 | 7 | 11 => {}
                surplus => return Err(DecodeError::UnknownFields(surplus + 1 - FIELDS_MAX)),
            }
            Ok(())
        })
    }
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, Value::Text)
}

/// An id is a text in rules. One of another type becomes a text when a rule asks for it.
fn id<'v>(value: Value<'v>, made: &'v OnceCell<Box<str>>) -> Value<'v> {
    let text = match value {
        Value::Ulong(number) => made.get_or_init(|| number.to_string().into()),
        Value::Uuid(uuid) => made.get_or_init(|| Uuid(uuid).text().into()),
        Value::Binary(bytes) => made.get_or_init(|| hex(bytes).into()),
        text_or_null => return text_or_null,
    };
    Value::Text(text)
}

/// A name as rules compare it: those that are [`same_name`] have one.
fn folded(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).collect()
}
