//! Changes to a stored message: an overlay, which is stored beside it.
//!
//! *Version 1* is an encoded map of application properties with new values. Settlements make it. *Version 2* is a
//! described list, with its version as descriptor, because an action also removes properties and changes those of the
//! system:
//!
//! | field | content |
//! | --- | --- |
//! | set | a map of application properties with new values |
//! | removed | a list of names of application properties |
//! | system | a map of numbers (ubyte) to new values; null removes |
//!
//! A field that is null or missing is empty. A map does not begin with 0x00, so the first byte tells versions apart. A
//! later version has another descriptor, and one that reads only these refuses it.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{
    Decode as _, DecodeError, Descriptor, Encode, Map, Raw, Reader, Value as Amqp,
};
use kew_filter::{SystemProperty, Value};
use smallvec::SmallVec;

use crate::scalar::value_of;
use crate::sections::Compound;

/// The first byte of a described value.
const DESCRIBED: u8 = 0x00;

/// A null.
const NULL: u8 = 0x40;

/// The descriptor of version 2.
pub(crate) const VERSION_2: u64 = 2;

/// The number of the time to live: a ulong of milliseconds.
pub(crate) const TIME_TO_LIVE: u8 = 10;

/// The number of the time when the message becomes active: a timestamp.
pub(crate) const SCHEDULED_AT: u8 = 11;

/// A change of a system property. `None` removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemChange<'a> {
    Text(TextProperty, Option<&'a str>),
    TimeToLiveMs(Option<u64>),
    ScheduledAtMs(Option<i64>),
}

/// The system properties that are texts and that an action may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextProperty {
    MessageId,
    CorrelationId,
    To,
    ReplyTo,
    Label,
    SessionId,
    ReplyToSessionId,
    /// A symbol of ASCII characters.
    ContentType,
    PartitionKey,
    ViaPartitionKey,
}

impl TextProperty {
    /// All of them, each at the place of its number in overlays.
    const ALL: [Self; 10] = [
        Self::MessageId,
        Self::CorrelationId,
        Self::To,
        Self::ReplyTo,
        Self::Label,
        Self::SessionId,
        Self::ReplyToSessionId,
        Self::ContentType,
        Self::PartitionKey,
        Self::ViaPartitionKey,
    ];

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::MessageId => 0,
            Self::CorrelationId => 1,
            Self::To => 2,
            Self::ReplyTo => 3,
            Self::Label => 4,
            Self::SessionId => 5,
            Self::ReplyToSessionId => 6,
            Self::ContentType => 7,
            Self::PartitionKey => 8,
            Self::ViaPartitionKey => 9,
        }
    }

    pub(crate) fn of(property: SystemProperty) -> Option<Self> {
        Some(match property {
            SystemProperty::MessageId => Self::MessageId,
            SystemProperty::CorrelationId => Self::CorrelationId,
            SystemProperty::To => Self::To,
            SystemProperty::ReplyTo => Self::ReplyTo,
            SystemProperty::Label => Self::Label,
            SystemProperty::SessionId => Self::SessionId,
            SystemProperty::ReplyToSessionId => Self::ReplyToSessionId,
            SystemProperty::ContentType => Self::ContentType,
            SystemProperty::PartitionKey => Self::PartitionKey,
            SystemProperty::ViaPartitionKey => Self::ViaPartitionKey,
            SystemProperty::TimeToLive
            | SystemProperty::ScheduledEnqueueTimeUtc
            | SystemProperty::EnqueuedTimeUtc
            | SystemProperty::ExpiresAtUtc
            | SystemProperty::SequenceNumber
            | SystemProperty::EnqueuedSequenceNumber
            | SystemProperty::DeliveryCount
            | SystemProperty::DeadLetterSource
            | SystemProperty::Size
            | SystemProperty::State
            | SystemProperty::LockToken
            | SystemProperty::LockedUntilUtc => return None,
        })
    }
}

/// An encoded overlay, of either version. All of it is checked. Its names and values are borrowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay<'a> {
    set: Option<Compound<'a>>,
    removed: SmallVec<[&'a str; 4]>,
    system: SmallVec<[SystemChange<'a>; 4]>,
}

impl<'a> Overlay<'a> {
    pub(crate) fn read(bytes: &'a Bytes) -> Result<Self, DecodeError> {
        let mut overlay = Self::default();
        let end = match bytes.first() {
            Some(&DESCRIBED) => overlay.read_fields(bytes)?,
            Some(_) | None => overlay.read_set(bytes, 0)?,
        };
        match bytes.len() - end {
            0 => Ok(overlay),
            surplus => Err(DecodeError::Surplus(surplus as u64)),
        }
    }

    /// The names of application properties that it sets or removes.
    pub(crate) fn names(&self) -> Result<HashSet<&'a str>, DecodeError> {
        let mut names: HashSet<_> = self.removed.iter().copied().collect();
        self.visit_set(|name, _| {
            names.insert(name);
            Ok(())
        })?;
        Ok(names)
    }

    pub(crate) fn removed(&self) -> &[&'a str] {
        &self.removed
    }

    /// Shows the application properties with new values.
    pub(crate) fn visit_set(
        &self,
        see: impl FnMut(&'a str, Value<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        self.set.as_ref().map_or(Ok(()), |set| set.named(see))
    }

    /// The application properties with new values, encoded.
    pub(crate) fn set(&self) -> Result<Map, DecodeError> {
        match &self.set {
            Some(set) => Map::decode(&mut set.reader()),
            None => Ok(Map::default()),
        }
    }

    pub(crate) fn system(&self) -> &[SystemChange<'a>] {
        &self.system
    }

    fn read_set(&mut self, bytes: &'a Bytes, at: usize) -> Result<usize, DecodeError> {
        let set = Compound::map(bytes, at)?;
        set.elements(|_, _| Ok(()))?;
        let end = set.end();
        self.set = Some(set);
        Ok(end)
    }

    fn read_fields(&mut self, bytes: &'a Bytes) -> Result<usize, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.descriptor()?;
        if version != Descriptor::Code(VERSION_2) {
            return Err(version.unknown());
        }
        let fields = Compound::list(bytes, reader.position())?;
        fields.places(|at, place| {
            if bytes.get(place.start) == Some(&NULL) {
                return Ok(());
            }
            match at {
                0 => self.read_set(bytes, place.start).map(drop),
                1 => Compound::list(bytes, place.start)?.elements(|_, name| {
                    self.removed.push(text_of(name)?);
                    Ok(())
                }),
                2 => self.read_system(&Compound::map(bytes, place.start)?),
                surplus => Err(DecodeError::UnknownFields(surplus - 2)),
            }
        })?;
        Ok(fields.end())
    }

    fn read_system(&mut self, changes: &Compound<'a>) -> Result<(), DecodeError> {
        let mut number = 0;
        changes.elements(|at, element| {
            if at.is_multiple_of(2) {
                number = match value_of(element)? {
                    Value::Ubyte(number) => number,
                    _ => return Err(wrong_type("a ubyte", element)),
                };
                return Ok(());
            }
            self.system.push(change_of(number, element)?);
            Ok(())
        })
    }
}

fn change_of(number: u8, encoded: &[u8]) -> Result<SystemChange<'_>, DecodeError> {
    let value = value_of(encoded)?;
    let text = |property| match (property, value) {
        (_, Value::Null) => Ok(None),
        (TextProperty::ContentType, Value::Symbol(text)) if text.is_ascii() => Ok(Some(text)),
        (TextProperty::ContentType, _) => Err(wrong_type("a symbol", encoded)),
        (_, Value::Text(text)) => Ok(Some(text)),
        (_, _) => Err(wrong_type("a string", encoded)),
    };
    match (number, value) {
        (TIME_TO_LIVE, Value::Null) => Ok(SystemChange::TimeToLiveMs(None)),
        (TIME_TO_LIVE, Value::Ulong(ms)) => Ok(SystemChange::TimeToLiveMs(Some(ms))),
        (TIME_TO_LIVE, _) => Err(wrong_type("a ulong", encoded)),
        (SCHEDULED_AT, Value::Null) => Ok(SystemChange::ScheduledAtMs(None)),
        (SCHEDULED_AT, Value::Timestamp(ms)) => Ok(SystemChange::ScheduledAtMs(Some(ms))),
        (SCHEDULED_AT, _) => Err(wrong_type("a timestamp", encoded)),
        (number, _) => match TextProperty::ALL.get(usize::from(number)) {
            Some(property) => Ok(SystemChange::Text(*property, text(*property)?)),
            None => Err(DecodeError::BadChoice {
                field: "system property",
                value: number.into(),
            }),
        },
    }
}

fn text_of(encoded: &[u8]) -> Result<&str, DecodeError> {
    match value_of(encoded)? {
        Value::Text(text) => Ok(text),
        _ => Err(wrong_type("a string", encoded)),
    }
}

pub(crate) fn wrong_type(expected: &'static str, encoded: &[u8]) -> DecodeError {
    let found = encoded.first().copied().unwrap_or_default();
    DecodeError::WrongType { expected, found }
}

/// A settlement's change to a message's application properties, in version 1. Keys that are not names are left out:
/// application properties have none. `None` if nothing is left.
pub fn overlay_of(properties: &Map) -> Option<Bytes> {
    let named = Map::build(|map| {
        for (key, value) in properties.iter() {
            if matches!(key.value(), Amqp::String(_) | Amqp::Symbol(_))
                && value.value() != Amqp::Null
            {
                map.entry(&key, &value);
            }
        }
    });
    if named.is_empty() {
        return None;
    }
    let mut out = BytesMut::new();
    overlaid(&Map::default(), &named).encode(&mut out);
    Some(out.freeze())
}

/// Properties with the values of another map in place of their own, and its new ones at the end.
pub fn overlaid(properties: &Map, overlay: &Map) -> Map {
    // Both may have thousands.
    let keys = overlay.iter().map(|(key, _)| key.value());
    let names: HashSet<String> = keys
        .filter_map(|key| key.as_str().map(str::to_owned))
        .collect();
    Map::build(|map| {
        let is_replaced = |name: &str| names.contains(name);
        for (key, value) in properties
            .iter()
            .filter(|(key, _)| !is_named(key, is_replaced))
        {
            map.entry(&key, &value);
        }
        for (key, value) in overlay.iter() {
            // Keys of application properties are strings, and those of annotations symbols.
            match key.value() {
                Amqp::Symbol(key) => map.entry(key.as_str(), &value),
                _ => map.entry(&key, &value),
            }
        }
    })
}

/// Whether a key is a name, and one of these.
pub(crate) fn is_named(key: &Raw, is: impl FnOnce(&str) -> bool) -> bool {
    key.value().as_str().is_some_and(is)
}

#[cfg(test)]
mod tests {
    use kew_amqp::codec::Symbol;

    use super::*;

    #[test]
    fn an_overlay_replaces_and_adds() {
        let old = Map::build(|map| {
            map.entry("a", &1);
            map.entry("b", &2);
        });
        let overlay = Map::build(|map| {
            map.entry(&Symbol::from_static("b"), &3);
            map.entry("c", &4);
        });
        let read: Vec<_> = overlaid(&old, &overlay)
            .iter()
            .map(|(key, value)| (key.value(), value.value()))
            .collect();
        let pair = |key: &str, value| (Amqp::String(key.into()), Amqp::Int(value));
        assert_eq!(read, [pair("a", 1), pair("b", 3), pair("c", 4)]);
    }

    #[test]
    fn each_text_property_is_at_the_place_of_its_number() {
        for (number, property) in (0..).zip(TextProperty::ALL) {
            assert_eq!(property.number(), number);
        }
        let settable = SystemProperty::ALL
            .iter()
            .copied()
            .filter_map(TextProperty::of);
        assert_eq!(settable.count(), TextProperty::ALL.len());
    }
}
