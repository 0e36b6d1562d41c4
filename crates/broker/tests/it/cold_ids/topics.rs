//! The same for topics: due work reads them before it forwards a message whose id may be one of them.

use std::collections::VecDeque;
use std::sync::Arc;

use kew_engine::EntityName;
use kew_engine::bus::{BusQueueCounts, ReceiveMode};
use kew_log::{LogOptions, TablePage};

use super::*;
use crate::bus::named;
use crate::forwards::Words;
use crate::support::moment;

/// So many messages of that size have more bytes than all that wait for bodies may hold.
const LARGE_BYTES: usize = 900 << 10;
const LARGE_COUNT: u64 = 20;

fn topic() -> EntityName {
    named("topic")
}

fn end() -> EntityName {
    named("topic/subscriptions/end")
}

/// Nothing stays in memory, neither ids nor bodies.
fn nothing_in_memory() -> PartitionOptions {
    PartitionOptions {
        log: LogOptions {
            recent_bytes_max: 0,
            ..LogOptions::default()
        },
        format: Arc::new(Words),
        ..at_zero()
    }
}

fn options() -> BusQueueOptions {
    BusQueueOptions {
        message_size_bytes_max: 1 << 20,
        ..BusQueueOptions::default()
    }
}

fn forwards() -> BusQueueOptions {
    BusQueueOptions {
        forward_to: Some("topic".into()),
        ..options()
    }
}

fn create_queue(queue: EntityName, options: BusQueueOptions) -> Command {
    Command::Bus(BusCommand::CreateQueue { queue, options })
}

/// Messages whose first word is their id, of at least so many bytes.
fn sent_to(queue: EntityName, ids: impl IntoIterator<Item = u64>, size_bytes: usize) -> Command {
    let message = |id: u64| BusMessage {
        body: format!("id-{id} {}", "x".repeat(size_bytes)).into(),
        message_id: Some(format!("id-{id}").into()),
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let messages = ids.into_iter().map(message).collect();
    Command::Bus(BusCommand::Send { queue, messages })
}

impl Driver {
    /// A topic that has seen these ids, of which nothing is in memory but the newest block. Messages of two queues go
    /// on to it. Returns the pages of the ids.
    fn with_topic(ids: std::ops::Range<u64>) -> (Self, Vec<TablePage>) {
        let mut driver = Self::with(FaultyStorage::new(), nothing_in_memory());
        let detects = BusQueueOptions {
            duplicate_window_ms: Some(WINDOW_MS),
            ..options()
        };
        let create = BusCommand::CreateTopic {
            topic: topic(),
            options: detects,
        };
        driver.ask(Command::Bus(create)).unwrap();
        let ids: Vec<u64> = ids.collect();
        for ids in ids.chunks(500) {
            let numbers = sent(driver.ask(sent_to(topic(), ids.iter().copied(), 1)));
            assert!(numbers.into_iter().all(|is_sent| is_sent));
        }
        cool(&mut driver);
        let names = driver.storage.files().into_iter().map(|(name, _)| name);
        let newest = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
        let newest = kew_log::LogPosition::new(newest.max().unwrap());
        let table = read_table(&driver.storage, newest).unwrap().table;
        // The head of the topic comes first.
        let pages = table.pages()[1..].to_vec();
        let subscribe = BusCommand::CreateSubscription {
            topic: topic(),
            subscription: end(),
            options: options(),
            rule: None,
        };
        driver.ask(Command::Bus(subscribe)).unwrap();
        for name in ["orders", "more"] {
            driver.ask(create_queue(named(name), forwards())).unwrap();
        }
        (driver, pages)
    }

    fn count_of(&mut self, queue: EntityName) -> BusQueueCounts {
        let read = Command::Bus(BusCommand::ReadQueue { queue });
        match self.ask(read).unwrap().outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => view.counts,
            other => panic!("{other:?}"),
        }
    }

    /// How many messages each of these has that can be received.
    fn active<const N: usize>(&mut self, names: [EntityName; N]) -> [u64; N] {
        names.map(|name| self.count_of(name).active)
    }

    fn later(&mut self) {
        self.now = self.now.plus_ms(1500);
        rest(self);
    }

    /// Asks, and waits for the answer no longer than reads take.
    fn ask_for_a_while(&mut self, command: Command) -> Option<Reply> {
        let mut commands = VecDeque::from([(0, command)]);
        let mut replies = Vec::new();
        for _ in 0..20 {
            let now = moment(self.now);
            self.partition.turn(now, &mut commands, &mut replies);
            self.jobs(&mut replies);
        }
        replies.pop().map(|(_, reply)| reply)
    }
}

#[test]
fn a_forwarded_message_is_a_duplicate_of_one_whose_id_is_not_in_memory() {
    let (mut driver, _) = Driver::with_topic(0..4000);
    for restart in 0..3_u64 {
        cool(&mut driver);
        assert_eq!(resident(&driver), (0, 3), "{restart}");
        let loaded = driver.partition.loaded_count();
        // Of each block one, one that is in memory, and two that are new.
        let new = 10_000 + 2 * restart;
        for id in [5, 1500, 2500, 3999, new, new + 1, new] {
            driver.ask(sent_to(named("orders"), [id], 1)).unwrap();
        }
        rest(&mut driver);
        let [left, arrived] = driver.active([named("orders"), end()]);
        assert_eq!((left, arrived), (0, 2 * (restart + 1)));
        assert_eq!(driver.count_of(named("orders")).dead_letters, 0);
        assert!(driver.partition.loaded_count() >= loaded + 3);
        assert!(!driver.partition.is_due_work_waiting());
        cool(&mut driver);
        driver = killed(driver, nothing_in_memory());
        assert_eq!(resident(&driver), (0, 3), "a start keeps none");
    }
    // With their window, they end.
    driver.now = driver.now.plus_ms(WINDOW_MS + 1000);
    rest(&mut driver);
    driver.ask(sent_to(named("orders"), [5], 1)).unwrap();
    rest(&mut driver);
    assert_eq!(driver.active([end()]), [7]);
}

/// A queue that forwards one large message.
fn large(nth: u64) -> EntityName {
    named(&format!("large-{nth}"))
}

/// All large messages together have more bytes than those that wait for bodies may hold.
#[test]
fn due_work_that_rests_on_ids_that_cannot_be_read_is_in_nobodys_way() {
    let (mut driver, pages) = Driver::with_topic(0..4000);
    let others = named("others");
    driver.ask(create_queue(others.clone(), options())).unwrap();
    for id in 0..4 {
        let large = sent_to(others.clone(), [id], LARGE_BYTES);
        driver.ask(large).unwrap();
    }
    for nth in 0..LARGE_COUNT {
        driver.ask(create_queue(large(nth), forwards())).unwrap();
    }
    cool(&mut driver);
    assert_eq!(resident(&driver), (0, 3));
    // The second block.
    damage(&driver.storage, &pages[1..2], 0..2);
    for nth in 0..LARGE_COUNT {
        // A duplicate of what lies there, and a new one behind it.
        let ids = [1500 + nth, 20_000 + nth];
        for id in ids {
            driver.ask(sent_to(large(nth), [id], LARGE_BYTES)).unwrap();
        }
    }
    for round in 0..4_u64 {
        rest(&mut driver);
        assert!(driver.partition.is_due_work_waiting());
        // Others read bodies.
        let receive = BusCommand::Receive {
            queue: others.clone(),
            count: 1,
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        };
        let reply = driver.ask_for_a_while(Command::Bus(receive));
        let answered = reply.expect("nobody is in its way").unwrap();
        assert_eq!(answered.bodies.len(), 1);
        // And others are forwarded, also if their ids are read.
        let new = 30_000 + round;
        for id in [5, new] {
            driver.ask(sent_to(named("more"), [id], 1)).unwrap();
        }
        rest(&mut driver);
        let left = driver.active([large(0), large(LARGE_COUNT - 1), named("more"), end()]);
        assert_eq!(left, [2, 2, 0, round + 1], "in round {round}");
        driver.later();
    }
    // It can be read again.
    damage(&driver.storage, &pages[1..2], 0..2);
    for _ in 0..4 {
        driver.later();
    }
    let left = driver.active([large(0), large(LARGE_COUNT - 1), end()]);
    assert_eq!(left, [0, 0, 4 + LARGE_COUNT], "duplicates, and new ones");
    assert!(!driver.partition.is_due_work_waiting());
    assert_eq!(driver.count_of(large(0)).dead_letters, 0);
}

/// Nothing waits any more, so nothing rests: it asks again.
#[test]
fn rests_end_with_the_waits_that_are_given_up() {
    let (mut driver, pages) = Driver::with_topic(0..4000);
    cool(&mut driver);
    damage(&driver.storage, &pages[1..2], 0..2);
    driver.ask(sent_to(named("orders"), [1500], 1)).unwrap();
    rest(&mut driver);
    assert!(driver.partition.is_due_work_waiting());
    damage(&driver.storage, &pages[1..2], 0..2);
    driver.partition.reject_waiting(&mut Vec::new());
    assert!(!driver.partition.is_due_work_waiting());
    driver.later();
    assert_eq!(driver.active([named("orders"), end()]), [0, 0]);
}
