//! The kinds of operations in sequences.

use std::fmt;

use kew_engine::storage::{AccessPolicies, AccessPolicy, PolicyTime, StorageCommand};
use kew_engine::{
    AccountQuota, AccountRecord, AccountSecret, BodyEncoding, Command, EntityName, Timestamp,
    VisibilityTimeout,
};

use super::clients::Clients;
use super::{bus, sessions, topics};

/// One operation of a client, or of the partition itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a message.
    Send,
    /// Sends a message that is hidden at first and expires.
    SendDelayed,
    /// Receives up to two messages.
    Receive,
    /// Peeks.
    Peek,
    /// Updates the message that was sent or received last, with a new body.
    Update,
    /// Deletes the message that was sent or received last.
    Delete,
    /// Clears the queue.
    Clear,
    /// Deletes the queue.
    DeleteQueue,
    /// Creates the queue.
    CreateQueue,
    /// Sets the queue's metadata.
    SetMetadata,
    /// Sets the queue's access policies.
    SetPolicies,
    /// Puts an account, with a quota that is not reached.
    PutAccount,
    /// Writes a snapshot, and retires the segments that it makes superfluous.
    Snapshot,
    /// Marks the log's end, as an idle partition does.
    Mark,
    /// Gives an idle partition time to move bodies out of segments that have few, and to remove these segments.
    Tidy,
    /// Sends a message to the bus queue.
    BusSend,
    /// Sends one that is scheduled and expires.
    BusSendScheduled,
    /// Receives up to two messages of the bus queue, under locks.
    BusReceive,
    /// Completes the message of the bus queue that was received last.
    BusComplete,
    /// Abandons it, with a change to its properties.
    BusAbandon,
    /// Defers it.
    BusDefer,
    /// Makes it a dead letter.
    BusDeadLetter,
    /// Renews its lock.
    BusRenew,
    /// Peeks at the dead letters.
    BusPeek,
    /// Resubmits the dead letter that was shown last, in turns to another queue, if there is one, and to the topic.
    BusResubmit,
    /// Deletes the message of the bus queue that was shown last, by its number.
    BusDelete,
    /// Accepts a session, or sets the state of the accepted one.
    BusSession,
    /// Creates another bus queue, or deletes it.
    BusQueue,
    /// Sends a message to the topic, whose subscriptions get copies with one body.
    BusPublish,
    /// Receives up to two copies of the first subscription, under locks.
    BusReceiveCopy,
    /// Sends several messages to the topic at once.
    BusPublishMany,
    /// Sends the topic a message that is scheduled and expires.
    BusPublishScheduled,
    /// Receives up to two copies of the other subscription, under locks.
    BusReceiveOtherCopy,
    /// Replaces the rule of a subscription.
    BusSetRule,
    /// Sends a message of a session, which is sometimes scheduled and expires.
    BusSendToSession,
    /// Accepts one session after the other, or receives up to two messages of the accepted one.
    BusReceiveOfSession,
}

impl Step {
    /// Every kind of step.
    pub const ALL: [Self; 14] = [
        Self::Send,
        Self::SendDelayed,
        Self::Receive,
        Self::Peek,
        Self::Update,
        Self::Delete,
        Self::Clear,
        Self::DeleteQueue,
        Self::CreateQueue,
        Self::SetMetadata,
        Self::SetPolicies,
        Self::PutAccount,
        Self::Snapshot,
        Self::Mark,
    ];

    /// The steps for bus queues, and a few others to mix in.
    pub const OF_BUS: [Self; 18] = [
        Self::BusSend,
        Self::BusSendScheduled,
        Self::BusReceive,
        Self::BusComplete,
        Self::BusAbandon,
        Self::BusDefer,
        Self::BusDeadLetter,
        Self::BusRenew,
        Self::BusPeek,
        Self::BusResubmit,
        Self::BusDelete,
        Self::BusSession,
        Self::BusQueue,
        Self::BusPublish,
        Self::BusReceiveCopy,
        Self::Send,
        Self::Snapshot,
        Self::Mark,
    ];

    /// The steps for topics: fewer of queues, and those that only topics have.
    pub(super) const OF_TOPICS: [Self; 21] = [
        Self::BusPublish,
        Self::BusPublishMany,
        Self::BusPublishScheduled,
        Self::BusSetRule,
        Self::BusReceiveCopy,
        Self::BusReceiveOtherCopy,
        Self::BusComplete,
        Self::BusAbandon,
        Self::BusDefer,
        Self::BusDeadLetter,
        Self::BusRenew,
        Self::BusSend,
        Self::BusSendScheduled,
        Self::BusReceive,
        Self::BusPeek,
        Self::BusResubmit,
        Self::BusSession,
        Self::BusQueue,
        Self::Send,
        Self::Snapshot,
        Self::Mark,
    ];

    /// Whether it is frequent: not one of the rarer steps of bus queues.
    pub(super) fn is_frequent(self) -> bool {
        !matches!(
            self,
            Self::BusPeek
                | Self::BusResubmit
                | Self::BusDelete
                | Self::BusSession
                | Self::BusQueue
                | Self::BusReceiveCopy
        )
    }

    /// The client's command, unless the partition itself does the step.
    pub(super) fn command(self, clients: &mut Clients, now: Timestamp) -> Option<Command> {
        let of_bus = bus::command(self, clients, now);
        let of_bus = of_bus.or_else(|| topics::command(self, clients, now));
        if let Some(command) = of_bus.or_else(|| sessions::command(self, clients, now)) {
            return Some(Command::Bus(command));
        }
        let queue = queue_name();
        let held = match self {
            Self::Update => clients.last_held(),
            Self::Delete => clients.take_held(),
            _ => None,
        };
        Some(match (self, held) {
            (Self::Send | Self::Update | Self::Delete, None) | (Self::Send, Some(_)) => {
                send(clients, "sent", None, 0)
            }
            (Self::SendDelayed, _) => send(clients, "delayed", Some(100), 10),
            (Self::Receive, _) => receive(2, 20),
            (Self::Peek, _) => Command::Storage(StorageCommand::Peek { queue, count: 32 }),
            (Self::Update, Some((message, receipt))) => Command::Storage(StorageCommand::Update {
                queue,
                message,
                receipt,
                visibility_timeout: seconds(5),
                body: Some((BodyEncoding::Text, body(clients, "updated").into())),
            }),
            (Self::Delete, Some((message, receipt))) => Command::Storage(StorageCommand::Delete {
                queue,
                message,
                receipt,
            }),
            (Self::Clear, _) => Command::Storage(StorageCommand::Clear { queue }),
            (Self::DeleteQueue, _) => Command::Storage(StorageCommand::DeleteQueue { queue }),
            (Self::CreateQueue, _) => create_queue(),
            (Self::SetMetadata, _) => Command::Storage(StorageCommand::SetQueueMetadata {
                queue,
                metadata: [("round", clients.asked().to_string())]
                    .into_iter()
                    .collect(),
            }),
            (Self::SetPolicies, _) => Command::Storage(StorageCommand::SetQueuePolicies {
                queue,
                policies: policies(clients.asked()),
            }),
            (Self::PutAccount, _) => Command::PutAccount {
                account: account(clients.asked()),
                is_new: clients.asked().is_multiple_of(2),
            },
            _ => return None,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// All clients use one queue here, because the disk is under test.
pub(super) fn queue_name() -> EntityName {
    EntityName::storage_queue("sim", "disk")
}

fn policies(number: u64) -> AccessPolicies {
    let policy = AccessPolicy {
        id: number.to_string().into(),
        start: None,
        expiry: Some(PolicyTime(number)),
        permissions: Some("r".into()),
    };
    AccessPolicies::new(vec![policy]).expect("one is not too many")
}

fn account(number: u64) -> AccountRecord {
    let key = |of: u64| {
        let bytes = (number * 2 + of).to_le_bytes();
        AccountSecret::new(&bytes).expect("eight bytes are a key")
    };
    AccountRecord {
        name: "sim".into(),
        keys: [key(0), key(1)],
        quota: AccountQuota {
            queues_max: Some(100 + number),
            size_bytes_max: None,
        },
        is_disabled: false,
    }
}

pub(super) fn create_queue() -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: queue_name(),
        metadata: [("round", "0")].into_iter().collect(),
    })
}

pub(super) fn receive(count: u32, hidden_seconds: u32) -> Command {
    Command::Storage(StorageCommand::Receive {
        queue: queue_name(),
        count,
        visibility_timeout: seconds(hidden_seconds),
    })
}

pub(super) fn send(
    clients: &Clients,
    what: &str,
    time_to_live_seconds: Option<u32>,
    hidden_seconds: u32,
) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: queue_name(),
        body: body(clients, what).into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds,
        visibility_timeout: seconds(hidden_seconds),
    })
}

/// A message that takes a good part of a segment.
pub(super) fn send_large(clients: &Clients) -> Command {
    let mut large = body(clients, "large");
    large.resize(16 * 1024, b'.');
    Command::Storage(StorageCommand::Send {
        queue: queue_name(),
        body: large.into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: seconds(0),
    })
}

/// A unique body. It takes several sectors, so that a power cut can tear it, and no two of its
/// sectors are the same.
pub(super) fn body(clients: &Clients, what: &str) -> Vec<u8> {
    let number = clients.asked();
    let size = 700 + usize::try_from(number % 5).expect("below five") * 400;
    let line = |line: usize| format!("{what} {number}, line {line}\n");
    let mut body: Vec<u8> = (0..size / 12).flat_map(|n| line(n).into_bytes()).collect();
    body.truncate(size);
    body
}

fn seconds(seconds: u32) -> VisibilityTimeout {
    VisibilityTimeout::from_seconds(seconds).expect("steps stay below seven days")
}
