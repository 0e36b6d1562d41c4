//! Bodies that subscriptions of a topic share: the log has each once, and they go with their last copy.

use bytes::Bytes;
use kew_broker::PartitionOptions;
use kew_engine::bus::{
    BusCommand, BusMessage, BusQueueOptions, DeliveredMessage, Disposition, ReceiveMode,
};
use kew_engine::{Command, EntityName};
use kew_log::{FaultyStorage, LogOptions};

use crate::bus::{named, received};
use crate::maintenance::{settle_within, space};
use crate::partition::{Driver, options};

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
    let mut driver = Driver::with(FaultyStorage::new(), large_segments());
    let options = BusQueueOptions {
        lock_duration_ms: LOCK_MS,
        ..BusQueueOptions::default()
    };
    let create = BusCommand::CreateTopic {
        topic: topic(),
        options: options.clone(),
    };
    driver.ask(Command::Bus(create)).unwrap();
    for number in 0..SUBSCRIPTIONS {
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
    let taken = driver.partition.log().end().as_u64() - before;
    assert!(taken < (count * (BODY_BYTES + 1024)) as u64, "{taken}");
}

fn receive(driver: &mut Driver, number: usize) -> (Vec<DeliveredMessage>, Vec<Bytes>) {
    let receive = BusCommand::Receive {
        queue: subscription(number),
        count: 500,
        mode: ReceiveMode::PeekLock,
        session: None,
    };
    received(driver.ask(Command::Bus(receive)).unwrap())
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
