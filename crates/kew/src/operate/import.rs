//! `kew bus message import`: JSON lines that `export` has written, sent to a queue.
//!
//! Lines are sent in their order. The command waits for the outcome of each send, and an error says which lines were
//! sent, which one was wrong or refused, and how to go on. So does an interruption: it waits for the outcome of a send
//! that has begun.

use std::ops::RangeInclusive;
use std::time::SystemTime;

use bytes::Bytes;
use kew_client::{Batch, Encoded, Sender};
use serde_json::json;

use super::{Doors, Session};
use crate::bus_tool_args::ImportMessagesArgs;
use crate::importing::{Lines, SharedProgress};
use crate::portable::{Record, message_of, new_id};
use crate::queue_command::{Failure, printable};

/// Larger batches are not faster.
const BATCH_COUNT_MAX: usize = 500;

/// The most bytes that are put into an entity at once. One message alone may have more.
const DEPOSIT_SIZE_BYTES_MAX: usize = 1 << 20;

/// What a message takes in a batch beside its bytes.
const SECTION_SIZE_BYTES: usize = 8;

/// How many messages are scheduled at once. Services bound it by size only.
const SCHEDULE_COUNT_MAX: usize = 100;

pub(super) fn import(it: &mut Session, args: &ImportMessagesArgs) -> Result<(), Failure> {
    let mut lines = Lines::open(args.file.as_deref(), args.from_line)?;
    if args.dry_run {
        let right = lines.check(|record| Content::changed(record, args))?;
        if it.output.json {
            let report = json!({"queue": args.queue, "sent": 0, "right": right});
            return Ok(it.output.object(&report)?);
        }
        return Ok(it.output.line(&format!("would send {right} messages"))?);
    }
    let doors = &it.doors;
    let sender = doors.over_amqp(doors.bus.sender(&args.queue))?;
    let progress = SharedProgress::new(args.from_line);
    doors.spawn(progress.clone().end_early(args.common.json));
    let mut outbox = Outbox {
        bundle: Bundle::new(doors, sender),
        progress,
    };
    loop {
        match lines.next(|record| Content::changed(record, args)) {
            Ok(Some(content)) => outbox.add(lines.number, content)?,
            Ok(None) => break,
            Err(failure) => {
                // What is right before it is sent.
                outbox.send()?;
                return Err(outbox.progress.get().failed(failure, None));
            }
        }
    }
    outbox.send()?;
    let sent = outbox.progress.get().sent;
    if it.output.json {
        let report = json!({"queue": args.queue, "sent": sent, "last_line": lines.number});
        return Ok(it.output.object(&report)?);
    }
    let messages = if sent == 1 { "message" } else { "messages" };
    let line = format!("sent {sent} {messages} to {}", printable(&args.queue));
    Ok(it.output.line(&line)?)
}

/// A message to be sent.
pub(super) struct Content {
    message: Encoded,
    /// Messages of one session and one partition can be sent together.
    group: (Option<String>, Option<String>),
    is_scheduled: bool,
}

impl Content {
    fn changed(mut record: Record, args: &ImportMessagesArgs) -> Result<Self, String> {
        if args.new_ids {
            record.set_message_id(new_id()?);
        }
        if args.now {
            record.clear_schedule();
        }
        Self::of(&record)
    }

    pub(super) fn of(record: &Record) -> Result<Self, String> {
        let now = SystemTime::now();
        let message = message_of(record, now)?;
        Ok(Self {
            message: Encoded::new(message).map_err(|error| error.text().to_owned())?,
            group: record.group(),
            is_scheduled: record.is_scheduled(now),
        })
    }
}

/// How messages come into their entity.
enum Way {
    /// They are sent, as far as they fit in a batch.
    Sent(Sender, Batch),
    /// They are put into this entity by Kew's own interface. They have so many bytes.
    Deposited(String, usize),
}

/// Messages that are sent together, with their lines.
pub(super) struct Bundle<'a> {
    doors: &'a Doors,
    way: Way,
    waiting: Vec<(u64, Content)>,
}

impl<'a> Bundle<'a> {
    pub(super) fn new(doors: &'a Doors, sender: Sender) -> Self {
        let batch = sender.new_batch();
        Self {
            doors,
            way: Way::Sent(sender, batch),
            waiting: Vec::new(),
        }
    }

    /// For an entity that nobody sends to.
    pub(super) fn deposited(doors: &'a Doors, entity: &str) -> Self {
        Self {
            doors,
            way: Way::Deposited(entity.to_owned(), 0),
            waiting: Vec::new(),
        }
    }

    /// Whether a message may be sent with those that wait, if there is room for it.
    pub(super) fn may_take(&self, content: &Content) -> bool {
        let count_max = match content.is_scheduled {
            true => SCHEDULE_COUNT_MAX,
            false => BATCH_COUNT_MAX,
        };
        let is_alone = match &self.way {
            Way::Sent(_, batch) => batch.len() != self.waiting.len(),
            Way::Deposited(_, size_bytes) => *size_bytes > DEPOSIT_SIZE_BYTES_MAX,
        };
        !is_alone
            && self.waiting.len() < count_max
            && self.waiting.first().is_none_or(|(_, first)| {
                first.group == content.group && first.is_scheduled == content.is_scheduled
            })
    }

    /// Adds a message, or gives it back if there is no room for it. One that is too large for any batch waits alone: perhaps it is not too
    /// large by itself.
    pub(super) fn add(&mut self, line: u64, content: Content) -> Option<Content> {
        let has_room = match &mut self.way {
            Way::Sent(_, batch) => batch.try_add_encoded(&content.message),
            Way::Deposited(_, size_bytes) => {
                let with_it = *size_bytes + content.message.bytes().len() + SECTION_SIZE_BYTES;
                let has_room = with_it <= DEPOSIT_SIZE_BYTES_MAX;
                if has_room || self.waiting.is_empty() {
                    *size_bytes = with_it;
                }
                has_room
            }
        };
        if !has_room && !self.waiting.is_empty() {
            return Some(content);
        }
        self.waiting.push((line, content));
        None
    }

    /// The lines of the messages that wait.
    pub(super) fn lines(&self) -> Option<RangeInclusive<u64>> {
        match (self.waiting.first(), self.waiting.last()) {
            (Some((first, _)), Some((last, _))) => Some(*first..=*last),
            (Some(_), None) | (None, _) => None,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Sends what waits.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let waiting = std::mem::take(&mut self.waiting);
        let (sender, batch) = match &mut self.way {
            Way::Sent(sender, batch) => {
                let batch = std::mem::replace(batch, sender.new_batch());
                (sender, batch)
            }
            Way::Deposited(entity, size_bytes) => {
                *size_bytes = 0;
                let messages = waiting.iter().map(|(_, it)| it.message.bytes().clone());
                let messages: Vec<Bytes> = messages.collect();
                return match messages.is_empty() {
                    true => Ok(()),
                    false => self.doors.own().deposit(entity, &messages),
                };
            }
        };
        match &*waiting {
            [] => Ok(()),
            [(_, first), ..] if first.is_scheduled => {
                let messages = waiting.iter().map(|(_, content)| content.message.clone());
                let messages: Vec<Encoded> = messages.collect();
                let scheduled = sender.schedule_encoded(&messages);
                self.doors.over_amqp(scheduled).map(drop)
            }
            [(_, content)] => {
                let send = sender.send_encoded(&content.message);
                self.doors.over_amqp(send)
            }
            _ => {
                assert_eq!(batch.len(), waiting.len(), "a line is not in its batch");
                self.doors.over_amqp(sender.send_batch(&batch))
            }
        }
    }
}

/// Messages on their way, and what was sent so far.
struct Outbox<'a> {
    bundle: Bundle<'a>,
    progress: SharedProgress,
}

impl Outbox<'_> {
    fn add(&mut self, line: u64, content: Content) -> Result<(), Failure> {
        if !self.bundle.may_take(&content) {
            self.send()?;
        }
        if let Some(content) = self.bundle.add(line, content) {
            self.send()?;
            let left = self.bundle.add(line, content);
            assert!(left.is_none(), "an empty bundle takes any message");
        }
        Ok(())
    }

    /// Sends what waits, and learns its outcome.
    fn send(&mut self) -> Result<(), Failure> {
        let Some(lines) = self.bundle.lines() else {
            return Ok(());
        };
        let count = self.bundle.count();
        let Self { bundle, progress } = self;
        progress.send(lines, count, || bundle.send())
    }
}
