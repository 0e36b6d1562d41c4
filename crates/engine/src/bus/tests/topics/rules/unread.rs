//! What due work of topics, and of entities that forward to them, finds in memory: records on pages, and bodies of the
//! batch that is being written.

use super::*;

/// More messages than one read brings into memory, whatever the length of a run is.
const MANY: usize = 300;

fn detects() -> BusQueueOptions {
    BusQueueOptions {
        duplicate_window_ms: Some(600_000),
        ..BusQueueOptions::default()
    }
}

fn named(id: usize) -> BusMessage {
    BusMessage {
        message_id: Some(format!("{id}").into()),
        ..text(&format!("sys.MessageId={id}"))
    }
}

/// What is due first is read alone. It is not followed by the message that waits for its copies.
#[test]
fn a_schedule_that_is_due_does_not_need_the_first_message_that_waits() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.copies_at_once = 0;
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.publish(vec![text("color=red"); MANY]).unwrap();
    let scheduled_at = Some(p.now.plus_ms(10_000));
    let scheduled = BusMessage {
        scheduled_at,
        ..text("color=red\n1")
    };
    p.publish(vec![scheduled; 4]).unwrap();
    p.leave_memory();
    p.pass_ms(10_000);
    p.tick();
    assert_eq!(p.view(&subscription("a")).counts.active, MANY as u64 + 4);
    p.check_rules();
}

#[test]
fn what_expires_first_does_not_need_what_is_forwarded_after_it() {
    let mut p = Partition::with_topic(detects());
    p.subscribe_all(&["a"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    let expire = (0..MANY).map(|nth| BusMessage {
        time_to_live_ms: Some(10_000),
        ..named(nth)
    });
    let stay = (MANY..MANY + 8).map(named);
    let messages = expire.chain(stay).collect();
    let queue = jobs();
    p.ask(BusCommand::Send { queue, messages }).unwrap();
    p.ask(BusCommand::UpdateQueue {
        queue: jobs(),
        options: BusQueueOptions {
            forward_to: Some("t".into()),
            ..BusQueueOptions::default()
        },
    })
    .unwrap();
    p.leave_memory();
    p.pass_ms(10_000);
    p.tick();
    assert_eq!(p.view(&subscription("a")).counts.active, 8);
    assert_eq!(p.counts().active, 0);
    p.check_rules();
}
