//! Bus queues under crashes: one client, one partition, and what the client may see.
//!
//! A world of its own beside the storage one: the client asks one thing at a time, the power goes or the
//! process is killed in the middle of some, and whoever asked then does not know whether it was done.
//! What is not known is not judged; what is known must hold:
//!
//! - a message that was taken in is in its queue, or among the dead letters, or gone, and in one place;
//! - what was completed never comes back, and a lock is one receiver's until it ends;
//! - every failed delivery counts, and the third one makes a dead letter;
//! - a repeated id is dropped within the window, and only there;
//! - a session has one receiver and keeps its state.

mod client;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use kew_broker::{Partition, PartitionOptions, Rejection, Reply, TurnEnd};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueOptions, BusRefusal};
use kew_engine::{Command, EntityName, Outcome, Refusal, Service, Timestamp, Token};
use kew_log::{FaultyStorage, LogOptions};

use crate::checker::{Violation, violated};
use crate::random::Stream;

const RECOVERY: &str = "a partition opens after a crash";
const LOCK_MS: u64 = 10_000;
const WINDOW_MS: u64 = 20_000;
const DELIVERIES_MAX: u32 = 3;

/// What came of a request: nothing if a crash came first.
type Seen = Option<Result<(BusOutcome, Vec<Bytes>), BusRefusal>>;

/// A message that was sent.
#[derive(Debug, Default)]
struct Known {
    /// Whether all that was done to it is known.
    is_certain: bool,
    is_gone: bool,
    is_dead: bool,
    failures: u32,
    lock: Option<(Token, Timestamp)>,
}

struct World {
    random: Stream,
    storage: FaultyStorage,
    partition: Partition<u32>,
    now: Timestamp,
    /// By body: a number.
    messages: BTreeMap<u64, Known>,
    /// When each id was accepted last, if that is known.
    ids: BTreeMap<u64, Option<Timestamp>>,
    session: Option<(Token, Timestamp)>,
    /// What the session's state may be, and whether who has its lock is known.
    states: Vec<Option<Bytes>>,
    session_is_certain: bool,
    crashes_may_come: bool,
}

/// Runs one world; says what promise it saw broken, if any.
pub fn run(seed: u64, operations: u64) -> Result<(), Violation> {
    let mut world = World::new(seed)?;
    for _ in 0..operations {
        world.step()?;
    }
    world.crashes_may_come = false;
    world.drain()
}

fn options() -> PartitionOptions {
    PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: 256 * 1024,
            segment_size_max_bytes: 256 * 1024,
            batch_size_max_bytes: 64 * 1024,
            turn_space_min_bytes: 32 * 1024,
            settlement_reserve_bytes: 16 * 1024,
            ballast_size_bytes: 0,
            ..LogOptions::default()
        },
        command_size_bytes_max: 16 * 1024,
        snapshot_after_bytes: 64 * 1024,
        tick_budget: 16,
    }
}

fn named(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "sim".into(),
        name: name.into(),
    }
}

impl World {
    fn new(seed: u64) -> Result<Self, Violation> {
        let storage = FaultyStorage::new();
        let now = Timestamp::from_ms(1_000_000);
        let partition = Self::open(&storage, seed, now)?;
        let mut world = Self {
            random: Stream::new(seed, "bus"),
            storage,
            partition,
            now,
            messages: BTreeMap::new(),
            ids: BTreeMap::new(),
            session: None,
            states: vec![None],
            session_is_certain: true,
            crashes_may_come: false,
        };
        let plain = BusQueueOptions {
            lock_duration_ms: LOCK_MS,
            max_delivery_count: DELIVERIES_MAX,
            duplicate_window_ms: Some(WINDOW_MS),
            ..BusQueueOptions::default()
        };
        let sessions = BusQueueOptions {
            lock_duration_ms: LOCK_MS,
            requires_session: true,
            ..BusQueueOptions::default()
        };
        for (name, options) in [("plain", plain), ("sessions", sessions)] {
            let queue = named(name);
            world.ask(BusCommand::CreateQueue { queue, options })?;
        }
        world.crashes_may_come = true;
        Ok(world)
    }

    fn open(
        storage: &FaultyStorage,
        seed: u64,
        wall: Timestamp,
    ) -> Result<Partition<u32>, Violation> {
        match Partition::open(storage, options(), seed, [7; 16], wall) {
            Ok((partition, _)) => Ok(partition),
            Err(error) => violated!(RECOVERY, "{error}"),
        }
    }

    /// Asks, and waits for the answer or for the crash that comes first.
    fn ask(&mut self, command: BusCommand) -> Result<Seen, Violation> {
        let crash = self.crashes_may_come && self.random.happens(40);
        let mut commands = VecDeque::from([(0, Command::Bus(command))]);
        let mut replies: Vec<(u32, Reply)> = Vec::new();
        loop {
            let end = self.partition.turn(self.now, &mut commands, &mut replies);
            let mut left = if crash {
                self.random.below(3)
            } else {
                u64::MAX
            };
            while left > 0
                && let Some(job) = self.partition.next_job()
            {
                left -= 1;
                let done = job.run(&self.storage);
                if let Err(error) = self.partition.complete(done, &mut replies) {
                    return violated!(RECOVERY, "the log failed without a fault: {error}");
                }
            }
            if crash || end == TurnEnd::Done {
                break;
            }
        }
        if crash {
            self.crash()?;
        } else if self.random.happens(20) {
            self.partition.snapshot();
        }
        Ok(match replies.pop() {
            None => None,
            Some((_, Ok(answered))) => {
                let bodies = answered.bodies.iter();
                let bodies = bodies.map(|body| body.read().expect("nothing is damaged"));
                let Outcome::Bus(outcome) = answered.outcome else {
                    return violated!(RECOVERY, "an answer to another question");
                };
                Some(Ok((outcome, bodies.collect())))
            }
            Some((_, Err(Rejection::Refused(Refusal::Bus(refusal))))) => Some(Err(refusal)),
            Some((_, Err(rejection))) => return violated!(RECOVERY, "{rejection}"),
        })
    }

    fn crash(&mut self) -> Result<(), Violation> {
        let random = &mut self.random;
        self.storage = if random.happens(500) {
            self.storage.kill()
        } else {
            self.storage.crash(&mut |end| random.below_u32(end.max(1)))
        };
        let salt = self.random.next();
        self.partition = Self::open(&self.storage, salt, self.now)?;
        Ok(())
    }
}
