//! Rules where parts of the service meet: sessions and forwarding, duplicates in one batch, idleness,
//! expiry of dead letters.

use super::*;

fn session_queue() -> BusQueueOptions {
    BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    }
}

#[test]
fn a_forwarded_dead_letter_says_where_it_comes_from() {
    let mut p = Partition::new();
    p.create(&entity("all"), BusQueueOptions::default())
        .unwrap();
    let options = BusQueueOptions {
        forward_dead_letters_to: Some("all".into()),
        default_time_to_live_ms: 1_000,
        dead_letters_expired: true,
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), options).unwrap();
    p.send(text("a")).unwrap();
    p.pass_ms(1_000);
    p.tick();
    assert_eq!(p.replayed(), p.state);
    p.state = p.restored();
    let messages = p.receive_from(&entity("all"), None);
    assert_eq!(messages[0].dead_letter_source.as_deref(), Some("jobs"));
    assert_eq!(messages[0].cause, Some(DeadLetterCause::Expired));
}

fn forwards_to(name: &str) -> BusQueueOptions {
    BusQueueOptions {
        forward_to: Some(name.into()),
        ..BusQueueOptions::default()
    }
}

#[test]
fn a_session_goes_with_its_message_through_a_queue_without_sessions() {
    let mut p = Partition::with(session_queue());
    p.create(&entity("entry"), forwards_to("jobs")).unwrap();
    p.ask(BusCommand::Send {
        queue: entity("entry"),
        messages: vec![of_session("a", "s1"), text("b")],
    })
    .unwrap();
    p.tick();
    let lock = p.accept(SessionChoice::Next).unwrap();
    assert_eq!(&*lock.session, "s1");
    let received = p.receive_from(&jobs(), Some(lock.lock));
    assert_eq!(received.len(), 1);
    assert_eq!(p.body(&received[0]), "a");
    assert_eq!(received[0].locked_until, lock.locked_until);
    let letters = p.receive_from(&entity("entry/$deadletterqueue"), None);
    assert_eq!(letters[0].cause, Some(DeadLetterCause::SessionIdIsNull));
    assert_eq!(p.restored(), p.state);
}

#[test]
fn a_duplicate_in_the_same_batch_is_dropped() {
    let mut p = Partition::with(BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    });
    let with_id = |body| BusMessage {
        message_id: Some("id".into()),
        ..text(body)
    };
    let sent = p.ask(BusCommand::Send {
        queue: jobs(),
        messages: vec![with_id("a"), with_id("b"), text("c")],
    });
    let numbers = [Some(1), None, Some(2)].map(|number| number.map(SequenceNumber::new));
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.to_vec())));
}

#[test]
fn a_deferred_message_that_is_named_twice_is_delivered_once() {
    for mode in [ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete] {
        let mut p = Partition::with(BusQueueOptions::default());
        p.send(text("a")).unwrap();
        let lock = locks(&p.receive())[0];
        p.settle(lock, Disposition::Defer { overlay: None });
        let read = DeferredRead {
            queue: jobs(),
            numbers: vec![SequenceNumber::new(1); 3],
            mode,
            session: None,
        };
        match p.ask(BusCommand::ReceiveDeferred { read }) {
            Ok(BusOutcome::Received(messages)) => assert_eq!(messages.len(), 1),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_queue_in_use_does_not_delete_itself() {
    let options = BusQueueOptions {
        auto_delete_on_idle_ms: 300_000,
        lock_duration_ms: 300_000,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with(options.clone());
    // A receiver asks for messages and there are none.
    for _ in 0..20 {
        p.pass_ms(100_000);
        p.tick();
        assert!(p.receive().is_empty());
    }
    // A message waits for its time.
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(3_000_000)),
        ..text("a")
    };
    p.send(later).unwrap();
    p.pass_ms(2_999_000);
    p.tick();
    assert_eq!(p.counts().scheduled, 1);
    p.pass_ms(1_000);
    p.tick();
    // A receiver holds a message, and then a session.
    assert_eq!(p.receive().len(), 1);
    p.pass_ms(299_999);
    p.tick();
    assert_eq!(p.counts().active, 1);
    p.pass_ms(1);
    p.tick();
    p.pass_ms(300_000);
    p.tick();
    let gone = p.ask(BusCommand::ReadQueue { queue: jobs() });
    assert!(matches!(gone, Err(BusRefusal::QueueNotFound { .. })));
    assert_eq!(p.replayed(), p.state);
}

#[test]
fn a_dead_letter_does_not_expire() {
    let mut p = Partition::with(BusQueueOptions {
        default_time_to_live_ms: 1_000,
        ..BusQueueOptions::default()
    });
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    let bury = Disposition::DeadLetter { overlay: None };
    assert_eq!(p.settle(lock, bury), Verdict::Settled);
    p.pass_ms(1_000_000);
    p.tick();
    let letters = p.receive_from(&dead(), None);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].expires_at, Timestamp::NEVER);
    // Nor does it become one again.
    let bury = Disposition::DeadLetter { overlay: None };
    let verdict = p.settle_in(&dead(), locks(&letters)[0], bury);
    assert_eq!(verdict, Verdict::NotAllowed);
}

#[test]
fn a_session_whose_lock_has_ended_is_given_on_only_when_its_messages_are_free() {
    let mut p = Partition::with(session_queue());
    let many = (0..200).map(|_| of_session("a", "s1")).collect();
    p.ask(BusCommand::Send {
        queue: jobs(),
        messages: many,
    })
    .unwrap();
    let first = p.accept(SessionChoice::Next).unwrap();
    let mut held = Vec::new();
    for _ in 0..20 {
        held.extend(p.receive_from(&jobs(), Some(first.lock)));
    }
    assert_eq!(held.len(), 200);
    p.pass_ms(60_000);
    let named = || SessionChoice::Named("s1".into());
    let refused = p.accept(named());
    assert!(matches!(
        refused,
        Err(BusRefusal::SessionCannotBeLocked { .. })
    ));
    let mut asked = 0;
    let second = loop {
        asked += 1;
        assert!(asked < 10, "what is due is done in the end");
        if let Ok(lock) = p.accept(named()) {
            break lock;
        }
    };
    let complete = p.settle(locks(&held)[199], Disposition::Complete);
    assert_eq!(complete, Verdict::LockLost);
    let again = p.receive_from(&jobs(), Some(second.lock));
    assert_eq!(again[0].delivery_count, 1, "a lock that ends counts");
    p.ask(BusCommand::ReleaseSession {
        queue: jobs(),
        session: second.lock,
    })
    .unwrap();
    let third = p.accept(named()).unwrap();
    let again = p.receive_from(&jobs(), Some(third.lock));
    assert_eq!(
        again[0].delivery_count, 1,
        "a session that is given back does not"
    );
    assert_eq!(p.replayed(), p.state);
}

#[test]
fn messages_of_sessions_can_be_deleted_in_batches_and_states_count() {
    let mut p = Partition::with(session_queue());
    for session in ["s1", "s2", "s1"] {
        p.send(of_session("a", session)).unwrap();
    }
    let lock = p.accept(SessionChoice::Named("s3".into())).unwrap().lock;
    let before = p.counts().size_bytes;
    p.ask(BusCommand::SetSessionState {
        queue: jobs(),
        session: lock,
        state: Some(Bytes::from_static(b"state")),
    })
    .unwrap();
    assert_eq!(p.counts().size_bytes, before + 128 + 2 + 5);
    p.pass_ms(1);
    let mut delete = |session: Option<&str>| {
        let delete = BusCommand::DeleteBatch {
            queue: jobs(),
            from: SequenceNumber::default(),
            before: p.now,
            count: 10,
            session: session.map(Into::into),
        };
        match p.ask(delete) {
            Ok(BusOutcome::BatchDeleted(BatchDeleted { count, next: None })) => count,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(Some("s1")), 2);
    assert_eq!(delete(None), 1);
    assert_eq!(delete(None), 0);
}

#[test]
fn one_answer_shows_a_bounded_number_of_bytes() {
    let mut p = Partition::with(BusQueueOptions::default());
    let body = "x".repeat(1024 * 1024);
    for _ in 0..12 {
        p.send(text(&body)).unwrap();
    }
    let peeked = p.ask(BusCommand::Peek {
        queue: jobs(),
        from: SequenceNumber::default(),
        count: u32::MAX,
        session: None,
    });
    match peeked {
        Ok(BusOutcome::Peeked(messages)) => assert_eq!(messages.len(), 7),
        other => panic!("{other:?}"),
    }
    assert_eq!(p.receive().len(), 7);
    assert_eq!(p.receive().len(), 5);
}

#[test]
fn what_asks_for_too_much_is_refused() {
    let mut p = Partition::with(session_queue());
    let long = "s".repeat(SESSION_ID_SIZE_BYTES_MAX + 1);
    assert!(matches!(
        p.send(of_session("a", &long)),
        Err(BusRefusal::SessionIdTooLong { .. })
    ));
    assert!(matches!(
        p.accept(SessionChoice::Named(long.into())),
        Err(BusRefusal::SessionIdTooLong { .. })
    ));
    let numbers = vec![SequenceNumber::new(1); ITEMS_MAX + 1];
    assert!(matches!(
        p.ask(BusCommand::CancelScheduled {
            queue: jobs(),
            numbers
        }),
        Err(BusRefusal::TooMany { .. })
    ));
}
