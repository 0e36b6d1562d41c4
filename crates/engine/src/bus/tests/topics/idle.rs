//! Topics that are disabled, and topics that delete themselves.

use super::*;
use crate::bus::SessionChoice;

const IDLE_MS: u64 = 300_000;

fn with_status(status: EntityStatus) -> BusQueueOptions {
    BusQueueOptions {
        status,
        ..BusQueueOptions::default()
    }
}

fn idle() -> BusQueueOptions {
    BusQueueOptions {
        auto_delete_on_idle_ms: IDLE_MS,
        ..BusQueueOptions::default()
    }
}

impl Partition {
    fn set_status(&mut self, status: EntityStatus) {
        self.ask(BusCommand::UpdateQueue {
            queue: topic(),
            options: with_status(status),
        })
        .unwrap();
    }

    /// Lets time pass until just before the topic would delete itself if nothing is a use of it.
    fn pass_most_of_idle(&mut self) {
        self.pass_ms(IDLE_MS - 1);
        self.tick();
    }

    fn has_topic(&self) -> bool {
        self.state.has_entity(&topic())
    }
}

#[test]
fn a_disabled_topic_gives_nothing_and_one_without_sends_what_it_has() {
    for status in [EntityStatus::Disabled, EntityStatus::SendDisabled] {
        let mut p = Partition::with_topic(BusQueueOptions::default());
        p.subscribe_all(&["a"]);
        p.publish(vec![text("before"), text("dead")]).unwrap();
        let lock = locks(&p.receive_from(&subscription("a"), None))[1];
        let dead = Disposition::DeadLetter { overlay: None };
        p.settle_in(&subscription("a"), lock, dead);
        assert!(!p.view(&subscription("a")).is_suspended);

        p.set_status(status);
        p.pass_ms(60_000);
        let disabled = |name: &str| BusRefusal::Disabled { queue: name.into() };
        assert_eq!(p.publish(vec![text("x")]), Err(disabled("t")));
        for queue in [subscription("a"), dead_of("a")] {
            let received = p.ask(BusCommand::Receive {
                queue: queue.clone(),
                count: 1,
                mode: ReceiveMode::PeekLock,
                session: None,
            });
            let is_suspended = status == EntityStatus::Disabled;
            match is_suspended {
                true => assert_eq!(received, Err(disabled(&queue.name))),
                // It is drained.
                false => assert!(received.is_ok()),
            }
            assert_eq!(p.view(&queue).is_suspended, is_suspended);
        }
        p.pass_ms(60_000);
        // It is managed as before.
        p.subscribe_all(&["b"]);
        assert!(!p.view(&topic()).is_suspended);
        p.check_whole();

        p.set_status(EntityStatus::Active);
        let received = p.receive_from(&subscription("a"), None);
        assert_eq!(p.texts(&received), ["before"]);
        p.publish(vec![text("after")]).unwrap();
        let received = p.receive_from(&subscription("b"), None);
        assert_eq!(p.texts(&received), ["after"]);
        p.check_whole();
    }
}

#[test]
fn a_session_of_a_disabled_topic_is_not_given_out() {
    let mut p = Partition::with_topic(with_status(EntityStatus::Disabled));
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", sessions).unwrap();
    let refused = p.ask(BusCommand::AcceptSession {
        queue: subscription("a"),
        session: SessionChoice::Named("s".into()),
    });
    let queue = subscription("a").name;
    assert_eq!(refused, Err(BusRefusal::Disabled { queue }));
}

#[test]
fn an_idle_topic_deletes_itself_with_its_subscriptions() {
    let mut p = Partition::with_topic(idle());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("x")]).unwrap();
    p.pass_most_of_idle();
    assert!(p.has_topic());
    p.pass_ms(1);
    let events = p.log.events.len();
    p.tick();
    assert_eq!(p.state.bus.len(), 0);
    // Each subscription's receivers learn of its end from an event of its own.
    assert_eq!(p.facts_from(events).len(), 3);
    p.check_whole();
}

#[test]
fn what_happens_to_a_subscription_is_a_use_of_its_topic() {
    type Use = fn(&mut Partition);
    let uses: [(&str, Use); 5] = [
        ("sent", |p| {
            p.publish(vec![text("y")]).unwrap();
        }),
        ("looked for messages", |p| {
            p.receive_from(&dead_of("a"), None);
        }),
        ("received", |p| {
            p.receive_from(&subscription("a"), None);
        }),
        ("changed", |p| {
            p.ask(BusCommand::UpdateQueue {
                queue: subscription("a"),
                options: BusQueueOptions::default(),
            })
            .unwrap();
        }),
        ("subscribed", |p| p.subscribe_all(&["b"])),
    ];
    for (story, used) in uses {
        let mut p = Partition::with_topic(idle());
        p.subscribe_all(&["a"]);
        p.publish(vec![text("x")]).unwrap();
        for _ in 0..3 {
            p.pass_most_of_idle();
            if p.has_topic() && story != "subscribed" {
                used(&mut p);
            }
        }
        if story == "subscribed" {
            p = Partition::with_topic(idle());
            p.pass_most_of_idle();
            used(&mut p);
            p.pass_most_of_idle();
        }
        assert!(p.has_topic(), "{story}");
        p.check_whole();
        p.pass_ms(IDLE_MS);
        p.tick();
        p.pass_ms(IDLE_MS);
        p.tick();
        assert!(!p.has_topic(), "{story}");
        p.check_whole();
    }
}

#[test]
fn a_locked_message_keeps_its_topic() {
    let mut p = Partition::with_topic(idle());
    let long = BusQueueOptions {
        lock_duration_ms: 300_000,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", long).unwrap();
    p.publish(vec![text("x")]).unwrap();
    // So soon after the publish, this use is not worth an event.
    p.pass_ms(IDLE_MS / 10 - 1);
    let lock = locks(&p.receive_from(&subscription("a"), None))[0];
    p.pass_ms(IDLE_MS - IDLE_MS / 10 + 1);
    p.tick();
    assert!(p.has_topic());
    p.settle_in(&subscription("a"), lock, Disposition::Complete);
    p.check_whole();
    p.pass_ms(IDLE_MS);
    p.tick();
    assert!(!p.has_topic());
    p.check_whole();
}

/// Receivers that wait look from time to time, for the topic's sake, too.
#[test]
fn a_topic_at_whose_subscriptions_receivers_wait_is_not_idle() {
    let mut p = Partition::with_topic(idle());
    p.subscribe_all(&["a"]);
    let waits_at = p.state.catalogue.names[&dead_of("a")];
    assert!(!p.state.is_use_due(waits_at, p.now));
    p.pass_ms(60_000);
    assert!(p.state.is_use_due(waits_at, p.now));
    assert!(p.receive_from(&dead_of("a"), None).is_empty());
    assert!(!p.state.is_use_due(waits_at, p.now));
    p.check_whole();
}

/// The deletion takes as many units of the budget as it writes.
#[test]
fn the_end_of_a_topic_with_many_subscriptions_waits_for_room() {
    let mut p = Partition::with_topic(idle());
    for at in 0..63 {
        let name = format!("s{at}");
        p.subscribe(&name, BusQueueOptions::default()).unwrap();
    }
    p.pass_ms(IDLE_MS);
    // A command does due work first.
    let read = |p: &mut Partition, due_budget| {
        let queue = topic();
        p.decide(Command::Bus(BusCommand::ReadQueue { queue }), due_budget)
    };
    read(&mut p, 3).unwrap();
    read(&mut p, 4).unwrap_err();
    assert_eq!(p.state.bus.len(), 0);
    p.check_whole();
}

/// A full disk has no room for the end of a topic with many subscriptions. Other due work goes on.
#[test]
fn a_turn_that_drains_leaves_the_end_of_a_topic_for_later() {
    let mut p = Partition::with_topic(idle());
    p.cold = None;
    for at in 0..400 {
        let name = format!("s{at}");
        p.subscribe(&name, BusQueueOptions::default()).unwrap();
    }
    p.create(&jobs(), idle()).unwrap();
    p.pass_ms(IDLE_MS);
    let of = p.state.catalogue.find(&topic()).unwrap();
    let ticked = Turn::new(&mut p.state, p.now, &mut p.log)
        .draining()
        .tick(16);
    assert_eq!((ticked.more_is_due, ticked.left_alone), (false, vec![of]));
    assert!(!p.state.has_entity(&jobs()));
    assert!(p.has_topic());
    p.state.let_rest(of, false);
    // A tick of the usual budget has room for the largest topic.
    Turn::new(&mut p.state, p.now, &mut p.log).tick(256);
    assert_eq!(p.state.bus.len(), 0);
}
