//! What a topic counts: bodies once, copies, and states of sessions.

use super::*;

/// The limit is the topic's. A body counts once, and each copy counts its overhead.
#[test]
fn a_body_counts_once_against_the_topic() {
    let limit_bytes = 2_000;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: limit_bytes,
        message_size_bytes_max: 600,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    let message = || text(&"x".repeat(500));
    let full = |size_bytes| {
        let limit_bytes = 2_000;
        Err(BusRefusal::QuotaExceeded {
            size_bytes,
            limit_bytes,
        })
    };
    let too_large = BusRefusal::MessageTooLarge {
        size_bytes: 601,
        limit_bytes: 600,
    };
    assert_eq!(p.publish(vec![text(&"x".repeat(601))]), Err(too_large));
    p.publish(vec![message()]).unwrap();
    let both = 500 + 2 * OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, both);
    let two_more = both + 2 * (500 + OVERHEAD_BYTES);
    assert_eq!(p.publish(vec![message(), message()]), full(two_more));
    p.publish(vec![message()]).unwrap();
    let with_one_more = 2 * both + 500 + OVERHEAD_BYTES;
    assert_eq!(p.publish(vec![message()]), full(with_one_more));
    assert_eq!(p.view(&topic()).counts.size_bytes, 2 * both);
    let own = 2 * (500 + OVERHEAD_BYTES);
    assert_eq!(p.view(&subscription("a")).counts.size_bytes, own);

    // A change in one subscription is refused because of the other one: the answer rests on both.
    let received = p.receive_from(&subscription("a"), None);
    let overlay = Some(vec![0; 1000].into());
    let settlements = vec![(locks(&received)[0], Disposition::Abandon { overlay })];
    let settle = BusCommand::Settle {
        queue: subscription("a"),
        settlements,
    };
    let mut turn = Turn::new(&mut p.state, p.now, &mut p.log);
    let decision = turn.decide(Command::Bus(settle));
    let verdicts = vec![Verdict::QuotaExceeded];
    let settled = BusOutcome::Settled(verdicts);
    assert_eq!(decision.result, Ok(Outcome::Bus(settled)));
    assert_eq!(decision.scope, Scope::Everything);
}

fn hold_of(message: &DeliveredMessage) -> Hold {
    message.body.hold()
}

/// The subscription with the most messages counts the body, and the oldest one of equals.
#[test]
fn the_longest_backlog_counts_the_body() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("one")]).unwrap();
    let of_a = p.receive_from(&subscription("a"), None);
    p.settle_in(&subscription("a"), locks(&of_a)[0], Disposition::Complete);
    p.subscribe_all(&["c"]);
    p.publish(vec![text("two")]).unwrap();
    let holds = ["a", "b", "c"].map(|name| {
        let received = p.receive_from(&subscription(name), None);
        received.iter().map(hold_of).collect::<Vec<_>>()
    });
    let [of_a, of_b, of_c] = holds;
    assert_eq!(of_a, [Hold::Borrows]);
    assert_eq!(of_b, [Hold::Borrows, Hold::Lends]);
    assert_eq!(of_c, [Hold::Borrows]);
    p.delete(subscription("a")).unwrap();
    p.delete(subscription("b")).unwrap();
    p.publish(vec![text("three")]).unwrap();
    let of_c = p.receive_from(&subscription("c"), None);
    assert_eq!(hold_of(&of_c[0]), Hold::Alone);
    p.check_whole();
}

/// The body stays as long as any copy has it. If the copy that counts it ends first, the largest subscription is the size
/// of the topic.
#[test]
fn a_body_stays_until_its_last_copy_ends() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b", "c"]);
    p.publish(vec![text(&"x".repeat(1_000))]).unwrap();
    let live = |p: &Partition| p.state.live_bytes();
    assert_eq!(live(&p), 1_000 + 3 * 48);
    assert_eq!(
        p.view(&topic()).counts.size_bytes,
        1_000 + 3 * OVERHEAD_BYTES
    );
    // A dead letter borrows as its message did.
    let of_b = p.receive_from(&subscription("b"), None);
    let overlay = None;
    let dead = Disposition::DeadLetter { overlay };
    p.settle_in(&subscription("b"), locks(&of_b)[0], dead);
    let of_dead = p.receive_from(&dead_of("b"), None);
    assert_eq!(hold_of(&of_dead[0]), Hold::Borrows);
    assert_eq!(live(&p), 1_000 + 3 * 48);
    assert_eq!(
        p.view(&topic()).counts.size_bytes,
        1_000 + 3 * OVERHEAD_BYTES
    );
    p.check_whole();

    let of_a = p.receive_from(&subscription("a"), None);
    assert_eq!(hold_of(&of_a[0]), Hold::Lends);
    p.settle_in(&subscription("a"), locks(&of_a)[0], Disposition::Complete);
    assert_eq!(live(&p), 2 * 48);
    assert_eq!(p.view(&topic()).counts.size_bytes, 1_000 + OVERHEAD_BYTES);
    p.check_whole();
    let of_c = p.receive_from(&subscription("c"), None);
    p.settle_in(&subscription("c"), locks(&of_c)[0], Disposition::Complete);
    assert_eq!(live(&p), 48);
    p.delete(subscription("b")).unwrap();
    assert_eq!(live(&p), 0);
    assert_eq!(p.view(&topic()).counts.size_bytes, 0);
    p.check_whole();
}

/// A bound of the largest subscription decides nothing: it is found when the bound is too large.
#[test]
fn a_topic_whose_largest_subscription_has_shrunk_takes_messages() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 3_000,
        message_size_bytes_max: 1_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    let large = || text(&"x".repeat(1_000));
    p.publish(vec![large()]).unwrap();
    p.publish(vec![large()]).unwrap();
    assert!(matches!(
        p.publish(vec![large()]),
        Err(BusRefusal::QuotaExceeded { size_bytes, .. }) if size_bytes == 3_000 + 5 * OVERHEAD_BYTES
    ));
    // What counts the bodies ends first. Then what was borrowed.
    for name in ["a", "b"] {
        for lock in locks(&p.receive_from(&subscription(name), None)) {
            p.settle_in(&subscription(name), lock, Disposition::Complete);
        }
        let left = if name == "a" {
            2 * (1_000 + OVERHEAD_BYTES)
        } else {
            0
        };
        assert_eq!(p.view(&topic()).counts.size_bytes, left);
        p.check_whole();
    }
    p.publish(vec![large(), large()]).unwrap();
    p.check_whole();
}

/// A copy that is forwarded leaves the charge of its family, and keeps its body.
#[test]
fn a_borrowed_body_is_forwarded() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.subscribe_all(&["a"]);
    let forward = BusQueueOptions {
        forward_to: Some("jobs".into()),
        ..BusQueueOptions::default()
    };
    p.subscribe("b", forward).unwrap();
    p.publish(vec![text(&"x".repeat(1_000))]).unwrap();
    p.tick();
    let received = p.receive_from(&jobs(), None);
    assert_eq!(hold_of(&received[0]), Hold::Borrows);
    assert_eq!(p.view(&jobs()).counts.size_bytes, 1_000 + OVERHEAD_BYTES);
    assert_eq!(p.view(&topic()).counts.size_bytes, 1_000 + OVERHEAD_BYTES);
    assert_eq!(p.state.live_bytes(), 1_000 + 2 * 48);
    p.delete(topic()).unwrap();
    assert_eq!(p.state.live_bytes(), 48);
    p.check_whole();
}

#[test]
fn a_session_state_of_a_subscription_counts_against_the_topic() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 2_000,
        message_size_bytes_max: 1_500,
        ..BusQueueOptions::default()
    });
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("ordered", sessions).unwrap();
    p.subscribe_all(&["other"]);
    p.publish(vec![of_session(&"x".repeat(700), "s")]).unwrap();
    let queue = subscription("ordered");
    let accepted = p.ask(BusCommand::AcceptSession {
        queue: queue.clone(),
        session: SessionChoice::Named("s".into()),
    });
    let Ok(BusOutcome::SessionAccepted(SessionLock { lock, .. })) = accepted else {
        panic!("{accepted:?}");
    };
    let mut set = |size_bytes: usize| {
        p.ask(BusCommand::SetSessionState {
            queue: queue.clone(),
            session: lock,
            state: Some(vec![0; size_bytes].into()),
        })
    };
    let too_large = BusRefusal::SessionStateTooLarge {
        size_bytes: 1_501,
        limit_bytes: 1_500,
    };
    assert_eq!(set(1_501), Err(too_large));
    let full = set(1_000);
    assert!(
        matches!(full, Err(BusRefusal::QuotaExceeded { limit_bytes, .. }) if limit_bytes == 2_000),
        "{full:?}"
    );
    assert_eq!(set(100), Ok(BusOutcome::SessionStateSet));
}
