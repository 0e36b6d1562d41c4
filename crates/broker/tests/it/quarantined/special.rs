//! Messages with sessions, changed properties and topics: what else is kept of them is forgotten with them.

use std::ops::Range;

use bytes::Bytes;
use kew_engine::bus::{BusQueueCounts, BusQueueView, DeferredRead, ReceiveMode, SessionChoice};
use kew_engine::{EntityName, Token};
use kew_log::TablePage;

use super::*;
use crate::ahead::create_bus;

const SESSIONS: [&str; 3] = ["a", "b", "c"];

/// What the first run and the last group of it have.
const FIRST_RUN: Range<u64> = 1..1024;
const LAST_GROUP: Range<u64> = 896..1024;

fn bus(driver: &mut Driver, command: BusCommand) -> BusOutcome {
    match driver.ask(Command::Bus(command)).unwrap().outcome {
        Outcome::Bus(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn view(driver: &mut Driver, queue: EntityName) -> BusQueueView {
    match bus(driver, BusCommand::ReadQueue { queue }) {
        BusOutcome::Queue(view) => *view,
        other => panic!("{other:?}"),
    }
}

fn accept(driver: &mut Driver, session: &str) -> Token {
    let accept = BusCommand::AcceptSession {
        queue: bus::orders(),
        session: SessionChoice::Named(session.into()),
    };
    match bus(driver, accept) {
        BusOutcome::SessionAccepted(accepted) => accepted.lock,
        other => panic!("{other:?}"),
    }
}

fn receive_from(
    driver: &mut Driver,
    queue: EntityName,
    session: Option<Token>,
) -> Vec<DeliveredMessage> {
    let receive = BusCommand::Receive {
        queue,
        count: 100,
        mode: ReceiveMode::PeekLock,
        session,
    };
    match bus(driver, receive) {
        BusOutcome::Received(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn settle_all(
    driver: &mut Driver,
    queue: EntityName,
    messages: &[DeliveredMessage],
    how: &Disposition,
) {
    let settlements = messages.iter().map(|it| (it.lock.unwrap(), how.clone()));
    let settlements = settlements.collect();
    bus(driver, BusCommand::Settle { queue, settlements });
}

/// Completes all messages that can be received, in order. Returns their numbers.
fn drain_from(driver: &mut Driver, queue: &EntityName, session: Option<Token>) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let messages = receive_from(driver, queue.clone(), session);
        if messages.is_empty() {
            return all;
        }
        all.extend(messages.iter().map(|it| it.sequence_number.as_u64()));
        settle_all(driver, queue.clone(), &messages, &Disposition::Complete);
    }
}

/// Sends the messages 1 to 3000. Each tenth is due an hour later.
fn publish(driver: &mut Driver, queue: &EntityName, sessions: &[&str]) {
    let due = driver.now.plus_seconds(3600);
    let numbers: Vec<u64> = (1..=3000).collect();
    for numbers in numbers.chunks(100) {
        let nth = |number: &u64| usize::try_from(*number).unwrap();
        let messages = numbers.iter().map(|number| BusMessage {
            body: body(*number).into(),
            message_id: None,
            session: (!sessions.is_empty()).then(|| sessions[nth(number) % sessions.len()].into()),
            time_to_live_ms: None,
            scheduled_at: is_scheduled(*number).then_some(due),
        });
        let (queue, messages) = (queue.clone(), messages.collect());
        bus(driver, BusCommand::Send { queue, messages });
    }
}

fn is_scheduled(number: u64) -> bool {
    number.is_multiple_of(10)
}

/// Messages of three sessions, on pages alone. The first seven of a session are deferred.
fn of_sessions() -> Driver {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    create_bus(&mut driver, &bus::orders(), true);
    publish(&mut driver, &bus::orders(), &SESSIONS);
    let session = accept(&mut driver, "b");
    let mut first = receive_from(&mut driver, bus::orders(), Some(session));
    first.truncate(7);
    assert_eq!(first.len(), 7);
    let defer = Disposition::Defer { overlay: None };
    settle_all(&mut driver, bus::orders(), &first, &defer);
    // Until nobody has that session any more.
    driver.now = driver.now.plus_seconds(600);
    rest(&mut driver);
    let storage = on_pages(driver, create_bus_queue("another"));
    let driver = Driver::with(storage, far::few_records());
    assert_eq!(driver.partition.state().resident().records, 0);
    driver
}

/// Damages what both copies of the first run's page have: all of it, or the last group.
fn damage_first(driver: &Driver, is_whole: bool) -> TablePage {
    let [newest, _] = pages_of_runs(&driver.storage);
    let first = newest.iter().find(|page| {
        (driver.partition.state().cold_pages()).any(|it| it.as_u64() == page.number.as_u64())
    });
    let first = *first.unwrap();
    damage_again(&driver.storage, first, is_whole);
    first
}

/// Damages it. Twice, and it is whole.
fn damage_again(storage: &FaultyStorage, page: TablePage, is_whole: bool) {
    if is_whole {
        damage(storage, &[page], 0..2);
    } else {
        damage_last_group(storage, page);
    }
}

/// A queue with so many messages, each of a session by chance.
pub(super) fn fill_sessions(driver: &mut Driver, count: u64, dice: &mut Dice) {
    create_bus(driver, &bus::orders(), true);
    for number in 0..count {
        let session = dice.below(9).to_string();
        let message = BusMessage {
            body: body(number).into(),
            message_id: None,
            session: Some(session.into()),
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let (queue, messages) = (bus::orders(), vec![message]);
        bus(driver, BusCommand::Send { queue, messages });
    }
}

/// Completes all messages of all sessions. Returns their bodies.
pub(super) fn drain_sessions(driver: &mut Driver) -> BTreeSet<String> {
    let mut numbers = Vec::new();
    for session in 0..9 {
        let lock = accept(driver, &session.to_string());
        let drained = drain_from(driver, &bus::orders(), Some(lock));
        assert!(drained.is_sorted(), "session {session}: {drained:?}");
        numbers.extend(drained);
    }
    numbers.iter().map(|number| body(number - 1)).collect()
}

fn is_whole_run(lost: &Range<u64>) -> bool {
    *lost == FIRST_RUN
}

/// Those of a session that can be received, without the deferred ones.
fn expected(session: usize, lost: &Range<u64>, deferred: &[u64]) -> Vec<u64> {
    let all = (1..=3000).filter(|number| number % 3 == session as u64);
    let all = all.filter(|number| !is_scheduled(*number) && !lost.contains(number));
    all.filter(|number| !deferred.contains(number)).collect()
}

fn scheduled_count(lost: &Range<u64>) -> u64 {
    let left = (1..=3000).filter(|number| is_scheduled(*number) && !lost.contains(number));
    left.count() as u64
}

/// Takes the deferred message of that number, for good.
fn take_deferred(driver: &mut Driver, number: u64, session: Token) -> kew_broker::Reply {
    driver.ask(Command::Bus(BusCommand::ReceiveDeferred {
        read: DeferredRead {
            queue: bus::orders(),
            numbers: vec![SequenceNumber::named(number)],
            mode: ReceiveMode::ReceiveAndDelete,
            session: Some(session),
        },
    }))
}

/// Sessions are received in order, without what is lost, and what is counted by state stays right.
fn sessions_go_on(lost: &Range<u64>) {
    const DEFERRED: [u64; 7] = [1, 4, 7, 13, 16, 19, 22];
    let mut driver = of_sessions();
    let is_whole = is_whole_run(lost);
    let damaged = damage_first(&driver, is_whole);
    let mut locks = Vec::new();
    for (nth, session) in SESSIONS.iter().enumerate() {
        let lock = accept(&mut driver, session);
        let drained = drain_from(&mut driver, &bus::orders(), Some(lock));
        assert_eq!(drained, expected(nth, lost, &DEFERRED), "{session}");
        if locks.is_empty() {
            // Once nothing of a page is needed, two snapshots without it are written at once.
            let healed = driver.storage.kill();
            let named = pages_of_runs(&healed).concat();
            let is_named = named.iter().any(|page| page.number == damaged.number);
            assert_eq!(is_named, !is_whole);
            if is_named {
                // The event means the same over records that are there.
                damage_again(&healed, damaged, is_whole);
            }
            assert_same(&Driver::with(healed, unlimited()), &driver);
        }
        locks.push(lock);
    }
    let lost_count = lost.end - lost.start;
    let scheduled = scheduled_count(lost);
    let deferred = if is_whole { 0 } else { DEFERRED.len() as u64 };
    let BusQueueCounts {
        active,
        ready,
        scheduled: found,
        ..
    } = view(&mut driver, bus::orders()).counts;
    assert_eq!((active - ready, found), (deferred, scheduled));
    assert_eq!(
        counts(&driver),
        (lost_count + deferred + scheduled, lost_count)
    );
    assert_eq!(take_deferred(&mut driver, 1, locks[1]).is_ok(), !is_whole);
    // Once the damaged page is in no snapshot any more, a start needs nothing of it.
    for name in ["later", "still-later"] {
        driver.ask(create_bus_queue(name)).unwrap();
        driver.partition.snapshot();
        settle(&mut driver);
    }
    let lost_or_left = counts(&driver);
    for options in [far::few_records(), unlimited()] {
        let again = Driver::with(driver.storage.kill(), options);
        assert_same(&again, &driver);
        assert_eq!(counts(&again), lost_or_left);
    }
    driver.now = driver.now.plus_seconds(3600);
    far::settle(&mut driver);
    let mut due = 0;
    for session in SESSIONS {
        let lock = accept(&mut driver, session);
        due += drain_from(&mut driver, &bus::orders(), Some(lock)).len() as u64;
    }
    assert_eq!(due, scheduled);
    driver.ask(purge()).unwrap();
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().live_bytes(), 0);
}

#[test]
fn a_session_goes_on_without_a_whole_page() {
    sessions_go_on(&FIRST_RUN);
}

#[test]
fn a_session_goes_on_without_a_group() {
    sessions_go_on(&LAST_GROUP);
}

/// What a failed delivery has changed of messages is lost with them.
#[test]
fn messages_with_changed_properties_are_set_aside_too() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    driver.ask(bus::create()).unwrap();
    fill_orders(&mut driver, 3000, None);
    let overlay = Some(Bytes::from_static(b"changed"));
    let changed = receive_from(&mut driver, bus::orders(), None);
    settle_all(
        &mut driver,
        bus::orders(),
        &changed,
        &Disposition::Abandon { overlay },
    );
    let storage = on_pages(driver, create_bus_queue("another"));
    let mut driver = Driver::with(storage, far::few_records());
    damage_first(&driver, true);
    let drained = drain_from(&mut driver, &bus::orders(), None);
    assert_eq!(drained, (1024..=3000).collect::<Vec<_>>());
    assert_eq!(counts(&driver), (1023, 1023));
    snapshot(&mut driver);
    snapshot(&mut driver);
    for options in [far::few_records(), unlimited()] {
        assert_same(&Driver::with(driver.storage.kill(), options), &driver);
    }
}

/// A start needs no page of a run that was set aside as a whole.
#[test]
fn a_start_does_not_read_the_page_of_a_run_that_was_set_aside() {
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    let mut dice = Dice(7);
    fill_sessions(&mut driver, 200, &mut dice);
    let storage = on_pages(driver, create_bus_queue("another"));
    let mut driver = Driver::with(storage, far::few_records());
    damage_first(&driver, true);
    assert_eq!(drain_sessions(&mut driver).len(), 0);
    assert_eq!(counts(&driver), (200, 200));
    snapshot(&mut driver);
    driver.ask(create_bus_queue("later")).unwrap();
    snapshot(&mut driver);
    for options in [far::few_records(), unlimited()] {
        let again = Driver::with(driver.storage.kill(), options);
        assert_eq!(counts(&again), (200, 200));
        assert_same(&again, &driver);
    }
}

/// What waits in a topic for its time is lost, and all others get their copies.
#[test]
fn a_topic_goes_on_without_what_is_lost() {
    let (topic, subscription) = (bus::named("t"), bus::named("t/subscriptions/s"));
    let mut driver = Driver::with(FaultyStorage::new(), unlimited());
    let options = BusQueueOptions::default();
    bus(
        &mut driver,
        BusCommand::CreateTopic {
            topic: topic.clone(),
            options: options.clone(),
        },
    );
    bus(
        &mut driver,
        BusCommand::CreateSubscription {
            topic: topic.clone(),
            subscription: subscription.clone(),
            options,
            rule: None,
        },
    );
    publish(&mut driver, &topic, &[]);
    assert_eq!(drain_from(&mut driver, &subscription, None).len(), 2700);
    let storage = on_pages(driver, create_bus_queue("another"));
    let mut driver = Driver::with(storage, far::few_records());
    damage_first(&driver, true);
    driver.now = driver.now.plus_seconds(3600);
    far::settle(&mut driver);
    let drained = drain_from(&mut driver, &subscription, None);
    let left = (1024..=3000).filter(|number| is_scheduled(*number));
    assert_eq!(drained.len(), left.count());
    let lost = (1..1024).filter(|number| is_scheduled(*number)).count() as u64;
    assert_eq!(counts(&driver), (lost, lost));
    let left = view(&mut driver, topic.clone()).counts;
    assert_eq!((left.active, left.ready, left.scheduled), (0, 0, 0));
    assert_same(
        &Driver::with(driver.storage.kill(), far::few_records()),
        &driver,
    );
    bus(&mut driver, BusCommand::DeleteQueue { queue: topic });
    assert_eq!(counts(&driver), (0, 0));
    assert_eq!(driver.partition.state().live_bytes(), 0);
}
