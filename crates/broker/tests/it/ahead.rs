//! Records are read ahead of receivers: which of them wait for no read, and what bounds it.

use std::collections::VecDeque;

use kew_broker::{PartitionOptions, Rejection, Reply};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode, SessionChoice,
};
use kew_engine::storage::StorageOutcome;
use kew_engine::{Command, EntityName, Outcome, Token};
use kew_log::{Fault, FaultyStorage, JobKind, LogOptions};

use crate::bus::{named, orders, received};
use crate::cold::Waiting;
use crate::partition::{Driver, options};
use crate::resident::{fill, limited, records, rest};
use crate::support::{create, moment, receive};

/// How many messages share a run, and a group.
const RUN: u64 = 1024;
const GROUP: u64 = 128;

/// The most that is read ahead.
const RECEIVERS_MAX: usize = 64;
const RECORDS_MAX: u64 = 34_000;

fn driver(records_max: Option<u64>) -> Driver {
    let options = PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: 8 << 20,
            segment_size_max_bytes: 8 << 20,
            batch_size_max_bytes: 4 << 20,
            ..options().log
        },
        // Snapshots come when a test wants one.
        snapshot_after_bytes: u64::MAX / 8,
        ..limited(records_max)
    };
    Driver::with(FaultyStorage::new(), options)
}

pub(crate) fn create_bus(driver: &mut Driver, queue: &EntityName, requires_session: bool) {
    let options = BusQueueOptions {
        requires_session,
        ..BusQueueOptions::default()
    };
    let queue = queue.clone();
    let create = BusCommand::CreateQueue { queue, options };
    driver.ask(Command::Bus(create)).unwrap();
}

/// Sends so many messages, to these sessions in turn.
pub(crate) fn send(driver: &mut Driver, queue: &EntityName, count: u64, sessions: &[&str]) {
    let numbers: Vec<usize> = (0..usize::try_from(count).unwrap()).collect();
    for numbers in numbers.chunks(1000) {
        let message = |number: &usize| BusMessage {
            body: format!("message {number}").into(),
            message_id: None,
            session: (!sessions.is_empty()).then(|| sessions[number % sessions.len()].into()),
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let messages = numbers.iter().map(message).collect();
        let queue = queue.clone();
        let send = BusCommand::Send { queue, messages };
        driver.ask(Command::Bus(send)).unwrap();
    }
}

fn receive_from(queue: &EntityName, count: u32, session: Option<Token>) -> Command {
    Command::Bus(BusCommand::Receive {
        queue: queue.clone(),
        count,
        mode: ReceiveMode::PeekLock,
        session,
    })
}

/// Writes a snapshot, and takes what it has out of memory.
fn cool(driver: &mut Driver) {
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.partition.evict_if(|_, may| may);
}

/// A queue with so many messages that are on pages alone.
fn backlog(count: u64) -> Driver {
    let mut driver = driver(None);
    create_bus(&mut driver, &orders(), false);
    send(&mut driver, &orders(), count, &[]);
    cool(&mut driver);
    driver
}

fn count(reply: Reply) -> usize {
    match reply.unwrap().outcome {
        Outcome::Bus(BusOutcome::Received(messages)) => messages.len(),
        Outcome::Storage(StorageOutcome::Received(messages)) => messages.len(),
        outcome => panic!("{outcome:?}"),
    }
}

/// Receives one after the other, on a disk that is done before the next one comes.
struct Receiver {
    driver: Driver,
    /// How many receives have waited for a read.
    waits: u32,
    /// How many jobs have read.
    jobs: u32,
}

impl Receiver {
    fn of(driver: Driver) -> Self {
        Self {
            driver,
            waits: 0,
            jobs: 0,
        }
    }

    /// Receives, and returns how many messages came.
    fn receive(&mut self, command: Command) -> usize {
        let Driver { partition, now, .. } = &mut self.driver;
        let mut commands = VecDeque::from([(0, command)]);
        let (mut replies, mut has_waited) = (Vec::new(), false);
        while replies.is_empty() {
            partition.turn(moment(*now), &mut commands, &mut replies);
            has_waited |= partition.waiting().next().is_some();
            while let Some(job) = partition.next_job() {
                self.jobs += u32::from(job.kind() == JobKind::Load);
                let outcome = job.run();
                partition.complete(outcome, &mut replies).unwrap();
            }
        }
        self.waits += u32::from(has_waited);
        count(replies.remove(0).1)
    }

    /// Receives until nothing is left, and returns how many messages came.
    fn drain(&mut self, command: &Command) -> u64 {
        let mut all = 0;
        loop {
            match self.receive(command.clone()) {
                0 => return all,
                count => all += count as u64,
            }
        }
    }
}

/// The first receive waits, and no other one. Each group is read once.
#[test]
fn a_receiver_waits_for_its_first_messages_alone() {
    let all = 10 * RUN;
    for (count, jobs_max) in [(1, 42), (32, 42), (1000, 30)] {
        let mut bus = Receiver::of(backlog(all));
        assert_eq!(bus.drain(&receive_from(&orders(), count, None)), all);
        let mut storage = driver(None);
        storage.ask(create()).unwrap();
        fill(&mut storage, all);
        cool(&mut storage);
        let mut storage = Receiver::of(storage);
        assert_eq!(storage.drain(&receive(count.min(32))), all);
        for (receiver, jobs_max) in [(bus, jobs_max), (storage, 42)] {
            let loaded = receiver.driver.partition.loaded_count();
            assert_eq!(receiver.waits, 1, "count {count}");
            assert!(
                (all / GROUP..all / GROUP + 2).contains(&loaded),
                "count {count}: {loaded} groups were read"
            );
            let jobs = receiver.jobs;
            assert!(jobs <= jobs_max, "count {count}: {jobs} jobs");
            receiver.driver.partition.state().check_live_bytes();
        }
    }
}

/// Of each group, one message is left: a receive comes to many groups.
#[test]
fn a_receiver_of_few_messages_that_are_left_waits_seldom() {
    const GROUPS: u64 = 64;
    for count in [1, 32] {
        let mut driver = driver(None);
        create_bus(&mut driver, &orders(), false);
        send(&mut driver, &orders(), GROUPS * GROUP, &[]);
        let mut locks = Vec::new();
        for _ in 0..2 {
            let reply = driver.ask(receive_from(&orders(), 5000, None));
            let (messages, _) = received(reply.unwrap());
            locks.extend(messages.into_iter().map(|it| it.lock.unwrap()));
        }
        let every = usize::try_from(GROUP).unwrap();
        let left = locks.into_iter().step_by(every);
        let release = BusCommand::Settle {
            queue: orders(),
            settlements: left.map(|lock| (lock, Disposition::Release)).collect(),
        };
        driver.ask(Command::Bus(release)).unwrap();
        cool(&mut driver);
        assert!(records(&driver) <= 1, "{}", records(&driver));
        let mut receiver = Receiver::of(driver);
        let receive = receive_from(&orders(), count, None);
        assert_eq!(receiver.drain(&receive), GROUPS);
        assert_eq!(receiver.waits, 1, "count {count}");
    }
}

#[test]
fn a_receiver_of_a_session_waits_for_its_first_messages_alone() {
    let sessions = ["a", "b", "c", "d", "e", "f", "g"];
    for count in [1, 32, 200] {
        let mut driver = driver(None);
        create_bus(&mut driver, &orders(), true);
        send(&mut driver, &orders(), 7 * 1000, &sessions);
        cool(&mut driver);
        let mut receiver = Receiver::of(driver);
        for session in ["a", "d"] {
            let accept = BusCommand::AcceptSession {
                queue: orders(),
                session: SessionChoice::Named(session.into()),
            };
            let accepted = receiver.driver.ask(Command::Bus(accept)).unwrap();
            let Outcome::Bus(BusOutcome::SessionAccepted(lock)) = accepted.outcome else {
                panic!("{accepted:?}");
            };
            receiver.waits = 0;
            let receive = receive_from(&orders(), count, Some(lock.lock));
            assert_eq!(receiver.drain(&receive), 1000);
            assert_eq!(receiver.waits, 1, "count {count}");
        }
        // Nothing of other sessions was read.
        assert!(
            records(&receiver.driver) < 2100,
            "{}",
            records(&receiver.driver)
        );
    }
}

/// A backlog whose reads wait until they are told to, after its first receive of one message: what comes next is being
/// read ahead.
fn reading_ahead() -> Waiting {
    let mut w = Waiting::of(backlog(4 * RUN));
    let first = w.ask(1, receive_from(&orders(), 1, None));
    assert_eq!(w.loads.len(), 1, "nothing is read ahead while it waits");
    w.read();
    assert_eq!(w.answered(), [first]);
    assert_eq!(w.loads.len(), 1);
    w
}

#[test]
fn a_command_that_comes_to_need_what_is_read_ahead_waits_for_that_read() {
    let mut w = reading_ahead();
    // Two receivers, of which the second one comes to the second group.
    let here = w.ask(1, receive_from(&orders(), 120, None));
    assert_eq!(w.answered(), [here]);
    let second = w.ask(2, receive_from(&orders(), 20, None));
    assert_eq!(w.answered(), []);
    assert_eq!(w.loads.len(), 1, "it is being read");
    let before = w.driver.partition.loaded_count();
    w.read();
    assert_eq!(w.answered(), [second]);
    assert_eq!(w.driver.partition.loaded_count(), before + 2);
    let third = w.ask(2, receive_from(&orders(), 100, None));
    assert_eq!(w.answered(), [third], "it was read ahead");
}

#[test]
fn a_command_never_waits_for_a_read_ahead_of_others() {
    let mut driver = backlog(4 * RUN);
    create_bus(&mut driver, &named("other"), false);
    send(&mut driver, &named("other"), 4 * RUN, &[]);
    cool(&mut driver);
    let mut w = Waiting::of(driver);
    w.ask(1, receive_from(&orders(), 1, None));
    w.read();
    w.answered();
    let ahead = w.loads.remove(0);
    let other = w.ask(1, receive_from(&named("other"), 1, None));
    assert_eq!(w.loads.len(), 1, "it is read beside what is read ahead");
    // While it waits, no other read ahead begins.
    let outcome = ahead.run();
    let partition = &mut w.driver.partition;
    partition.complete(outcome, &mut w.answers).unwrap();
    assert!(partition.next_job().is_none());
    w.read();
    assert_eq!(w.answered(), [other]);
}

#[test]
fn a_failed_read_ahead_is_silent() {
    let mut w = reading_ahead();
    w.read_with(Fault::Eio);
    assert!(w.answers.is_empty());
    // Nobody tries it again before a receive needs it.
    for _ in 0..100 {
        let ticket = w.ask(1, receive_from(&orders(), 1, None));
        assert_eq!(w.answered(), [ticket]);
        assert!(w.loads.is_empty());
    }
    // It needs no pause: as far as it knows, nothing has failed.
    let second = w.ask(1, receive_from(&orders(), 128, None));
    assert_eq!(w.loads.len(), 1);
    w.read();
    let answers: Vec<_> = w.answers.drain(..).collect();
    assert!(matches!(answers[..], [(ticket, Ok(_))] if ticket == second));
}

#[test]
fn what_could_not_be_read_ahead_is_left_to_the_command_that_needs_it() {
    let mut w = Waiting::of(backlog(8 * RUN));
    let receive = || receive_from(&orders(), 2000, None);
    let first = w.ask(1, receive());
    w.read();
    assert_eq!(w.answered(), [first]);
    // Two runs, and the first group of another one.
    w.read();
    assert_eq!(w.loads.len(), 1);
    w.fail_to_read();
    let before = w.driver.partition.loaded_count();
    let second = w.ask(1, receive());
    assert_eq!(w.answered(), [second]);
    w.read();
    w.read();
    assert!(w.loads.is_empty());
    let loaded = w.driver.partition.loaded_count() - before;
    assert_eq!(loaded, 16, "all but that group");
    let third = w.ask(1, receive());
    assert_eq!(w.answered(), []);
    w.read();
    assert_eq!(w.answered(), [third]);
}

#[test]
fn a_read_ahead_that_fails_refuses_a_command_that_has_come_to_need_it() {
    let mut w = reading_ahead();
    let needs = w.ask(1, receive_from(&orders(), 200, None));
    w.read_with(Fault::Eio);
    let answers: Vec<_> = w.answers.drain(..).collect();
    assert!(matches!(answers[..], [(ticket, Err(Rejection::ReadFailed))] if ticket == needs));
    w.driver.now = w.driver.now.plus_ms(1000);
    w.turn();
    let again = w.ask(1, receive_from(&orders(), 200, None));
    w.read();
    assert_eq!(w.answered(), [again]);
}

#[test]
fn a_queue_may_end_while_it_is_read_ahead() {
    let mut w = reading_ahead();
    let delete = BusCommand::DeleteQueue { queue: orders() };
    let deleted = w.ask(1, Command::Bus(delete));
    assert_eq!(w.answered(), [deleted]);
    w.read();
    let (receivers, held) = w.driver.partition.ahead();
    assert!(receivers == 1 && held > 0);
    w.driver.now = w.driver.now.plus_ms(5000);
    w.turn();
    assert_eq!(w.driver.partition.ahead(), (0, 0));
    assert_eq!(records(&w.driver), 0);
    w.driver.partition.state().check_live_bytes();
}

#[test]
fn at_most_64_queues_are_read_ahead() {
    let queues: Vec<EntityName> = (0..70).map(|it| named(&format!("q{it}"))).collect();
    let mut driver = driver(None);
    for queue in &queues {
        create_bus(&mut driver, queue, false);
        send(&mut driver, queue, 3 * GROUP, &[]);
    }
    cool(&mut driver);
    let mut receiver = Receiver::of(driver);
    let receive_all = |receiver: &mut Receiver, queues: &[EntityName], count| {
        receiver.waits = 0;
        for queue in queues {
            assert!(receiver.receive(receive_from(queue, count, None)) > 0);
        }
        receiver.waits
    };
    assert_eq!(receive_all(&mut receiver, &queues, 100), 70);
    assert_eq!(receiver.driver.partition.ahead().0, RECEIVERS_MAX);
    // The others wait once more for each group.
    assert_eq!(receive_all(&mut receiver, &queues, 100), 6);
    // Once the receivers of some have been away for a while, others take their places.
    let now = receiver.driver.now;
    receiver.driver.now = now.plus_ms(2000);
    receive_all(&mut receiver, &queues[..10], 1);
    receiver.driver.now = now.plus_ms(4000);
    receiver.driver.rest();
    assert_eq!(receiver.driver.partition.ahead().0, 10);
    let rest = &queues[RECEIVERS_MAX..];
    assert_eq!(receive_all(&mut receiver, rest, 57), 6);
    assert_eq!(receive_all(&mut receiver, rest, 57), 0);
}

#[test]
fn a_bounded_number_of_records_is_read_ahead() {
    let queues: Vec<EntityName> = (0..8).map(|it| named(&format!("q{it}"))).collect();
    let mut driver = driver(None);
    for queue in &queues {
        create_bus(&mut driver, queue, false);
        send(&mut driver, queue, 11 * RUN, &[]);
    }
    cool(&mut driver);
    let mut receiver = Receiver::of(driver);
    for queue in &queues {
        receiver.receive(receive_from(queue, 5000, None));
    }
    let (receivers, held) = receiver.driver.partition.ahead();
    assert_eq!(receivers, 7, "no room is left for the last one");
    assert!(held <= RECORDS_MAX && held > RECORDS_MAX - GROUP, "{held}");
    let all = records(&receiver.driver);
    assert!(all <= 8 * 5120 + RECORDS_MAX, "{all} records are in memory");
}

/// A limit of so many records, and a cold queue.
fn backlog_within(records_max: u64) -> Receiver {
    let mut driver = driver(Some(records_max));
    create_bus(&mut driver, &orders(), false);
    create_bus(&mut driver, &named("hot"), false);
    send(&mut driver, &orders(), 10 * RUN, &[]);
    driver.partition.snapshot();
    driver.jobs(&mut Vec::new());
    driver.partition.evict_if(|_, may| may);
    assert!(records(&driver) <= GROUP, "{}", records(&driver));
    Receiver::of(driver)
}

#[test]
fn nothing_is_read_ahead_above_the_limit() {
    // What came since the last snapshot takes more than the limit, and is too little to make another one due.
    let mut receiver = backlog_within(400);
    send(&mut receiver.driver, &named("hot"), 600, &[]);
    for _ in 0..300 {
        assert_eq!(receiver.receive(receive_from(&orders(), 1, None)), 1);
    }
    // Nothing stays in memory, either.
    let loaded = receiver.driver.partition.loaded_count();
    assert!(loaded >= 3, "{loaded} groups were read");
    assert_eq!(loaded, receiver.waits.into());
    assert_eq!(receiver.driver.partition.ahead(), (0, 0));
}

/// What is read ahead stops short of the limit, also if memory fills while it is being read.
#[test]
fn what_is_read_ahead_stays_below_the_limit() {
    let mut receiver = backlog_within(600);
    receiver.receive(receive_from(&orders(), 200, None));
    let most = records(&receiver.driver);
    assert!((500..=600).contains(&most), "{most} records are in memory");
    let mut w = Waiting::of(backlog_within(1000).driver);
    w.ask(1, receive_from(&orders(), 1, None));
    w.read();
    assert_eq!(w.loads.len(), 1);
    let jobs = std::mem::take(&mut w.loads);
    send(&mut w.driver, &named("hot"), 900, &[]);
    w.loads = jobs;
    let before = records(&w.driver);
    w.read();
    assert_eq!(records(&w.driver), before, "there is no room any more");
}

/// The hand goes round between three quarters of the limit and all of it. What was read ahead stays.
#[test]
fn what_was_read_ahead_is_not_evicted_before_it_is_received() {
    let mut receiver = backlog_within(6000);
    receiver.receive(receive_from(&orders(), 1000, None));
    send(&mut receiver.driver, &named("hot"), 2500, &[]);
    let before = records(&receiver.driver);
    assert!((4501..6000).contains(&before), "{before}");
    rest(&mut receiver.driver);
    receiver.waits = 0;
    assert_eq!(receiver.receive(receive_from(&orders(), 1000, None)), 1000);
    assert_eq!(receiver.waits, 0);
    // Not for ever: nobody has come for what was read then.
    assert_eq!(receiver.driver.partition.ahead().0, 1);
    receiver.driver.now = receiver.driver.now.plus_ms(5000);
    receiver.driver.rest();
    assert_eq!(receiver.driver.partition.ahead(), (0, 0));
}
