//! What came into a queue and was deleted, by a ledger of what was asked for.

use super::*;
use crate::queues::Flow;

fn flow_of(p: &mut Partition) -> Flow {
    p.state.overview(None, p.now, 1000).queues[0].flow
}

fn flow(arrived: u64, completed: u64) -> Flow {
    Flow {
        arrived,
        completed,
        duplicates: 0,
    }
}

#[test]
fn counters_are_the_ledger_of_a_load() {
    let mut p = Partition::with_queue();
    p.state.begin_tallies();
    for body in ["a", "b", "c"] {
        p.send(body);
    }
    p.send_with("delayed", None, 60).unwrap();
    assert_eq!(flow_of(&mut p), flow(4, 0));
    let received = p.receive(2, 30);
    p.delete(received[0].message, received[0].receipt).unwrap();
    let other = &received[1];
    let receipt = p.update(other.message, other.receipt, 30, Some("new"));
    assert_eq!(flow_of(&mut p), flow(4, 1));
    p.delete(other.message, receipt.unwrap()).unwrap();
    assert_eq!(flow_of(&mut p), flow(4, 2));
    // Nobody has handled what a clear takes.
    p.ask(Command::Storage(StorageCommand::Clear { queue: jobs() }))
        .unwrap();
    assert_eq!((p.count(), flow_of(&mut p)), (0, flow(4, 2)));
}

#[test]
fn expired_messages_were_not_completed() {
    let mut p = Partition::with_queue();
    p.state.begin_tallies();
    // A run ends as a whole, and of another one only a part.
    for _ in 0..4 {
        p.send_with("short", Some(1), 0).unwrap();
    }
    for (body, lives_s) in [("short", 1), ("long", 1000), ("short", 1)] {
        p.send_with(body, Some(lives_s), 0).unwrap();
    }
    p.wait_seconds(2);
    while p.tick(10) {}
    assert_eq!((p.count(), flow_of(&mut p)), (1, flow(7, 0)));
}

#[test]
fn a_replay_counts_nothing() {
    let mut p = Partition::with_queue();
    p.state.begin_tallies();
    p.send("a");
    let mut replayed = State::new();
    for event in &p.log.events {
        replayed.apply(Event::decode(event).unwrap());
    }
    replayed.begin_tallies();
    assert_eq!(
        replayed.overview(None, p.now, 1000).queues[0].flow,
        flow(0, 0)
    );
}
