//! What the settings of a queue bring about: duplicates, sessions, forwarding, idleness; and which settings
//! there cannot be.

use super::*;

#[test]
fn a_duplicate_is_accepted_and_dropped_within_the_window() {
    let mut p = Partition::with(BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    });
    let message = || BusMessage {
        message_id: Some("id".into()),
        ..text("a")
    };
    assert_eq!(p.send(message()), Ok(Some(1)));
    assert_eq!(p.send(message()), Ok(None));
    p.pass_ms(20_000);
    assert_eq!(p.send(message()), Ok(Some(2)));
    let overview = p.state.overview(None, p.now, 1000);
    assert_eq!(overview.bus_queues[0].flow.duplicates, 1);
}

#[test]
fn a_session_is_one_receivers_and_keeps_its_order() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    });
    assert_eq!(p.send(text("a")), Err(BusRefusal::SessionRequired));
    for (body, session) in [("a1", "a"), ("b1", "b"), ("a2", "a")] {
        p.send(of_session(body, session)).unwrap();
    }
    let a = p.accept(SessionChoice::Next).unwrap();
    assert_eq!(&*a.session, "a");
    assert!(matches!(
        p.accept(SessionChoice::Named("a".into())),
        Err(BusRefusal::SessionCannotBeLocked { .. })
    ));
    let b = p.accept(SessionChoice::Next).unwrap();
    assert_eq!(&*b.session, "b");
    assert_eq!(
        p.accept(SessionChoice::Next),
        Err(BusRefusal::NoSessionAvailable)
    );
    let messages = p.receive_from(&jobs(), Some(a.lock));
    assert_eq!(
        messages.iter().map(|m| p.body(m)).collect::<Vec<_>>(),
        ["a1", "a2"]
    );
    p.settle(locks(&messages)[1], Disposition::Abandon { overlay: None });
    let set = BusCommand::SetSessionState {
        queue: jobs(),
        session: a.lock,
        state: Some(Bytes::from_static(b"state")),
    };
    p.ask(set).unwrap();
    p.ask(BusCommand::ReleaseSession {
        queue: jobs(),
        session: a.lock,
    })
    .unwrap();
    assert_eq!(
        p.settle(locks(&messages)[0], Disposition::Complete),
        Verdict::LockLost
    );
    let again = p.accept(SessionChoice::Named("a".into())).unwrap();
    let messages = p.receive_from(&jobs(), Some(again.lock));
    let seen: Vec<_> = messages
        .iter()
        .map(|m| (p.body(m), m.delivery_count))
        .collect();
    assert_eq!(seen, [("a1", 0), ("a2", 1)]);
    p.pass_ms(60_000);
    let lost = p.ask(BusCommand::RenewSession {
        queue: jobs(),
        session: again.lock,
    });
    assert_eq!(lost, Err(BusRefusal::SessionLockLost));
    let third = p.accept(SessionChoice::Named("a".into())).unwrap();
    let messages = p.receive_from(&jobs(), Some(third.lock));
    assert_eq!(messages[0].delivery_count, 1);
    let state = p.ask(BusCommand::ReadSessionState {
        queue: jobs(),
        session: third.lock,
    });
    assert!(matches!(state, Ok(BusOutcome::SessionState(Some(_)))));
    let list = p.ask(BusCommand::ListSessions {
        queue: jobs(),
        from: "".into(),
        state_set_after: None,
        skip: 0,
        limit: 10,
    });
    let listed = ListedSessions {
        ids: vec!["a".into(), "b".into()],
        ..ListedSessions::default()
    };
    assert_eq!(list, Ok(BusOutcome::Sessions(listed)));
}

#[test]
fn messages_are_forwarded_four_times() {
    let mut p = Partition::new();
    for index in (0..6).rev() {
        let forward_to = (index < 5).then(|| format!("q{}", index + 1).into());
        let options = BusQueueOptions {
            forward_to,
            ..BusQueueOptions::default()
        };
        p.create(&entity(&format!("q{index}")), options).unwrap();
    }
    let forwards = p.ask(BusCommand::Receive {
        queue: entity("q0"),
        count: 1,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    assert!(matches!(forwards, Err(BusRefusal::Forwards { .. })));
    p.ask(BusCommand::Send {
        queue: entity("q0"),
        messages: vec![text("a")],
    })
    .unwrap();
    p.tick();
    let letters = p.receive_from(&entity("q4/$deadletterqueue"), None);
    let cause = Some(DeadLetterCause::MaxTransferHopCountExceeded);
    assert_eq!(letters[0].cause, cause);
    assert!(
        p.state
            .next_deadline()
            .is_none_or(|at| !at.has_passed(p.now))
    );
}

#[test]
fn an_idle_queue_deletes_itself() {
    let mut p = Partition::with(BusQueueOptions {
        auto_delete_on_idle_ms: 300_000,
        ..BusQueueOptions::default()
    });
    p.pass_ms(299_999);
    p.send(text("a")).unwrap();
    p.pass_ms(299_999);
    p.tick();
    assert_eq!(p.counts().active, 1);
    p.pass_ms(1);
    p.tick();
    let gone = p.ask(BusCommand::ReadQueue { queue: jobs() });
    assert!(matches!(gone, Err(BusRefusal::QueueNotFound { .. })));
}

#[test]
fn a_queue_that_nobody_ever_used_deletes_itself() {
    let mut p = Partition::with(BusQueueOptions {
        auto_delete_on_idle_ms: 300_000,
        ..BusQueueOptions::default()
    });
    p.pass_ms(299_999);
    p.tick();
    assert!(p.state.has_entity(&jobs()));
    p.pass_ms(1);
    p.tick();
    assert!(!p.state.has_entity(&jobs()));
}

#[test]
fn a_queue_whose_receivers_wait_is_not_idle() {
    for requires_session in [false, true] {
        let mut p = Partition::with(BusQueueOptions {
            auto_delete_on_idle_ms: 300_000,
            requires_session,
            ..BusQueueOptions::default()
        });
        let queue = p.state.catalogue.names[&jobs()];
        for _ in 0..10 {
            assert!(!p.state.is_use_due(queue, p.now));
            p.pass_ms(60_000);
            p.tick();
            // A receiver of dead letters is one of the queue.
            assert!(p.state.is_use_due(queue, p.now) && p.state.is_use_due(queue.next(), p.now));
            // A look that finds nothing.
            if requires_session {
                let looked = p.accept(SessionChoice::Next);
                assert_eq!(looked.unwrap_err(), BusRefusal::NoSessionAvailable);
            } else {
                assert!(p.receive().is_empty());
            }
        }
        p.pass_ms(300_000);
        p.tick();
        assert_eq!(p.state.bus.len(), 0);
    }
    let p = Partition::with(BusQueueOptions::default());
    assert!(
        !p.state
            .is_use_due(p.state.catalogue.names[&jobs()], p.now.plus_ms(1 << 40))
    );
}

#[test]
fn options_outside_their_ranges_are_named() {
    let mut p = Partition::new();
    for (options, text) in [
        (
            BusQueueOptions {
                lock_duration_ms: 4_999,
                ..BusQueueOptions::default()
            },
            "LockDuration is 4999 ms, and must be 5 s to 5 min",
        ),
        (
            BusQueueOptions {
                size_bytes_max: 0,
                ..BusQueueOptions::default()
            },
            "MaxSizeInMegabytes is 0 bytes, and must be 1 byte to 1 PiB",
        ),
        (
            BusQueueOptions {
                max_delivery_count: 0,
                ..BusQueueOptions::default()
            },
            "MaxDeliveryCount is 0, and must be 1 to 2147483647",
        ),
        (
            BusQueueOptions {
                duplicate_window_ms: Some(1),
                ..BusQueueOptions::default()
            },
            "DuplicateDetectionHistoryTimeWindow is 1 ms, and must be 5 s to 7 days",
        ),
        (
            BusQueueOptions {
                auto_delete_on_idle_ms: 1,
                ..BusQueueOptions::default()
            },
            "AutoDeleteOnIdle is 1 ms, and must be at least 5 min",
        ),
    ] {
        match p.create(&jobs(), options) {
            Err(BusRefusal::InvalidOption(invalid)) => assert_eq!(invalid.to_string(), text),
            other => panic!("{text}: {other:?}"),
        }
    }
    let nowhere = BusQueueOptions {
        forward_to: Some("nowhere".into()),
        ..BusQueueOptions::default()
    };
    assert!(matches!(
        p.create(&jobs(), nowhere),
        Err(BusRefusal::DestinationNotFound { .. })
    ));
}

#[test]
fn in_a_damaged_history_a_queue_replaces_an_earlier_one_of_its_name() {
    let mut state = State::new();
    let happens = |state: &mut State, fact| {
        state.apply(Event {
            at: Timestamp::from_ms(1),
            fact: crate::Fact::Bus(fact),
        });
    };
    let (first, second) = (crate::Incarnation::new(1), crate::Incarnation::new(4));
    for queue in [first, second] {
        let created = BusFact::QueueCreated {
            queue,
            name: jobs(),
            options: BusQueueOptions::default(),
        };
        happens(&mut state, created);
    }
    let mut again = State::new();
    state.snapshot(|part| again.restore(part).unwrap());
    for mut state in [state, again] {
        assert_eq!(state.queue_name(first), None);
        happens(&mut state, BusFact::QueueDeleted { queue: first });
        assert_eq!(state.catalogue.names.get(&jobs()), Some(&second));
        happens(&mut state, BusFact::QueueDeleted { queue: second });
        assert!(state.catalogue.names.is_empty() && state.bus.is_empty());
    }
}

#[test]
fn a_name_has_at_most_260_bytes() {
    let mut p = Partition::new();
    let named = |name: &str| entity(name);
    let options = BusQueueOptions::default;
    p.create(&named(&"q".repeat(260)), options()).unwrap();
    for name in ["q".repeat(261), "ü".repeat(131)] {
        let refusal = p.create(&named(&name), options()).unwrap_err();
        let text = format!(
            "the name's length is {} bytes, and must be at most 260 bytes in UTF-8; that of a subscription is \
             TOPIC/Subscriptions/NAME",
            name.len()
        );
        assert_eq!(refusal.to_string(), text);
    }
}
