//! `kew bus message import`: JSON lines that `export` has written, sent to a queue.
//!
//! Lines are sent in their order. The command waits for the outcome of each send, and an error says which lines were
//! sent, which one was wrong or refused, and how to go on.

use std::ops::RangeInclusive;
use std::time::SystemTime;

use kew_client::{Batch, Encoded, Sender};
use serde_json::json;

use super::{Doors, Session};
use crate::bus_tool_args::ImportMessagesArgs;
use crate::input::Input;
use crate::portable::{Record, message_of, new_id};
use crate::queue_command::{Failure, note, printable};

/// How many wrong lines a dry run shows.
const WRONG_LINES_MAX: u64 = 20;

/// Larger batches are not faster.
const BATCH_COUNT_MAX: usize = 500;

pub(super) fn import(it: &mut Session, args: &ImportMessagesArgs) -> Result<(), Failure> {
    let mut lines = Lines {
        input: Input::open(args.file.as_deref())?,
        args,
        number: 0,
    };
    if args.dry_run {
        return check(it, lines, args);
    }
    let doors = &it.doors;
    let sender = doors.over_amqp(doors.bus.sender(&args.queue))?;
    let mut outbox = Outbox::new(doors, &sender, args.from_line);
    loop {
        match lines.next() {
            Ok(Some(line)) => outbox.add(line)?,
            Ok(None) => break,
            Err(failure) => {
                // What is right before it is sent.
                outbox.send()?;
                return Err(outbox.failed(failure, None));
            }
        }
    }
    outbox.send()?;
    let sent = outbox.sent;
    if it.output.json {
        let report = json!({"queue": args.queue, "sent": sent, "last_line": lines.number});
        return Ok(it.output.object(&report)?);
    }
    let messages = if sent == 1 { "message" } else { "messages" };
    let line = format!("sent {sent} {messages} to {}", printable(&args.queue));
    Ok(it.output.line(&line)?)
}

/// Reads all lines, shows the wrong ones, and sends nothing.
fn check(it: &mut Session, mut lines: Lines<'_>, args: &ImportMessagesArgs) -> Result<(), Failure> {
    let (mut right, mut wrong) = (0_u64, 0_u64);
    loop {
        match lines.next() {
            Ok(Some(_)) => right += 1,
            Ok(None) => break,
            Err(Failure::Usage(message)) if lines.number > 0 => {
                wrong += 1;
                if wrong <= WRONG_LINES_MAX {
                    note(&message);
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    if wrong > 0 {
        let message = format!("{wrong} lines are wrong and {right} are right; nothing was sent");
        return Err(Failure::Usage(message));
    }
    if it.output.json {
        let report = json!({"queue": args.queue, "sent": 0, "right": right});
        return Ok(it.output.object(&report)?);
    }
    Ok(it.output.line(&format!("would send {right} messages"))?)
}

/// A message to be sent, and where it came from.
struct Line {
    number: u64,
    message: Encoded,
    /// Messages of one session and one partition can be sent together.
    group: (Option<String>, Option<String>),
    is_scheduled: bool,
}

/// The lines of the input. Empty lines count and hold no message.
struct Lines<'a> {
    input: Input,
    args: &'a ImportMessagesArgs,
    /// Of the last line that was read.
    number: u64,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<Line>, Failure> {
        loop {
            let Some(line) = self.input.line()? else {
                return Ok(None);
            };
            self.number += 1;
            if self.number >= self.args.from_line && !line.trim_ascii().is_empty() {
                let wrong = |what| Failure::Usage(format!("{}: {what}", self.input.place()));
                return self.read(&line).map(Some).map_err(wrong);
            }
        }
    }

    fn read(&self, line: &[u8]) -> Result<Line, String> {
        let mut record = Record::read(line)?;
        if self.args.new_ids {
            record.set_message_id(new_id()?);
        }
        if self.args.now {
            record.clear_schedule();
        }
        let message = message_of(&record, SystemTime::now())?;
        let message = Encoded::new(message).map_err(|error| error.text().to_owned())?;
        Ok(Line {
            number: self.number,
            message,
            group: record.group(),
            is_scheduled: record.is_scheduled(),
        })
    }
}

/// Messages that wait to be sent together, and what was sent.
struct Outbox<'a> {
    doors: &'a Doors,
    sender: &'a Sender,
    batch: Batch,
    waiting: Vec<Line>,
    sent: u64,
    /// The first line that is not sent.
    next_line: u64,
}

impl<'a> Outbox<'a> {
    fn new(doors: &'a Doors, sender: &'a Sender, next_line: u64) -> Self {
        Self {
            doors,
            sender,
            batch: sender.new_batch(),
            waiting: Vec::new(),
            sent: 0,
            next_line,
        }
    }

    fn add(&mut self, line: Line) -> Result<(), Failure> {
        let goes_with =
            |first: &Line| first.group == line.group && !first.is_scheduled && !line.is_scheduled;
        let is_alone = self.waiting.first().is_some_and(|first| !goes_with(first));
        if is_alone || self.waiting.len() >= BATCH_COUNT_MAX {
            self.send()?;
        }
        if !self.batch.try_add_encoded(&line.message) {
            self.send()?;
            // Too large for a batch, but perhaps not by itself.
            let _ = self.batch.try_add_encoded(&line.message);
        }
        self.waiting.push(line);
        Ok(())
    }

    /// Sends what waits, and learns its outcome.
    fn send(&mut self) -> Result<(), Failure> {
        let waiting = std::mem::take(&mut self.waiting);
        let batch = std::mem::replace(&mut self.batch, self.sender.new_batch());
        let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else {
            return Ok(());
        };
        let lines = first.number..=last.number;
        let sent = match &waiting[..] {
            [line] if line.is_scheduled => {
                let scheduled = self
                    .sender
                    .schedule_encoded(std::slice::from_ref(&line.message));
                self.doors.over_amqp(scheduled).map(drop)
            }
            [line] => self
                .doors
                .over_amqp(self.sender.send_encoded(&line.message)),
            _ => self.doors.over_amqp(self.sender.send_batch(&batch)),
        };
        sent.map_err(|failure| self.failed(failure, Some(lines)))?;
        self.sent += waiting.len() as u64;
        self.next_line = last.number + 1;
        Ok(())
    }

    /// Says which lines a failure is about, what was sent, and how to go on.
    fn failed(&self, failure: Failure, lines: Option<RangeInclusive<u64>>) -> Failure {
        let about = match lines {
            None => String::new(),
            Some(lines) if lines.start() == lines.end() => format!("line {}; ", lines.start()),
            Some(lines) => format!("lines {} to {}; ", lines.start(), lines.end()),
        };
        let Self {
            sent, next_line, ..
        } = self;
        failure.after(format!(
            "{about}{sent} messages were sent before, and none after; to continue, use --from-line {next_line}"
        ))
    }
}
