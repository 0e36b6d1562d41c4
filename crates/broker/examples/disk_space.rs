//! Measures how the disk space of a partition follows its live data: `disk_space DIRECTORY MESSAGES`.
//!
//! In a new directory it does three things with messages of 1 KiB, and says after each of them how long it takes until
//! the log takes at most 1.4 times the live bytes and four segments, how long until the partition wants nothing more,
//! and how much time of the processor that took: it deletes all but every 5,000th message; it puts and deletes for long
//! and purges the queue; and it deletes two of three messages, in whatever order, while another queue is busy. It says
//! what the busy queue lost by that.

#![expect(clippy::print_stdout, reason = "it exists for its output")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kew_broker::{Moment, Partition, PartitionOptions, Reply, TurnEnd};
use kew_engine::storage::{ReceivedMessage, StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, EntityName, Outcome, Timestamp, VisibilityTimeout};
use kew_log::{BootTime, FileStorage, LogSpace};

type Failure = Box<dyn std::error::Error>;

/// How many commands come at once.
const AT_ONCE: usize = 1024;

struct Measured {
    partition: Partition<()>,
    began: Instant,
    longest: Duration,
}

fn queue(name: &str) -> EntityName {
    EntityName::storage_queue("account", name)
}

fn used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(used.tv_nsec).unwrap_or(0))
}

impl Measured {
    fn now(&self) -> Moment {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(0);
        Moment {
            time: Timestamp::from_ms(1_000_000 + us / 1000),
            boot: BootTime::from_us(us),
        }
    }

    /// Carries out commands, and returns the outcomes.
    fn ask(&mut self, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
        let count = commands.len();
        let mut commands: VecDeque<_> = commands.into_iter().map(|it| ((), it)).collect();
        let mut replies: Vec<((), Reply)> = Vec::new();
        loop {
            let began = Instant::now();
            let now = self.now();
            let end = self.partition.turn(now, &mut commands, &mut replies);
            self.longest = self.longest.max(began.elapsed());
            while let Some(job) = self.partition.next_job() {
                let outcome = job.run();
                self.partition.complete(outcome, &mut replies)?;
            }
            // What waits for a page that was read just now is decided by the next turn.
            if end == TurnEnd::Done && replies.len() >= count {
                break;
            }
        }
        replies
            .into_iter()
            .map(|(_, reply)| Ok(reply?.outcome))
            .collect()
    }

    fn put(&mut self, name: &str, count: usize) -> Result<(), Failure> {
        let send = Command::Storage(StorageCommand::Send {
            queue: queue(name),
            body: Bytes::from(vec![b'x'; 1024]),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: VisibilityTimeout::ZERO,
        });
        for _ in 0..count.div_ceil(AT_ONCE) {
            self.ask(vec![send.clone(); AT_ONCE])?;
        }
        Ok(())
    }

    fn receive(&mut self, name: &str, count: usize) -> Result<Vec<ReceivedMessage>, Failure> {
        let receive = Command::Storage(StorageCommand::Receive {
            queue: queue(name),
            count: 32,
            visibility_timeout: VisibilityTimeout::from_seconds(86_400)?,
        });
        let mut held = Vec::new();
        for _ in 0..count.div_ceil(AT_ONCE) {
            for outcome in self.ask(vec![receive.clone(); AT_ONCE / 32])? {
                if let Outcome::Storage(StorageOutcome::Received(messages)) = outcome {
                    held.extend(messages);
                }
            }
        }
        Ok(held)
    }

    fn delete<'a>(
        &mut self,
        name: &str,
        messages: impl Iterator<Item = &'a ReceivedMessage>,
    ) -> Result<(), Failure> {
        let deletes = messages.map(|message| {
            Command::Storage(StorageCommand::Delete {
                queue: queue(name),
                message: message.message,
                receipt: message.receipt,
            })
        });
        let deletes: Vec<_> = deletes.collect();
        for few in deletes.chunks(AT_ONCE) {
            self.ask(few.to_vec())?;
        }
        Ok(())
    }

    fn is_small(&self) -> bool {
        let live_bytes = self.partition.state().live_bytes();
        self.space().size_bytes <= live_bytes * 14 / 10 + (256 << 20)
    }

    fn space(&self) -> LogSpace {
        let files = self.partition.log().files();
        files.expect("the log is in a directory").space()
    }

    fn print(&self, what: &str) {
        let space = self.space();
        println!(
            "{what}: {} MiB of segments, {} MiB of all files, {:.1} MiB live, {} MiB moved in {} bodies",
            space.size_bytes >> 20,
            space.disk_bytes >> 20,
            self.partition.state().live_bytes() as f64 / 1_048_576.0,
            self.partition.moved_bytes() >> 20,
            self.partition.moved_count()
        );
    }

    /// Lets it do what it wants to do.
    fn rest(&mut self, what: &str) -> Result<(), Failure> {
        self.print(&format!("{what}, before"));
        let (began, before) = (Instant::now(), used());
        self.longest = Duration::ZERO;
        let mut small_after = None;
        while let Some(wait) = self.partition.next_wake().wait(self.now()) {
            std::thread::sleep(wait);
            self.ask(Vec::new())?;
            if self.is_small() {
                small_after.get_or_insert(began.elapsed());
            }
        }
        let (took, busy) = (began.elapsed(), used().saturating_sub(before));
        let longest = self.longest;
        self.print(&format!("{what}, after"));
        println!(
            "  at the target after {small_after:?}; at rest after {took:?}, {busy:?} of the processor, longest turn {longest:?}"
        );
        Ok(())
    }

    /// A busy queue: how many messages are put, received and deleted in a second.
    fn busy(&mut self, what: &str, how_long: Duration) -> Result<(), Failure> {
        let (began, moved) = (Instant::now(), self.partition.moved_bytes());
        let (mut count, before) = (0_u64, used());
        self.longest = Duration::ZERO;
        while began.elapsed() < how_long {
            self.put("busy", AT_ONCE)?;
            let held = self.receive("busy", AT_ONCE)?;
            count += held.len() as u64;
            self.delete("busy", held.iter())?;
        }
        let each = used().saturating_sub(before).as_nanos() / u128::from(count.max(1));
        println!(
            "{what}: {:.0} messages a second, {each} ns of the processor each, longest turn {:?}, {} MiB moved",
            count as f64 / began.elapsed().as_secs_f64(),
            self.longest,
            (self.partition.moved_bytes() - moved) >> 20
        );
        self.print(what);
        Ok(())
    }
}

fn measure(m: &mut Measured, count: usize) -> Result<(), Failure> {
    for name in ["sparse", "long", "third", "busy"] {
        m.ask(vec![Command::Storage(StorageCommand::CreateQueue {
            queue: queue(name),
            metadata: Default::default(),
        })])?;
    }
    m.put("sparse", count)?;
    let held = m.receive("sparse", count)?;
    let gone = held.iter().enumerate().filter(|(at, _)| at % 5000 > 0);
    m.delete("sparse", gone.map(|(_, message)| message))?;
    m.rest("all but every 5,000th deleted")?;

    for _ in 0..count.div_ceil(AT_ONCE * 8) {
        m.put("long", AT_ONCE * 8)?;
        let held = m.receive("long", AT_ONCE * 8)?;
        let gone = held.iter().enumerate().filter(|(at, _)| at % 100 > 0);
        m.delete("long", gone.map(|(_, message)| message))?;
    }
    m.rest("puts and deletes, one of 100 left")?;
    m.put("long", count)?;
    m.ask(vec![Command::Storage(StorageCommand::Clear {
        queue: queue("long"),
    })])?;
    m.rest("purged")?;

    let second = Duration::from_secs(10);
    m.busy("busy, nothing to move", second)?;
    m.put("third", count)?;
    let held = m.receive("third", count)?;
    let gone = held.iter().enumerate().filter(|(at, _)| at % 3 > 0);
    m.delete("third", gone.map(|(_, message)| message))?;
    m.busy("busy, two of three deleted elsewhere", second)?;
    m.rest("two of three deleted")
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("disk_space DIRECTORY MESSAGES")?;
    let count = arguments.next().map_or(Ok(300_000), |it| it.parse())?;
    let storage = Arc::new(FileStorage::open(&directory)?);
    let options = PartitionOptions::default();
    let now = Timestamp::from_ms(1_000_000);
    let (partition, _) = Partition::open(storage, options, 1, [1; 16], now)?;
    let mut m = Measured {
        partition,
        began: Instant::now(),
        longest: Duration::ZERO,
    };
    measure(&mut m, count)
}
