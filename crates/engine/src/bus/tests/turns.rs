//! Due work of many queues: they are served in turn.

use super::*;

/// More than any tick of these tests does.
const MANY: usize = 5_000;

fn fill(p: &mut Partition, queue: &str, count: usize, time_to_live_ms: Option<u64>) {
    for _ in 0..count.div_ceil(100) {
        let message = || BusMessage {
            time_to_live_ms,
            ..text("a")
        };
        let messages = (0..count.min(100)).map(|_| message()).collect();
        let queue = entity(queue);
        p.ask(BusCommand::Send { queue, messages }).unwrap();
    }
}

fn left(p: &Partition, queue: &str) -> u64 {
    let queue = p.state.catalogue.names[&entity(queue)];
    p.state.bus[&queue].backlog.count()
}

fn tick(p: &mut Partition, budget: u32) -> bool {
    p.tick_once(budget)
}

/// A queue with thousands of expired messages, and one that forwards thousands, which is due at any time.
fn with_busy_queues() -> Partition {
    let mut p = Partition::new();
    for queue in ["forwarding", "expired", "destination", "quiet"] {
        p.create(&entity(queue), BusQueueOptions::default())
            .unwrap();
    }
    fill(&mut p, "forwarding", MANY, None);
    fill(&mut p, "expired", MANY, Some(1000));
    let options = BusQueueOptions {
        forward_to: Some("destination".into()),
        ..BusQueueOptions::default()
    };
    let queue = entity("forwarding");
    p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
    fill(&mut p, "quiet", 1, Some(2000));
    p.pass_ms(2000);
    p
}

#[test]
fn a_queue_with_much_due_work_does_not_hold_back_another() {
    let mut p = with_busy_queues();
    assert!(tick(&mut p, 33));
    assert_eq!(left(&p, "quiet"), 0);
    assert_eq!(left(&p, "destination"), 16);
    assert!(left(&p, "expired") > 0);
    assert_eq!(p.replayed(), p.state);
}

/// To find the one message of a run that has expired takes a look at a thousand others.
#[test]
fn messages_that_are_looked_at_in_vain_use_up_the_budget() {
    let mut p = Partition::new();
    p.change(|state| state.catalogue.run_length = RunLength::DEFAULT);
    for queue in ["long", "quiet"] {
        p.create(&entity(queue), BusQueueOptions::default())
            .unwrap();
    }
    fill(&mut p, "long", 900, None);
    fill(&mut p, "long", 1, Some(1000));
    fill(&mut p, "quiet", 1, Some(2000));
    p.pass_ms(2000);
    assert!(tick(&mut p, 8));
    assert_eq!((left(&p, "long"), left(&p, "quiet")), (900, 1));
    while tick(&mut p, 8) {}
    assert_eq!((left(&p, "long"), left(&p, "quiet")), (900, 0));
}

/// A queue that is used between the ticks is still behind the others.
#[test]
fn the_next_tick_continues_where_the_last_one_ended() {
    let mut p = with_busy_queues();
    for round in 1..20 {
        for _ in 0..3 {
            assert!(tick(&mut p, 16));
            fill(&mut p, "expired", 1, None);
            p.ask(BusCommand::ReadQueue {
                queue: entity("destination"),
            })
            .unwrap();
        }
        // Half of the three ticks, because the other half is for the expired messages.
        let forwarded = left(&p, "destination");
        assert!(forwarded.abs_diff(round * 24) <= 32, "{round}: {forwarded}");
    }
    assert_eq!(left(&p, "quiet"), 0);
    assert_eq!(p.replayed(), p.state);
    while tick(&mut p, 256) {}
    assert_eq!(left(&p, "destination"), MANY as u64);
    assert_eq!(p.replayed(), p.state);
}

/// The memory of ids is returned after their window, without another send.
#[test]
fn ids_are_forgotten_as_due_work() {
    let mut p = Partition::new();
    let options = BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), options).unwrap();
    for id in 0..100 {
        let id = Some(format!("{id}").into());
        p.send(BusMessage {
            message_id: id,
            ..text("a")
        })
        .unwrap();
    }
    let ids = |p: &Partition| {
        let queue = &p.state.bus[&p.state.catalogue.names[&jobs()]];
        queue.duplicates.snapshot_size_bytes_max()
    };
    let before = ids(&p);
    p.pass_ms(19_999);
    p.tick();
    assert_eq!(ids(&p), before);
    let events = p.log.events.len();
    p.pass_ms(1001);
    assert!(tick(&mut p, 1));
    assert!((1..before).contains(&ids(&p)), "a few at once");
    assert_eq!(p.replayed(), p.state);
    p.tick();
    assert_eq!(ids(&p), 0);
    assert_eq!(p.state.next_deadline(), None);
    // No event says so. A snapshot lacks the ids, so no clock may go back behind its time.
    assert_eq!(p.log.events.len(), events);
    assert_eq!(p.replayed(), p.state);
    assert_eq!(p.restored(), p.state);
    assert_eq!(p.restored().last_event_at(), p.now);
}
