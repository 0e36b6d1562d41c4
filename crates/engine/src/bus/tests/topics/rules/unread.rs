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
        message_id: Some(format!("no. {id}").into()),
        ..text(&format!("sys.MessageId=no. {id}"))
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

impl Partition {
    /// A topic whose only copies get changes by an action, and go on to another topic that looks ids up: `next`, with the
    /// subscription `end`.
    fn changes_and_forwards() -> Self {
        let mut p = Self::with_topic(BusQueueOptions::default());
        p.ask(BusCommand::CreateTopic {
            topic: entity("next"),
            options: detects(),
        })
        .unwrap();
        p.ask(BusCommand::CreateSubscription {
            topic: entity("next"),
            subscription: end(),
            options: BusQueueOptions::default(),
            rule: None,
        })
        .unwrap();
        let options = BusQueueOptions {
            forward_to: Some("next".into()),
            ..BusQueueOptions::default()
        };
        p.subscribe("s", options).unwrap();
        p.set_rule("s", with_action("$Default", "SET x = 1"))
            .unwrap();
        // The copies are made by ticks.
        p.copies_at_once = 0;
        p
    }
}

fn end() -> EntityName {
    entity("next/subscriptions/end")
}

/// What a tick has just written is not in the log yet. The message whose changes that are goes on with the next one, and
/// is neither damaged nor lost.
#[test]
fn what_a_tick_has_written_is_read_by_the_next_one() {
    for budget in [2, 3, 7, 256] {
        let mut p = Partition::changes_and_forwards();
        for nth in [1, 2, 1, 3] {
            p.publish(vec![named(nth)]).unwrap();
        }
        let mut ticks = 1;
        while p.tick_once(budget) {
            p.check_rules();
            ticks += 1;
            assert!(ticks < 50);
        }
        assert!(ticks > 1);
        let texts = p.shown(end());
        let texts: Vec<_> = texts.iter().map(|(text, _)| &**text).collect();
        let expected = [1, 2, 3].map(|nth| format!("sys.MessageId=no. {nth}"));
        assert_eq!(texts, expected);
        assert_eq!(p.view(&subscription("s")).counts.dead_letters, 0);
    }
}

#[test]
fn what_a_tick_has_written_holds_nobody_else_back() {
    let mut p = Partition::changes_and_forwards();
    let names = ["1", "2", "3"].map(entity);
    for name in &names {
        p.create(name, BusQueueOptions::default()).unwrap();
        let message = BusMessage {
            time_to_live_ms: Some(1_000),
            ..text("x")
        };
        let (queue, messages) = (name.clone(), vec![message; 40]);
        p.ask(BusCommand::Send { queue, messages }).unwrap();
    }
    p.pass_ms(1_000);
    p.publish(vec![named(1)]).unwrap();
    assert!(p.tick_once(256));
    let left = |p: &Partition, name: &EntityName| {
        let entity = p.state.catalogue.find(name).unwrap();
        p.state.bus[&entity].backlog.count()
    };
    for name in &names {
        assert_eq!(left(&p, name), 0);
    }
    assert_eq!(left(&p, &subscription("s")), 1);
    p.tick();
    assert_eq!(left(&p, &end()), 1);
    p.check_rules();
}
