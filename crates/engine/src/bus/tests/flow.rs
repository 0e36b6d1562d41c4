//! What came into a queue and was completed, by a ledger of what was asked for.

use super::*;
use crate::queues::Flow;

fn flow_of(p: &mut Partition, name: &str) -> Flow {
    let overview = p.state.overview(None, p.now, 1000);
    let mut queues = overview.bus_queues.iter();
    let found = queues.find(|queue| *queue.name.name == *name);
    found.expect("there is such a queue").flow
}

fn flow(arrived: u64, completed: u64) -> Flow {
    Flow {
        arrived,
        completed,
        duplicates: 0,
    }
}

fn later(p: &Partition, body: &str) -> BusMessage {
    BusMessage {
        scheduled_at: Some(p.now.plus_ms(60_000)),
        ..text(body)
    }
}

#[test]
fn counters_are_the_ledger_of_a_load() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.state.begin_tallies();
    for body in ["a", "b", "c", "d", "e"] {
        p.send(text(body)).unwrap();
    }
    assert_eq!(flow_of(&mut p, "jobs"), flow(5, 0));
    let locks = locks(&p.receive());
    p.settle(locks[0], Disposition::Complete);
    p.settle(locks[1], Disposition::DeadLetter { overlay: None });
    // These three stay.
    p.settle(locks[2], Disposition::Abandon { overlay: None });
    p.settle(locks[3], Disposition::Defer { overlay: None });
    p.settle(locks[4], Disposition::Release);
    assert_eq!(flow_of(&mut p, "jobs"), flow(5, 2));
    let taken = p.ask(BusCommand::Receive {
        queue: jobs(),
        count: 1,
        mode: ReceiveMode::ReceiveAndDelete,
        session: None,
    });
    assert!(matches!(taken, Ok(BusOutcome::Received(it)) if it.len() == 1));
    assert_eq!(flow_of(&mut p, "jobs"), flow(5, 3));
    // The end of a lock is none of a message.
    p.receive();
    p.pass_ms(60_000);
    p.tick();
    assert_eq!(flow_of(&mut p, "jobs"), flow(5, 3));
}

#[test]
fn a_scheduled_message_comes_when_it_becomes_active() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.state.begin_tallies();
    let first = later(&p, "first");
    let number = p.send(first).unwrap().unwrap();
    let second = later(&p, "second");
    p.send(second).unwrap();
    assert_eq!(flow_of(&mut p, "jobs"), flow(0, 0));
    p.ask(BusCommand::CancelScheduled {
        queue: jobs(),
        numbers: vec![SequenceNumber::named(number)],
    })
    .unwrap();
    p.pass_ms(60_000);
    p.tick();
    assert_eq!(flow_of(&mut p, "jobs"), flow(1, 0));
}

#[test]
fn an_expired_message_was_not_completed() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.state.begin_tallies();
    let short = BusMessage {
        time_to_live_ms: Some(1000),
        ..text("short")
    };
    p.send(short).unwrap();
    p.send(text("long")).unwrap();
    p.pass_ms(1000);
    p.tick();
    assert_eq!(p.counts().active, 1);
    assert_eq!(flow_of(&mut p, "jobs"), flow(2, 0));
}

#[test]
fn a_forwarded_message_leaves_one_queue_and_comes_into_another() {
    let mut p = Partition::with(BusQueueOptions::default());
    let options = BusQueueOptions {
        forward_to: Some("jobs".into()),
        ..BusQueueOptions::default()
    };
    p.create(&entity("first"), options).unwrap();
    p.state.begin_tallies();
    p.ask(BusCommand::Send {
        queue: entity("first"),
        messages: vec![text("a")],
    })
    .unwrap();
    p.tick();
    assert_eq!(flow_of(&mut p, "first"), flow(1, 1));
    assert_eq!(flow_of(&mut p, "jobs"), flow(1, 0));
}

#[test]
fn neither_a_replay_nor_a_snapshot_counts() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.state.begin_tallies();
    p.send(text("a")).unwrap();
    for mut state in [p.replayed(), p.restored()] {
        state.begin_tallies();
        assert_eq!(state, p.state);
        let overview = state.overview(None, p.now, 1000);
        assert_eq!(overview.bus_queues[0].active, 1);
        assert_eq!(overview.bus_queues[0].flow, flow(0, 0));
    }
}
