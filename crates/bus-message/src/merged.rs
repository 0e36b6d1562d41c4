//! A message with its overlays, for its receivers.

use bytes::Bytes;
use kew_amqp::codec::{DecodeError, Map, Symbol, Timestamp, Value};
use kew_amqp::message::{Header, Message, MessageId, Properties};

use crate::annotation;
use crate::overlay::{Overlay, SystemChange, TextProperty, is_named, overlaid};
use crate::scalar::expires_at_ms;

/// The sections of a message that overlays change, with all changes.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The header.
    pub header: Header,
    /// The message annotations.
    pub message_annotations: Map,
    /// The properties.
    pub properties: Properties,
    /// The application properties.
    pub application_properties: Map,
}

impl Merged {
    /// A stored message with its overlays, oldest first. Fails if the bytes of one are not an overlay.
    pub fn of(message: &Message, overlays: &[Bytes]) -> Result<Self, DecodeError> {
        let mut merged = Self {
            header: message.header()?,
            message_annotations: message.message_annotations(),
            properties: message.properties()?,
            application_properties: message.application_properties(),
        };
        for overlay in overlays {
            merged.change(&Overlay::read(overlay)?)?;
        }
        Ok(merged)
    }

    fn change(&mut self, overlay: &Overlay<'_>) -> Result<(), DecodeError> {
        let removed = overlay.removed();
        if !removed.is_empty() {
            let properties = &self.application_properties;
            self.application_properties = without(properties, |name| removed.contains(&name));
        }
        self.application_properties = overlaid(&self.application_properties, &overlay.set()?);
        for change in overlay.system() {
            match *change {
                SystemChange::Text(property, text) => self.set_text(property, text)?,
                SystemChange::TimeToLiveMs(ms) => self.set_time_to_live(ms),
                SystemChange::ScheduledAtMs(ms) => {
                    let at = ms.map(|ms| Value::Timestamp(Timestamp(ms)));
                    self.annotate(annotation::SCHEDULED_ENQUEUE_TIME, at);
                }
            }
        }
        Ok(())
    }

    fn set_text(&mut self, property: TextProperty, text: Option<&str>) -> Result<(), DecodeError> {
        let properties = &mut self.properties;
        let id = |text: &str| MessageId::String(text.into());
        let string = |text: &str| Value::String(text.into());
        match property {
            TextProperty::MessageId => properties.message_id = text.map(id),
            TextProperty::CorrelationId => properties.correlation_id = text.map(id),
            TextProperty::To => properties.to = text.map(Into::into),
            TextProperty::ReplyTo => properties.reply_to = text.map(Into::into),
            TextProperty::Label => properties.subject = text.map(Into::into),
            TextProperty::SessionId => properties.group_id = text.map(Into::into),
            TextProperty::ReplyToSessionId => properties.reply_to_group_id = text.map(Into::into),
            TextProperty::ContentType => {
                properties.content_type = text.map(Symbol::new).transpose()?;
            }
            TextProperty::PartitionKey => {
                self.annotate(annotation::PARTITION_KEY, text.map(string));
            }
            TextProperty::ViaPartitionKey => {
                self.annotate(annotation::VIA_PARTITION_KEY, text.map(string));
            }
        }
        Ok(())
    }

    /// A life that the header cannot say is also the difference of two times ([`time_to_live_ms`](crate::time_to_live_ms)),
    /// if the sender gave the first one. A time of expiry that the sender gave does not hold any more.
    fn set_time_to_live(&mut self, ms: Option<u64>) {
        self.header.ttl = ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
        let expiry = || {
            let Timestamp(created) = self.properties.creation_time?;
            Some(expires_at_ms(created, ms?))
        };
        self.properties.absolute_expiry_time = expiry().map(Timestamp);
    }

    fn annotate(&mut self, key: &'static str, value: Option<Value>) {
        let others = without(&self.message_annotations, |name| name == key);
        self.message_annotations = Map::build(|map| {
            for (key, value) in others.iter() {
                map.entry(&key, &value);
            }
            if let Some(value) = &value {
                map.entry(&Symbol::from_static(key), value);
            }
        });
    }
}

/// The entries of a map whose names are not among these.
fn without(map: &Map, is_removed: impl Fn(&str) -> bool) -> Map {
    Map::build(|kept| {
        for (key, value) in map.iter().filter(|(key, _)| !is_named(key, &is_removed)) {
            kept.entry(&key, &value);
        }
    })
}
