//! Outgoing messages.
//!
//! A new header and new annotations are written before the bare message, which is sent byte for
//! byte. Only if settlements or an action changed properties, these are written again.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, MapWriter, Raw, Symbol, Timestamp as WireTime, Uuid, Value};
use kew_amqp::message::{Message, write_application_properties, write_new_head};
use kew_amqp::performative::Tag;
use kew_bus_message::{
    DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, Merged, expires_at_ms, overlaid,
};
use kew_engine::bus::{BusMessageState, DeadLetterCause, DeliveredMessage, PeekedBusMessage};
use kew_engine::{Timestamp, Token};

/// The annotation with the queue that dead-lettered a message, if it was forwarded since.
pub(crate) const DEAD_LETTER_SOURCE: &str = "x-opt-deadletter-source";

/// Annotations that only the broker writes. A client's values are replaced.
pub(crate) const OWN_ANNOTATIONS: [&str; 6] = [
    "x-opt-enqueued-time",
    "x-opt-sequence-number",
    "x-opt-enqueue-sequence-number",
    "x-opt-locked-until",
    "x-opt-message-state",
    DEAD_LETTER_SOURCE,
];

/// The delivery annotation with the lock token, for the holder of the lock.
const LOCK_TOKEN: &str = "x-opt-lock-token";

/// About the size of a message's head without its client's annotations.
const HEAD_SIZE_BYTES: usize = 288;

/// The queue's facts about an outgoing message.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) sequence_number: u64,
    pub(crate) first_sequence_number: u64,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// When its time to live begins: a scheduled message lives from its schedule on.
    pub(crate) lives_from: Timestamp,
    pub(crate) locked_until: Option<Timestamp>,
    pub(crate) lock: Option<Token>,
    pub(crate) delivery_count: u32,
    /// 0 active, 1 deferred, 2 scheduled.
    pub(crate) state: i32,
    pub(crate) cause: Option<DeadLetterCause>,
    pub(crate) dead_letter_source: Option<Arc<str>>,
}

impl Facts {
    /// The time from enqueueing or the schedule to expiry, unless it never expires.
    fn life_ms(&self) -> Option<u64> {
        let expires = self.expires_at != Timestamp::NEVER;
        expires.then(|| {
            let until = self.expires_at.as_ms();
            until.saturating_sub(self.lives_from.as_ms())
        })
    }

    /// The same as the header says it.
    fn time_to_live(&self) -> Option<u32> {
        let ms = self.life_ms()?;
        Some(u32::try_from(ms).unwrap_or(u32::MAX))
    }
}

impl From<&DeliveredMessage> for Facts {
    fn from(message: &DeliveredMessage) -> Self {
        Self {
            sequence_number: message.sequence_number.as_u64(),
            first_sequence_number: message.first_sequence_number.as_u64(),
            enqueued_at: message.enqueued_at,
            expires_at: message.expires_at,
            lives_from: message.enqueued_at,
            locked_until: message.lock.map(|_| message.locked_until),
            lock: message.lock,
            delivery_count: message.delivery_count,
            state: state_number(message.state),
            cause: message.cause,
            dead_letter_source: message.dead_letter_source.clone(),
        }
    }
}

impl From<&PeekedBusMessage> for Facts {
    fn from(message: &PeekedBusMessage) -> Self {
        let is_locked = matches!(message.state, BusMessageState::Locked { .. });
        Self {
            sequence_number: message.sequence_number.as_u64(),
            first_sequence_number: message.first_sequence_number.as_u64(),
            enqueued_at: message.enqueued_at,
            expires_at: message.expires_at,
            lives_from: match message.state {
                BusMessageState::Scheduled => message.due_at,
                BusMessageState::Ready
                | BusMessageState::Deferred
                | BusMessageState::Locked { .. } => message.enqueued_at,
            },
            locked_until: is_locked.then_some(message.due_at),
            lock: None,
            delivery_count: message.delivery_count,
            state: state_number(message.state),
            cause: message.cause,
            dead_letter_source: message.dead_letter_source.clone(),
        }
    }
}

fn state_number(state: BusMessageState) -> i32 {
    match state {
        BusMessageState::Ready | BusMessageState::Locked { deferred: false } => 0,
        BusMessageState::Deferred | BusMessageState::Locked { deferred: true } => 1,
        BusMessageState::Scheduled => 2,
    }
}

/// A message to send: its head, and the rest. `None` if the stored bytes are not a message, which
/// cannot result from any send.
pub(crate) fn encode(facts: &Facts, stored: Bytes, overlays: &[Bytes]) -> Option<[Bytes; 2]> {
    let message = Message::scan(stored).ok()?;
    let cause = facts.cause.and_then(explain);
    let is_changed = !overlays.is_empty() || cause.is_some();
    let mut merged = is_changed
        .then(|| Merged::of(&message, overlays))
        .transpose()
        .ok()?;
    let (mut header, of_client) = match &merged {
        Some(merged) => (merged.header.clone(), merged.message_annotations.clone()),
        None => (message.header().ok()?, message.message_annotations()),
    };
    header.delivery_count = facts.delivery_count;
    let of_sender = header.ttl;
    header.ttl = facts.time_to_live().or(of_sender);
    // Only then may the sender's times say another life.
    if header.ttl != of_sender || header.ttl == Some(u32::MAX) {
        correct_expiry(&mut merged, &message, facts)?;
    }
    let of_delivery = message.delivery_annotations();
    let size_bytes = of_client.size_bytes() + of_delivery.size_bytes();
    let mut head = BytesMut::with_capacity(HEAD_SIZE_BYTES + size_bytes);
    let has_delivery_annotations = facts.lock.is_some() || !of_delivery.is_empty();
    let delivery_annotations = has_delivery_annotations
        .then_some(|map: &mut MapWriter| write_delivery_annotations(map, facts.lock, &of_delivery));
    write_new_head(&mut head, &header, delivery_annotations, |map| {
        write_annotations(map, facts, &of_client);
    });
    let Some(merged) = merged else {
        return Some([head.freeze(), message.bare_and_footer()]);
    };
    let mut changed = merged.application_properties;
    if let Some((reason, description)) = cause {
        changed = overlaid(&changed, &explained(reason, description));
    }
    merged.properties.encode(&mut head);
    write_application_properties(&mut head, &changed);
    head.extend_from_slice(&message.body());
    Some([head.freeze(), message.footer()])
}

/// Makes the difference of the sender's two times the life that the queue gives the message: SDKs show that difference,
/// and not the header, if a message has both. `None` if the message cannot be read.
fn correct_expiry(merged: &mut Option<Merged>, message: &Message, facts: &Facts) -> Option<()> {
    let Some(life_ms) = facts.life_ms() else {
        return Some(());
    };
    let properties = match &merged {
        Some(merged) => merged.properties.clone(),
        None => message.properties().ok()?,
    };
    let [created, told] = [properties.creation_time, properties.absolute_expiry_time];
    let (Some(WireTime(created)), Some(told)) = (created, told) else {
        return Some(());
    };
    let expiry = WireTime(expires_at_ms(created, life_ms));
    if expiry != told {
        let mut changed = match merged.take() {
            Some(merged) => merged,
            None => Merged::of(message, &[]).ok()?,
        };
        changed.properties.absolute_expiry_time = Some(expiry);
        *merged = Some(changed);
    }
    Some(())
}

/// Writes the lock token, and the sender's annotations. The stored ones have no lock token.
fn write_delivery_annotations(map: &mut MapWriter, lock: Option<Token>, of_sender: &Map) {
    if let Some(lock) = lock {
        map.entry(&Symbol::from_static(LOCK_TOKEN), &uuid(lock));
    }
    for (key, value) in of_sender.iter() {
        map.entry(&key, &value);
    }
}

/// Delivery annotations of a sender without the lock token of a delivery that it received.
pub(crate) fn without_lock_token(annotations: Map) -> Map {
    let is_token = |key: &Raw| key.value().as_str() == Some(LOCK_TOKEN);
    if !annotations.iter().any(|(key, _)| is_token(&key)) {
        return annotations;
    }
    Map::build(|map| {
        for (key, value) in annotations.iter().filter(|(key, _)| !is_token(key)) {
            map.entry(&key, &value);
        }
    })
}

fn write_annotations(map: &mut MapWriter, facts: &Facts, of_client: &Map) {
    let is_own = |key: &Raw| match key.value() {
        Value::Symbol(key) => OWN_ANNOTATIONS.contains(&key.as_str()),
        Value::String(key) => OWN_ANNOTATIONS.contains(&key.as_str()),
        _ => false,
    };
    for (key, value) in of_client.iter().filter(|(key, _)| !is_own(key)) {
        map.entry(&key, &value);
    }
    let mut put = |key: &'static str, value: Value| map.entry(&Symbol::from_static(key), &value);
    put("x-opt-enqueued-time", wire_time(facts.enqueued_at));
    put("x-opt-sequence-number", number(facts.sequence_number));
    put(
        "x-opt-enqueue-sequence-number",
        number(facts.first_sequence_number),
    );
    if let Some(locked_until) = facts.locked_until {
        put("x-opt-locked-until", wire_time(locked_until));
    }
    put("x-opt-message-state", Value::Int(facts.state));
    if let Some(source) = &facts.dead_letter_source {
        put(DEAD_LETTER_SOURCE, Value::String((&**source).into()));
    }
}

fn number(number: u64) -> Value {
    Value::Long(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A time in AMQP's form.
pub(crate) fn wire_time(at: Timestamp) -> Value {
    Value::Timestamp(wire_timestamp(at))
}

/// The latest time that SDKs support: the end of the year 9999.
const LAST_MS: i64 = 253_402_300_799_999;

pub(crate) fn wire_timestamp(at: Timestamp) -> WireTime {
    WireTime(i64::try_from(at.as_ms()).unwrap_or(LAST_MS).min(LAST_MS))
}

/// The properties with the reason for dead-lettering.
pub(crate) fn dead_letter_properties(reason: &str, description: &str) -> Map {
    Map::build(|map| {
        map.entry(DEAD_LETTER_REASON, reason);
        map.entry(DEAD_LETTER_DESCRIPTION, description);
    })
}

/// The properties with a reason, and with a description if the cause alone says it.
fn explained(reason: &str, description: Option<&str>) -> Map {
    match description {
        Some(description) => dead_letter_properties(reason, description),
        None => Map::build(|map| map.entry(DEAD_LETTER_REASON, reason)),
    }
}

/// Reason and description of a dead-lettering by the broker. A change to the message has the description of a failed rule
/// or transfer.
fn explain(cause: DeadLetterCause) -> Option<(&'static str, Option<&'static str>)> {
    let (reason, description) = match cause {
        DeadLetterCause::MaxDeliveryCountExceeded => (
            "MaxDeliveryCountExceeded",
            "Message could not be consumed after the maximum number of delivery attempts.",
        ),
        DeadLetterCause::Expired => (
            "TTLExpiredException",
            "The message expired and was dead lettered.",
        ),
        DeadLetterCause::MaxTransferHopCountExceeded => (
            "MaxTransferHopCountExceeded",
            "The maximum number of allowed hops when forwarding between queues has been exceeded. This value is set to 4.",
        ),
        DeadLetterCause::SessionIdIsNull => (
            "Session id is null.",
            "Session enabled entity doesn't allow a message whose session identifier is null.",
        ),
        DeadLetterCause::DestinationUnavailable => (
            "ForwardingDestinationUnavailable",
            "The entity that the message was to be forwarded to does not accept it: ForwardTo of this queue or \
             subscription names it, or ForwardDeadLetteredMessagesTo for a dead letter.",
        ),
        DeadLetterCause::BodyDamaged => (
            "BodyDamaged",
            "The message cannot be read back as it was written, so a topic cannot look at it.",
        ),
        DeadLetterCause::FilterFailed => return Some(("FilterException", None)),
        DeadLetterCause::TransferFailed => {
            return Some(("ForwardingDestinationUnavailable", None));
        }
        DeadLetterCause::TransferNeedsSession => return Some(("Session id is null.", None)),
        DeadLetterCause::ByReceiver => return None,
    };
    Some((reason, Some(description)))
}

/// A lock token as a UUID of AMQP.
pub(crate) fn uuid(token: Token) -> Uuid {
    Uuid(*token.as_bytes())
}

/// The lock token of a UUID of AMQP.
pub(crate) fn token(uuid: Uuid) -> Token {
    Token::from_bytes(uuid.0)
}

/// A lock token as a delivery tag: the GUID in .NET's order, whose first three groups are reversed.
pub(crate) fn tag(token: Token) -> Tag {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *token.as_bytes();
    let [i, j, k, l, m, n, o, p] = rest;
    Tag::from([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
}

#[cfg(test)]
mod tests {
    use kew_amqp::message::{Header, MessageId, Properties, write_data, write_head};
    use kew_bus_message::{AmqpFormat, overlay_of};
    use kew_engine::bus::Format as _;
    use kew_filter::{Action, NewIds, Parameters};

    use super::*;

    fn stored() -> Bytes {
        let key = Symbol::from_static;
        let header = Header {
            ttl: Some(5_000),
            priority: Some(7),
            ..Header::default()
        };
        let annotations = Map::build(|map| {
            map.entry(&key("x-opt-partition-key"), "old");
            map.entry(&key("x-mine"), &1);
        });
        let properties = Properties {
            message_id: Some(MessageId::Ulong(5)),
            group_id: Some("old".into()),
            creation_time: Some(WireTime(1_000)),
            absolute_expiry_time: Some(WireTime(6_000)),
            group_sequence: Some(3),
            ..Properties::default()
        };
        let user = Map::build(|map| {
            map.entry("color", "red");
            map.entry("size", &5);
        });
        let mut out = BytesMut::new();
        write_head(&mut out, &header, &Map::default(), &annotations);
        properties.encode(&mut out);
        write_application_properties(&mut out, &user);
        write_data(&mut out, b"body");
        out.freeze()
    }

    fn facts(cause: Option<DeadLetterCause>) -> Facts {
        Facts {
            sequence_number: 1,
            first_sequence_number: 1,
            enqueued_at: Timestamp::from_ms(10),
            expires_at: Timestamp::NEVER,
            lives_from: Timestamp::from_ms(10),
            locked_until: None,
            lock: None,
            delivery_count: 0,
            state: 0,
            cause,
            dead_letter_source: None,
        }
    }

    fn sent(facts: &Facts, overlays: &[Bytes]) -> Message {
        let parts = encode(facts, stored(), overlays).unwrap();
        Message::scan(parts.concat().into()).unwrap()
    }

    fn overlay_of_action(text: &str) -> Bytes {
        let stored = stored();
        let view = AmqpFormat.view(&stored, &[], kew_bus_message::Known::default());
        let action = Action::parse(text, &Parameters::default()).unwrap();
        let ids = |_: u32| [0; 16];
        let ids: &dyn NewIds = &ids;
        let changes = action.changes(&*view.unwrap(), ids).unwrap();
        AmqpFormat.made_by(&changes).unwrap().overlay
    }

    /// What an action and settlements after it changed: a receiver gets all of it, and the rest as it was sent.
    #[test]
    fn a_receiver_gets_what_an_action_changed() {
        let action = overlay_of_action(
            "SET sys.To = 'Entity'; SET sys.SessionId = 'new'; SET sys.PartitionKey = 'key';
             SET sys.TimeToLive = '60.00:00:00'; SET color = 'blue'; REMOVE size; SET price = 2.5",
        );
        let settlement = Map::build(|map| map.entry("color", "green"));
        let overlays = [action, overlay_of(&settlement).unwrap()];
        let message = sent(&facts(Some(DeadLetterCause::Expired)), &overlays);
        let days = 60 * 86_400_000;
        let expected = Properties {
            message_id: Some(MessageId::Ulong(5)),
            to: Some("Entity".into()),
            group_id: Some("new".into()),
            creation_time: Some(WireTime(1_000)),
            absolute_expiry_time: Some(WireTime(1_000 + days)),
            group_sequence: Some(3),
            ..Properties::default()
        };
        assert_eq!(message.properties().unwrap(), expected);
        let header = message.header().unwrap();
        assert_eq!((header.ttl, header.priority), (Some(u32::MAX), Some(7)));
        let annotations = message.message_annotations();
        let annotation = |key| annotations.get(key).map(|raw| raw.value());
        let text = |text: &str| Value::String(text.into());
        assert_eq!(annotation("x-opt-partition-key"), Some(text("key")));
        assert_eq!(annotation("x-mine"), Some(Value::Int(1)));
        assert_eq!(annotation("x-opt-sequence-number"), Some(Value::Long(1)));
        let properties = message.application_properties();
        let named: Vec<_> = properties.named().collect();
        let (reason, description) = explain(DeadLetterCause::Expired).unwrap();
        let expected = [
            ("price", Value::Double(2.5)),
            ("color", text("green")),
            (DEAD_LETTER_REASON, text(reason)),
            (DEAD_LETTER_DESCRIPTION, text(description.unwrap())),
        ];
        assert_eq!(named, expected);
        assert_eq!(message.data().as_deref(), Some(&b"body"[..]));
    }

    /// What the queue says of the life counts before the header.
    #[test]
    fn an_expiry_is_in_the_header() {
        let action = overlay_of_action("SET sys.TimeToLive = '00:01:00'");
        let facts = Facts {
            expires_at: Timestamp::from_ms(30_010),
            ..facts(None)
        };
        let message = sent(&facts, &[action]);
        assert_eq!(message.header().unwrap().ttl, Some(30_000));
    }

    /// SDKs take the difference of the sender's two times for the life. A queue can give less than the sender asked for.
    #[test]
    fn the_times_say_the_life_that_the_queue_gives() {
        for (life_ms, in_header) in [(20_000, 20_000), (6_000_000_000, u32::MAX)] {
            let facts = Facts {
                expires_at: Timestamp::from_ms(10 + life_ms),
                ..facts(None)
            };
            let message = sent(&facts, &[]);
            assert_eq!(message.header().unwrap().ttl, Some(in_header));
            let life_ms = i64::try_from(life_ms).unwrap();
            let expected = Properties {
                absolute_expiry_time: Some(WireTime(1_000 + life_ms)),
                ..Message::scan(stored()).unwrap().properties().unwrap()
            };
            assert_eq!(message.properties().unwrap(), expected);
            assert_eq!(message.application_properties().len(), 2);
            assert_eq!(message.data().as_deref(), Some(&b"body"[..]));
        }
        // What the sender said stays, byte for byte, if it holds.
        let facts = Facts {
            expires_at: Timestamp::from_ms(10 + 5_000),
            ..facts(None)
        };
        let message = sent(&facts, &[]);
        let before = Message::scan(stored()).unwrap();
        assert_eq!(message.bare_and_footer(), before.bare_and_footer());
    }

    /// The change has the description, and nothing else replaces it.
    #[test]
    fn a_failed_filter_is_explained_by_its_error() {
        let error = AmqpFormat.description("column 5: division by zero");
        let message = sent(&facts(Some(DeadLetterCause::FilterFailed)), &[error]);
        let properties = message.application_properties();
        let text = |text: &str| Value::String(text.into());
        let expected = [
            ("color", text("red")),
            ("size", Value::Int(5)),
            (DEAD_LETTER_DESCRIPTION, text("column 5: division by zero")),
            (DEAD_LETTER_REASON, text("FilterException")),
        ];
        assert_eq!(properties.named().collect::<Vec<_>>(), expected);
    }

    /// Sections that are not changed keep their bytes, and bytes that are no overlay make no message.
    #[test]
    fn a_message_without_changes_is_sent_byte_for_byte() {
        let stored = stored();
        let [_, rest] = encode(&facts(None), stored.clone(), &[]).unwrap();
        assert_eq!(
            rest,
            Message::scan(stored.clone()).unwrap().bare_and_footer()
        );
        let none = [Bytes::from_static(b"\0\x53\x03\x45")];
        assert_eq!(encode(&facts(None), stored, &none), None);
    }

    #[test]
    fn a_tag_is_the_guid_in_the_order_of_dotnet() {
        let token = Token::from_bytes(std::array::from_fn(|i| u8::try_from(i).unwrap()));
        let expected = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(tag(token).as_bytes(), expected);
    }
}
