//! Messages that are due much later: their times leave memory with their records, and a start does not read their pages.

use kew_broker::PartitionOptions;
use kew_engine::bus::{BusCommand, BusMessage, BusOutcome, BusQueueOptions};
use kew_engine::storage::StorageCommand;
use kew_engine::{BodyEncoding, Command, Outcome, VisibilityTimeout};
use kew_log::{Fault, FaultyStorage, Repeat};

use crate::bus;
use crate::partition::Driver;
use crate::passed_over::{create_named, on_pages, unlimited};
use crate::resident::{body, limited, received, records};
use crate::support::{create, queue, receive};

/// Three runs.
pub(crate) const COUNT: u64 = 3000;

/// As in the product: times of the next hour stay in memory.
const FAR_MS: u64 = 60 * 60 * 1000;

/// After how many seconds a message is due: each at another time, in another order than that of the numbers.
fn due_seconds(number: u64) -> u64 {
    500_000 + number * 1237 % COUNT
}

pub(crate) fn few_records() -> PartitionOptions {
    PartitionOptions {
        far_ms: FAR_MS,
        ..limited(Some(10))
    }
}

fn far(driver: &Driver) -> u64 {
    driver.partition.state().resident().far
}

/// A queue of Service Bus whose messages are scheduled, on a disk after a kill.
pub(crate) fn scheduled() -> FaultyStorage {
    scheduled_after(COUNT, due_seconds)
}

/// The same, each after so many seconds.
fn scheduled_after(count: u64, seconds: impl Fn(u64) -> u64) -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    let message = |number: &u64| BusMessage {
        body: body(*number).into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: Some(driver.now.plus_seconds(seconds(*number))),
    };
    let messages: Vec<BusMessage> = (0..count).collect::<Vec<_>>().iter().map(message).collect();
    for messages in messages.chunks(100) {
        let (queue, messages) = (bus::orders(), messages.to_vec());
        driver
            .ask(Command::Bus(BusCommand::Send { queue, messages }))
            .unwrap();
    }
    let another = BusCommand::CreateQueue {
        queue: bus::named("another"),
        options: BusQueueOptions::default(),
    };
    on_pages(driver, Command::Bus(another))
}

/// How many messages can be received, and how many are scheduled.
pub(crate) fn counts(driver: &mut Driver) -> (u64, u64) {
    match driver.ask(bus::read()).unwrap().outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => (view.counts.ready, view.counts.scheduled),
        other => panic!("{other:?}"),
    }
}

/// Lets due work come to an end.
pub(crate) fn settle(driver: &mut Driver) {
    for _ in 0..10_000 {
        driver.rest();
        let next = driver.partition.state().next_deadline();
        if next.is_none_or(|next| next > driver.now) {
            return;
        }
    }
    panic!("due work does not end");
}

#[test]
fn schedules_become_due_in_time_after_starts_that_do_not_read_them() {
    let mut storage = scheduled();
    let mut now = None;
    for due in [0, 1, 1000, 1001, 2999, COUNT] {
        let mut driver = Driver::with(storage, few_records());
        let began = *now.get_or_insert(driver.now);
        driver.now = began.plus_seconds(499_999 + due);
        assert_eq!(driver.loads, 0, "a start reads no page of a run");
        settle(&mut driver);
        assert_eq!(counts(&mut driver), (due, COUNT - due));
        storage = driver.storage.kill();
    }
}

#[test]
fn what_is_due_within_the_hour_is_read_once() {
    let mut driver = Driver::with(scheduled(), few_records());
    assert_eq!((records(&driver), far(&driver)), (0, COUNT));
    let began = driver.now;
    for second in 0..100 {
        driver.now = began.plus_seconds(500_000 + second);
        settle(&mut driver);
        assert_eq!(counts(&mut driver), (second + 1, COUNT - second - 1));
    }
    assert_eq!(far(&driver), 0);
    // Three runs as a whole, and again what of them had left memory: each message that became due.
    assert!(driver.loads <= 3 + 100, "{} loads", driver.loads);
}

/// What cannot be read, here for want of a file descriptor, becomes due once it can be.
#[test]
fn a_page_that_cannot_be_read_delays_what_it_has() {
    let mut driver = Driver::with(scheduled(), few_records());
    driver.now = driver.now.plus_seconds(500_000 + COUNT);
    driver.storage.fail_after(0, Fault::Emfile, Repeat::Sticky);
    for _ in 0..20 {
        driver.rest();
    }
    assert_eq!((records(&driver), far(&driver)), (0, COUNT));
    driver.storage.clear_faults();
    driver.now = driver.now.plus_seconds(10);
    settle(&mut driver);
    assert_eq!(counts(&mut driver), (COUNT, 0));
}

/// Messages of Queue Storage that show much later are received in the order of that.
#[test]
fn delayed_messages_are_received_in_the_order_in_which_they_show() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(create()).unwrap();
    for number in 0..COUNT {
        let seconds = u32::try_from(due_seconds(number)).unwrap();
        let send = StorageCommand::Send {
            queue: queue(),
            body: body(number).into(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: VisibilityTimeout::from_seconds(seconds).unwrap(),
        };
        driver.ask(Command::Storage(send)).unwrap();
    }
    let began = driver.now;
    let storage = on_pages(driver, create_named("another"));
    let mut driver = Driver::with(storage, few_records());
    assert_eq!((records(&driver), far(&driver)), (0, COUNT));
    driver.now = began.plus_seconds(500_000 + COUNT / 2);
    let mut order: Vec<u64> = (0..COUNT).collect();
    order.sort_unstable_by_key(|number| due_seconds(*number));
    let mut expected = order.iter().map(|number| body(*number));
    let mut left = COUNT / 2;
    while left > 32 {
        let (_, bodies) = received(driver.ask(receive(32)));
        assert_eq!(bodies, expected.by_ref().take(32).collect::<Vec<_>>());
        left -= 32;
    }
    driver.now = began.plus_seconds(500_000 + COUNT + 60);
    let (_, bodies) = received(driver.ask(receive(32)));
    assert_eq!(bodies, expected.by_ref().take(32).collect::<Vec<_>>());
}

/// Messages that are all due at once are read as they become ready, and not all before the first one.
#[test]
fn messages_of_the_same_time_are_read_as_they_are_due() {
    let count = 9000;
    let mut driver = Driver::with(scheduled_after(count, |_| 500_000), few_records());
    driver.now = driver.now.plus_seconds(500_000);
    let (ready, scheduled) = counts(&mut driver);
    assert!(ready > 0 && scheduled > 0, "{ready} of them are ready");
    // Of nine runs four were read.
    assert!(far(&driver) > count / 2, "{} are far", far(&driver));
    settle(&mut driver);
    assert_eq!(counts(&mut driver), (count, 0));
}

/// A group of a page has a time of its own: what is due later is not read, and holds nothing back if it cannot be.
#[test]
fn a_group_is_read_when_one_of_it_is_due() {
    let is_later = |number: u64| (383..511).contains(&number);
    let after = |number| if is_later(number) { 600_000 } else { 500_000 };
    let mut driver = Driver::with(scheduled_after(COUNT, after), few_records());
    let began = driver.now;
    driver.now = began.plus_seconds(500_000);
    settle(&mut driver);
    assert_eq!(counts(&mut driver), (COUNT - 128, 128));
    assert_eq!(far(&driver), 128);
    driver.now = began.plus_seconds(600_000);
    settle(&mut driver);
    assert_eq!(counts(&mut driver), (COUNT, 0));
}
