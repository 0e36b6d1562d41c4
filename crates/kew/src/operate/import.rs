//! `kew bus message import`: JSON lines that `export` has written, sent to a queue.
//!
//! Lines are sent in their order. The command waits for the outcome of each send, and an error says which lines were
//! sent, which one was wrong or refused, and how to go on. So does an interruption: it waits for the outcome of a send
//! that has begun.

use std::time::SystemTime;

use kew_client::{Batch, Encoded, Sender};
use serde_json::json;

use super::{Doors, Session};
use crate::bus_tool_args::ImportMessagesArgs;
use crate::importing::{Lines, SharedProgress};
use crate::portable::{Record, message_of, new_id};
use crate::queue_command::{Failure, printable};

/// Larger batches are not faster.
const BATCH_COUNT_MAX: usize = 500;

pub(super) fn import(it: &mut Session, args: &ImportMessagesArgs) -> Result<(), Failure> {
    let mut lines = Lines::open(args.file.as_deref(), args.from_line)?;
    if args.dry_run {
        let right = lines.check(|record| Content::of(record, args))?;
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
    let mut outbox = Outbox::new(doors, &sender, progress);
    loop {
        match lines.next(|record| Content::of(record, args)) {
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
struct Content {
    message: Encoded,
    /// Messages of one session and one partition can be sent together.
    group: (Option<String>, Option<String>),
    is_scheduled: bool,
}

impl Content {
    fn of(mut record: Record, args: &ImportMessagesArgs) -> Result<Self, String> {
        if args.new_ids {
            record.set_message_id(new_id()?);
        }
        if args.now {
            record.clear_schedule();
        }
        let message = message_of(&record, SystemTime::now())?;
        Ok(Self {
            message: Encoded::new(message).map_err(|error| error.text().to_owned())?,
            group: record.group(),
            is_scheduled: record.is_scheduled(),
        })
    }
}

/// Messages that wait to be sent together, with their lines.
struct Outbox<'a> {
    doors: &'a Doors,
    sender: &'a Sender,
    batch: Batch,
    waiting: Vec<(u64, Content)>,
    progress: SharedProgress,
}

impl<'a> Outbox<'a> {
    fn new(doors: &'a Doors, sender: &'a Sender, progress: SharedProgress) -> Self {
        Self {
            doors,
            sender,
            batch: sender.new_batch(),
            waiting: Vec::new(),
            progress,
        }
    }

    fn add(&mut self, line: u64, content: Content) -> Result<(), Failure> {
        let goes_with = |first: &Content| {
            first.group == content.group && !first.is_scheduled && !content.is_scheduled
        };
        let is_alone = self
            .waiting
            .first()
            .is_some_and(|(_, first)| !goes_with(first));
        if is_alone || self.waiting.len() >= BATCH_COUNT_MAX {
            self.send()?;
        }
        if !self.batch.try_add_encoded(&content.message) {
            self.send()?;
            // Too large for a batch, but perhaps not by itself.
            let _ = self.batch.try_add_encoded(&content.message);
        }
        self.waiting.push((line, content));
        Ok(())
    }

    /// Sends what waits, and learns its outcome.
    fn send(&mut self) -> Result<(), Failure> {
        let waiting = std::mem::take(&mut self.waiting);
        let batch = std::mem::replace(&mut self.batch, self.sender.new_batch());
        let (Some((first, _)), Some((last, _))) = (waiting.first(), waiting.last()) else {
            return Ok(());
        };
        let count = waiting.len() as u64;
        let send = || self.send_all(&waiting, &batch);
        self.progress.send(*first..=*last, count, send)
    }

    fn send_all(&self, waiting: &[(u64, Content)], batch: &Batch) -> Result<(), Failure> {
        match waiting {
            [(_, content)] if content.is_scheduled => {
                let one = std::slice::from_ref(&content.message);
                let scheduled = self.doors.over_amqp(self.sender.schedule_encoded(one));
                scheduled.map(drop)
            }
            [(_, content)] => {
                let send = self.sender.send_encoded(&content.message);
                self.doors.over_amqp(send)
            }
            _ => self.doors.over_amqp(self.sender.send_batch(batch)),
        }
    }
}
