//! The history of a run as one number: two runs of one seed must have the same.

use std::fmt::{Debug, Write};

use kew_broker::Rejection;
use kew_engine::storage::{AccessPolicies, StorageCommand, StorageOutcome};
use kew_engine::{AccountRecord, Command, Outcome, Timestamp, Token};

use crate::checker::Seen;

/// A running hash of everything that the simulation did, and its text if there is a reader.
///
/// Numbers go into the hash unchanged. Text is made only for a reader, because a run of many seeds
/// would spend a third of its time on it.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
    /// How many of the lines were shown.
    seen: usize,
}

impl Trace {
    pub(crate) fn new(keep_lines: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: keep_lines.then(Vec::new),
            seen: 0,
        }
    }

    /// Adds something that a few numbers describe completely.
    pub(crate) fn add(&mut self, what: &str, numbers: &[u64], detail: &dyn Debug) {
        self.feed_text(what);
        numbers.iter().for_each(|number| self.feed(*number));
        if let Some(lines) = &mut self.lines {
            let mut line = String::new();
            write!(line, "{what} {detail:?}").expect("a string takes all that is written");
            lines.push(line);
        }
    }

    /// Adds a command.
    pub(crate) fn ask(&mut self, id: u64, command: &Command) {
        self.feed_command(command);
        self.add("ask", &[id], &(id, command));
    }

    /// Adds an answer.
    pub(crate) fn answer(&mut self, id: u64, seen: &Seen) {
        match seen {
            Seen::Answered(Ok((outcome, bodies))) => {
                self.feed_outcome(outcome);
                bodies.iter().for_each(|body| self.feed_bytes(body));
            }
            Seen::Answered(Err(Rejection::Refused(refusal))) => {
                self.feed_text(&refusal.to_string());
            }
            Seen::Answered(Err(Rejection::Busy)) => self.feed(1),
            Seen::Answered(Err(Rejection::Full)) => self.feed(4),
            Seen::Answered(Err(Rejection::Stopped)) => self.feed(2),
            Seen::Answered(Err(Rejection::Unknown)) => self.feed(5),
            Seen::Answered(Err(Rejection::NotOwner)) => self.feed(6),
            Seen::Unknown => self.feed(3),
            Seen::Answered(Err(Rejection::ReadFailed)) => self.feed(4),
        }
        self.add("answer", &[id], &(id, seen));
    }

    fn feed(&mut self, number: u64) {
        // FNV-1a by words, with the high bits folded back: stable across all versions.
        let hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = hash ^ (hash >> 29);
    }

    fn feed_text(&mut self, text: &str) {
        self.feed_bytes(text.as_bytes());
    }

    fn feed_bytes(&mut self, bytes: &[u8]) {
        self.feed(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(chunk)
                .for_each(|(to, from)| *to = *from);
            self.feed(u64::from_le_bytes(word));
        }
    }

    fn feed_token(&mut self, token: Token) {
        self.feed_bytes(token.as_bytes());
    }

    fn feed_time(&mut self, time: Timestamp) {
        self.feed(time.as_ms());
    }

    fn feed_command(&mut self, command: &Command) {
        match command {
            Command::Initialize { secret, run_length } => {
                self.feed_bytes(secret);
                self.feed(run_length.as_u64());
            }
            Command::Storage(
                StorageCommand::CreateQueue { queue, metadata }
                | StorageCommand::SetQueueMetadata { queue, metadata },
            ) => {
                self.feed_text(&queue.name);
                for (name, value) in metadata.iter() {
                    self.feed_text(name);
                    self.feed_text(value);
                }
            }
            Command::Storage(
                StorageCommand::DeleteQueue { queue }
                | StorageCommand::ReadQueue { queue }
                | StorageCommand::Clear { queue },
            ) => self.feed_text(&queue.name),
            Command::Storage(StorageCommand::ListQueues { prefix, .. }) => self.feed_text(prefix),
            Command::Storage(StorageCommand::Send {
                queue,
                body,
                time_to_live_seconds,
                visibility_timeout,
                ..
            }) => {
                self.feed_text(&queue.name);
                self.feed_bytes(body);
                self.feed(time_to_live_seconds.map_or(0, |seconds| u64::from(seconds) + 1));
                self.feed(u64::from(visibility_timeout.as_seconds()));
            }
            Command::Storage(StorageCommand::Receive {
                queue,
                count,
                visibility_timeout,
            }) => {
                self.feed_text(&queue.name);
                self.feed(u64::from(*count));
                self.feed(u64::from(visibility_timeout.as_seconds()));
            }
            Command::Storage(StorageCommand::Peek { queue, count }) => {
                self.feed_text(&queue.name);
                self.feed(u64::from(*count));
            }
            Command::Storage(StorageCommand::Update {
                queue,
                message,
                receipt,
                visibility_timeout,
                body,
            }) => {
                self.feed_text(&queue.name);
                self.feed_token(*message);
                self.feed_token(*receipt);
                self.feed(u64::from(visibility_timeout.as_seconds()));
                if let Some((_, body)) = body {
                    self.feed_bytes(body);
                }
            }
            Command::Storage(StorageCommand::Delete {
                queue,
                message,
                receipt,
            }) => {
                self.feed_text(&queue.name);
                self.feed_token(*message);
                self.feed_token(*receipt);
            }
            Command::Storage(StorageCommand::SetQueuePolicies { queue, policies }) => {
                self.feed_text(&queue.name);
                self.feed_policies(policies);
            }
            Command::SetServiceProperties { properties, .. } => self.feed_bytes(properties),
            Command::ReadServiceProperties { .. } => self.feed(1),
            Command::PutAccount { account, is_new } => {
                self.feed_account(account);
                self.feed(u64::from(*is_new));
            }
            Command::RemoveAccount { with_queues, .. } => self.feed(u64::from(*with_queues)),
            Command::ListAccounts => self.feed(2),
            // No client asks for it.
            Command::MoveBodies { .. } => self.feed(3),
            Command::Quarantine { .. } => self.feed(4),
            Command::Bus(command) => self.feed_debug(command),
        }
    }

    /// Adds everything in its `Debug` text.
    fn feed_debug(&mut self, shown: &impl Debug) {
        self.feed_text(&format!("{shown:?}"));
    }

    fn feed_policies(&mut self, policies: &AccessPolicies) {
        for policy in policies {
            self.feed_text(&policy.id);
        }
    }

    fn feed_account(&mut self, account: &AccountRecord) {
        self.feed_text(&account.name);
        self.feed(account.quota.queues_max.map_or(0, |max| max + 1));
        self.feed(account.quota.size_bytes_max.map_or(0, |max| max + 1));
        self.feed(u64::from(account.is_disabled));
        for key in &account.keys {
            self.feed_bytes(key.as_bytes());
        }
    }

    fn feed_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Storage(StorageOutcome::Queue(view)) => {
                self.feed(view.approximate_message_count);
                for (_, value) in view.metadata.iter() {
                    self.feed_text(value);
                }
                self.feed_policies(&view.policies);
            }
            Outcome::Storage(StorageOutcome::Queues(page)) => {
                page.queues
                    .iter()
                    .for_each(|queue| self.feed_text(&queue.name));
            }
            Outcome::Storage(StorageOutcome::Sent(sent)) => {
                self.feed_token(sent.message);
                self.feed_token(sent.receipt);
                self.feed_time(sent.inserted_at);
                self.feed_time(sent.expires_at);
                self.feed_time(sent.visible_at);
            }
            Outcome::Storage(StorageOutcome::Received(messages)) => {
                for message in messages {
                    self.feed_token(message.message);
                    self.feed_token(message.receipt);
                    self.feed_time(message.visible_at);
                    self.feed(u64::from(message.delivery_count));
                }
            }
            Outcome::Storage(StorageOutcome::Peeked(messages)) => {
                for message in messages {
                    self.feed_token(message.message);
                    self.feed(u64::from(message.delivery_count));
                }
            }
            Outcome::Storage(StorageOutcome::Updated {
                receipt,
                visible_at,
            }) => {
                self.feed_token(*receipt);
                self.feed_time(*visible_at);
            }
            Outcome::Initialized => self.feed(1),
            Outcome::Storage(StorageOutcome::QueueCreated) => self.feed(2),
            Outcome::Storage(StorageOutcome::QueueUnchanged) => self.feed(3),
            Outcome::Storage(StorageOutcome::QueueDeleted) => self.feed(4),
            Outcome::Storage(StorageOutcome::QueueMetadataSet) => self.feed(5),
            Outcome::Storage(StorageOutcome::Deleted) => self.feed(6),
            Outcome::Storage(StorageOutcome::Cleared) => self.feed(7),
            Outcome::Storage(StorageOutcome::QueuePoliciesSet) => self.feed(8),
            Outcome::ServicePropertiesSet => self.feed(9),
            Outcome::ServiceProperties(properties) => {
                self.feed_bytes(properties.as_deref().unwrap_or_default());
            }
            Outcome::AccountPut => self.feed(10),
            Outcome::AccountRemoved => self.feed(11),
            Outcome::Accounts(accounts) => {
                accounts
                    .iter()
                    .for_each(|account| self.feed_account(account));
            }
            Outcome::BodiesMoved(moved) => self.feed(moved.count as u64),
            Outcome::Quarantined(count) => self.feed(u64::from(*count)),
            Outcome::Bus(outcome) => self.feed_debug(outcome),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines so far, if they are kept.
    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    /// Returns the first line that was not shown, and marks all lines as shown.
    pub(crate) fn take_seen(&mut self) -> usize {
        let all = self.lines().len();
        std::mem::replace(&mut self.seen, all)
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}
