//! Commands for tests.

use bytes::Bytes;
use kew_engine::storage::{ReceivedMessage, StorageCommand};
use kew_engine::{BodyEncoding, Command, EntityName, VisibilityTimeout};

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
