//! Queues and messages as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_amqp::codec::{Uuid, Value};
use kew_bus_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
use kew_engine::Timestamp;
use kew_engine::bus::{BusMessageState, BusQueueView, EntityKind, EntityStatus, PeekedBusMessage};
use serde::Serialize;
use serde_json::Value as Json;

use super::super::answers::Shown;
use super::super::answers::times::rfc3339;
use super::super::data::id_text;
use crate::authorization::description::Description;
use crate::messages::view::MessageView;

/// A queue with its counts.
#[derive(Debug, Serialize)]
pub(super) struct QueueView {
    name: String,
    status: &'static str,
    active_messages: u64,
    scheduled_messages: u64,
    dead_letters: u64,
    failed_transfers: u64,
    /// How many a topic has.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions: Option<u64>,
    size_bytes: u64,
    size_bytes_max: u64,
    message_size_bytes_max: u64,
    requires_session: bool,
    detects_duplicates: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_window_ms: Option<u64>,
    lock_duration_ms: u64,
    max_delivery_count: u32,
    /// `None` if messages without a time to live never expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_time_to_live_ms: Option<u64>,
    dead_letters_expired: bool,
    /// `None` if idling never deletes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_delete_on_idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_dead_letters_to: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_metadata: String,
    created_at: String,
    updated_at: String,
    used_at: String,
}

impl QueueView {
    pub(super) fn of(view: &BusQueueView) -> Self {
        let (options, counts) = (&view.options, &view.counts);
        let unless_never = |ms: u64| (ms != u64::MAX).then_some(ms);
        Self {
            name: view.name.to_string(),
            status: match options.status {
                EntityStatus::Active => "Active",
                EntityStatus::Disabled => "Disabled",
                EntityStatus::SendDisabled => "SendDisabled",
                EntityStatus::ReceiveDisabled => "ReceiveDisabled",
            },
            active_messages: counts.active,
            scheduled_messages: counts.scheduled,
            dead_letters: counts.dead_letters,
            failed_transfers: counts.failed_transfers,
            subscriptions: (view.kind == EntityKind::Topic).then_some(counts.subscriptions),
            size_bytes: counts.size_bytes,
            size_bytes_max: options.size_bytes_max,
            message_size_bytes_max: options.message_size_bytes_max,
            requires_session: options.requires_session,
            detects_duplicates: options.duplicate_window_ms.is_some(),
            duplicate_window_ms: options.duplicate_window_ms,
            lock_duration_ms: options.lock_duration_ms,
            max_delivery_count: options.max_delivery_count,
            default_time_to_live_ms: unless_never(options.default_time_to_live_ms),
            dead_letters_expired: options.dead_letters_expired,
            auto_delete_on_idle_ms: unless_never(options.auto_delete_on_idle_ms),
            forward_to: options.forward_to.as_deref().map(str::to_owned),
            forward_dead_letters_to: options
                .forward_dead_letters_to
                .as_deref()
                .map(str::to_owned),
            user_metadata: Description::decode(&options.description).user_metadata,
            created_at: rfc3339(view.created_at),
            updated_at: rfc3339(view.updated_at),
            used_at: rfc3339(view.used_at),
        }
    }
}

impl MessageView {
    pub(super) fn of_peeked(message: &PeekedBusMessage, shown: &Shown) -> Self {
        Self::of(message.state, message.due_at, shown)
    }

    /// `due_at` is when the lock ends or the message becomes active.
    pub(super) fn of(state: BusMessageState, due_at: Timestamp, shown: &Shown) -> Self {
        let (facts, properties) = (&shown.facts, &shown.properties);
        let text = |text: &Option<kew_amqp::codec::Text>| text.as_ref().map(ToString::to_string);
        let unless_never = |at: Timestamp| (at != Timestamp::NEVER).then(|| rfc3339(at));
        let (state, locked_until, scheduled_for) = match state {
            BusMessageState::Ready => ("active", None, None),
            BusMessageState::Locked { .. } => ("locked", unless_never(due_at), None),
            BusMessageState::Deferred => ("deferred", None, None),
            BusMessageState::Scheduled => ("scheduled", None, unless_never(due_at)),
        };
        let custom = shown
            .application_properties()
            .filter(|(name, _)| name != DEAD_LETTER_REASON && name != DEAD_LETTER_DESCRIPTION)
            .map(|(name, value)| (name, json_of(&value)));
        Self {
            sequence_number: facts.sequence_number,
            enqueued_sequence_number: Some(facts.first_sequence_number),
            state,
            message_id: properties.message_id.as_ref().map(id_text),
            session_id: text(&properties.group_id),
            correlation_id: properties.correlation_id.as_ref().map(id_text),
            subject: text(&properties.subject),
            to: text(&properties.to),
            reply_to: text(&properties.reply_to),
            reply_to_session_id: text(&properties.reply_to_group_id),
            partition_key: shown.partition_key(),
            content_type: shown.content_type().map(str::to_owned),
            content_encoding: properties
                .content_encoding
                .as_ref()
                .map(ToString::to_string),
            enqueued_at: Some(rfc3339(facts.enqueued_at)),
            expires_at: unless_never(facts.expires_at),
            scheduled_for,
            locked_until,
            lock_token: facts.lock.map(|lock| Uuid(*lock.as_bytes()).text()),
            delivery_count: facts.delivery_count.into(),
            dead_letter_reason: shown.text_property(DEAD_LETTER_REASON),
            dead_letter_description: shown.text_property(DEAD_LETTER_DESCRIPTION),
            dead_letter_source: shown.dead_letter_source(),
            properties: custom.collect(),
            ..Self::default()
        }
        .with_body(&shown.body())
    }
}

/// A value as JSON. Types without a form in JSON become text.
pub(super) fn json_of(value: &Value) -> Json {
    if let Some(whole) = value.as_integer() {
        return whole.into();
    }
    match value {
        Value::Null => Json::Null,
        Value::Boolean(flag) => (*flag).into(),
        Value::Ulong(whole) => (*whole).into(),
        Value::Float(number) => f64::from(*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Char(char) => char.to_string().into(),
        Value::String(text) => text.as_str().into(),
        Value::Symbol(text) => text.as_str().into(),
        Value::Uuid(uuid) => uuid.text().into(),
        Value::Timestamp(at) => {
            rfc3339(Timestamp::from_ms(u64::try_from(at.0).unwrap_or_default())).into()
        }
        Value::Binary(bytes) => STANDARD.encode(bytes).into(),
        other => format!("{other:?}").into(),
    }
}
