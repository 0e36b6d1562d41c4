//! The lines of an account, sent to an account.
//!
//! Queue Storage shows only the first messages of a queue. So what an earlier import has sent is found by the count of
//! messages, and the first of them are compared with the lines.

use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use super::super::export::GET_MAX;
use super::super::import::options;
use super::super::{Client, Failure, note};
use super::Account;
use super::definition::{metadata_of, policies_of};
use crate::portable::{Line, Record, StorageDefinition, Text, text_of};
use crate::queue_values::queue_name;
use crate::transfer::{Lost, Report};

/// Whether a line of Queue Storage can be imported; or what is wrong with it.
pub(crate) fn check_line(line: &Line) -> Result<(), String> {
    match line {
        Line::StorageQueue(it) => {
            queue_name(&it.queue)?;
            metadata_of(&it.definition).map(drop)
        }
        Line::Message(record) => text_in(record).map(drop),
        Line::BusQueue(_)
        | Line::Topic(_)
        | Line::Subscription(_)
        | Line::Rule(_)
        | Line::SessionState(_)
        | Line::End(_) => Ok(()),
    }
}

/// The queue of a record, and its text.
fn text_in(record: &Record) -> Result<(String, Text), String> {
    let queue = record
        .queue()
        .ok_or("it has no \"queue\": kew queue import sends it to a queue of your choice")?;
    Ok((queue_name(queue)?, text_of(record, SystemTime::now())?))
}

/// An import into one account.
pub(crate) struct AccountImport<'a> {
    client: &'a Client,
    append: bool,
    /// What queues held before messages were sent to them.
    existing: BTreeMap<String, Existing>,
}

#[derive(Default)]
struct Existing {
    /// So many lines are there already.
    left: u64,
    /// The texts of the first of them.
    shown: VecDeque<String>,
}

impl<'a> AccountImport<'a> {
    pub(crate) fn new(account: &'a Account, append: bool) -> Self {
        Self {
            client: &account.0,
            append,
            existing: BTreeMap::new(),
        }
    }

    /// Creates a queue, or finds it. It gets the metadata and the access policies of the line if it is new.
    pub(crate) fn define(
        &mut self,
        name: &str,
        definition: &StorageDefinition,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let metadata = metadata_of(definition).map_err(Failure::Usage)?;
        let policies = policies_of(definition);
        let client = self.client;
        match client.ask(|it| it.create_queue(name, &metadata)) {
            Ok(true) => report.queues_created += 1,
            Ok(false) => report.queues_already_there += 1,
            Err(error)
                if error.status() == Some(409) && error.code() == Some("QueueAlreadyExists") =>
            {
                report.queues_already_there += 1;
                note(&format!(
                    "the queue {name} exists, and keeps its own metadata and access policies"
                ));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        if !policies.is_empty() {
            client.ask(|it| it.set_access_policies(name, &policies))?;
        }
        Ok(())
    }

    /// Sends a message, unless it is there already.
    pub(crate) fn message(&mut self, record: &Record, report: &mut Report) -> Result<(), Failure> {
        let (queue, text) = text_in(record).map_err(Failure::Usage)?;
        if !self.append && self.is_there(&queue, &text.text)? {
            report.messages_already_there += 1;
            return Ok(());
        }
        let put = self
            .client
            .ask(|it| it.put(&queue, &text.text, options(&text)));
        put.map(drop)?;
        report.messages_sent += 1;
        report.scheduled += u64::from(!text.hidden.is_zero());
        let facts = record.facts();
        for (fact, what) in [
            ("message_id", Lost::MessageId),
            ("inserted", Lost::Inserted),
            ("expires", Lost::Expires),
        ] {
            if facts.contains_key(fact) {
                report.lost(what);
            }
        }
        let dequeues = facts.get("dequeue_count").and_then(|it| it.as_u64());
        if dequeues.is_some_and(|count| count > 0) {
            report.lost(Lost::DequeueCount);
        }
        Ok(())
    }

    fn is_there(&mut self, queue: &str, text: &str) -> Result<bool, Failure> {
        if !self.existing.contains_key(queue) {
            let existing = Existing::of(self.client, queue)?;
            self.existing.insert(queue.to_owned(), existing);
        }
        let existing = self
            .existing
            .get_mut(queue)
            .expect("it was inserted just now");
        if existing.left == 0 {
            return Ok(false);
        }
        existing.left -= 1;
        if existing.shown.front().is_some_and(|shown| shown == text) {
            existing.shown.pop_front();
        }
        match existing.left == 0 && !existing.shown.is_empty() {
            true => Err(Failure::Refused {
                message: format!(
                    "the queue {queue} has other messages than the lines: kew import fills a queue that is empty, or that \
                     it has begun to fill from the same file; clear the queue, or use --append to add the messages"
                ),
                code: None,
            }),
            false => Ok(true),
        }
    }
}

impl Existing {
    fn of(client: &Client, queue: &str) -> Result<Self, Failure> {
        let left = client
            .ask(|it| it.queue_properties(queue))?
            .approximate_message_count;
        if left == 0 {
            return Ok(Self::default());
        }
        let shown = client.ask(|it| it.peek(queue, GET_MAX))?;
        Ok(Self {
            left,
            shown: shown.into_iter().map(|it| it.text).collect(),
        })
    }
}
