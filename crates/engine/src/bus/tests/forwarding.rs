//! Queues that forward to themselves, in circles, or from sessions: every message comes to an end.

use super::*;

fn forwards_to(name: &str) -> BusQueueOptions {
    BusQueueOptions {
        forward_to: Some(name.into()),
        ..BusQueueOptions::default()
    }
}

fn letters(p: &mut Partition, of: &str) -> Vec<(String, Option<DeadLetterCause>)> {
    let letters = p.receive_from(&entity(of), None);
    let letters = letters.iter();
    letters
        .map(|letter| (p.body(letter).to_owned(), letter.cause))
        .collect()
}

/// Does all that is due, and finds that it ends.
fn settle_down(p: &mut Partition, steps_max: u32) {
    let mut steps = 0;
    while p.tick_once(1) {
        steps += 1;
        assert!(steps < steps_max, "it never ends");
    }
    assert_eq!(p.replayed(), p.state);
    assert_eq!(p.restored(), p.state);
}

const TOO_MANY: Option<DeadLetterCause> = Some(DeadLetterCause::MaxTransferHopCountExceeded);

#[test]
fn a_queue_may_forward_to_itself() {
    let mut p = Partition::new();
    p.create(&jobs(), forwards_to("jobs")).unwrap();
    p.send(text("a")).unwrap();
    p.send(text("b")).unwrap();
    // Four hops each, and one to the dead letters.
    settle_down(&mut p, 11);
    assert_eq!(p.counts().active, 0);
    let found = letters(&mut p, "jobs/$deadletterqueue");
    assert_eq!(found, [("a".into(), TOO_MANY), ("b".into(), TOO_MANY)]);
    // The same by an update of a queue that is there, and in any order with its creation.
    p.create(&entity("later"), BusQueueOptions::default())
        .unwrap();
    let update = BusCommand::UpdateQueue {
        queue: entity("later"),
        options: forwards_to("later"),
    };
    p.ask(update).unwrap();
    let elsewhere = p.create(&entity("other"), forwards_to("nowhere"));
    assert!(matches!(
        elsewhere,
        Err(BusRefusal::DestinationNotFound { .. })
    ));
}

#[test]
fn a_queue_whose_dead_letters_come_back_too_ends_in_failed_transfers() {
    let mut p = Partition::new();
    let options = BusQueueOptions {
        forward_dead_letters_to: Some("jobs".into()),
        ..forwards_to("jobs")
    };
    p.create(&jobs(), options).unwrap();
    p.send(text("a")).unwrap();
    settle_down(&mut p, 7);
    let found = letters(&mut p, "jobs/$transfer/$deadletterqueue");
    assert_eq!(found, [("a".into(), TOO_MANY)]);
}

#[test]
fn a_circle_of_queues_ends_after_four_hops() {
    let mut p = Partition::new();
    p.create(&entity("one"), BusQueueOptions::default())
        .unwrap();
    p.create(&entity("two"), forwards_to("one")).unwrap();
    let update = BusCommand::UpdateQueue {
        queue: entity("one"),
        options: forwards_to("two"),
    };
    p.ask(update).unwrap();
    p.ask(BusCommand::Send {
        queue: entity("one"),
        messages: vec![text("a")],
    })
    .unwrap();
    settle_down(&mut p, 6);
    assert_eq!(
        letters(&mut p, "one/$deadletterqueue"),
        [("a".into(), TOO_MANY)]
    );
}

/// A change makes each queue unable to take what another one forwards to it: the message becomes a dead letter of the
/// queue that it cannot leave, and what was forwarded before stays.
#[test]
fn a_message_whose_destination_takes_nothing_becomes_a_dead_letter() {
    let update = |options| BusCommand::UpdateQueue {
        queue: entity("all"),
        options,
    };
    let of_status = |status| BusQueueOptions {
        status,
        ..BusQueueOptions::default()
    };
    let full = BusQueueOptions {
        size_bytes_max: 1,
        ..BusQueueOptions::default()
    };
    let gone = BusCommand::DeleteQueue {
        queue: entity("all"),
    };
    for change in [
        gone,
        update(of_status(EntityStatus::Disabled)),
        update(of_status(EntityStatus::SendDisabled)),
        update(full),
    ] {
        let mut p = Partition::new();
        p.create(&entity("all"), BusQueueOptions::default())
            .unwrap();
        p.create(&jobs(), forwards_to("all")).unwrap();
        p.send(text("before")).unwrap();
        settle_down(&mut p, 4);
        p.ask(change.clone()).unwrap();
        p.send(text("a")).unwrap();
        settle_down(&mut p, 4);
        let unavailable = Some(DeadLetterCause::DestinationUnavailable);
        let found = letters(&mut p, "jobs/$deadletterqueue");
        assert_eq!(found, [("a".into(), unavailable)], "{change:?}");
        assert_eq!(p.counts().active, 0, "{change:?}");
    }
}

/// What still takes messages is no obstacle.
#[test]
fn a_queue_that_delivers_nothing_is_forwarded_to() {
    let mut p = Partition::new();
    let options = BusQueueOptions {
        status: EntityStatus::ReceiveDisabled,
        ..BusQueueOptions::default()
    };
    p.create(&entity("all"), options).unwrap();
    p.create(&jobs(), forwards_to("all")).unwrap();
    p.send(text("a")).unwrap();
    settle_down(&mut p, 4);
    assert!(letters(&mut p, "jobs/$deadletterqueue").is_empty());
    assert_eq!(p.counts().active, 0);
}

#[test]
fn a_full_queue_forwards_to_itself_in_the_room_that_it_has() {
    let mut p = Partition::new();
    let options = BusQueueOptions {
        size_bytes_max: 1_000,
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), options.clone()).unwrap();
    while p.send(text("a")).is_ok() {}
    let count = p.counts().active;
    assert!(count > 0);
    let update = BusCommand::UpdateQueue {
        queue: jobs(),
        options: BusQueueOptions {
            forward_to: Some("jobs".into()),
            ..options
        },
    };
    p.ask(update).unwrap();
    settle_down(&mut p, 1_000);
    let found = letters(&mut p, "jobs/$deadletterqueue");
    assert_eq!(found.len() as u64, count);
    assert!(found.iter().all(|(_, cause)| *cause == TOO_MANY));
}

#[test]
fn a_queue_with_sessions_forwards_what_nobody_has_locked_in_its_order() {
    let mut p = Partition::new();
    p.create(&entity("all"), BusQueueOptions::default())
        .unwrap();
    let with_sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), with_sessions.clone()).unwrap();
    for (body, session) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("c1", "c")] {
        p.send(of_session(body, session)).unwrap();
    }
    let lock = p.accept(SessionChoice::Named("b".into())).unwrap();
    let update = BusCommand::UpdateQueue {
        queue: jobs(),
        options: BusQueueOptions {
            forward_to: Some("all".into()),
            ..with_sessions
        },
    };
    p.ask(update).unwrap();
    let received = |p: &mut Partition| {
        let messages = p.receive_from(&entity("all"), None);
        let messages = messages.iter();
        let bodies = messages.map(|message| p.body(message).to_owned());
        bodies.collect::<Vec<_>>()
    };
    settle_down(&mut p, 10);
    assert_eq!(received(&mut p), ["a1", "a2", "c1"]);
    // The messages of a locked session are forwarded when the lock ends.
    assert_eq!(p.counts().active, 1);
    p.now = lock.locked_until;
    settle_down(&mut p, 10);
    // The locks of the first messages have ended, too.
    assert_eq!(received(&mut p), ["a1", "a2", "c1", "b1"]);
    assert_eq!(p.counts().active, 0);
}
