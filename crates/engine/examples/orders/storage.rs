//! Operations on a storage queue.

use bytes::Bytes;
use kew_engine::storage::{ReceivedMessage, StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, EntityName, Outcome, VisibilityTimeout};

use super::partition::{Failure, Partition};

fn queue() -> EntityName {
    EntityName::storage_queue("account", "queue")
}

pub(crate) fn create(p: &mut Partition) -> Result<(), Failure> {
    p.ask(Command::Storage(StorageCommand::CreateQueue {
        queue: queue(),
        metadata: Default::default(),
    }))?;
    Ok(())
}

pub(crate) fn send(p: &mut Partition) -> Result<(), Failure> {
    p.ask(Command::Storage(StorageCommand::Send {
        queue: queue(),
        body: Bytes::from_static(&[b'x'; 64]),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: Some(604_800),
        visibility_timeout: VisibilityTimeout::ZERO,
    }))?;
    Ok(())
}

pub(crate) fn receive(p: &mut Partition, count: u32) -> Result<Vec<ReceivedMessage>, Failure> {
    let outcome = p.ask(Command::Storage(StorageCommand::Receive {
        queue: queue(),
        count,
        visibility_timeout: VisibilityTimeout::from_seconds(86_400)?,
    }))?;
    match outcome {
        Outcome::Storage(StorageOutcome::Received(messages)) => Ok(messages),
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn delete(p: &mut Partition, message: &ReceivedMessage) -> Result<(), Failure> {
    p.ask(Command::Storage(StorageCommand::Delete {
        queue: queue(),
        message: message.message,
        receipt: message.receipt,
    }))?;
    Ok(())
}
