//! `kew bus send`: messages over AMQP, in batches; and schedules that are cancelled.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::{Batch, Message, Sender, Value};
use serde_json::{Map, json};

use super::filter::typed;
use super::{Doors, Session};
use crate::bus_message_args::{CancelScheduledArgs, PropertyArgs, SendArgs};
use crate::input::Input;
use crate::queue_command::{Failure, printable, rfc3339};

/// The size of a batch: larger ones are not faster.
const BATCH_SIZE_BYTES_MAX: usize = 256 << 10;
const BATCH_COUNT_MAX: usize = 1000;

/// How many messages are scheduled at once. Services bound it by size only.
const SCHEDULE_COUNT_MAX: usize = 100;

/// The end of the last year that the service can express, in seconds since 1970.
const LAST_S: u64 = 253_402_300_799;

/// When the messages become active, if not at once.
fn scheduled_at(args: &PropertyArgs, now: SystemTime) -> Result<Option<SystemTime>, Failure> {
    match (args.at, args.delay) {
        (Some(at), _) => scheduled(Some(at)).map(Some),
        (None, Some(delay)) => scheduled(now.checked_add(delay)).map(Some),
        (None, None) => Ok(None),
    }
}

/// A time in a request: in whole seconds, and never earlier than requested.
fn scheduled(at: Option<SystemTime>) -> Result<SystemTime, Failure> {
    let at = at.and_then(|at| at.checked_add(Duration::from_millis(999)));
    let since_1970 = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    match since_1970.map(|since| since.as_secs()) {
        Some(seconds) if seconds <= LAST_S => {
            Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        }
        Some(_) | None => {
            let message = "--at and --delay must give a time from 1970 to the end of the year 9999";
            Err(Failure::Usage(message.into()))
        }
    }
}

/// A property on the command line: a scalar of JSON has its type, in the smallest that can hold a number; anything
/// else is a text.
pub(super) fn value_of(name: &str, text: &str) -> Result<Value, Failure> {
    let is_whole = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    Ok(match typed(text) {
        serde_json::Value::Bool(flag) => Value::Boolean(flag),
        serde_json::Value::Number(number) if is_whole && number.is_f64() => {
            let message = format!("--property {name}: {text} has more than 64 bits");
            return Err(Failure::Usage(message));
        }
        serde_json::Value::Number(number) => value_of_number(&number),
        serde_json::Value::String(text) => Value::String(text.into()),
        _ => Value::String(text.into()),
    })
}

fn value_of_number(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(whole), _) => i32::try_from(whole).map_or(Value::Long(whole), Value::Int),
        (None, Some(whole)) => Value::Ulong(whole),
        (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// Properties of the command line, each once.
pub(super) fn values_of(pairs: &[(String, String)]) -> Result<Vec<(String, Value)>, Failure> {
    let mut values: Vec<(String, Value)> = Vec::new();
    for (name, text) in pairs {
        if values.iter().any(|(it, _)| it == name) {
            let message = format!("--property {name} is given twice");
            return Err(Failure::Usage(message));
        }
        values.push((name.clone(), value_of(name, text)?));
    }
    Ok(values)
}

/// The properties that all messages of a command share.
fn pattern(args: &PropertyArgs, now: SystemTime) -> Result<Message, Failure> {
    Ok(Message {
        id: args.message_id.clone(),
        session_id: args.session.clone(),
        subject: args.subject.clone(),
        content_type: args.content_type.clone(),
        correlation_id: args.correlation_id.clone(),
        to: args.to.clone(),
        reply_to: args.reply_to.clone(),
        reply_to_session_id: args.reply_to_session.clone(),
        partition_key: args.partition_key.clone(),
        time_to_live: args.ttl,
        scheduled_at: scheduled_at(args, now)?,
        properties: values_of(&args.property)?,
        ..Message::default()
    })
}

pub(super) fn send(it: &mut Session, args: &SendArgs) -> Result<(), Failure> {
    let pattern = pattern(&args.properties, SystemTime::now())?;
    let mut bodies = Bodies::open(args)?;
    let doors = &it.doors;
    let sender = doors.over_amqp(doors.bus.sender(&args.queue))?;
    let mut outbox = Outbox::new(doors, &sender);
    loop {
        match bodies.next() {
            Ok(Some(body)) => outbox.add(Message {
                body,
                ..pattern.clone()
            })?,
            Ok(None) => break,
            Err(failure) => return Err(outbox.failed(failure)),
        }
    }
    let (sent, numbers) = outbox.end()?;
    if it.output.json {
        let mut report = Map::new();
        report.insert("queue".into(), json!(args.queue));
        report.insert("sent".into(), json!(sent));
        if let Some(at) = pattern.scheduled_at {
            report.insert("scheduled_for".into(), json!(rfc3339(at)));
            report.insert("sequence_numbers".into(), json!(numbers));
        }
        return Ok(it.output.object(&report)?);
    }
    let messages = if sent == 1 { "message" } else { "messages" };
    let line = format!("sent {sent} {messages} to {}", printable(&args.queue));
    Ok(it.output.line(&line)?)
}

pub(super) fn cancel_scheduled(
    it: &mut Session,
    args: &CancelScheduledArgs,
) -> Result<(), Failure> {
    let doors = &it.doors;
    let sender = doors.over_amqp(doors.bus.sender(&args.queue))?;
    doors.over_amqp(sender.cancel_scheduled(&args.numbers))?;
    if it.output.json {
        let report = json!({"queue": args.queue, "cancelled": args.numbers.len()});
        return Ok(it.output.object(&report)?);
    }
    let count = args.numbers.len();
    let messages = if count == 1 { "message" } else { "messages" };
    Ok(it
        .output
        .line(&format!("cancelled {count} scheduled {messages}"))?)
}

/// Where bodies come from.
enum Bodies {
    Texts(std::vec::IntoIter<String>),
    Whole(Option<Input>),
    Lines(Input),
}

impl Bodies {
    fn open(args: &SendArgs) -> Result<Self, Failure> {
        if args.lines {
            return Ok(Self::Lines(Input::open(args.file.as_deref())?));
        }
        if args.text.is_empty() {
            return Ok(Self::Whole(Some(Input::open(args.file.as_deref())?)));
        }
        if args.text.len() > 1 && args.properties.message_id.is_some() {
            let message = "--message-id is for one message: the second would be a duplicate";
            return Err(Failure::Usage(message.into()));
        }
        Ok(Self::Texts(args.text.clone().into_iter()))
    }

    fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        Ok(match self {
            Self::Texts(texts) => texts.next().map(Bytes::from),
            Self::Whole(input) => match input.take() {
                Some(mut input) => Some(input.whole()?.into()),
                None => None,
            },
            Self::Lines(input) => input.line()?.map(Bytes::from),
        })
    }
}

/// Messages of the next batch, and the number of those that were sent.
struct Outbox<'a> {
    doors: &'a Doors,
    sender: &'a Sender,
    batch: Batch,
    /// The messages of the batch while it has only one, which is sent by itself, and all that are to be scheduled.
    waiting: Vec<Message>,
    sent: u64,
    /// Of those that were scheduled.
    numbers: Vec<i64>,
}

impl<'a> Outbox<'a> {
    fn new(doors: &'a Doors, sender: &'a Sender) -> Self {
        Self {
            doors,
            sender,
            batch: sender.new_batch(),
            waiting: Vec::new(),
            sent: 0,
            numbers: Vec::new(),
        }
    }

    /// Adds a message. Sends those before first, if there is no room for it.
    fn add(&mut self, message: Message) -> Result<(), Failure> {
        let is_scheduled = message.scheduled_at.is_some();
        let count_max = if is_scheduled {
            SCHEDULE_COUNT_MAX
        } else {
            BATCH_COUNT_MAX
        };
        let size_bytes = self.batch.size_bytes() + message.body.len();
        if self.batch.len() >= count_max || size_bytes > BATCH_SIZE_BYTES_MAX {
            self.send()?;
        }
        let has_room = self.batch.try_add(&message);
        let has_room = has_room.map_err(|error| self.doors.failed_over_amqp(&error));
        if !has_room.map_err(|failure| self.failed(failure))? {
            self.send()?;
            // Too large for a batch, but perhaps not by itself.
            self.waiting.push(message);
            return self.send();
        }
        if is_scheduled || self.batch.len() == 1 {
            self.waiting.push(message);
        }
        Ok(())
    }

    /// Sends the rest, and returns how many were sent in all, and the numbers of those that were scheduled.
    fn end(mut self) -> Result<(u64, Vec<i64>), Failure> {
        self.send()?;
        Ok((self.sent, self.numbers))
    }

    fn send(&mut self) -> Result<(), Failure> {
        let batch = std::mem::replace(&mut self.batch, self.sender.new_batch());
        let waiting = std::mem::take(&mut self.waiting);
        let (count, sent) = match &waiting[..] {
            [] => return Ok(()),
            [first, ..] if first.scheduled_at.is_some() => {
                let scheduled = self.doors.over_amqp(self.sender.schedule(&waiting));
                (
                    waiting.len(),
                    scheduled.map(|numbers| self.numbers.extend(numbers)),
                )
            }
            [message] if batch.len() <= 1 => (1, self.doors.over_amqp(self.sender.send(message))),
            _ => (
                batch.len(),
                self.doors.over_amqp(self.sender.send_batch(&batch)),
            ),
        };
        sent.map_err(|failure| self.failed(failure))?;
        self.sent += count as u64;
        Ok(())
    }

    /// Adds what was sent before to a failure.
    fn failed(&self, failure: Failure) -> Failure {
        match self.sent {
            0 => failure,
            sent => failure.after(format!("{sent} messages were sent before")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_requested_properties() {
        let args = PropertyArgs {
            message_id: Some("1".into()),
            session: Some("s".into()),
            subject: None,
            content_type: None,
            correlation_id: None,
            to: None,
            reply_to: None,
            reply_to_session: None,
            partition_key: None,
            property: vec![("Tries".into(), "2".into()), ("by".into(), "me".into())],
            ttl: Some(Duration::from_millis(1500)),
            delay: Some(Duration::from_millis(1)),
            at: None,
        };
        let expected = Message {
            id: Some("1".into()),
            session_id: Some("s".into()),
            time_to_live: Some(Duration::from_millis(1500)),
            scheduled_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)),
            properties: vec![
                ("Tries".into(), Value::Int(2)),
                ("by".into(), Value::String("me".into())),
            ],
            ..Message::default()
        };
        assert_eq!(pattern(&args, SystemTime::UNIX_EPOCH).unwrap(), expected);
    }

    #[test]
    fn numbers_have_the_smallest_type() {
        for (text, expected) in [
            ("7", Value::Int(7)),
            ("-5000000000", Value::Long(-5_000_000_000)),
            ("18446744073709551615", Value::Ulong(u64::MAX)),
            ("0.5", Value::Double(0.5)),
            ("true", Value::Boolean(true)),
            ("\"7\"", Value::String("7".into())),
            ("null", Value::String("null".into())),
        ] {
            assert_eq!(value_of("n", text).unwrap(), expected, "{text}");
        }
        assert!(value_of("n", "99999999999999999999").is_err());
    }
}
