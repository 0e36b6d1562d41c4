//! What an action made: its changes as an overlay, and what the engine has to know of them.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{
    Described, Descriptor, Raw, Symbol, Timestamp as WireTime, Uuid, Value as Amqp,
    write_described, write_list, write_map,
};
use kew_engine::Timestamp;
use kew_engine::bus::{ACTION_SIZE_BYTES_MAX, Made, SESSION_ID_SIZE_BYTES_MAX, Unfit};
use kew_filter::{Change, OwnedValue, SystemProperty, Target, Value};

use crate::overlay::{SCHEDULED_AT, TIME_TO_LIVE, TextProperty, VERSION_2};
use crate::scalar::{TIMESPAN, readable_time_ms};

/// The longest id of a message, in characters.
///
/// Source: Service Bus, *Quotas*.
pub const MESSAGE_ID_LENGTH_MAX: usize = 128;

const TICKS_PER_MS: u64 = 10_000;

/// The overlay of an action's changes, each property once, in version 2.
pub(crate) fn made_by(changes: &[Change]) -> Result<Made, Unfit> {
    let mut parts = Parts::default();
    for change in changes {
        match (&change.target, &change.to) {
            (Target::User(name), Some(value)) => {
                let value = amqp_of(value.as_value()).ok_or_else(|| Unfit::Value {
                    name: name.clone(),
                    allowed: "a value of one of AMQP's simple types",
                })?;
                parts.set.push((name, value));
            }
            (Target::User(name), None) => parts.removed.push(name),
            (Target::System(property), to) => {
                let to = to.as_ref().map(OwnedValue::as_value);
                parts.change(*property, to.filter(|it| *it != Value::Null))?;
            }
        }
    }
    let overlay = parts.encode();
    match overlay.len() {
        ..=ACTION_SIZE_BYTES_MAX => Ok(Made {
            overlay,
            ..parts.made
        }),
        size_bytes => Err(Unfit::TooLarge { size_bytes }),
    }
}

/// The fields of an overlay, and what the engine has to know of them.
#[derive(Default)]
struct Parts<'a> {
    set: Vec<(&'a str, Amqp)>,
    removed: Vec<&'a str>,
    system: Vec<(u8, Amqp)>,
    made: Made,
}

impl Parts<'_> {
    /// Changes a system property. `None` removes it.
    fn change(&mut self, property: SystemProperty, to: Option<Value<'_>>) -> Result<(), Unfit> {
        let unfit = |allowed| Unfit::Value {
            name: format!("sys.{}", property.name()).into(),
            allowed,
        };
        let (number, value) = match (property, TextProperty::of(property)) {
            (SystemProperty::TimeToLive, _) => {
                let ms = to.map(ms_of).transpose().map_err(unfit)?;
                self.made.time_to_live_ms = Some(ms);
                (TIME_TO_LIVE, ms.map(Amqp::Ulong))
            }
            (SystemProperty::ScheduledEnqueueTimeUtc, _) => {
                let at = to.map(time_of).transpose().map_err(unfit)?;
                // A time before 1970 has passed.
                let time = at.and_then(|WireTime(ms)| u64::try_from(ms).ok());
                self.made.scheduled_at = Some(time.map(Timestamp::from_ms));
                (SCHEDULED_AT, at.map(Amqp::Timestamp))
            }
            (_, Some(text)) => {
                let to = to.map(|to| to.as_text().ok_or("a text")).transpose();
                let value = self.change_text(text, to.map_err(unfit)?).map_err(unfit)?;
                (text.number(), value)
            }
            (_, None) => return Err(unfit("nothing, because only the service sets it")),
        };
        self.system.push((number, value.unwrap_or(Amqp::Null)));
        Ok(())
    }

    fn change_text(
        &mut self,
        property: TextProperty,
        to: Option<&str>,
    ) -> Result<Option<Amqp>, &'static str> {
        match property {
            TextProperty::MessageId => {
                // Receivers need an id to settle a message.
                let is_right =
                    |id: &&str| (1..=MESSAGE_ID_LENGTH_MAX).contains(&id.chars().count());
                let id = to.filter(is_right).ok_or("a text of 1 to 128 characters")?;
                self.made.message_id = Some(id.into());
            }
            TextProperty::SessionId => {
                if to.is_some_and(|id| id.len() > SESSION_ID_SIZE_BYTES_MAX) {
                    return Err("a text of at most 512 bytes");
                }
                self.made.session = Some(to.map(Into::into));
            }
            TextProperty::ContentType => {
                let symbol = to.map(Symbol::new).transpose();
                return match symbol {
                    Ok(symbol) => Ok(symbol.map(Amqp::Symbol)),
                    Err(_) => Err("a text of ASCII characters"),
                };
            }
            TextProperty::CorrelationId
            | TextProperty::To
            | TextProperty::ReplyTo
            | TextProperty::Label
            | TextProperty::ReplyToSessionId
            | TextProperty::PartitionKey
            | TextProperty::ViaPartitionKey => {}
        }
        Ok(to.map(|text| Amqp::String(text.into())))
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        write_described(&mut out, VERSION_2, |out| {
            write_list(out, |list| {
                match self.set.is_empty() {
                    true => list.null(),
                    false => list.with(|out| {
                        write_map(out, |map| {
                            self.set
                                .iter()
                                .for_each(|(name, value)| map.entry(*name, value));
                        });
                    }),
                }
                match self.removed.is_empty() {
                    true => list.null(),
                    false => list.with(|out| {
                        write_list(out, |list| {
                            self.removed.iter().for_each(|name| list.field(*name));
                        });
                    }),
                }
                if !self.system.is_empty() {
                    list.with(|out| {
                        write_map(out, |map| {
                            self.system
                                .iter()
                                .for_each(|(number, value)| map.entry(number, value));
                        });
                    });
                }
            });
        });
        out.freeze()
    }
}

/// The milliseconds of a time to live, at least one.
///
/// Source: .NET's `BrokeredMessage.TimeToLive` refuses zero and less.
fn ms_of(value: Value<'_>) -> Result<u64, &'static str> {
    let ticks = match value {
        Value::Duration(ticks) => u64::try_from(ticks).ok().filter(|ticks| *ticks > 0),
        _ => None,
    };
    let ticks = ticks.ok_or("a duration above zero")?;
    Ok(ticks.div_ceil(TICKS_PER_MS))
}

fn time_of(value: Value<'_>) -> Result<WireTime, &'static str> {
    match value {
        Value::Timestamp(ms) => Ok(WireTime(readable_time_ms(ms))),
        _ => Err("a timestamp"),
    }
}

/// A value of a rule in AMQP's types. `None` for what a rule cannot copy.
fn amqp_of(value: Value<'_>) -> Option<Amqp> {
    Some(match value {
        Value::Null => Amqp::Null,
        Value::Boolean(it) => Amqp::Boolean(it),
        Value::Byte(it) => Amqp::Byte(it),
        Value::Short(it) => Amqp::Short(it),
        Value::Int(it) => Amqp::Int(it),
        Value::Long(it) => Amqp::Long(it),
        Value::Ubyte(it) => Amqp::Ubyte(it),
        Value::Ushort(it) => Amqp::Ushort(it),
        Value::Uint(it) => Amqp::Uint(it),
        Value::Ulong(it) => Amqp::Ulong(it),
        Value::Float(it) => Amqp::Float(it),
        Value::Double(it) => Amqp::Double(it),
        Value::Decimal(it) => Amqp::Decimal128(it.to_decimal128()?),
        Value::Char(it) => Amqp::Char(it),
        Value::Timestamp(ms) => Amqp::Timestamp(WireTime(readable_time_ms(ms))),
        Value::Duration(ticks) => Amqp::Described(Described {
            descriptor: Descriptor::Symbol(Symbol::from_static(TIMESPAN)),
            value: Raw::of(&ticks),
        }),
        Value::Uuid(id) => Amqp::Uuid(Uuid(id)),
        Value::Binary(bytes) => Amqp::Binary(Bytes::copy_from_slice(bytes)),
        Value::Text(text) => Amqp::String(text.into()),
        Value::Symbol(text) => Amqp::Symbol(Symbol::new(text).ok()?),
        Value::Other => return None,
    })
}
