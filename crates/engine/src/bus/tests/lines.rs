//! Messages of the tests: texts with a property in each line, such as `color=red`, `size=5` and `sys.SessionId=a`.
//!
//! An overlay is a text of lines, too: `+color=red` sets a property, and `-color` removes it. A text that begins with `!`
//! is not a message.

use std::fmt::Write as _;

use bytes::Bytes;
use kew_filter::{Change, Message, OwnedValue, SystemProperty, Target, Value, same_name};

use crate::bus::{
    ACTION_SIZE_BYTES_MAX, DESCRIPTION_SIZE_BYTES_MAX, Format, Known, Made,
    SESSION_ID_SIZE_BYTES_MAX, Unfit,
};

#[derive(Debug)]
pub(crate) struct Lines;

struct View<'a> {
    known: Known<'a>,
    properties: Vec<(&'a str, Value<'a>)>,
}

fn value_of(text: &str) -> Value<'_> {
    text.parse().map_or(Value::Text(text), Value::Long)
}

fn text_of(value: &OwnedValue) -> String {
    match value.as_value() {
        Value::Text(text) => text.to_owned(),
        Value::Int(it) => it.to_string(),
        Value::Long(it) | Value::Timestamp(it) | Value::Duration(it) => it.to_string(),
        Value::Uuid(id) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        other => format!("{other:?}"),
    }
}

impl Format for Lines {
    fn view<'a>(
        &self,
        message: &'a Bytes,
        overlays: &'a [Bytes],
        known: Known<'a>,
    ) -> Option<Box<dyn Message + 'a>> {
        let text = std::str::from_utf8(message).ok()?;
        if text.starts_with('!') {
            return None;
        }
        let properties = text.lines().filter_map(|line| line.split_once('='));
        let properties = properties.map(|(name, value)| (name, value_of(value)));
        let mut properties: Vec<_> = properties.collect();
        let overlays = overlays.iter().map(|it| std::str::from_utf8(it));
        for line in overlays.flat_map(|it| it.unwrap().lines()) {
            let change = line.get(1..)?;
            let (name, value) = change.split_once('=').unwrap_or((change, ""));
            properties.retain(|(it, _)| !same_name(it, name));
            if line.starts_with('+') {
                properties.push((name, value_of(value)));
            }
        }
        Some(Box::new(View { known, properties }))
    }

    fn made_by(&self, changes: &[Change]) -> Result<Made, Unfit> {
        let (mut overlay, mut made) = (String::new(), Made::default());
        for Change { target, to } in changes {
            let to = to.as_ref();
            let name = match target {
                Target::User(name) => name.to_string(),
                Target::System(property) => format!("sys.{}", property.name()),
            };
            match to {
                Some(value) => writeln!(overlay, "+{name}={}", text_of(value)).unwrap(),
                None => writeln!(overlay, "-{name}").unwrap(),
            }
            match target {
                Target::System(SystemProperty::SessionId) => {
                    let session = to.map(text_of);
                    if session
                        .as_ref()
                        .is_some_and(|id| id.len() > SESSION_ID_SIZE_BYTES_MAX)
                    {
                        let (name, allowed) = (name.into(), "a text of at most 512 bytes");
                        return Err(Unfit::Value { name, allowed });
                    }
                    made.session = Some(session.map(Into::into));
                }
                Target::System(SystemProperty::TimeToLive) => {
                    let ticks = to.map(|it| text_of(it).parse::<u64>().unwrap());
                    made.time_to_live_ms = Some(ticks.map(|ticks| ticks.div_ceil(10_000)));
                }
                Target::System(_) | Target::User(_) => {}
            }
        }
        let overlay = Bytes::from(overlay);
        match overlay.len() {
            ..=ACTION_SIZE_BYTES_MAX => Ok(Made { overlay, ..made }),
            size_bytes => Err(Unfit::TooLarge { size_bytes }),
        }
    }

    fn description(&self, text: &str) -> Bytes {
        let end = text.floor_char_boundary(DESCRIPTION_SIZE_BYTES_MAX);
        format!("+why={}\n", &text[..end]).into()
    }
}

impl Message for View<'_> {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let found = self.properties.iter().find(|(it, _)| same_name(it, name));
        found.map(|(_, value)| *value)
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        let time = |it: Option<i64>| it.map_or(Value::Null, Value::Timestamp);
        match property {
            SystemProperty::EnqueuedTimeUtc => time(self.known.enqueued_at_ms),
            SystemProperty::ExpiresAtUtc => time(self.known.expires_at_ms),
            SystemProperty::DeadLetterSource => {
                let source = self.known.dead_letter_source;
                source.map_or(Value::Null, Value::Text)
            }
            other => {
                let name = format!("sys.{}", other.name());
                self.user(&name).unwrap_or(Value::Null)
            }
        }
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in &self.properties {
            if !name.starts_with("sys.") {
                visit(name, *value);
            }
        }
    }
}
