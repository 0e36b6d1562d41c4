//! Measures a full disk: `full_disk MESSAGES [RESIDENT_MIB]`. It fills a queue, prints what is reserved to drain it, lets
//! the disk be full, and drains it to the last message. All on one thread, with a disk in memory.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kew_broker::{Moment, Partition, PartitionOptions, Reply, ResidentLimit};
use kew_engine::storage::{ReceivedMessage, StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, EntityName, Outcome, Timestamp, VisibilityTimeout};
use kew_log::{BootTime, FaultyStorage, JobKind};

type Failure = Box<dyn std::error::Error>;

/// How many messages one turn is about, at most.
const AT_ONCE: usize = 4096;

struct Measured {
    partition: Partition<()>,
    storage: FaultyStorage,
    now: Timestamp,
    /// How many snapshots were written, how much that was, and how long it took.
    snapshots: (u64, u64, Duration),
}

impl Measured {
    /// Carries out commands, and returns the answers.
    fn ask(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, Failure> {
        let count = commands.len();
        let mut commands: VecDeque<_> = commands.into_iter().map(|it| ((), it)).collect();
        let mut replies = Vec::new();
        while replies.len() < count {
            self.now = self.now.plus_ms(1);
            let now = Moment {
                time: self.now,
                boot: BootTime::ZERO.plus_ms(self.now.as_ms()),
            };
            self.partition.turn(now, &mut commands, &mut replies);
            while let Some(job) = self.partition.next_job() {
                let (is_snapshot, began) = (job.kind() == JobKind::Snapshot, Instant::now());
                let outcome = job.run();
                let took = began.elapsed();
                self.partition.complete(outcome, &mut replies)?;
                if is_snapshot {
                    let written = self.partition.log().snapshots().written_bytes;
                    self.snapshots.0 += 1;
                    self.snapshots.1 += written.unwrap_or_default();
                    self.snapshots.2 += took;
                }
            }
        }
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    /// What the files take whose names begin with this.
    fn size_bytes(&self, prefix: &str) -> u64 {
        let files = self.storage.files().into_iter();
        let files = files.filter(|(name, _)| name.starts_with(prefix));
        files.map(|(_, size_bytes)| size_bytes).sum()
    }

    fn print(&self, what: &str) {
        let kib = |prefix| self.size_bytes(prefix) >> 10;
        println!(
            "{what}: ballast {} KiB, snapshots {} KiB, pages {} KiB, all {} KiB",
            kib("ballast"),
            kib("snapshot"),
            kib("pages"),
            kib("")
        );
    }
}

fn queue() -> EntityName {
    EntityName::storage_queue("account", "queue")
}

fn send(size_bytes: usize) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: queue(),
        body: vec![b'x'; size_bytes].into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    })
}

fn delete(message: &ReceivedMessage) -> Command {
    Command::Storage(StorageCommand::Delete {
        queue: queue(),
        message: message.message,
        receipt: message.receipt,
    })
}

/// Receives and deletes, until there is nothing left. Returns how many there were.
fn drain(m: &mut Measured) -> Result<usize, Failure> {
    let mut drained = 0;
    loop {
        let receive = Command::Storage(StorageCommand::Receive {
            queue: queue(),
            count: 32,
            visibility_timeout: VisibilityTimeout::from_seconds(86_400)?,
        });
        let mut deletes = Vec::new();
        for reply in m.ask(vec![receive; AT_ONCE / 32])? {
            if let Outcome::Storage(StorageOutcome::Received(messages)) = reply?.outcome {
                deletes.extend(messages.iter().map(delete));
            }
        }
        if deletes.is_empty() {
            return Ok(drained);
        }
        drained += deletes.len();
        for reply in m.ask(deletes)? {
            reply?;
        }
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = match arguments.next() {
        Some(count) => count.parse()?,
        None => 1_000_000,
    };
    let resident_mib: Option<u64> = arguments.next().map(|mib| mib.parse()).transpose()?;
    let storage = FaultyStorage::new();
    let options = PartitionOptions {
        resident_limit: ResidentLimit::of(resident_mib.map(|mib| mib << 20)),
        ..PartitionOptions::default()
    };
    let now = Timestamp::from_ms(1_000_000);
    let mut m = Measured {
        partition: Partition::open(Arc::new(storage.clone()), options, 1, [1; 16], now)?.0,
        storage,
        now,
        snapshots: Default::default(),
    };
    let create = StorageCommand::CreateQueue {
        queue: queue(),
        metadata: Default::default(),
    };
    m.ask(vec![Command::Storage(create)])?;
    for _ in 0..count.div_ceil(AT_ONCE) {
        m.ask(vec![send(64); AT_ONCE])?;
    }
    m.print("filled");
    m.storage.set_capacity_bytes(Some(m.storage.used_bytes()));
    while m.ask(vec![send(1024); AT_ONCE])?.iter().all(Reply::is_ok) {}
    m.print("full");
    m.snapshots = Default::default();
    let began = Instant::now();
    let drained = drain(&mut m)?;
    let (snapshots, written_bytes, writing) = m.snapshots;
    println!(
        "drained: {drained} messages in {:?}; {snapshots} snapshots of {} KiB in {writing:?}",
        began.elapsed(),
        written_bytes >> 10,
    );
    m.print("drained");
    Ok(())
}
