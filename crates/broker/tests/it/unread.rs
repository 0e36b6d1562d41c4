//! Messages that are received and deleted, and whose bodies are not in memory.

use std::collections::VecDeque;

use kew_broker::{Rejection, Reply, Rotation, Source, Wake};
use kew_engine::bus::{
    Awaited, BusCommand, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode,
    SessionChoice, SessionLock,
};
use kew_engine::{Command, EntityName, Outcome, Service};
use kew_log::{Fault, FaultyStorage, Job, JobKind, Repeat};

use crate::bus::{
    damage, damaged, driver, forgetful, named, orders, receive, receive_and_delete, received, send,
    settle,
};
use crate::partition::Driver;
use crate::support::moment;

fn steps() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: "steps".into(),
    }
}

/// A session client that has failed releases the session, and accepts the next one.
#[tokio::test]
async fn a_damaged_message_does_not_block_its_session() {
    let (storage, broker) = forgetful().await;
    let options = BusQueueOptions {
        requires_session: true,
        max_delivery_count: 3,
        ..BusQueueOptions::default()
    };
    let queue = steps();
    let ask = async |command: BusCommand| broker.submit(Command::Bus(command)).await;
    ask(BusCommand::CreateQueue {
        queue: queue.clone(),
        options,
    })
    .await
    .unwrap();
    for body in ["damaged body", "whole body"] {
        let message = BusMessage {
            body: body.into(),
            message_id: None,
            session: Some("s".into()),
            time_to_live_ms: None,
            scheduled_at: None,
        };
        ask(BusCommand::Send {
            queue: queue.clone(),
            messages: vec![message],
        })
        .await
        .unwrap();
    }
    damage(&storage, b"damaged body");
    let receive = |session: &SessionLock| BusCommand::Receive {
        queue: queue.clone(),
        count: 1,
        mode: ReceiveMode::ReceiveAndDelete,
        session: Some(session.lock),
    };
    let mut failed = 0;
    let bodies = loop {
        let accepted = ask(BusCommand::AcceptSession {
            queue: queue.clone(),
            session: SessionChoice::Next,
        });
        let Outcome::Bus(BusOutcome::SessionAccepted(session)) = accepted.await.unwrap().outcome
        else {
            panic!("the session is free");
        };
        match ask(receive(&session)).await {
            Ok(answer) => break answer.bodies,
            Err(rejection) => assert_eq!(rejection, damaged(1)),
        }
        failed += 1;
        assert!(failed <= 3, "it is never counted");
        ask(BusCommand::ReleaseSession {
            queue: queue.clone(),
            session: session.lock,
        })
        .await
        .unwrap();
    };
    assert_eq!(bodies, ["whole body"]);
    assert_eq!(failed, 3);
    let read = ask(BusCommand::ReadQueue {
        queue: queue.clone(),
    });
    let Outcome::Bus(BusOutcome::Queue(view)) = read.await.unwrap().outcome else {
        panic!("it is there");
    };
    assert_eq!((view.counts.active, view.counts.dead_letters), (0, 1));
    broker.stop();
}

/// Bodies of a backlog that is larger than what the partition keeps in memory.
fn backlog(count: u32) -> Driver {
    let mut driver = driver();
    for number in 0..count {
        driver.ask(send(body_of(number))).unwrap();
    }
    // Nothing is in memory any more.
    driver.reopened()
}

fn body_of(number: u32) -> Vec<u8> {
    format!("{number:05}{}", "x".repeat(900)).into_bytes()
}

/// A partition whose reads wait until the test lets them go.
struct Reading {
    driver: Driver,
    commands: Rotation<u32>,
    loads: VecDeque<Job>,
    answers: Vec<(u32, Reply)>,
    /// How many calls of the disk the reads took.
    calls: u64,
}

impl Reading {
    fn of(driver: Driver) -> Self {
        Self {
            driver,
            commands: Rotation::default(),
            loads: VecDeque::new(),
            answers: Vec::new(),
            calls: 0,
        }
    }

    fn ask(&mut self, source: u64, ticket: u32, command: Command) {
        self.commands
            .push(Source::numbered(source), ticket, command);
        self.turn();
    }

    fn turn(&mut self) {
        let Driver { partition, now, .. } = &mut self.driver;
        loop {
            partition.turn(moment(*now), &mut self.commands, &mut self.answers);
            while let Some(job) = partition.next_job() {
                if job.kind() == JobKind::Load {
                    self.loads.push_back(job);
                } else {
                    let outcome = job.run();
                    partition.complete(outcome, &mut self.answers).unwrap();
                }
            }
            if self.commands.is_empty() {
                return;
            }
        }
    }

    /// Carries out the next read.
    fn read(&mut self) {
        self.read_with(|_| ());
    }

    /// Carries out the next read, with an error of the disk.
    fn fail_to_read(&mut self) {
        self.read_with(|storage| storage.fail_after(0, Fault::Eio, Repeat::Sticky));
    }

    fn read_with(&mut self, prepare: impl FnOnce(&FaultyStorage)) {
        let job = self.loads.pop_front().expect("something is to be read");
        let storage = &self.driver.storage;
        let before = storage.calls();
        prepare(storage);
        let outcome = job.run();
        storage.clear_faults();
        self.calls += storage.calls() - before;
        let partition = &mut self.driver.partition;
        partition.complete(outcome, &mut self.answers).unwrap();
        self.turn();
    }

    /// The tickets of the answers since the last call, with the first bytes of the bodies.
    fn answered(&mut self) -> Vec<(u32, Result<Vec<String>, Rejection>)> {
        let answers = self.answers.drain(..);
        let bodies = |reply: Reply| {
            let answered = reply?;
            let Outcome::Bus(BusOutcome::Received(_)) = &answered.outcome else {
                return Ok(Vec::new());
            };
            let bodies = received(answered).1.into_iter();
            let first =
                bodies.map(|body| String::from_utf8_lossy(&body[..body.len().min(5)]).into());
            Ok(first.collect())
        };
        answers
            .map(|(ticket, reply)| (ticket, bodies(reply)))
            .collect()
    }
}

fn names(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("{number:05}")).collect()
}

/// A receiver and those behind it wait for the disk once, and for few calls.
#[test]
fn bodies_that_lie_together_are_read_together_and_ahead() {
    let mut r = Reading::of(backlog(40));
    r.ask(1, 1, receive_and_delete(10));
    assert_eq!(r.answered(), [], "nothing is deleted that was not read");
    assert_eq!(r.driver.partition.state().counts().1, 40);
    r.read();
    assert_eq!(r.answered(), [(1, Ok(names(0..10)))]);
    // The others were read with them.
    assert!(r.calls <= 8, "{} calls for forty bodies", r.calls);
    assert!(r.loads.is_empty());
    r.ask(1, 2, receive_and_delete(1));
    r.ask(1, 3, receive_and_delete(50));
    assert_eq!(
        r.answered(),
        [(2, Ok(names(10..11))), (3, Ok(names(11..40)))]
    );
    assert!(r.loads.is_empty());
    assert_eq!(r.driver.partition.state().counts().1, 0);
}

/// A slow consumer finds what was read ahead for it.
#[test]
fn what_was_read_ahead_stays_for_a_while() {
    let mut r = Reading::of(backlog(20));
    r.ask(1, 1, receive_and_delete(1));
    r.read();
    r.driver.now = r.driver.now.plus_ms(2900);
    r.ask(1, 2, receive_and_delete(1));
    assert_eq!(r.answered(), [(1, Ok(names(0..1))), (2, Ok(names(1..2)))]);
}

/// Senders, settlements and renewals of its queue do not wait for the disk with it. Receivers do.
#[test]
fn receivers_alone_wait_behind_a_receiver_that_waits_for_bodies() {
    let mut driver = driver();
    driver.ask(send(body_of(9))).unwrap();
    let (locked, _) = received(driver.ask(receive(1)).unwrap());
    for number in 0..4 {
        driver.ask(send(body_of(number))).unwrap();
    }
    let mut r = Reading::of(driver.reopened());
    r.ask(1, 1, receive_and_delete(2));
    r.ask(2, 2, send("new"));
    r.ask(3, 3, receive_and_delete(5));
    r.ask(4, 4, receive(1));
    let renewed = Command::Bus(BusCommand::RenewLocks {
        queue: orders(),
        locks: vec![locked[0].lock.unwrap()],
    });
    r.ask(5, 5, renewed);
    r.ask(6, 6, settle(&locked, &Disposition::Complete));
    // Its own source keeps its order.
    r.ask(1, 7, send("own"));
    let gone_on: Vec<u32> = r.answered().into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(gone_on, [2, 5, 6]);
    while !r.loads.is_empty() {
        r.read();
    }
    let answered = r.answered();
    let mut rest = names(2..4);
    rest.push("new".into());
    assert_eq!(answered[0], (1, Ok(names(0..2))));
    let of_third = answered.iter().find(|(ticket, _)| *ticket == 3).unwrap();
    let Ok(taken) = &of_third.1 else {
        panic!("{answered:?}");
    };
    assert_eq!(taken[..3], rest);
    assert_eq!(answered.len(), 4);
}

/// Its client has given up and comes again: the first command must not delete what nobody gets.
#[test]
fn a_receiver_that_has_gone_while_it_waited_deletes_nothing() {
    let mut driver = backlog(3);
    driver.partition.ask_who_waits(|ticket| *ticket != 1);
    let mut r = Reading::of(driver);
    r.ask(1, 1, receive_and_delete(2));
    r.read();
    assert_eq!(r.answered(), [(1, Err(Rejection::Busy))]);
    assert_eq!(r.driver.partition.state().counts().1, 3);
    r.ask(1, 2, receive_and_delete(3));
    while !r.loads.is_empty() {
        r.read();
    }
    assert_eq!(r.answered(), [(2, Ok(names(0..3)))]);
}

/// Receivers of many queues take one message at a time. What is read ahead is bounded, and is used.
#[test]
fn many_queues_read_ahead_without_reading_again() {
    const QUEUES: u32 = 20;
    const MESSAGES: u32 = 40;
    let mut driver = Driver::new();
    let queue = |number: u32| named(&format!("queue{number}"));
    for number in 0..QUEUES {
        let create = BusCommand::CreateQueue {
            queue: queue(number),
            options: BusQueueOptions::default(),
        };
        driver.ask(Command::Bus(create)).unwrap();
        for message in 0..MESSAGES {
            let message = BusMessage {
                body: vec![b'x'; 16 << 10].into(),
                message_id: Some(message.to_string().into()),
                session: None,
                time_to_live_ms: None,
                scheduled_at: None,
            };
            let send = BusCommand::Send {
                queue: queue(number),
                messages: vec![message],
            };
            driver.ask(Command::Bus(send)).unwrap();
        }
    }
    let mut r = Reading::of(driver.reopened());
    let (mut waited, mut answered) = (0, 0);
    for round in 0..MESSAGES {
        for number in 0..QUEUES {
            let take = Command::Bus(BusCommand::Receive {
                queue: queue(number),
                count: 1,
                mode: ReceiveMode::ReceiveAndDelete,
                session: None,
            });
            r.ask(u64::from(number) + 1, round * QUEUES + number, take);
        }
        waited += QUEUES as usize - (r.answers.len() - answered);
        // Nothing that is needed waits behind more than one job.
        assert!(r.loads.len() <= QUEUES as usize + 1, "{}", r.loads.len());
        while !r.loads.is_empty() {
            r.read();
        }
        answered = r.answers.len();
    }
    assert_eq!(r.answered().len(), (QUEUES * MESSAGES) as usize);
    assert_eq!(r.driver.partition.state().counts().1, 0);
    let waited_max = (QUEUES * MESSAGES) as usize / 4;
    assert!(waited <= waited_max, "{waited} have waited for a read");
    let calls_max = u64::from(QUEUES * MESSAGES);
    assert!(r.calls <= calls_max, "{} calls of the disk", r.calls);
}

/// Competing consumers of a backlog: what the next one takes was read with what the one before needed.
#[test]
fn receivers_of_one_queue_do_not_wait_for_a_read_each() {
    const MESSAGES: u32 = 100;
    let mut r = Reading::of(backlog(MESSAGES));
    for ticket in 0..4 {
        r.ask(u64::from(ticket) + 1, ticket, receive_and_delete(1));
    }
    let mut reads = 0;
    let mut taken = Vec::new();
    while taken.len() < MESSAGES as usize {
        for (ticket, answer) in r.answered() {
            taken.extend(answer.unwrap());
            r.ask(u64::from(ticket) % 4 + 1, ticket + 4, receive_and_delete(1));
        }
        if !r.loads.is_empty() {
            r.read();
            reads += 1;
        }
    }
    taken.sort();
    assert_eq!(taken, names(0..MESSAGES));
    assert!(reads <= 5, "{reads} reads for {MESSAGES} messages");
}

/// A read that takes longer than the pause before it fails is followed by a pause all the same.
#[test]
fn a_pause_begins_at_the_end_of_a_read() {
    let mut r = Reading::of(backlog(1));
    r.ask(1, 1, receive_and_delete(1));
    r.driver.now = r.driver.now.plus_ms(5000);
    r.fail_to_read();
    r.ask(1, 2, receive_and_delete(1));
    let failed = |ticket| (ticket, Err(Rejection::ReadFailed));
    assert_eq!(r.answered(), [failed(1), failed(2)]);
    assert!(r.loads.is_empty());
}

/// A failing disk is no damage: nothing changes, and clients try again.
#[test]
fn a_read_that_fails_changes_nothing_and_is_tried_again_after_a_pause() {
    let mut r = Reading::of(backlog(3));
    r.ask(1, 1, receive_and_delete(2));
    r.fail_to_read();
    assert_eq!(r.answered(), [(1, Err(Rejection::ReadFailed))]);
    r.loads.clear();
    // Not in the same moment: the disk is left in peace.
    r.ask(1, 2, receive_and_delete(2));
    assert_eq!(r.answered(), [(2, Err(Rejection::ReadFailed))]);
    assert!(r.loads.is_empty());
    r.driver.now = r.driver.now.plus_ms(1000);
    r.ask(1, 3, receive_and_delete(2));
    r.read();
    assert_eq!(r.answered(), [(3, Ok(names(0..2)))]);
    assert_eq!(r.driver.partition.state().counts().1, 1);
}

/// A bad sector is an error forever. It must not keep all messages behind it back.
#[test]
fn a_body_that_cannot_be_read_again_and_again_counts_as_damaged() {
    let mut r = Reading::of(backlog(1));
    for ticket in 1..=3 {
        r.ask(1, ticket, receive_and_delete(1));
        r.fail_to_read();
        r.driver.now = r.driver.now.plus_ms(1000);
    }
    let failed = |ticket| (ticket, Err(Rejection::ReadFailed));
    assert_eq!(r.answered(), [failed(1), failed(2), (3, Err(damaged(1)))]);
    // For a while it is not read again.
    r.ask(1, 4, receive_and_delete(1));
    assert_eq!(r.answered(), [(4, Err(damaged(1)))]);
    // The disk is well again.
    r.driver.now = r.driver.now.plus_ms(60_000);
    r.ask(1, 5, receive_and_delete(1));
    r.read();
    assert_eq!(r.answered(), [(5, Ok(names(0..1)))]);
}

#[test]
fn a_stop_rejects_receivers_that_wait_for_bodies() {
    let mut r = Reading::of(backlog(3));
    r.ask(1, 1, receive_and_delete(2));
    r.driver.partition.reject_waiting(&mut r.answers);
    assert_eq!(r.answered(), [(1, Err(Rejection::Stopped))]);
    r.read();
    assert_eq!(r.answered(), []);
    assert_eq!(r.driver.partition.state().counts().1, 3);
}

/// A backlog is drained in order through restarts, and nothing comes twice.
#[test]
fn a_backlog_is_drained_in_order_through_restarts() {
    let mut driver = backlog(200);
    let mut next = 0;
    for round in 0.. {
        let count = 1 + round % 11;
        let (_, bodies) = received(driver.ask(receive_and_delete(count)).unwrap());
        if bodies.is_empty() {
            break;
        }
        for body in bodies {
            assert_eq!(body, body_of(next));
            next += 1;
        }
        if round % 5 == 4 {
            driver = driver.reopened();
        }
    }
    assert_eq!(next, 200);
}

/// A receiver that gets an error for a damaged message leaves the others, and no new message may come to wake the next
/// receiver.
#[test]
fn a_receiver_that_is_told_of_damage_wakes_the_next_one() {
    let mut driver = Driver::new();
    let create = BusCommand::CreateQueue {
        queue: orders(),
        options: BusQueueOptions {
            max_delivery_count: 1,
            ..BusQueueOptions::default()
        },
    };
    driver.ask(Command::Bus(create)).unwrap();
    let read = BusCommand::ReadQueue { queue: orders() };
    let queue = match driver.ask(Command::Bus(read)).unwrap().outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => view.incarnation,
        other => panic!("{other:?}"),
    };
    driver.ask(send("damaged body")).unwrap();
    driver.ask(send("whole body")).unwrap();
    let mut driver = driver.reopened();
    damage(&driver.storage, b"damaged body");
    driver.partition.take_wakes().count();
    let refused = driver.ask(receive_and_delete(1)).unwrap_err();
    assert_eq!(refused, damaged(1));
    let mut wakes = driver.partition.take_wakes();
    assert!(wakes.any(|wake| wake == Wake::One(queue, Awaited::Message)));
}

/// A message of the same turn is not on the disk yet, and is whole.
#[test]
fn a_message_is_received_and_deleted_in_the_turn_of_its_send() {
    let mut driver = driver();
    let mut commands = VecDeque::from([(1, send("body")), (2, receive_and_delete(1))]);
    let mut replies = Vec::new();
    let now = moment(driver.now);
    driver.partition.turn(now, &mut commands, &mut replies);
    driver.jobs(&mut replies);
    let (_, reply) = replies.pop().unwrap();
    assert_eq!(received(reply.unwrap()).1, ["body"]);
    let (messages, _) = received(driver.ask(receive_and_delete(1)).unwrap());
    assert_eq!(messages, []);
}
