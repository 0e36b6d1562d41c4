//! Bus queues through a partition: large batches, a full disk, wake-ups, damaged bodies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kew_broker::{Answer, Answered, Broker, BrokerOptions, Rejection, Wake};
use kew_engine::bus::{
    Awaited, BODIES_SIZE_BYTES_MAX, BatchDeleted, BusCommand, BusMessage, BusOutcome,
    BusQueueOptions, BusRefusal, DeferredRead, DeliveredMessage, Disposition, ITEMS_MAX,
    ReceiveMode,
};
use kew_engine::{Command, EntityName, Incarnation, Outcome, Refusal, SequenceNumber, Service};
use kew_log::FaultyStorage;

use crate::partition::Driver;

const MIB: usize = 1024 * 1024;

pub(crate) fn named(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

pub(crate) fn orders() -> EntityName {
    named("orders")
}

pub(crate) fn create() -> Command {
    Command::Bus(BusCommand::CreateQueue {
        queue: orders(),
        options: BusQueueOptions::default(),
    })
}

fn message(body: Bytes) -> BusMessage {
    BusMessage {
        body,
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn send_all(bodies: Vec<Bytes>) -> Command {
    Command::Bus(BusCommand::Send {
        queue: orders(),
        messages: bodies.into_iter().map(message).collect(),
    })
}

pub(crate) fn send(body: impl Into<Bytes>) -> Command {
    send_all(vec![body.into()])
}

fn receive_from(queue: EntityName, count: u32, mode: ReceiveMode) -> Command {
    Command::Bus(BusCommand::Receive {
        queue,
        count,
        mode,
        session: None,
    })
}

pub(crate) fn receive(count: u32) -> Command {
    receive_from(orders(), count, ReceiveMode::PeekLock)
}

pub(crate) fn settle(messages: &[DeliveredMessage], how: &Disposition) -> Command {
    let settle = |message: &DeliveredMessage| (message.lock.unwrap(), how.clone());
    Command::Bus(BusCommand::Settle {
        queue: orders(),
        settlements: messages.iter().map(settle).collect(),
    })
}

fn peek(count: u32) -> Command {
    Command::Bus(BusCommand::Peek {
        queue: orders(),
        from: SequenceNumber::default(),
        count,
        session: None,
    })
}

pub(crate) fn received(answer: Answered) -> (Vec<DeliveredMessage>, Vec<Bytes>) {
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        panic!("a receive receives");
    };
    let bodies = answer.bodies.read().into_iter();
    (messages, bodies.map(|body| body.unwrap()).collect())
}

pub(crate) fn driver() -> Driver {
    let mut driver = Driver::new();
    driver.ask(create()).unwrap();
    driver
}

#[test]
fn the_largest_message_fits_at_every_log_position() {
    let mut driver = driver();
    let large = Bytes::from(vec![b'x'; MIB]);
    for fill in [0, 10, 3000, 20_000, 60_000, 500_000, MIB] {
        driver.ask(send(vec![b'y'; fill])).unwrap();
        driver.ask(send(large.clone())).unwrap();
        let (messages, bodies) = received(driver.ask(receive(2)).unwrap());
        assert_eq!(bodies[0].len(), fill);
        assert_eq!(bodies[1], large);
        driver
            .ask(settle(&messages[..1], &Disposition::Complete))
            .unwrap();
        driver = driver.reopened();
    }
    let (messages, _) = received(driver.ask(receive(100)).unwrap());
    assert!(messages.is_empty(), "all others are locked");
    let Ok(Answered { bodies, .. }) = driver.ask(peek(100)) else {
        panic!("a peek shows");
    };
    assert_eq!(bodies.len(), 7);
    for body in bodies.read() {
        assert_eq!(body.unwrap(), large);
    }
}

#[test]
fn a_batch_is_bounded_in_bytes_and_in_messages() {
    let mut driver = driver();
    let halves = vec![Bytes::from(vec![b'x'; MIB / 2]); 2];
    driver.ask(send_all(halves.clone())).unwrap();
    let mut more = halves;
    more.push(Bytes::from_static(b"x"));
    let refused = |answer: kew_broker::Reply| match answer {
        Err(Rejection::Refused(Refusal::Bus(refusal))) => refusal,
        answer => panic!("not refused: {answer:?}"),
    };
    assert_eq!(
        refused(driver.ask(send_all(more))),
        BusRefusal::MessageTooLarge {
            size_bytes: BODIES_SIZE_BYTES_MAX + 1,
            limit_bytes: BODIES_SIZE_BYTES_MAX,
        }
    );
    driver
        .ask(send_all(vec![Bytes::from_static(b"y"); ITEMS_MAX]))
        .unwrap();
    assert_eq!(
        refused(driver.ask(send_all(vec![Bytes::new(); ITEMS_MAX + 1]))),
        BusRefusal::TooMany {
            count: ITEMS_MAX as u64 + 1,
            limit: ITEMS_MAX as u64,
        }
    );
    // As many can be received at once, settled at once, and deleted at once.
    let (messages, _) = received(driver.ask(receive(u32::MAX)).unwrap());
    assert_eq!(messages.len(), ITEMS_MAX);
    let overlay = Disposition::Abandon {
        overlay: Some(Bytes::from(vec![b'z'; MIB / ITEMS_MAX])),
    };
    driver.ask(settle(&messages, &overlay)).unwrap();
    let delete = Command::Bus(BusCommand::DeleteBatch {
        queue: orders(),
        from: SequenceNumber::default(),
        before: driver.now.plus_seconds(1),
        count: u32::MAX,
        session: None,
    });
    let mut delete = || match driver.ask(delete.clone()).unwrap().outcome {
        Outcome::Bus(BusOutcome::BatchDeleted(deleted)) => deleted,
        other => panic!("{other:?}"),
    };
    let first = delete();
    assert_eq!(first.count, u32::try_from(ITEMS_MAX).unwrap());
    assert!(first.next.is_some());
    let (count, next) = (2, None);
    assert_eq!(delete(), BatchDeleted { count, next });
}

#[test]
fn a_full_disk_can_be_drained_and_then_takes_messages_again() {
    let mut driver = driver();
    driver.storage.set_capacity_bytes(Some(1600 * 1024));
    let body = "x".repeat(2000);
    let mut sent = 0;
    while driver.ask(send(body.clone())).is_ok() {
        sent += 1;
        assert!(
            sent < 1000,
            "1,600 KiB hold no 1,000 messages of 2,000 bytes"
        );
    }
    assert!(driver.partition.is_out_of_space());
    assert!(driver.ask(peek(10)).is_ok(), "a peek needs no space");
    assert!(driver.ask(create()).is_err(), "and the answer is as before");

    let mut drained = 0;
    loop {
        // The request is for more than a full disk allows at once.
        let (messages, bodies) = received(driver.ask(receive(1000)).unwrap());
        if messages.is_empty() {
            break;
        }
        assert!(bodies.iter().all(|it| *it == body));
        driver
            .ask(settle(&messages, &Disposition::Complete))
            .unwrap();
        drained += messages.len();
    }
    assert_eq!(drained, sent, "every acknowledged message is there");
    for _ in 0..10 {
        driver.now = driver.now.plus_seconds(1);
        if driver.ask(send(body.clone())).is_ok() {
            return;
        }
    }
    panic!("a drained disk accepts no messages");
}

#[test]
fn locks_that_end_on_a_full_disk_are_judged_by_their_time() {
    let mut driver = driver();
    let body = "x".repeat(2000);
    driver.storage.set_capacity_bytes(Some(1600 * 1024));
    while driver.ask(send(body.clone())).is_ok() {}
    let (messages, _) = received(driver.ask(receive(16)).unwrap());
    driver.now = driver.now.plus_seconds(61);
    let answer = driver
        .ask(settle(&messages, &Disposition::Complete))
        .unwrap();
    let Outcome::Bus(BusOutcome::Settled(verdicts)) = answer.outcome else {
        panic!("a settlement is answered");
    };
    let lost = kew_engine::bus::Verdict::LockLost;
    assert!(verdicts.iter().all(|verdict| *verdict == lost));
}

#[test]
fn a_receive_that_leaves_messages_wakes_the_next_receiver() {
    let mut driver = driver();
    let queue = view(driver.ask(read()).unwrap().outcome);
    driver.ask(send("a")).unwrap();
    driver.ask(send("b")).unwrap();
    let wakes: Vec<_> = driver.partition.take_wakes().collect();
    let all = queue.with_sub_queues().map(Wake::Changed);
    assert_eq!(
        wakes
            .iter()
            .filter(|wake| **wake == Wake::One(queue, Awaited::Message))
            .count(),
        2
    );
    assert!(!all.iter().any(|wake| wakes.contains(wake)));
    driver.ask(receive(1)).unwrap();
    assert_eq!(
        driver.partition.take_wakes().collect::<Vec<_>>(),
        [Wake::One(queue, Awaited::Message)]
    );
    driver.ask(receive(1)).unwrap();
    assert_eq!(driver.partition.take_wakes().count(), 0);
}

pub(crate) fn read() -> Command {
    Command::Bus(BusCommand::ReadQueue { queue: orders() })
}

pub(crate) fn view(outcome: Outcome) -> Incarnation {
    match outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => view.incarnation,
        outcome => panic!("not a queue: {outcome:?}"),
    }
}

#[tokio::test]
async fn a_parked_receiver_is_woken_by_a_message_a_dead_letter_and_the_end_of_its_queue() {
    let broker = Broker::start_in_memory().unwrap();
    broker.submit(create()).await.unwrap();
    let queue = view(broker.submit(read()).await.unwrap().outcome);
    let [_, dead_letters, _] = queue.with_sub_queues();
    let limit = Duration::from_secs(30);

    let mut watch = broker.watch(queue, Awaited::Message);
    let parked = tokio::spawn({
        let broker = broker.clone();
        async move {
            loop {
                let answer = broker.submit(receive(1)).await.unwrap();
                if let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome
                    && !messages.is_empty()
                {
                    return messages;
                }
                watch.woken().await;
            }
        }
    });
    tokio::task::yield_now().await;
    broker.submit(send("a")).await.unwrap();
    let messages = tokio::time::timeout(limit, parked).await.unwrap().unwrap();

    let mut watch = broker.watch(dead_letters, Awaited::Message);
    let bury = Disposition::DeadLetter { overlay: None };
    broker.submit(settle(&messages, &bury)).await.unwrap();
    tokio::time::timeout(limit, watch.woken()).await.unwrap();

    let delete = Command::Bus(BusCommand::DeleteQueue { queue: orders() });
    broker.submit(delete).await.unwrap();
    tokio::time::timeout(limit, watch.woken()).await.unwrap();
    broker.stop();
}

#[tokio::test]
async fn a_message_of_which_a_part_is_damaged_is_left_out_whole() {
    let storage = Arc::new(FaultyStorage::new());
    let mut options = BrokerOptions::default();
    options.partition.log.recent_bytes_max = 0;
    let (broker, _) = Broker::start(storage.clone(), options.clone()).unwrap();
    broker.submit(create()).await.unwrap();
    for body in ["first body", "second body", "third body"] {
        broker.submit(send(body)).await.unwrap();
    }
    let answer = broker.submit(receive(3)).await.unwrap();
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        panic!("a receive receives");
    };
    for (message, overlay) in messages
        .iter()
        .zip(["change one", "change two", "change three"])
    {
        let overlay = Some(Bytes::from_static(overlay.as_bytes()));
        let abandon = Disposition::Abandon { overlay };
        broker
            .submit(settle(std::slice::from_ref(message), &abandon))
            .await
            .unwrap();
    }
    damage(&storage, b"change two");
    let answer = broker.submit(peek(10)).await.unwrap();
    let Outcome::Bus(BusOutcome::Peeked(messages)) = answer.outcome else {
        panic!("a peek shows");
    };
    let numbers: Vec<_> = messages
        .iter()
        .map(|it| it.sequence_number.as_u64())
        .collect();
    assert_eq!(numbers, [1, 3]);
    let bodies = ["first body", "change one", "third body", "change three"];
    assert_eq!(answer.bodies, bodies);
    broker.stop();
}

/// A broker that keeps no bodies in memory, with a queue.
pub(crate) async fn forgetful() -> (Arc<FaultyStorage>, Broker) {
    let storage = Arc::new(FaultyStorage::new());
    let mut options = BrokerOptions::default();
    options.partition.log.recent_bytes_max = 0;
    let (broker, _) = Broker::start(storage.clone(), options).unwrap();
    broker.submit(create()).await.unwrap();
    (storage, broker)
}

pub(crate) async fn active(broker: &Broker) -> u64 {
    match broker.submit(read()).await.unwrap().outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => view.counts.active,
        outcome => panic!("not a queue: {outcome:?}"),
    }
}

pub(crate) fn take(answer: Answer) -> Vec<(u64, Bytes)> {
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        panic!("a receive receives");
    };
    assert!(messages.iter().all(|message| message.lock.is_none()));
    let numbers = messages.iter().map(|it| it.sequence_number.as_u64());
    numbers.zip(answer.bodies).collect()
}

/// The message of that number is damaged.
pub(crate) fn damaged(sequence_number: u64) -> Rejection {
    Rejection::Refused(BusRefusal::MessageDamaged { sequence_number }.into())
}

pub(crate) fn receive_and_delete(count: u32) -> Command {
    receive_from(orders(), count, ReceiveMode::ReceiveAndDelete)
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_not_deleted_by_its_receiver() {
    let (storage, broker) = forgetful().await;
    for body in ["first body", "second body", "third body"] {
        broker.submit(send(body)).await.unwrap();
    }
    damage(&storage, b"second body");
    // If it is the only message, the error stays visible: the message is released.
    let first = take(broker.submit(receive_and_delete(1)).await.unwrap());
    assert_eq!(first, [(1, Bytes::from("first body"))]);
    let refused = broker.submit(receive_and_delete(1)).await;
    assert_eq!(refused, Err(damaged(2)));
    assert_eq!(active(&broker).await, 2);
    // Others behind it are not kept waiting.
    let next = take(broker.submit(receive_and_delete(2)).await.unwrap());
    assert_eq!(next, [(3, Bytes::from("third body"))]);
    assert_eq!(active(&broker).await, 1);
    broker.stop();
}

#[tokio::test]
async fn of_several_messages_only_readable_ones_are_deleted() {
    let (storage, broker) = forgetful().await;
    for body in ["first body", "second body", "third body"] {
        broker.submit(send(body)).await.unwrap();
    }
    damage(&storage, b"second body");
    let read = take(broker.submit(receive_and_delete(3)).await.unwrap());
    let numbers: Vec<_> = read.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 3]);
    assert_eq!(active(&broker).await, 1);
    broker.stop();
}

#[tokio::test]
async fn of_deferred_messages_none_is_deleted_if_one_cannot_be_read() {
    let (storage, broker) = forgetful().await;
    for body in ["first body", "second body"] {
        broker.submit(send(body)).await.unwrap();
    }
    let answer = broker.submit(receive(2)).await.unwrap();
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        panic!("a receive receives");
    };
    let defer = Disposition::Defer { overlay: None };
    broker.submit(settle(&messages, &defer)).await.unwrap();
    damage(&storage, b"second body");
    let deferred = |numbers: &[u64]| {
        let read = DeferredRead {
            queue: orders(),
            numbers: numbers
                .iter()
                .map(|it| SequenceNumber::named(*it))
                .collect(),
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        };
        Command::Bus(BusCommand::ReceiveDeferred { read })
    };
    let refused = broker.submit(deferred(&[1, 2])).await;
    assert_eq!(refused, Err(damaged(2)));
    assert_eq!(active(&broker).await, 2);
    let refused = broker.submit(deferred(&[2])).await;
    assert_eq!(refused, Err(damaged(2)));
    let whole = take(broker.submit(deferred(&[1])).await.unwrap());
    assert_eq!(whole, [(1, Bytes::from("first body"))]);
    assert_eq!(active(&broker).await, 1);
    broker.stop();
}

#[tokio::test]
async fn an_operator_takes_no_message_that_cannot_be_read() {
    let (storage, broker) = forgetful().await;
    for body in ["first body", "second body"] {
        broker.submit(send(body)).await.unwrap();
    }
    damage(&storage, b"second body");
    let take_it = |number| {
        Command::Bus(BusCommand::TakeMessage {
            queue: orders(),
            number: SequenceNumber::named(number),
            mode: ReceiveMode::ReceiveAndDelete,
        })
    };
    let refused = broker.submit(take_it(2)).await;
    assert_eq!(refused, Err(damaged(2)));
    assert_eq!(active(&broker).await, 2);
    let whole = take(broker.submit(take_it(1)).await.unwrap());
    assert_eq!(whole, [(1, Bytes::from("first body"))]);
    broker.stop();
}

/// Flips a bit in the middle of the only place that holds these bytes.
pub(crate) fn damage(storage: &FaultyStorage, bytes: &[u8]) {
    use kew_log::Storage as _;
    for (name, size_bytes) in storage.files() {
        let file = storage.open(&name).unwrap();
        let mut content = vec![0; usize::try_from(size_bytes).unwrap()];
        file.read_at(&mut content, 0).unwrap();
        let found = content.windows(bytes.len()).position(|it| it == bytes);
        if let Some(offset) = found {
            storage.flip(&name, offset as u64 + 3, 1);
            return;
        }
    }
    panic!("no file contains the bytes to damage");
}
