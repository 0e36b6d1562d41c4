//! Bodies that subscriptions of a topic share: the log has each once, and they go with their last copy.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kew_broker::{Answered, PartitionOptions};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, DeliveredMessage, Disposition,
    ReceiveMode, SUBSCRIPTIONS_MAX,
};
use kew_engine::{Command, EntityName, Outcome};
use kew_log::{FaultyStorage, LogOptions};

use crate::bus::{named, received};
use crate::maintenance::{settle_within, space};
use crate::partition::{Driver, options};
use crate::support::next_wake;

const SUBSCRIPTIONS: usize = 10;
/// A publish promises room for what rules may change, and a segment has room for several.
const SEGMENT_BYTES: u64 = 512 * 1024;
/// A thirty-second of a segment.
const BODY_BYTES: usize = 16 * 1024;
const LOCK_MS: u64 = 300_000;

/// More turns than these tests need: a body that moves takes about nine, with the snapshots and looks between.
const TURNS_MAX: usize = 4000;

fn large_segments() -> PartitionOptions {
    let options = options();
    PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: SEGMENT_BYTES,
            segment_size_max_bytes: SEGMENT_BYTES,
            batch_size_max_bytes: 64 * 1024,
            ..options.log
        },
        ..options
    }
}

fn reopened(driver: Driver) -> Driver {
    let now = driver.now;
    let mut driver = Driver::with(driver.storage.kill(), large_segments());
    driver.now = now;
    driver
}

fn bytes_max(driver: &Driver) -> u64 {
    driver.partition.state().live_bytes() * 14 / 10 + 4 * SEGMENT_BYTES
}

/// Lets it do what it wants to do. Afterwards nothing moves any more.
fn settle(driver: &mut Driver) {
    settle_within(driver, TURNS_MAX);
    let moved_count = driver.partition.moved_count();
    driver.now = driver.now.plus_seconds(3600);
    driver.rest();
    settle_within(driver, TURNS_MAX);
    assert_eq!(driver.partition.moved_count(), moved_count);
}

fn topic() -> EntityName {
    named("t")
}

fn subscription(number: usize) -> EntityName {
    named(&format!("t/subscriptions/s{number}"))
}

fn body(number: usize) -> Bytes {
    let mut body = format!("{number}:").into_bytes();
    body.resize(BODY_BYTES, b'x');
    body.into()
}

fn driver() -> Driver {
    with_subscriptions(SUBSCRIPTIONS, large_segments())
}

fn with_subscriptions(count: usize, options: PartitionOptions) -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), options);
    let options = BusQueueOptions {
        lock_duration_ms: LOCK_MS,
        ..BusQueueOptions::default()
    };
    let create = BusCommand::CreateTopic {
        topic: topic(),
        options: options.clone(),
    };
    driver.ask(Command::Bus(create)).unwrap();
    for number in 0..count {
        let create = BusCommand::CreateSubscription {
            topic: topic(),
            subscription: subscription(number),
            options: options.clone(),
            rule: None,
        };
        driver.ask(Command::Bus(create)).unwrap();
    }
    driver
}

/// Publishes so many bodies. The log takes each of them once.
fn publish(driver: &mut Driver, count: usize) {
    let before = driver.partition.log().end().as_u64();
    send_all(driver, count);
    let taken = driver.partition.log().end().as_u64() - before;
    assert!(taken < (count * (BODY_BYTES + 1024)) as u64, "{taken}");
}

fn send_all(driver: &mut Driver, count: usize) {
    for number in 0..count {
        let message = BusMessage {
            body: body(number),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let send = BusCommand::Send {
            queue: topic(),
            messages: vec![message],
        };
        driver.ask(Command::Bus(send)).unwrap();
    }
}

/// How many messages wait for their copies.
fn waiting(driver: &mut Driver) -> u64 {
    let overview = driver.partition.overview(None, driver.now, 1_000_000);
    overview.topics.iter().map(|topic| topic.pending).sum()
}

fn receive(driver: &mut Driver, number: usize) -> (Vec<DeliveredMessage>, Vec<Bytes>) {
    received(lock_all(driver, number))
}

fn lock_all(driver: &mut Driver, number: usize) -> Answered {
    let receive = BusCommand::Receive {
        queue: subscription(number),
        count: 500,
        mode: ReceiveMode::PeekLock,
        session: None,
    };
    driver.ask(Command::Bus(receive)).unwrap()
}

fn complete<'a>(
    driver: &mut Driver,
    number: usize,
    messages: impl Iterator<Item = &'a DeliveredMessage>,
) {
    let settlements = messages.map(|message| (message.lock.unwrap(), Disposition::Complete));
    let settle = BusCommand::Settle {
        queue: subscription(number),
        settlements: settlements.collect(),
    };
    driver.ask(Command::Bus(settle)).unwrap();
}

/// The copies that count the bodies end first. Their segments look nearly empty, so the bodies move: once each.
#[test]
fn nine_of_ten_copies_end_and_the_log_has_each_body_once() {
    const COUNT: usize = 192;
    let mut driver = driver();
    publish(&mut driver, COUNT);
    let once = (COUNT * BODY_BYTES) as u64;
    assert!(space(&driver).size_bytes < once + 4 * SEGMENT_BYTES);
    for number in 0..SUBSCRIPTIONS - 1 {
        let (messages, bodies) = receive(&mut driver, number);
        assert_eq!(bodies.len(), COUNT);
        complete(&mut driver, number, messages.iter());
    }
    let live_bytes = driver.partition.state().live_bytes();
    assert!(live_bytes < 64 * COUNT as u64, "{live_bytes}");
    settle(&mut driver);
    let live_bytes = driver.partition.state().live_bytes();
    assert!(
        live_bytes >= once * 2 / 5,
        "the last copies count them: {live_bytes}"
    );
    let moved_bytes = driver.partition.moved_bytes();
    assert!(
        (once * 2 / 5..once * 5 / 4).contains(&moved_bytes),
        "{moved_bytes}"
    );
    let moved_count = driver.partition.moved_count();
    let each_bytes = moved_bytes / moved_count;
    assert!(each_bytes < BODY_BYTES as u64 + 1024, "{each_bytes}");
    let found = space(&driver);
    assert!(found.size_bytes <= bytes_max(&driver), "{found:?}");

    let mut driver = reopened(driver);
    let (messages, bodies) = receive(&mut driver, SUBSCRIPTIONS - 1);
    assert_eq!(bodies, (0..COUNT).map(body).collect::<Vec<_>>());
    complete(&mut driver, SUBSCRIPTIONS - 1, messages.iter());
    settle(&mut driver);
    assert_eq!(driver.partition.state().live_bytes(), 0);
    let found = space(&driver);
    assert!(found.size_bytes <= bytes_max(&driver), "{found:?}");
}

/// A fourth of the messages stays in all subscriptions. Each of their bodies moves once, with ten copies.
#[test]
fn copies_of_a_body_move_together() {
    const COUNT: usize = 256;
    const KEPT: usize = COUNT / 4;
    let mut driver = driver();
    publish(&mut driver, COUNT);
    for number in 0..SUBSCRIPTIONS {
        let (messages, _) = receive(&mut driver, number);
        let others = messages.iter().enumerate();
        let others = others.filter(|(index, _)| index % 4 > 0);
        complete(&mut driver, number, others.map(|(_, message)| message));
    }
    let live_bytes = driver.partition.state().live_bytes();
    settle(&mut driver);
    assert_eq!(driver.partition.state().live_bytes(), live_bytes);
    let once = (KEPT * BODY_BYTES) as u64;
    let moved_bytes = driver.partition.moved_bytes();
    assert!(moved_bytes < once * 3 / 2, "{moved_bytes}");
    let moved_count = driver.partition.moved_count();
    assert!(
        moved_count.is_multiple_of(SUBSCRIPTIONS as u64),
        "{moved_count}"
    );
    assert!(
        moved_count > (KEPT * SUBSCRIPTIONS / 2) as u64,
        "{moved_count}"
    );
    let found = space(&driver);
    assert!(found.size_bytes <= bytes_max(&driver), "{found:?}");

    let mut driver = reopened(driver);
    driver.now = driver.now.plus_ms(LOCK_MS + 1);
    let kept: Vec<_> = (0..COUNT).step_by(4).map(body).collect();
    for number in 0..SUBSCRIPTIONS {
        let (messages, bodies) = receive(&mut driver, number);
        assert_eq!(bodies, kept, "subscription {number}");
        complete(&mut driver, number, messages.iter());
    }
    settle(&mut driver);
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

/// As many copies as a topic can have. All of a body move at once, so that it is never there twice for long.
#[test]
fn a_body_in_2000_subscriptions_moves_once() {
    const ALL: usize = SUBSCRIPTIONS_MAX;
    const MIB: u64 = 1 << 20;
    const COUNT: usize = 192;
    /// One in so many messages stays.
    const STEP: usize = 96;
    let options = || PartitionOptions {
        tick_budget: 256,
        copies_owed_max: u64::MAX,
        gather_steps: PartitionOptions::default().gather_steps,
        snapshot_after_bytes: 1 << 20,
        log: LogOptions {
            segment_size_first_bytes: MIB,
            segment_size_max_bytes: MIB,
            batch_size_max_bytes: MIB,
            ..large_segments().log
        },
        ..large_segments()
    };
    let mut driver = with_subscriptions(ALL, options());
    send_all(&mut driver, COUNT);
    while waiting(&mut driver) > 0 {
        driver.rest();
    }
    for number in 0..ALL {
        // To read all bodies takes seconds.
        let Outcome::Bus(BusOutcome::Received(messages)) = lock_all(&mut driver, number).outcome
        else {
            panic!("a receive receives");
        };
        assert_eq!(messages.len(), COUNT);
        let others = messages.iter().enumerate();
        let others = others.filter(|(index, _)| index % STEP > 0);
        complete(&mut driver, number, others.map(|(_, message)| message));
    }
    let live_bytes = driver.partition.state().live_bytes();
    let (mut longest, mut largest) = (Duration::ZERO, 0);
    let mut turns = 0;
    while let Some(at) = next_wake(&driver.partition)
        && at <= driver.now.plus_seconds(3600)
    {
        assert!(turns < 200_000, "there is always something to do");
        turns += 1;
        driver.now = at.max(driver.now.plus_ms(1));
        let (end, moved) = (driver.partition.log().end(), driver.partition.moved_count());
        let began = Instant::now();
        driver.rest();
        if driver.partition.moved_count() > moved {
            longest = longest.max(began.elapsed());
            let taken = driver.partition.log().end().as_u64() - end.as_u64();
            largest = taken.max(largest);
        }
    }
    println!(
        "moved {} in {turns} turns, the longest took {longest:?}",
        driver.partition.moved_count()
    );
    settle(&mut driver);
    assert_eq!(driver.partition.state().live_bytes(), live_bytes);
    let moved_count = driver.partition.moved_count();
    assert!(moved_count > 0, "nothing had to move");
    assert!(moved_count.is_multiple_of(ALL as u64), "{moved_count}");
    // Each body once, and a few bytes for each copy.
    let bodies = moved_count / ALL as u64;
    let moved_bytes = driver.partition.moved_bytes();
    let most = bodies * (BODY_BYTES + 36 * ALL) as u64;
    assert!(moved_bytes <= most, "{moved_bytes} of {most}");
    // A turn takes no more than one body and its copies, which are about two milliseconds.
    assert!(
        largest <= (BODY_BYTES + 36 * ALL) as u64 + 4096,
        "{largest}"
    );
    let found = space(&driver);
    // The room that a piece with 2,000 events asks for is half of such a small segment.
    let most = driver.partition.state().live_bytes() * 14 / 10 + 6 * MIB;
    assert!(found.size_bytes <= most, "{found:?}");

    let now = driver.now;
    let mut driver = Driver::with(driver.storage.kill(), options());
    driver.now = now.plus_ms(LOCK_MS + 1);
    let kept: Vec<_> = (0..COUNT).step_by(STEP).map(body).collect();
    for number in 0..ALL {
        let (messages, bodies) = receive(&mut driver, number);
        assert_eq!(bodies, kept, "subscription {number}");
        complete(&mut driver, number, messages.iter());
    }
    settle(&mut driver);
    assert_eq!(driver.partition.state().live_bytes(), 0);
}
