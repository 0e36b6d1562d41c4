//! Measures a partition with a large backlog, in memory: `large_backlog MESSAGES`. With one more argument it only
//! fills the partition and starts it again.
//!
//! It prints the longest step of the partition's thread (a turn, or the completion of a job) while it is filled, while
//! messages are received, while they are deleted in random order as a snapshot is written, and while the queue is
//! cleared; and how long a start takes. Snapshots are written by another thread. Steps are measured in time of the
//! processor, so that other processes change little.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

mod measured;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kew_broker::{Partition, PartitionOptions};
use kew_engine::storage::{ReceivedMessage, StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, EntityName, Outcome, Timestamp, VisibilityTimeout};
use kew_log::MemoryStorage;

use self::measured::{AT_ONCE, Failure, Measured, used};

fn queue() -> EntityName {
    EntityName::storage_queue("account", "queue")
}

fn send() -> Command {
    Command::Storage(StorageCommand::Send {
        queue: queue(),
        body: Bytes::from_static(&[b'x'; 64]),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    })
}

fn receive() -> Result<Command, Failure> {
    let day = VisibilityTimeout::from_seconds(86_400)?;
    Ok(Command::Storage(StorageCommand::Receive {
        queue: queue(),
        count: 32,
        visibility_timeout: day,
    }))
}

fn delete(message: &ReceivedMessage) -> Command {
    Command::Storage(StorageCommand::Delete {
        queue: queue(),
        message: message.message,
        receipt: message.receipt,
    })
}

fn measure(m: &mut Measured, count: usize) -> Result<(), Failure> {
    let create = StorageCommand::CreateQueue {
        queue: queue(),
        metadata: Default::default(),
    };
    m.ask(vec![Command::Storage(create)])?;
    for _ in 0..count.div_ceil(AT_ONCE) {
        m.ask(vec![send(); AT_ONCE])?;
    }
    m.print("fill", count);
    if std::env::args().nth(2).is_some() {
        return Ok(());
    }
    let mut held = Vec::new();
    for _ in 0..count.div_ceil(AT_ONCE) {
        let receives = vec![receive()?; AT_ONCE / 32];
        for outcome in m.ask(receives)? {
            if let Outcome::Storage(StorageOutcome::Received(messages)) = outcome {
                held.extend(messages);
            }
        }
    }
    m.print("receive", held.len());
    while m.partition.log().snapshots().is_under_way {
        m.ask(Vec::new())?;
    }
    // A step that visits all of them, far apart.
    let (length, mut at) = (held.len(), 0);
    let deletes = (0..length / 4).map(|_| {
        at = (at + 611_953) % length;
        delete(&held[at])
    });
    let deletes: Vec<_> = deletes.collect();
    for few in deletes[..length / 8].chunks(AT_ONCE) {
        m.ask(few.to_vec())?;
    }
    m.print("delete in random order", length / 8);
    while m.partition.log().snapshots().is_under_way {
        m.ask(Vec::new())?;
    }
    let before = used();
    drop(m.partition.state().share());
    m.note(before);
    m.print("share the state", 1);
    let (began, before) = (Instant::now(), used());
    m.partition.snapshot();
    m.note(before);
    m.print("begin a snapshot", 1);
    for few in deletes[length / 8..].chunks(AT_ONCE) {
        m.ask(few.to_vec())?;
    }
    m.print("delete in random order during a snapshot", length / 8);
    while m.partition.log().snapshots().is_under_way {
        m.ask(Vec::new())?;
    }
    let written_bytes = m.partition.log().snapshots().written_bytes;
    println!(
        "snapshot: written in {:?}, {} bytes",
        began.elapsed(),
        written_bytes.unwrap_or_default()
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let count: usize = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 1_000_000,
    };
    let storage = Arc::new(MemoryStorage::new());
    let open = || {
        let options = PartitionOptions::default();
        let now = Timestamp::from_ms(1_000_000);
        Partition::open(storage.clone(), options, 1, [1; 16], now)
    };
    Measured::with(open()?.0, Timestamp::from_ms(1_000_000), |m| {
        measure(m, count)?;
        let (began, before) = (Instant::now(), used());
        let opened = open()?;
        let (took, busy) = (began.elapsed(), used().saturating_sub(before));
        let (_, messages) = opened.0.state().counts();
        println!("start: {took:?}, {busy:?} of the processor, {messages} messages");
        drop(opened);
        let clear = StorageCommand::Clear { queue: queue() };
        m.ask(vec![Command::Storage(clear)])?;
        m.print("clear", 1);
        Ok(())
    })
}
