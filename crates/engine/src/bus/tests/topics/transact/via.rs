//! Messages that are sent via an entity to another one.

use super::*;

/// The failed transfers of an entity, with their causes.
pub(super) fn failed_of(p: &mut Partition, name: &str) -> Vec<(String, Option<DeadLetterCause>)> {
    let received = p.receive_from(&entity(&format!("{name}/$transfer/$deadletterqueue")), None);
    let all = received.iter();
    all.map(|it| (p.body(it).to_owned(), it.cause)).collect()
}

pub(super) const UNAVAILABLE: Option<DeadLetterCause> = Some(DeadLetterCause::TransferFailed);

#[test]
fn what_is_sent_via_a_queue_arrives_once_with_the_commit() {
    let mut p = with_ways(BusQueueOptions::default());
    p.send_to(&entity("in"), text("job"));
    let held = locks(&p.receive_from(&entity("in"), None));
    let done = p.transact(vec![
        sends_via(
            &entity("in"),
            &entity("out"),
            vec![text("one"), text("two")],
        ),
        sends_via(&entity("in"), &topic(), vec![text("news")]),
        sends_via(&topic(), &entity("out"), vec![text("three")]),
        completes(&entity("in"), held[0]),
    ]);
    assert_eq!(done, Ok(BusOutcome::Transacted));
    // The via entity has nothing to do with it.
    let counts = p.view(&entity("in")).counts;
    assert_eq!((counts.active, counts.failed_transfers), (0, 0));
    assert_eq!(p.texts_at(&entity("out")), ["one", "two", "three"]);
    p.check_whole();
    p.tick();
    assert_eq!(p.texts_at(&subscription("a")), ["news"]);
    assert_eq!(failed_of(&mut p, "in"), []);
    p.check_whole();
}

#[test]
fn what_the_destination_does_not_accept_is_a_failed_transfer_of_the_via_entity() {
    let of_status = |status| BusQueueOptions {
        status,
        ..BusQueueOptions::default()
    };
    let full = BusQueueOptions {
        size_bytes_max: 1,
        ..BusQueueOptions::default()
    };
    let small = BusQueueOptions {
        message_size_bytes_max: 1,
        ..BusQueueOptions::default()
    };
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    let no_session = Some(DeadLetterCause::TransferNeedsSession);
    for (out, cause) in [
        (of_status(EntityStatus::Disabled), UNAVAILABLE),
        (of_status(EntityStatus::SendDisabled), UNAVAILABLE),
        (full, UNAVAILABLE),
        (small, UNAVAILABLE),
        (sessions, no_session),
    ] {
        let mut p = with_ways(out.clone());
        p.send_to(&entity("in"), text("job"));
        let held = locks(&p.receive_from(&entity("in"), None));
        p.transact(vec![
            completes(&entity("in"), held[0]),
            sends_via(&entity("in"), &entity("out"), vec![text("one")]),
        ])
        .unwrap();
        assert_eq!(p.view(&entity("in")).counts.failed_transfers, 1);
        p.check_whole();
        assert_eq!(failed_of(&mut p, "in"), [("one".into(), cause)], "{out:?}");
        let sent = p.ask(BusCommand::SendVia {
            via: topic(),
            to: entity("out"),
            messages: vec![of_session("two", "s"), text("three")],
        });
        // The first one has its session.
        let first = (cause == no_session).then_some(SequenceNumber::FIRST);
        assert_eq!(sent, Ok(BusOutcome::Sent(vec![first, None])), "{out:?}");
        let mut failed = vec![("two".into(), cause), ("three".into(), cause)];
        if first.is_some() {
            failed.remove(0);
        }
        assert_eq!(failed_of(&mut p, "t"), failed, "{out:?}");
        p.check_whole();
    }
    // What is no destination, or is none any more.
    let mut p = with_ways(BusQueueOptions::default());
    let no_destinations = [
        entity("nothing"),
        subscription("a"),
        entity("out/$deadletterqueue"),
        entity("out/$transfer/$deadletterqueue"),
    ];
    for to in &no_destinations {
        p.transact(vec![sends_via(&entity("in"), to, vec![text("x")])])
            .unwrap();
    }
    let failed = failed_of(&mut p, "in");
    assert_eq!(failed, vec![("x".into(), UNAVAILABLE); 4]);
}

#[test]
fn a_destination_takes_what_it_has_room_for_after_the_parts_before() {
    let room_for_two = BusQueueOptions {
        size_bytes_max: 2 * size_of("one") + 10,
        ..BusQueueOptions::default()
    };
    let mut p = with_ways(room_for_two);
    let via = |messages| sends_via(&entity("in"), &entity("out"), messages);
    p.transact(vec![
        via(vec![text("one")]),
        via(vec![text("two"), text("six")]),
    ])
    .unwrap();
    assert_eq!(p.texts_at(&entity("out")), ["one", "two"]);
    assert_eq!(failed_of(&mut p, "in"), [("six".into(), UNAVAILABLE)]);
    // A message that cannot be transferred needs room at the via entity, with the change that says why.
    let why = "+why=The message was not transferred to 'gone': it could not be found.\n";
    let options = BusQueueOptions {
        size_bytes_max: 2 * (size_of("one") + why.len() as u64) + 10,
        ..BusQueueOptions::default()
    };
    p.create(&entity("narrow"), options).unwrap();
    let via = |messages| sends_via(&entity("narrow"), &entity("gone"), messages);
    p.transact(vec![via(vec![text("one")])]).unwrap();
    let (part, why) = p.refused(vec![
        via(vec![text("two")]),
        sends_via(&entity("narrow"), &entity("in"), vec![text("six")]),
        via(vec![text("ten")]),
    ]);
    assert_eq!(part, 3);
    let is_full = matches!(
        why,
        PartRefusal::Refused(BusRefusal::TransferFull { size_bytes, limit_bytes, .. }) if size_bytes > limit_bytes
    );
    assert!(is_full, "{why:?}");
}

#[test]
fn a_via_entity_that_takes_no_messages_is_refused() {
    let mut p = with_ways(BusQueueOptions::default());
    let refused = |p: &mut Partition, via: &EntityName, message: BusMessage| {
        let parts = vec![
            sends(&topic(), vec![text("before")]),
            sends_via(via, &entity("out"), vec![message.clone()]),
        ];
        let (part, why) = p.refused(parts);
        assert_eq!(part, 2);
        let alone = p.ask(BusCommand::SendVia {
            via: via.clone(),
            to: entity("out"),
            messages: vec![message],
        });
        match why {
            PartRefusal::Refused(why) => assert_eq!(alone, Err(why.clone())),
            other => panic!("{other:?}"),
        }
        alone.unwrap_err()
    };
    let gone = entity("nothing");
    let why = refused(&mut p, &gone, text("x"));
    let queue = gone.name;
    assert_eq!(why, BusRefusal::QueueNotFound { queue });
    for name in ["in/$deadletterqueue", "t/$transfer/$deadletterqueue"] {
        let why = refused(&mut p, &entity(name), text("x"));
        let queue = name.into();
        assert_eq!(why, BusRefusal::NotSendable { queue });
    }
    let why = refused(&mut p, &subscription("a"), text("x"));
    let queue = subscription("a").name;
    assert_eq!(why, BusRefusal::NotSendableSubscription { queue });
    let large = BusMessage {
        body: vec![0; 1025].into(),
        ..text("")
    };
    p.ask(BusCommand::UpdateQueue {
        queue: entity("in"),
        options: BusQueueOptions {
            message_size_bytes_max: 1024,
            ..BusQueueOptions::default()
        },
    })
    .unwrap();
    let why = refused(&mut p, &entity("in"), large);
    let (size_bytes, limit_bytes) = (1025, 1024);
    assert_eq!(
        why,
        BusRefusal::MessageTooLarge {
            size_bytes,
            limit_bytes
        }
    );
    p.ask(BusCommand::UpdateQueue {
        queue: entity("in"),
        options: BusQueueOptions {
            status: EntityStatus::SendDisabled,
            ..BusQueueOptions::default()
        },
    })
    .unwrap();
    let why = refused(&mut p, &entity("in"), text("x"));
    let queue = "in".into();
    assert_eq!(why, BusRefusal::Disabled { queue });
}

/// The destination drops a duplicate, and the via entity looks at no id.
#[test]
fn duplicates_are_those_of_the_destination() {
    let detects = BusQueueOptions {
        duplicate_window_ms: Some(60_000),
        ..BusQueueOptions::default()
    };
    let mut p = with_ways(detects.clone());
    p.create(&entity("detects"), detects).unwrap();
    let with_id = |body: &str| BusMessage {
        message_id: Some("id".into()),
        ..text(body)
    };
    let via = |to: &str, body: &str| BusCommand::SendVia {
        via: entity("detects"),
        to: entity(to),
        messages: vec![with_id(body)],
    };
    let number = |number| Ok(BusOutcome::Sent(vec![number]));
    let first = Some(SequenceNumber::FIRST);
    assert_eq!(p.ask(via("out", "one")), number(first));
    assert_eq!(p.ask(via("out", "two")), number(None));
    assert_eq!(p.ask(via("in", "three")), number(first));
    assert_eq!(p.texts_at(&entity("out")), ["one"]);
    assert_eq!(failed_of(&mut p, "detects"), []);
    p.check_whole();
}

/// A repeated send has arrived, so it does not fail, even if the destination takes no messages any more.
#[test]
fn a_duplicate_has_arrived_and_is_no_failed_transfer() {
    let with_id = |id: &str| BusMessage {
        message_id: Some(id.into()),
        ..text("one")
    };
    let room_for_one = BusQueueOptions {
        duplicate_window_ms: Some(60_000),
        // Each remembered id takes some, too.
        size_bytes_max: 2 * size_of("one"),
        ..BusQueueOptions::default()
    };
    let via = |ids: &[&str]| BusCommand::SendVia {
        via: entity("in"),
        to: entity("out"),
        messages: ids.iter().map(|id| with_id(id)).collect(),
    };
    let part = |id: &str| sends_via(&entity("in"), &entity("out"), vec![with_id(id)]);
    let first = Some(SequenceNumber::FIRST);
    // Among the messages of one command.
    let mut p = with_ways(room_for_one.clone());
    let sent = p.ask(via(&["a", "a", "b"]));
    assert_eq!(sent, Ok(BusOutcome::Sent(vec![first, None, None])));
    assert_eq!(failed_of(&mut p, "in"), [("one".into(), UNAVAILABLE)]);
    // Among the parts of one transaction.
    let mut p = with_ways(room_for_one.clone());
    let plain = sends(&entity("out"), vec![with_id("a")]);
    p.transact(vec![plain, part("a"), part("b")]).unwrap();
    assert_eq!(p.view(&entity("out")).counts.active, 1);
    assert_eq!(p.view(&entity("in")).counts.failed_transfers, 1);
    // Later.
    let disabled = BusQueueOptions {
        status: EntityStatus::Disabled,
        ..room_for_one
    };
    for is_disabled in [false, true] {
        if is_disabled {
            p.ask(BusCommand::UpdateQueue {
                queue: entity("out"),
                options: disabled.clone(),
            })
            .unwrap();
        }
        let sent = p.ask(via(&["a"]));
        assert_eq!(sent, Ok(BusOutcome::Sent(vec![None])));
        p.transact(vec![part("a")]).unwrap();
        assert_eq!(p.view(&entity("in")).counts.failed_transfers, 1);
    }
    // What has failed is not remembered.
    p.transact(vec![part("b")]).unwrap();
    assert_eq!(p.view(&entity("in")).counts.failed_transfers, 2);
    p.check_whole();
}

#[test]
fn what_arrives_via_an_entity_is_a_use_of_its_destination() {
    let idle_ms = 300_000;
    let idle = BusQueueOptions {
        auto_delete_on_idle_ms: idle_ms,
        duplicate_window_ms: Some(10 * idle_ms),
        ..BusQueueOptions::default()
    };
    for (is_topic, is_transaction) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut p = match is_topic {
            true => Partition::with_topic(idle.clone()),
            false => Partition::with_topic(BusQueueOptions::default()),
        };
        let out = match is_topic {
            true => topic(),
            false => entity("out"),
        };
        p.create(&entity("in"), idle.clone()).unwrap();
        p.create(&entity("out"), idle.clone()).unwrap();
        for _ in 0..3 {
            p.pass_ms(idle_ms - 1);
            p.tick();
            // From the second one on they are duplicates, which leave nothing but the use.
            let message = BusMessage {
                message_id: Some("id".into()),
                ..text("x")
            };
            let (via, to, messages) = (entity("in"), out.clone(), vec![message]);
            match is_transaction {
                true => p.transact(vec![sends_via(&via, &to, messages)]),
                false => p.ask(BusCommand::SendVia { via, to, messages }),
            }
            .unwrap();
        }
        assert!(p.state.has_entity(&out), "{is_topic} {is_transaction}");
        assert!(p.state.has_entity(&entity("in")));
        assert_eq!(failed_of(&mut p, "in"), []);
        p.check_whole();
    }
    // To fail there is no use.
    let mut p = with_ways(BusQueueOptions {
        status: EntityStatus::Disabled,
        ..idle
    });
    p.pass_ms(idle_ms - 1);
    p.transact(vec![sends_via(
        &entity("in"),
        &entity("out"),
        vec![text("x")],
    )])
    .unwrap();
    p.pass_ms(1);
    p.tick();
    assert!(!p.state.has_entity(&entity("out")));
}
