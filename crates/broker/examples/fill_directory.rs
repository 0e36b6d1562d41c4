//! Makes a data directory and fills it, many times as fast as clients could. A server can be started on it then:
//!
//! - `fill_directory DIR messages COUNT`: messages of 64 bytes in the queue `bench` of Queue Storage's development account.
//! - `fill_directory DIR ids COUNT`: ids that a queue `bench` of Service Bus remembers for a day, evenly from a day ago
//!   until now. The messages are gone.
//!
//! It prints how long that took and how much memory this process has, which has the same limits as a server.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

mod measured;

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kew_broker::{Partition, PartitionOptions};
use kew_engine::bus::{BusCommand, BusMessage, BusOutcome, BusQueueOptions, Purge};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{
    BodyEncoding, Command, EntityName, Outcome, SequenceNumber, Service, Timestamp,
    VisibilityTimeout,
};
use kew_log::DataDir;
use mimalloc::MiMalloc;

use self::measured::{AT_ONCE, Failure, Measured};

/// That of the server: what another one keeps of freed memory says nothing.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const DAY_MS: u64 = 86_400_000;

/// How many messages a command sends.
const BATCH: usize = 64;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("DIR messages|ids COUNT");
    let (directory, what, count) = (next()?, next()?, next()?.parse()?);
    // Locked until the end. One that is there may have a clock that is later than the first id.
    if Path::new(&directory).exists() {
        return Err(format!("{directory} is there already").into());
    }
    let data_dir = DataDir::open(&directory)?;
    let storage = Arc::new(data_dir.storage()?);
    let until = wall()?;
    let from = match what.as_str() {
        "messages" => until,
        "ids" => Timestamp::from_ms(until.as_ms() - DAY_MS),
        _ => return Err(format!("{what} is neither messages nor ids").into()),
    };
    let entropy = until.as_ms();
    let options = PartitionOptions::default();
    let (partition, _) = Partition::open(storage, options, entropy, [1; 16], from)?;
    let began = Instant::now();
    Measured::with(partition, from, |m| {
        match what.as_str() {
            "ids" => remember(m, count, from)?,
            _ => send_all(m, count)?,
        }
        println!(
            "{count} {what} in {:?}, the last at {}",
            began.elapsed(),
            m.now
        );
        println!("{}", memory()?);
        Ok(())
    })
}

fn wall() -> Result<Timestamp, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Timestamp::from_ms(u64::try_from(since.as_millis())?))
}

/// How much memory this process has, and had at most.
fn memory() -> Result<String, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines = status.lines();
    let lines = lines.filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn send_all(m: &mut Measured, count: usize) -> Result<(), Failure> {
    let queue = EntityName::storage_queue("devstoreaccount1", "bench");
    let create = StorageCommand::CreateQueue {
        queue: queue.clone(),
        metadata: Default::default(),
    };
    m.ask(vec![Command::Storage(create)])?;
    let send = Command::Storage(StorageCommand::Send {
        queue,
        body: Bytes::from_static(&[b'x'; 64]),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    });
    let mut left = count;
    while left > 0 {
        let now = left.min(AT_ONCE);
        for outcome in m.ask(vec![send.clone(); now])? {
            let Outcome::Storage(StorageOutcome::Sent(_)) = outcome else {
                return Err(format!("a message was not stored: {outcome:?}").into());
            };
        }
        left -= now;
    }
    m.print("messages", count);
    Ok(())
}

fn remember(m: &mut Measured, count: usize, from: Timestamp) -> Result<(), Failure> {
    let queue = EntityName {
        service: Service::ServiceBus,
        account: "sbemulatorns".into(),
        name: "bench".into(),
    };
    let options = BusQueueOptions {
        duplicate_window_ms: Some(DAY_MS),
        size_bytes_max: 1 << 40,
        ..BusQueueOptions::default()
    };
    let create = BusCommand::CreateQueue {
        queue: queue.clone(),
        options,
    };
    m.ask(vec![Command::Bus(create)])?;
    let message = |number: usize| BusMessage {
        body: Bytes::from_static(&[b'x'; 64]),
        message_id: Some(format!("order {number:012}").into()),
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    for first in (0..count).step_by(AT_ONCE) {
        let passed_ms = DAY_MS as u128 * first as u128 / count as u128;
        m.now = m.now.max(from.plus_ms(u64::try_from(passed_ms)?));
        let last = count.min(first + AT_ONCE);
        let batches = (first..last).step_by(BATCH);
        let sends = batches.map(|first| BusCommand::Send {
            queue: queue.clone(),
            messages: (first..last.min(first + BATCH)).map(message).collect(),
        });
        let mut commands: Vec<_> = sends.map(Command::Bus).collect();
        commands.push(Command::Bus(purge(queue.clone())));
        for outcome in m.ask(commands)? {
            let Outcome::Bus(BusOutcome::Sent(_) | BusOutcome::Purged(_)) = outcome else {
                return Err(format!("a batch was not stored: {outcome:?}").into());
            };
        }
    }
    m.print("ids", count);
    Ok(())
}

fn purge(queue: EntityName) -> BusCommand {
    let purge = Purge {
        from: SequenceNumber::default(),
        until: None,
        before: None,
        count: u32::try_from(AT_ONCE).unwrap_or(u32::MAX),
        with_locked: true,
        is_dry_run: false,
    };
    BusCommand::Purge { queue, purge }
}
