//! What an operator may do: purge, take and delete by number, break locks, send dead letters again.

use super::*;

fn number(number: u64) -> SequenceNumber {
    SequenceNumber::new(number)
}

fn everything() -> Purge {
    Purge {
        from: SequenceNumber::default(),
        until: None,
        before: None,
        count: u32::MAX,
        with_locked: false,
        is_dry_run: false,
    }
}

fn again(sequence_number: u64) -> Resubmission {
    Resubmission {
        sequence_number: number(sequence_number),
        overlay_count: 0,
        body: Bytes::from_static(b"again"),
        message_id: None,
        session: None,
        time_to_live_ms: None,
    }
}

/// One command of an operator.
pub(super) fn random(p: &mut Partition, sequence_number: u64, how: u8) {
    let queue = if how.is_multiple_of(2) {
        jobs()
    } else {
        dead()
    };
    let number = number(sequence_number);
    let session = Some(Box::from("s1")).filter(|_| sequence_number.is_multiple_of(2));
    let command = match how {
        0 | 1 => BusCommand::Purge {
            queue,
            purge: Purge {
                from: number,
                count: 3,
                with_locked: how == 0,
                ..everything()
            },
        },
        2 | 3 => BusCommand::TakeMessage {
            queue,
            number,
            mode: ReceiveMode::PeekLock,
        },
        4 => BusCommand::DeleteMessage {
            queue,
            number,
            with_locked: sequence_number.is_multiple_of(3),
        },
        6 => BusCommand::BreakLock {
            queue,
            target: match session {
                Some(session) => BreakTarget::Session(session),
                None => BreakTarget::Message(number),
            },
        },
        8 => BusCommand::ClearSessionStates {
            queue,
            from: Box::default(),
            count: 1,
            is_dry_run: false,
        },
        _ => BusCommand::Resubmit {
            queue,
            resubmit: Resubmit {
                to: None,
                messages: vec![
                    Resubmission {
                        session: session.clone(),
                        message_id: Some(format!("{sequence_number}").into()),
                        ..again(sequence_number)
                    },
                    Resubmission {
                        session,
                        overlay_count: 1,
                        ..again(sequence_number + 1)
                    },
                ],
            },
        },
    };
    // Most of it is refused most of the time.
    let _ = p.ask(command);
}

impl Partition {
    fn purge(&mut self, purge: Purge) -> Purged {
        match self.ask(BusCommand::Purge {
            queue: jobs(),
            purge,
        }) {
            Ok(BusOutcome::Purged(purged)) => purged,
            other => panic!("{other:?}"),
        }
    }

    /// How many states of sessions are cleared, and where to go on.
    fn clear(&mut self, from: &str, count: u32, is_dry_run: bool) -> (u32, Option<Box<str>>) {
        match self.ask(BusCommand::ClearSessionStates {
            queue: jobs(),
            from: from.into(),
            count,
            is_dry_run,
        }) {
            Ok(BusOutcome::SessionStatesCleared(cleared)) => (cleared.count, cleared.next),
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, number: u64, mode: ReceiveMode) -> Result<DeliveredMessage, BusRefusal> {
        match self.ask(BusCommand::TakeMessage {
            queue: jobs(),
            number: SequenceNumber::new(number),
            mode,
        })? {
            BusOutcome::Received(messages) => Ok(messages[0].clone()),
            other => panic!("{other:?}"),
        }
    }

    /// The number of a message among the dead letters.
    fn bury(&mut self, message: BusMessage) {
        self.send(message).unwrap();
        let lock = locks(&self.receive())[0];
        let disposition = Disposition::DeadLetter { overlay: None };
        assert_eq!(self.settle(lock, disposition), Verdict::Settled);
    }

    fn resubmit(
        &mut self,
        to: Option<&str>,
        messages: Vec<Resubmission>,
    ) -> Result<Vec<ResubmitVerdict>, BusRefusal> {
        let resubmit = Resubmit {
            to: to.map(Into::into),
            messages,
        };
        match self.ask(BusCommand::Resubmit {
            queue: dead(),
            resubmit,
        })? {
            BusOutcome::Resubmitted(verdicts) => Ok(verdicts),
            other => panic!("{other:?}"),
        }
    }

    fn check(&self) {
        assert_eq!(self.replayed(), self.state);
        assert_eq!(self.restored(), self.state);
    }
}

#[test]
fn a_purge_takes_messages_in_every_state_but_locked_ones() {
    let mut p = Partition::with(BusQueueOptions::default());
    for body in ["locked", "deferred"] {
        p.send(text(body)).unwrap();
    }
    let [locked, deferred] = locks(&p.receive())[..] else {
        panic!()
    };
    p.settle(deferred, Disposition::Defer { overlay: None });
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(1_000)),
        ..text("scheduled")
    };
    p.send(later).unwrap();
    p.send(text("ready")).unwrap();
    let dry = p.purge(Purge {
        is_dry_run: true,
        ..everything()
    });
    assert_eq!((dry.count, dry.locked_count, dry.next), (3, 1, None));
    assert_eq!(p.counts().active + p.counts().scheduled, 4);
    assert_eq!(p.purge(everything()), dry);
    assert_eq!(p.counts().active, 1);
    assert_eq!(p.settle(locked, Disposition::Release), Verdict::Settled);
    let held = locks(&p.receive())[0];
    let all = Purge {
        with_locked: true,
        ..everything()
    };
    assert_eq!(p.purge(all).count, 1);
    assert_eq!(p.settle(held, Disposition::Complete), Verdict::LockLost);
    assert_eq!(p.counts(), BusQueueCounts::default());
    p.check();
}

#[test]
fn a_purge_goes_on_where_it_was_and_ends_where_it_began() {
    let mut p = Partition::with(BusQueueOptions::default());
    for _ in 0..5 {
        p.send(text("a")).unwrap();
    }
    let first = p.purge(Purge {
        count: 2,
        ..everything()
    });
    assert_eq!((first.count, first.next), (2, Some(number(3))));
    p.send(text("new")).unwrap();
    let second = p.purge(Purge {
        from: number(3),
        until: Some(first.until),
        ..everything()
    });
    assert_eq!((second.count, second.next), (3, None));
    assert_eq!(p.counts().active, 1);
    // By time.
    p.pass_ms(10);
    p.send(text("newer")).unwrap();
    let before = Some(p.now);
    assert_eq!(
        p.purge(Purge {
            before,
            ..everything()
        })
        .count,
        1
    );
    assert_eq!(p.receive().len(), 1);
}

#[test]
fn a_purge_and_the_states_leave_nothing_of_sessions() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    });
    for session in ["s1", "s2"] {
        p.send(of_session("a", session)).unwrap();
        let lock = p.accept(SessionChoice::Named(session.into())).unwrap().lock;
        p.ask(BusCommand::SetSessionState {
            queue: jobs(),
            session: lock,
            state: Some(Bytes::from_static(b"state")),
        })
        .unwrap();
    }
    // They have messages.
    assert_eq!(p.clear("", 10, true), (0, None));
    assert_eq!(p.purge(everything()).count, 2);
    assert_eq!(p.clear("", 10, true), (2, None));
    assert_eq!(p.clear("", 1, true), (1, Some("s2".into())));
    assert_eq!(p.clear("s2", 1, true), (1, None));
    assert_eq!(p.clear("", 10, false), (2, None));
    assert_eq!(p.clear("", 10, false), (0, None));
    assert_eq!(p.counts(), BusQueueCounts::default());
    p.check();
}

#[test]
fn the_clearing_of_sessions_looks_at_so_many_in_one_command() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    });
    // All but the last have messages, and so stay.
    for first in [0, 5000, 10_000, 15_000] {
        let sessions = (first..first + 5000).map(|index| format!("s{index:05}"));
        p.ask(BusCommand::Send {
            queue: jobs(),
            messages: sessions.map(|session| of_session("a", &session)).collect(),
        })
        .unwrap();
    }
    let last = "t".repeat(512);
    let session = SessionChoice::Named(last.as_str().into());
    let lock = p.accept(session).unwrap().lock;
    p.ask(BusCommand::SetSessionState {
        queue: jobs(),
        session: lock,
        state: Some(Bytes::from_static(b"state")),
    })
    .unwrap();
    let next = Some(last.as_str().into());
    assert_eq!(p.clear("", 10, false), (0, next));
    assert_eq!(p.clear("s00001", 10, false), (1, None));
    assert_eq!(p.clear(&last, 10, false), (0, None));
}

#[test]
fn one_message_is_taken_and_the_others_know_nothing_of_it() {
    let mut p = Partition::with(BusQueueOptions::default());
    for body in ["a", "b", "c"] {
        p.send(text(body)).unwrap();
    }
    let taken = p.take(2, ReceiveMode::PeekLock).unwrap();
    assert_eq!(p.body(&taken), "b");
    let refused = p.take(2, ReceiveMode::ReceiveAndDelete);
    let until = p.now.plus_ms(60_000);
    assert_eq!(
        refused,
        Err(BusRefusal::MessageLocked {
            sequence_number: 2,
            until
        })
    );
    let delete = |number, with_locked| BusCommand::DeleteMessage {
        queue: jobs(),
        number: SequenceNumber::new(number),
        with_locked,
    };
    assert!(matches!(
        p.ask(delete(2, false)),
        Err(BusRefusal::MessageLocked { .. })
    ));
    assert_eq!(p.ask(delete(2, true)), Ok(BusOutcome::MessageDeleted));
    let lock = taken.lock.unwrap();
    assert_eq!(p.settle(lock, Disposition::Complete), Verdict::LockLost);
    assert!(matches!(
        p.ask(delete(2, true)),
        Err(BusRefusal::MessageNotFound { .. })
    ));
    assert_eq!(p.take(3, ReceiveMode::ReceiveAndDelete).unwrap().lock, None);
    let rest = p.receive();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].delivery_count, 0);
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(1_000)),
        ..text("later")
    };
    p.send(later).unwrap();
    let refused = p.take(4, ReceiveMode::PeekLock);
    assert_eq!(
        refused,
        Err(BusRefusal::MessageScheduled { sequence_number: 4 })
    );
    assert!(p.take(4, ReceiveMode::ReceiveAndDelete).is_ok());
    p.check();
}

#[test]
fn a_broken_lock_is_lost_and_nothing_is_counted() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("a")).unwrap();
    let held = locks(&p.receive())[0];
    let break_lock = BusCommand::BreakLock {
        queue: jobs(),
        target: BreakTarget::Message(number(1)),
    };
    assert_eq!(p.ask(break_lock.clone()), Ok(BusOutcome::LockBroken));
    assert_eq!(p.ask(break_lock), Err(BusRefusal::NotLocked));
    let again = p.receive();
    assert_eq!(again[0].delivery_count, 0);
    assert_eq!(p.settle(held, Disposition::Complete), Verdict::LockLost);
    assert_eq!(
        p.settle(locks(&again)[0], Disposition::Complete),
        Verdict::Settled
    );
    p.check();
}

#[test]
fn a_broken_session_is_free_with_its_messages() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    });
    p.send(of_session("a", "s1")).unwrap();
    let session = p.accept(SessionChoice::Next).unwrap().lock;
    let held = locks(&p.receive_from(&jobs(), Some(session)))[0];
    let break_lock = BusCommand::BreakLock {
        queue: jobs(),
        target: BreakTarget::Session("s1".into()),
    };
    assert_eq!(p.ask(break_lock.clone()), Ok(BusOutcome::LockBroken));
    assert_eq!(p.ask(break_lock), Err(BusRefusal::NotLocked));
    assert_eq!(p.settle(held, Disposition::Complete), Verdict::LockLost);
    let session = p.accept(SessionChoice::Next).unwrap().lock;
    let received = p.receive_from(&jobs(), Some(session));
    assert_eq!(received[0].delivery_count, 0);
    p.check();
}

#[test]
fn a_dead_letter_is_sent_again_as_a_new_message() {
    let mut p = Partition::with(BusQueueOptions {
        default_time_to_live_ms: 100_000,
        ..BusQueueOptions::default()
    });
    p.create(&entity("other"), BusQueueOptions::default())
        .unwrap();
    p.bury(text("a"));
    p.bury(text("b"));
    p.pass_ms(500);
    let verdicts = p.resubmit(None, vec![again(1), again(1)]).unwrap();
    let sent = ResubmitVerdict::Resubmitted(number(3));
    assert_eq!(verdicts, [sent, ResubmitVerdict::NotFound]);
    let elsewhere = p.resubmit(Some("other"), vec![again(2)]).unwrap();
    assert_eq!(elsewhere, [ResubmitVerdict::Resubmitted(number(1))]);
    assert_eq!(p.counts().dead_letters, 0);
    let received = p.receive();
    assert_eq!(p.body(&received[0]), "again");
    assert_eq!((received[0].cause, received[0].delivery_count), (None, 0));
    assert_eq!(received[0].first_sequence_number, number(3));
    assert_eq!(received[0].enqueued_at, p.now);
    assert_eq!(received[0].expires_at, p.now.plus_ms(100_000));
    assert_eq!(p.receive_from(&entity("other"), None).len(), 1);
    p.check();
}

#[test]
fn what_cannot_be_sent_again_stays() {
    let options = BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        message_size_bytes_max: 1024,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with(options.clone());
    let with_id = BusMessage {
        message_id: Some("id".into()),
        ..text("a")
    };
    p.bury(with_id);
    p.bury(text("b"));
    let id = Some("id".into());
    let verdicts = p.resubmit(
        None,
        vec![
            Resubmission {
                message_id: id.clone(),
                ..again(1)
            },
            Resubmission {
                body: vec![0; 1025].into(),
                ..again(1)
            },
            Resubmission {
                overlay_count: 1,
                ..again(1)
            },
        ],
    );
    let refused = [
        ResubmitVerdict::Duplicate,
        ResubmitVerdict::TooLarge,
        ResubmitVerdict::Changed,
    ];
    assert_eq!(verdicts.unwrap(), refused);
    let held = p.receive_from(&dead(), None);
    assert_eq!(
        p.resubmit(None, vec![again(1)]).unwrap(),
        [ResubmitVerdict::Locked]
    );
    for lock in locks(&held) {
        p.settle_in(&dead(), lock, Disposition::Release);
    }
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.create(&entity("steps"), sessions).unwrap();
    let verdicts = p.resubmit(Some("steps"), vec![again(1)]).unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::SessionRequired]);
    for (to, refusal) in [
        (
            "none",
            BusRefusal::DestinationNotFound {
                queue: "none".into(),
            },
        ),
        (
            "steps/$deadletterqueue",
            BusRefusal::NotSendable {
                queue: "steps/$deadletterqueue".into(),
            },
        ),
        (
            "jobs/$deadletterqueue",
            BusRefusal::DestinationNotFound {
                queue: "jobs/$deadletterqueue".into(),
            },
        ),
    ] {
        assert_eq!(p.resubmit(Some(to), vec![again(1)]), Err(refusal), "{to}");
    }
    // The window passes, and then there is nothing against it.
    p.pass_ms(20_000);
    let message = Resubmission {
        message_id: id,
        ..again(1)
    };
    let verdicts = p.resubmit(None, vec![message.clone(), message]).unwrap();
    assert!(matches!(verdicts[0], ResubmitVerdict::Resubmitted(_)));
    assert_eq!(verdicts[1], ResubmitVerdict::NotFound);
    let disabled = BusQueueOptions {
        status: EntityStatus::SendDisabled,
        ..options
    };
    p.ask(BusCommand::UpdateQueue {
        queue: jobs(),
        options: disabled,
    })
    .unwrap();
    let refused = p.resubmit(None, vec![again(2)]);
    assert!(matches!(refused, Err(BusRefusal::Disabled { .. })));
    assert_eq!(p.counts().dead_letters, 1);
    p.check();
}

#[test]
fn a_full_queue_takes_back_its_own_dead_letters_and_no_others() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.bury(text("a body of some length"));
    p.bury(text("b"));
    let smallest = BusQueueOptions {
        size_bytes_max: p.counts().size_bytes,
        ..BusQueueOptions::default()
    };
    p.ask(BusCommand::UpdateQueue {
        queue: jobs(),
        options: smallest,
    })
    .unwrap();
    let full = BusQueueOptions {
        size_bytes_max: 100,
        ..BusQueueOptions::default()
    };
    p.create(&entity("full"), full).unwrap();
    let verdicts = p.resubmit(Some("full"), vec![again(1)]).unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::Full]);
    let verdicts = p.resubmit(None, vec![again(1)]).unwrap();
    assert!(matches!(verdicts[0], ResubmitVerdict::Resubmitted(_)));
    let larger = Resubmission {
        body: vec![0; 100].into(),
        ..again(2)
    };
    assert_eq!(
        p.resubmit(None, vec![larger]).unwrap(),
        [ResubmitVerdict::Full]
    );
    p.check();
}
