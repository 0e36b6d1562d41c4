//! The messages that a request is about.

use kew_bus_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
use kew_engine::bus::{BusMessageState, PeekedBusMessage};
use kew_engine::{SequenceNumber, Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json};

use super::super::answers::HttpError;
use super::super::answers::Shown;
use super::super::answers::times::parse;
use super::super::call::Head;
use super::super::data::{id_text, read_value};
use super::view::json_of;

/// The conditions for a message. A missing field matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Filter {
    /// The first sequence number.
    #[serde(deserialize_with = "number")]
    from: Option<u64>,
    /// The last one.
    #[serde(deserialize_with = "number")]
    to: Option<u64>,
    /// Enqueued at this time or later.
    #[serde(deserialize_with = "time")]
    enqueued_after: Option<Timestamp>,
    /// Enqueued before.
    #[serde(deserialize_with = "time")]
    enqueued_before: Option<Timestamp>,
    state: Option<State>,
    /// The exact reason for dead-lettering.
    reason: Option<String>,
    /// A part of its description.
    description: Option<String>,
    subject: Option<String>,
    content_type: Option<String>,
    message_id: Option<String>,
    session_id: Option<String>,
    /// Application properties with their values.
    properties: Map<String, Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Active,
    Locked,
    Deferred,
    Scheduled,
}

/// A number, or a string with one: parameters are strings.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    use serde::de::Error as _;
    let number = match Json::deserialize(from)? {
        Json::Null => return Ok(None),
        Json::Number(number) => number.as_u64(),
        Json::String(text) => text.parse().ok(),
        _ => None,
    };
    number
        .map(Some)
        .ok_or_else(|| D::Error::custom("expected a sequence number"))
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    use serde::de::Error as _;
    let Some(text) = Option::<String>::deserialize(from)? else {
        return Ok(None);
    };
    let wrong = || D::Error::custom("expected a time such as 2026-01-31T12:00:00Z");
    parse(&text).map(Some).ok_or_else(wrong)
}

impl Filter {
    /// From the parameters of a request, without those of `others`. `property=NAME=VALUE` can occur
    /// more than once.
    pub(super) fn of_query(head: &Head, others: &[&str]) -> Result<Self, HttpError> {
        let mut fields = Map::new();
        let mut properties = Map::new();
        for (name, value) in head.parameters() {
            if others.contains(&name) {
                continue;
            }
            if name == "property" {
                let (name, value) = value.split_once('=').ok_or_else(|| {
                    HttpError::bad_request("property must be of the form NAME=VALUE")
                })?;
                properties.insert(name.to_owned(), json_of(&read_value(value)));
            } else {
                fields.insert(name.to_owned(), Json::from(value));
            }
        }
        if !properties.is_empty() {
            fields.insert("properties".to_owned(), properties.into());
        }
        serde_json::from_value(fields.into()).map_err(|error| {
            HttpError::bad_request(format!("the parameters are not valid: {error}"))
        })
    }

    /// The first number that can match.
    pub(super) fn first(&self) -> SequenceNumber {
        SequenceNumber::named(self.from.unwrap_or_default())
    }

    /// Whether this number, and all later ones, are beyond the last that can match.
    pub(super) fn is_beyond(&self, number: SequenceNumber) -> bool {
        self.to.is_some_and(|to| number.as_u64() > to)
    }

    /// The bounds of a purge that needs to read no message, if there are no other conditions: the
    /// last number, and the latest time.
    pub(super) fn as_range(&self) -> Option<(Option<u64>, Option<Timestamp>)> {
        let (to, before) = (self.to, self.enqueued_before);
        let rest = Self {
            from: None,
            to: None,
            enqueued_before: None,
            ..self.clone()
        };
        rest.is_all().then_some((to, before))
    }

    fn is_all(&self) -> bool {
        let texts = [
            &self.reason,
            &self.description,
            &self.subject,
            &self.content_type,
            &self.message_id,
            &self.session_id,
        ];
        texts.iter().all(|text| text.is_none())
            && self.enqueued_after.is_none()
            && self.state.is_none()
            && self.properties.is_empty()
    }

    /// Whether a message matches. A message with unreadable bytes matches no condition on its
    /// content.
    pub(super) fn matches(&self, message: &PeekedBusMessage, shown: &Shown) -> bool {
        let at = message.enqueued_at;
        let number = message.sequence_number;
        number >= self.first()
            && !self.is_beyond(number)
            && self.enqueued_after.is_none_or(|after| at >= after)
            && self.enqueued_before.is_none_or(|before| at < before)
            && self
                .state
                .is_none_or(|state| state == State::of(message.state))
            && self.matches_texts(shown)
            && self.matches_properties(shown)
    }

    fn matches_texts(&self, shown: &Shown) -> bool {
        let properties = &shown.properties;
        let is =
            |wanted: &Option<String>, found: Option<String>| wanted.is_none() || *wanted == found;
        let text = |text: &Option<kew_amqp::codec::Text>| text.as_ref().map(ToString::to_string);
        let description = shown.text_property(DEAD_LETTER_DESCRIPTION);
        is(&self.reason, shown.text_property(DEAD_LETTER_REASON))
            && is(&self.subject, text(&properties.subject))
            && is(&self.content_type, shown.content_type().map(str::to_owned))
            && is(
                &self.message_id,
                properties.message_id.as_ref().map(id_text),
            )
            && is(&self.session_id, text(&properties.group_id))
            && self.description.as_ref().is_none_or(|part| {
                description.is_some_and(|description| description.contains(part.as_str()))
            })
    }

    fn matches_properties(&self, shown: &Shown) -> bool {
        self.properties.iter().all(|(name, wanted)| {
            let mut found = shown.application_properties();
            found.any(|(key, value)| key == *name && json_of(&value) == *wanted)
        })
    }
}

impl State {
    fn of(state: BusMessageState) -> Self {
        match state {
            BusMessageState::Ready => Self::Active,
            BusMessageState::Locked { .. } => Self::Locked,
            BusMessageState::Deferred => Self::Deferred,
            BusMessageState::Scheduled => Self::Scheduled,
        }
    }
}
