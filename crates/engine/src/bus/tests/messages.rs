//! The life of one message: locked, settled, deferred, scheduled, expired, a dead letter.

use super::*;

#[test]
fn a_message_is_locked_and_completed() {
    let mut p = Partition::with(BusQueueOptions::default());
    assert_eq!(p.send(text("a")), Ok(Some(1)));
    let received = p.receive();
    assert_eq!(p.body(&received[0]), "a");
    assert_eq!(received[0].delivery_count, 0);
    assert_eq!(received[0].locked_until, p.now.plus_ms(60_000));
    assert!(p.receive().is_empty());
    assert_eq!(p.counts().active, 1);
    let lock = locks(&received)[0];
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::Settled);
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::LockLost);
    assert_eq!(p.counts(), BusQueueCounts::default());
}

#[test]
fn an_abandoned_message_comes_back_to_its_place_and_is_counted() {
    let mut p = Partition::with(BusQueueOptions::default());
    for body in ["a", "b"] {
        p.send(text(body)).unwrap();
    }
    let received = p.receive();
    let [a, b] = locks(&received)[..] else {
        panic!()
    };
    assert_eq!(p.settle(b, Disposition::Release), Verdict::Settled);
    let overlay = Some(Bytes::from_static(b"changes"));
    assert_eq!(
        p.settle(a, Disposition::Abandon { overlay }),
        Verdict::Settled
    );
    let again = p.receive();
    assert_eq!(p.body(&again[0]), "a");
    assert_eq!((again[0].delivery_count, again[1].delivery_count), (1, 0));
    assert_eq!(again[0].overlays.len(), 1);
    assert_ne!(again[0].lock, received[0].lock);
}

#[test]
fn a_message_takes_so_many_changes_and_so_many_bytes_of_them() {
    let mut p = Partition::with(BusQueueOptions {
        max_delivery_count: 100,
        ..BusQueueOptions::default()
    });
    let abandon = |p: &mut Partition, size_bytes: usize| {
        let lock = locks(&p.receive())[0];
        let overlay = Some(Bytes::from(vec![0; size_bytes]));
        let verdict = p.settle(lock, Disposition::Abandon { overlay });
        if verdict != Verdict::Settled {
            // It can always be given back as it is.
            let overlay = None;
            assert_eq!(
                p.settle(lock, Disposition::Abandon { overlay }),
                Verdict::Settled
            );
        }
        verdict
    };
    for (sizes, verdict) in [
        (vec![64 << 10, 1], Verdict::TooManyChanges),
        (vec![(64 << 10) + 1], Verdict::TooManyChanges),
        (vec![32 << 10, 32 << 10], Verdict::Settled),
        (vec![1; 32], Verdict::Settled),
        (vec![1; 33], Verdict::TooManyChanges),
    ] {
        p.send(text("a")).unwrap();
        let last = sizes.iter().map(|size| abandon(&mut p, *size)).last();
        assert_eq!(last, Some(verdict), "{sizes:?}");
        let lock = locks(&p.receive())[0];
        assert_eq!(p.settle(lock, Disposition::Complete), Verdict::Settled);
    }
}

#[test]
fn a_lock_that_ends_is_a_failed_delivery() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    p.pass_ms(59_999);
    assert!(p.receive().is_empty());
    let renewed = p.ask(BusCommand::RenewLocks {
        queue: jobs(),
        locks: vec![lock],
    });
    let until = p.now.plus_ms(60_000);
    assert_eq!(renewed, Ok(BusOutcome::LocksRenewed(vec![until])));
    p.pass_ms(60_000);
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::LockLost);
    assert_eq!(p.receive()[0].delivery_count, 1);
}

#[test]
fn too_many_failures_make_a_dead_letter_that_stays() {
    let options = BusQueueOptions {
        max_delivery_count: 2,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with(options);
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    p.settle(lock, Disposition::Abandon { overlay: None });
    p.receive();
    p.pass_ms(60_000);
    p.tick();
    let counts = p.counts();
    assert_eq!((counts.active, counts.dead_letters), (0, 1));
    let letters = p.receive_from(&dead(), None);
    let cause = Some(DeadLetterCause::MaxDeliveryCountExceeded);
    assert_eq!((letters[0].cause, letters[0].delivery_count), (cause, 2));
    let lock = locks(&letters)[0];
    let again = Disposition::DeadLetter { overlay: None };
    assert_eq!(p.settle_in(&dead(), lock, again), Verdict::NotAllowed);
    for _ in 0..5 {
        let lock = p
            .receive_from(&dead(), None)
            .first()
            .and_then(|m| m.lock)
            .unwrap_or(lock);
        assert_eq!(
            p.settle_in(&dead(), lock, Disposition::Abandon { overlay: None }),
            Verdict::Settled
        );
    }
    assert_eq!(p.counts().dead_letters, 1);
    let refused = p.ask(BusCommand::Send {
        queue: dead(),
        messages: vec![text("b")],
    });
    assert!(matches!(refused, Err(BusRefusal::NotSendable { .. })));
}

#[test]
fn deferred_messages_are_for_those_who_know_their_numbers() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("a")).unwrap();
    let received = p.receive();
    let number = received[0].sequence_number;
    p.settle(locks(&received)[0], Disposition::Defer { overlay: None });
    assert!(p.receive().is_empty());
    let read = |numbers: Vec<SequenceNumber>| BusCommand::ReceiveDeferred {
        read: DeferredRead {
            queue: jobs(),
            numbers,
            mode: ReceiveMode::PeekLock,
            session: None,
        },
    };
    let missing = p.ask(read(vec![number, SequenceNumber::new(9)]));
    assert_eq!(
        missing,
        Err(BusRefusal::MessageNotFound { sequence_number: 9 })
    );
    let Ok(BusOutcome::Received(messages)) = p.ask(read(vec![number])) else {
        panic!()
    };
    let abandon = Disposition::Abandon { overlay: None };
    assert_eq!(p.settle(locks(&messages)[0], abandon), Verdict::Settled);
    assert!(p.receive().is_empty());
    assert!(matches!(
        p.ask(read(vec![number])),
        Ok(BusOutcome::Received(_))
    ));
}

#[test]
fn a_scheduled_message_comes_with_a_new_number_when_it_is_due() {
    let mut p = Partition::with(BusQueueOptions::default());
    let scheduled = |p: &Partition, ms| BusMessage {
        scheduled_at: Some(p.now.plus_ms(ms)),
        time_to_live_ms: Some(5_000),
        ..text("later")
    };
    let first = scheduled(&p, 10_000);
    assert_eq!(p.send(first), Ok(Some(1)));
    let second = scheduled(&p, 20_000);
    assert_eq!(p.send(second), Ok(Some(2)));
    assert!(p.receive().is_empty());
    assert_eq!(p.counts().scheduled, 2);
    p.pass_ms(10_000);
    let received = p.receive();
    assert_eq!(received[0].sequence_number.as_u64(), 3);
    assert_eq!(received[0].expires_at, p.now.plus_ms(5_000));
    let cancel = |number| BusCommand::CancelScheduled {
        queue: jobs(),
        numbers: vec![SequenceNumber::new(number)],
    };
    assert_eq!(p.ask(cancel(2)), Ok(BusOutcome::Cancelled));
    assert!(p.ask(cancel(2)).is_err());
    assert!(p.ask(cancel(3)).is_err());
    assert_eq!(p.counts().scheduled, 0);
}

#[test]
fn what_expires_is_dropped_or_becomes_a_dead_letter() {
    for dead_letters_expired in [false, true] {
        let mut p = Partition::with(BusQueueOptions {
            dead_letters_expired,
            default_time_to_live_ms: 10_000,
            ..BusQueueOptions::default()
        });
        p.send(text("a")).unwrap();
        p.send(text("locked")).unwrap();
        // The lock of the second holds it beyond its time.
        let both = locks(&p.receive());
        p.settle(both[0], Disposition::Release);
        p.pass_ms(10_000);
        p.tick();
        p.pass_ms(60_000);
        p.tick();
        let counts = p.counts();
        assert_eq!(counts.active, 0);
        assert_eq!(
            counts.dead_letters,
            if dead_letters_expired { 2 } else { 0 }
        );
    }
}
