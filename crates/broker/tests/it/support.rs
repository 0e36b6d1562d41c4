//! Commands for tests.

use bytes::Bytes;
use kew_broker::{Moment, Partition};
use kew_engine::storage::{ReceivedMessage, StorageCommand};
use kew_engine::{BodyEncoding, Command, EntityName, Timestamp, VisibilityTimeout};
use kew_log::BootTime;

/// The moment at which both clocks show this.
pub(crate) fn moment(now: Timestamp) -> Moment {
    Moment {
        time: now,
        boot: BootTime::ZERO.plus_ms(now.as_ms()),
    }
}

/// When a partition wants its next turn, if both clocks show the same.
pub(crate) fn next_wake<T>(partition: &Partition<T>) -> Option<Timestamp> {
    let due = partition.next_wake();
    let ms = |boot: BootTime| Timestamp::from_ms(boot.as_us().div_ceil(1000));
    due.time.into_iter().chain(due.boot.map(ms)).min()
}

pub(crate) fn queue() -> EntityName {
    EntityName::storage_queue("acct", "jobs")
}

pub(crate) fn create() -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: queue(),
        metadata: Default::default(),
    })
}

pub(crate) fn send(body: impl Into<Bytes>) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: queue(),
        body: body.into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    })
}

pub(crate) fn receive(count: u32) -> Command {
    Command::Storage(StorageCommand::Receive {
        queue: queue(),
        count,
        visibility_timeout: VisibilityTimeout::from_seconds(600).unwrap(),
    })
}

pub(crate) fn delete(message: &ReceivedMessage) -> Command {
    Command::Storage(StorageCommand::Delete {
        queue: queue(),
        message: message.message,
        receipt: message.receipt,
    })
}

pub(crate) fn peek() -> Command {
    Command::Storage(StorageCommand::Peek {
        queue: queue(),
        count: 32,
    })
}
