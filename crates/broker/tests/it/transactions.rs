//! Transactions and the disk: all of one or nothing, at whichever call the power goes off.

use kew_broker::{Rejection, Reply};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode, TransactionPart,
    TransactionWork,
};
use kew_engine::{Command, EntityName, Outcome, SequenceNumber, Service, Token};
use kew_log::FaultyStorage;

use crate::partition::Driver;

const LARGE: usize = 20 * 1024;

fn named(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

fn message(size: usize) -> BusMessage {
    BusMessage {
        body: vec![b'm'; size].into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn part(queue: &str, work: TransactionWork) -> TransactionPart {
    TransactionPart {
        incarnation: None,
        queue: named(queue),
        work,
    }
}

fn settled(lock: Token, disposition: Disposition) -> TransactionPart {
    part("orders", TransactionWork::Settle(lock, disposition))
}

fn sent(size: usize) -> TransactionPart {
    part("other", TransactionWork::Send(vec![message(size)]))
}

fn sent_via_orders(to: &str) -> TransactionPart {
    let work = TransactionWork::SendVia(named(to), vec![message(10)]);
    part("orders", work)
}

impl Driver {
    fn bus(&mut self, command: BusCommand) -> Reply {
        self.ask(Command::Bus(command))
    }

    fn transact(&mut self, parts: Vec<TransactionPart>) -> Reply {
        self.bus(BusCommand::Transact { parts })
    }

    fn send_orders(&mut self, size: usize) -> Reply {
        let messages = vec![message(size)];
        let queue = named("orders");
        self.bus(BusCommand::Send { queue, messages })
    }

    fn locks(&mut self, count: u32) -> Vec<Token> {
        let receive = BusCommand::Receive {
            queue: named("orders"),
            count,
            mode: ReceiveMode::PeekLock,
            session: None,
        };
        match self.bus(receive).unwrap().outcome {
            Outcome::Bus(BusOutcome::Received(messages)) => {
                messages.iter().filter_map(|it| it.lock).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// How many messages with intact bodies each queue has.
    fn counts(&mut self) -> [usize; 3] {
        ["orders", "orders/$deadletterqueue", "other"].map(|queue| self.count(queue))
    }

    /// The same with failed transfers, and with a topic. A message of that waits there, or was copied.
    fn counts_with_topic(&mut self) -> [usize; 5] {
        let [orders, dead, other] = self.counts();
        let failed = self.count("orders/$transfer/$deadletterqueue");
        let of_topic = self.count("news") + self.count("news/subscriptions/all");
        [orders, dead, other, failed, of_topic]
    }

    fn count(&mut self, queue: &str) -> usize {
        let peek = BusCommand::Peek {
            queue: named(queue),
            from: SequenceNumber::default(),
            count: 100,
            session: None,
        };
        let answered = self.bus(peek).unwrap();
        let Outcome::Bus(BusOutcome::Peeked(messages)) = &answered.outcome else {
            panic!("{:?}", answered.outcome);
        };
        let mut bodies = answered.bodies.read().into_iter().map(Result::unwrap);
        for message in messages {
            assert!(bodies.next().unwrap().iter().all(|byte| *byte == b'm'));
            // A failed transfer says where it was to go.
            for said in bodies.by_ref().take(message.overlays.len()) {
                assert!(said.starts_with(b"The message was not transferred to"));
            }
        }
        messages.len()
    }
}

/// Two queues; the first has three locked messages.
fn prepared() -> (FaultyStorage, Vec<Token>) {
    let mut driver = Driver::new();
    for name in ["orders", "other"] {
        let (queue, options) = (named(name), BusQueueOptions::default());
        driver
            .bus(BusCommand::CreateQueue { queue, options })
            .unwrap();
    }
    for _ in 0..3 {
        driver.send_orders(100).unwrap();
    }
    let locks = driver.locks(3);
    assert_eq!(locks.len(), 3);
    (driver.storage.kill(), locks)
}

/// The same with a topic and a subscription.
fn with_topic(storage: &FaultyStorage) -> FaultyStorage {
    let mut driver = Driver::on(storage.kill());
    for command in [
        BusCommand::CreateTopic {
            topic: named("news"),
            options: BusQueueOptions::default(),
        },
        BusCommand::CreateSubscription {
            topic: named("news"),
            subscription: named("news/subscriptions/all"),
            options: BusQueueOptions::default(),
            rule: None,
        },
    ] {
        driver.bus(command).unwrap();
    }
    driver.storage.kill()
}

#[test]
fn a_power_cut_at_any_call_keeps_transactions_atomic() {
    let (storage, locks) = prepared();
    let storage = with_topic(&storage);
    let [first, second, third] = locks[..] else {
        panic!("there are three")
    };
    // One part is larger than a segment, so that a new one must be created for it.
    let parts = vec![
        settled(first, Disposition::Complete),
        sent(10),
        settled(second, Disposition::DeadLetter { overlay: None }),
        part("news", TransactionWork::Send(vec![message(10)])),
        sent_via_orders("other"),
        sent_via_orders("nowhere"),
        sent(LARGE),
        sent(LARGE),
        sent(LARGE),
        settled(third, Disposition::Complete),
    ];
    let (mut alls, mut nothings) = (0, 0);
    for calls in 0.. {
        let mut driver = Driver::on(storage.kill());
        driver.storage.crash_after(calls);
        let is_acknowledged = driver.transact(parts.clone()).is_ok();
        for seed in 0..8u64 {
            let mut random = seed * 7919 + calls;
            let disk = driver.storage.crash(&mut |bound| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                u32::try_from((random >> 33) % u64::from(bound)).unwrap()
            });
            let found = Driver::on(disk).counts_with_topic();
            let story = format!("cut off after {calls} calls, seed {seed}");
            match found {
                [0, 1, 5, 1, 1] => alls += 1,
                [3, 0, 0, 0, 0] => nothings += 1,
                other => panic!("{story}: {other:?}"),
            }
            assert!(!is_acknowledged || found == [0, 1, 5, 1, 1], "{story}");
        }
        if is_acknowledged {
            break;
        }
    }
    assert!(alls > 8 && nothings > 8, "{alls} and {nothings}");
}

#[test]
fn on_a_full_disk_a_transaction_that_frees_messages_is_let_through() {
    let (storage, _) = prepared();
    let mut driver = Driver::on(storage);
    driver.storage.set_capacity_bytes(Some(1600 * 1024));
    let fill = |driver: &mut Driver| {
        let sent = std::iter::repeat_with(|| driver.send_orders(2000));
        sent.take_while(Result::is_ok).count()
    };
    driver.fill_up(fill);
    let locks = driver.locks(16);
    // A snapshot that the locks have made due may have made room.
    driver.fill_up(fill);
    assert!(driver.partition.log().limits().full.is_some());
    let held = driver.counts();
    let with_send = vec![settled(locks[0], Disposition::Complete), sent(10)];
    assert_eq!(driver.transact(with_send).unwrap_err(), Rejection::Full);
    assert_eq!(driver.counts(), held);
    let parts = locks[..4]
        .iter()
        .map(|lock| settled(*lock, Disposition::Complete));
    driver.transact(parts.collect()).unwrap();
    assert_eq!(driver.counts()[2], held[2]);
    let left = driver.locks(1000);
    assert!(!left.is_empty());
}
