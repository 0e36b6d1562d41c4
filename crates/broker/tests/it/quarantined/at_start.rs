//! A start has to read a page of which both copies are damaged: what lies there is set aside, and the rest is served.

use bytes::Bytes;
use kew_engine::Token;
use kew_engine::bus::{DeferredRead, ReceiveMode, SessionChoice};

use super::*;
use crate::ahead::create_bus;

/// Some messages: each of one of so many sessions by chance, if there are some, and some of them scheduled.
fn publish(driver: &mut Driver, count: u64, sessions: u64, dice: &mut Dice) {
    let has_sessions = sessions > 0;
    create_bus(driver, &bus::orders(), has_sessions);
    for number in 0..count {
        let session = dice.below(sessions.max(1)).to_string();
        let due = driver.now.plus_seconds(60 + dice.below(600));
        let message = BusMessage {
            body: body(number).into(),
            message_id: None,
            session: has_sessions.then(|| session.into()),
            time_to_live_ms: (dice.below(8) == 0).then(|| 300_000 + dice.below(600_000)),
            scheduled_at: (dice.below(5) == 0).then_some(due),
        };
        send_one(driver, message);
    }
}

fn send_one(driver: &mut Driver, message: BusMessage) {
    let (queue, messages) = (bus::orders(), vec![message]);
    driver
        .ask(Command::Bus(BusCommand::Send { queue, messages }))
        .unwrap();
}

/// The outcome, unless the command is refused: what it names may be gone.
fn try_bus(driver: &mut Driver, command: BusCommand) -> Option<BusOutcome> {
    match driver.ask(Command::Bus(command)).ok()?.outcome {
        Outcome::Bus(outcome) => Some(outcome),
        other => panic!("{other:?}"),
    }
}

fn accept(driver: &mut Driver, session: &str) -> Option<Token> {
    let accept = BusCommand::AcceptSession {
        queue: bus::orders(),
        session: SessionChoice::Named(session.into()),
    };
    match try_bus(driver, accept)? {
        BusOutcome::SessionAccepted(accepted) => Some(accepted.lock),
        other => panic!("{other:?}"),
    }
}

/// What clients do: they receive, end, keep and change messages of all states, and time passes.
fn use_it(driver: &mut Driver, sessions: u64, steps: u64, dice: &mut Dice) {
    let has_sessions = sessions > 0;
    let mut locks: Vec<(u64, Token)> = Vec::new();
    for step in 0..steps {
        if dice.below(4) == 0 {
            driver.now = driver.now.plus_seconds(dice.below(40));
            driver.rest();
        }
        let number = dice.below(sessions.max(1));
        let lock = match has_sessions {
            false => None,
            true => match accept(driver, &number.to_string()) {
                Some(lock) => {
                    locks.push((number, lock));
                    Some(lock)
                }
                None => locks.iter().rev().find(|it| it.0 == number).map(|it| it.1),
            },
        };
        if has_sessions && lock.is_none() {
            continue;
        }
        match dice.below(8) {
            0 => send_one(
                driver,
                BusMessage {
                    body: body(1000 + step).into(),
                    message_id: None,
                    session: has_sessions.then(|| number.to_string().into()),
                    time_to_live_ms: None,
                    scheduled_at: None,
                },
            ),
            1 => {
                // It may be in another state, or gone.
                let read = DeferredRead {
                    queue: bus::orders(),
                    numbers: vec![SequenceNumber::named(1 + dice.below(200))],
                    mode: ReceiveMode::PeekLock,
                    session: lock,
                };
                try_bus(driver, BusCommand::ReceiveDeferred { read });
            }
            2 if has_sessions => {
                let set = BusCommand::SetSessionState {
                    queue: bus::orders(),
                    session: lock.unwrap(),
                    state: (dice.below(2) == 0).then(|| Bytes::from_static(b"state")),
                };
                try_bus(driver, set);
            }
            _ => {
                let received = receive_some(driver, lock, 1 + dice.below(6));
                for message in received {
                    settle_somehow(driver, &message, dice);
                }
            }
        }
    }
}

fn receive_some(driver: &mut Driver, session: Option<Token>, count: u64) -> Vec<DeliveredMessage> {
    let receive = BusCommand::Receive {
        queue: bus::orders(),
        count: u32::try_from(count).unwrap(),
        mode: ReceiveMode::PeekLock,
        session,
    };
    match try_bus(driver, receive) {
        Some(BusOutcome::Received(messages)) => messages,
        Some(other) => panic!("{other:?}"),
        None => Vec::new(),
    }
}

fn settle_somehow(driver: &mut Driver, message: &DeliveredMessage, dice: &mut Dice) {
    let overlay = (dice.below(2) == 0).then(|| Bytes::from_static(b"changed"));
    let how = match dice.below(7) {
        0 => return,
        1 => Disposition::Abandon { overlay },
        2 => Disposition::Defer { overlay },
        3 => Disposition::DeadLetter { overlay },
        4 => Disposition::Release,
        _ => Disposition::Complete,
    };
    let settlements = vec![(message.lock.unwrap(), how)];
    let queue = bus::orders();
    try_bus(driver, BusCommand::Settle { queue, settlements });
}

/// What clients of Queue Storage do.
fn use_stored(driver: &mut Driver, steps: u64, dice: &mut Dice) {
    for step in 0..steps {
        match dice.below(4) {
            0 => driver.now = driver.now.plus_seconds(dice.below(40)),
            1 => {
                let lives_seconds = u32::try_from(30 + dice.below(600)).unwrap();
                driver.ask(short(queue(), lives_seconds)).unwrap();
            }
            2 => {
                driver.ask(send(body(1000 + step))).unwrap();
            }
            _ => {
                let count = u32::try_from(1 + dice.below(6)).unwrap();
                let (messages, _) = received(driver.ask(receive(count)));
                for message in messages.iter().filter(|_| dice.below(3) > 0) {
                    driver.ask(delete(message)).unwrap();
                }
            }
        }
        driver.rest();
    }
}

/// A start would go on without messages that a repair finds in what is left of the log.
#[test]
fn a_repair_says_that_a_start_sets_messages_aside() {
    let storage = bus_with_damaged_group();
    damage_beginning(&storage);
    let disk: Arc<dyn Storage> = Arc::new(storage.clone());
    let repair = Repair::look(disk, "ns").unwrap();
    assert!(repair.refusal().is_none(), "{:?}", repair.refusal());
    assert!(repair.start_sets_aside() && repair.is_needed());
    let (_, kept) = repair.kept();
    assert!(kept >= COUNT - 128, "{kept}");
    let mut started = Driver::with(storage.kill(), unlimited());
    set_aside(&mut started);
    assert_eq!(counts(&started), (COUNT, 128));
    repair.carry_out(unlimited(), 3, [7; 16]).unwrap();
    let mut repaired = Driver::with(storage, unlimited());
    assert_eq!(counts(&repaired), (kept, 0));
    assert_eq!(drain_orders(&mut repaired).len() as u64, kept);
}

/// On a full disk, nothing is set aside. Who needs what is lost is answered, and once there is space, all of it goes.
#[test]
fn on_a_full_disk_they_wait_for_space() {
    const COUNT: u64 = 200;
    let mut driver = Driver::with(FaultyStorage::new(), tiny(None));
    driver.ask(bus::create()).unwrap();
    fill_orders(&mut driver, COUNT, None);
    let storage = on_pages(driver, create_bus_queue("another"));
    let [newest, _] = pages_of_runs(&storage);
    let of_runs: BTreeSet<u64> = {
        let whole = Driver::with(storage.kill(), tiny(Some(0)));
        let pages = whole.partition.state().cold_pages();
        pages.map(PageNumber::as_u64).collect()
    };
    let damaged: Vec<TablePage> = newest
        .into_iter()
        .filter(|page| of_runs.contains(&page.number.as_u64()))
        .take(3)
        .collect();
    damage(&storage, &damaged, 0..2);
    damage_beginning(&storage);
    storage.set_capacity_bytes(Some(storage.used_bytes()));
    let mut driver = Driver::with(storage.clone(), tiny(None));
    let refused = driver.ask(create_bus_queue("more"));
    assert!(refused.is_err(), "the disk is full");
    let names_lost = driver.ask(peek(1, 1));
    assert!(
        matches!(names_lost, Err(Rejection::ReadFailed)),
        "{names_lost:?}"
    );
    assert_eq!(driver.partition.quarantined_count(), 0);
    driver.rest();
    let loads = driver.loads;
    (0..20).for_each(|_| driver.rest());
    assert_eq!(driver.loads, loads, "nobody asks for them");
    storage.set_capacity_bytes(None);
    for _ in 0..20 {
        driver.now = driver.now.plus_seconds(2);
        driver.rest();
    }
    driver.ask(create_bus_queue("more")).unwrap();
    set_aside(&mut driver);
    let lost = driver.partition.quarantined_count();
    assert!((1..=12).contains(&lost), "{lost}");
    assert_eq!(drain_orders(&mut driver).len() as u64, COUNT - lost);
}

/// What one seed plays.
#[derive(Clone, Copy)]
enum Play {
    Stored,
    /// With so many sessions.
    Bus(u64),
}

impl Play {
    fn begin(self, driver: &mut Driver, dice: &mut Dice) {
        let count = 40 + dice.below(160);
        match self {
            Self::Stored => {
                driver.ask(create()).unwrap();
                fill(driver, count);
            }
            Self::Bus(sessions) => publish(driver, count, sessions, dice),
        }
    }

    fn go_on(self, driver: &mut Driver, steps: u64, dice: &mut Dice) {
        match self {
            Self::Stored => use_stored(driver, steps, dice),
            Self::Bus(sessions) => use_it(driver, sessions, steps, dice),
        }
    }
}

/// Damages the first record of the log: otherwise it has all that pages have lost.
pub(crate) fn damage_beginning(storage: &FaultyStorage) {
    let names = storage.files().into_iter().map(|(name, _)| name);
    let first = names.filter(|name| name.starts_with("segment-")).min();
    storage.flip(&first.unwrap(), 4096 + 40, 1);
}

/// What pages have lost is in the log, if that has its beginning.
#[test]
fn a_log_that_is_whole_takes_the_place_of_snapshots() {
    let storage = bus_with_damaged_group();
    let mut driver = Driver::with(storage, unlimited());
    set_aside(&mut driver);
    assert_eq!(counts(&driver), (COUNT, 0));
    assert_eq!(drain_orders(&mut driver).len() as u64, COUNT);
}

/// Turns enough for what a start has met: one sets 16 groups aside.
pub(super) fn set_aside(driver: &mut Driver) {
    (0..10).for_each(|_| driver.rest());
}

/// A process that starts now, with the damage or without it, knows the same. But with a limit, it may have to read what the
/// one before has passed over.
fn assert_all_same(driver: &mut Driver, flips: &[Flip], limit: Option<u64>) {
    set_aside(driver);
    driver.partition.state().check_live_bytes();
    let mut again = Driver::with(driver.storage.kill(), tiny(limit));
    again.now = driver.now;
    set_aside(&mut again);
    match limit {
        None => assert_same(&again, driver),
        Some(_) => {
            let counts = [&again, driver].map(|it| it.partition.quarantined_count());
            assert!(counts[0] >= counts[1], "{counts:?}");
        }
    }
    let healed = driver.storage.kill();
    flip(&healed, flips);
    assert_same(&Driver::with(healed, tiny(None)), driver);
}

/// Both copies are damaged when the server is down, and the log goes on behind the snapshot. What the start sets aside means
/// the same to a process that can read it all: the states are equal, and stay so while clients go on.
fn a_start_sets_aside_what_an_event_would(play: impl Fn(&mut Dice) -> Play) {
    let mut aside = 0;
    for seed in 0..80 {
        let mut dice = Dice(seed);
        let play = play(&mut dice);
        let mut driver = Driver::with(FaultyStorage::new(), tiny(None));
        play.begin(&mut driver, &mut dice);
        let steps = dice.below(40);
        play.go_on(&mut driver, steps, &mut dice);
        let mut now = driver.now;
        let storage = on_pages(driver, create_bus_queue("another"));
        let mut driver = Driver::with(storage, tiny(None));
        driver.now = now;
        let steps = dice.below(60);
        play.go_on(&mut driver, steps, &mut dice);
        now = driver.now;
        let storage = driver.storage.kill();
        let flips = damage_anywhere(&storage, &mut dice);
        damage_beginning(&storage);
        let limit = (seed % 2 == 0).then_some(0);
        let mut driver = Driver::with(storage, tiny(limit));
        driver.now = now;
        set_aside(&mut driver);
        let count = driver.partition.quarantined_count();
        aside += count;
        assert!(count <= 4 * flips.len() as u64, "seed {seed}: {count}");
        assert_all_same(&mut driver, &flips, limit);
        let steps = dice.below(40);
        play.go_on(&mut driver, steps, &mut dice);
        assert_all_same(&mut driver, &flips, limit);
    }
    assert!(aside > 100, "{aside} were set aside");
}

#[test]
fn a_start_sets_aside_messages_of_sessions() {
    // Of many sessions, some have no messages but those that are lost.
    a_start_sets_aside_what_an_event_would(|dice| Play::Bus(1 + dice.below(50)));
}

#[test]
fn a_start_sets_aside_messages_of_a_bus_queue() {
    a_start_sets_aside_what_an_event_would(|_| Play::Bus(0));
}

#[test]
fn a_start_sets_aside_messages_of_queue_storage() {
    a_start_sets_aside_what_an_event_would(|_| Play::Stored);
}
