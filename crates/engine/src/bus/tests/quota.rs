//! What counts against a queue's maximum size, and what happens above it.

use super::*;

const MESSAGE_BYTES: u64 = 128;
const WINDOW_MS: u64 = 20_000;

fn full_at(size_bytes_max: u64) -> BusQueueOptions {
    BusQueueOptions {
        size_bytes_max,
        ..BusQueueOptions::default()
    }
}

fn overlay(size_bytes: usize) -> Option<Bytes> {
    Some(vec![0; size_bytes].into())
}

impl Partition {
    fn update(&mut self, options: BusQueueOptions) {
        let queue = jobs();
        self.ask(BusCommand::UpdateQueue { queue, options })
            .unwrap();
    }

    fn set_state(&mut self, session: Token, size_bytes: Option<usize>) -> Result<(), BusRefusal> {
        let set = BusCommand::SetSessionState {
            queue: jobs(),
            session,
            state: size_bytes.and_then(overlay),
        };
        self.ask(set).map(|_| ())
    }

    /// Purges all messages and session states, and returns the queue's size after that.
    pub(super) fn size_bytes_when_empty(&mut self) -> u64 {
        for queue in [jobs(), dead(), entity("jobs/$transfer/$deadletterqueue")] {
            let purge = Purge {
                from: SequenceNumber::default(),
                until: None,
                before: None,
                count: u32::MAX,
                with_locked: true,
                is_dry_run: false,
            };
            self.ask(BusCommand::Purge { queue, purge }).unwrap();
        }
        let clear = BusCommand::ClearSessionStates {
            queue: jobs(),
            from: "".into(),
            count: u32::MAX,
            is_dry_run: false,
        };
        self.ask(clear).unwrap();
        // What is remembered of ids ends with its window.
        self.pass_ms(WINDOW_MS + 1000);
        self.counts().size_bytes
    }
}

#[test]
fn states_of_sessions_fill_a_queue_and_no_more_than_that() {
    let limit_bytes = 10 * (MESSAGE_BYTES + 2 + 1000);
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        ..full_at(limit_bytes)
    });
    let accept = |p: &mut Partition, id: &str| {
        let choice = SessionChoice::Named(id.into());
        p.accept(choice).unwrap().lock
    };
    let held: Vec<Token> = (0..12)
        .map(|index| accept(&mut p, &format!("s{}", char::from(b'a' + index))))
        .collect();
    for lock in &held[..10] {
        p.set_state(*lock, Some(1000)).unwrap();
    }
    assert_eq!(p.counts().size_bytes, limit_bytes);
    let full = |size_bytes| {
        Err(BusRefusal::QuotaExceeded {
            size_bytes,
            limit_bytes,
        })
    };
    // One that is empty is remembered, too.
    let least_bytes = MESSAGE_BYTES + 2;
    let refused = p.set_state(held[10], Some(0));
    assert_eq!(refused, full(limit_bytes + least_bytes));
    // There may be no message.
    let text = refused.unwrap_err().to_string();
    let advice = "Remove messages or states of sessions from it (for a topic: from its subscriptions), or raise \
                  MaxSizeInMegabytes";
    assert!(text.ends_with(advice), "{text}");
    assert_eq!(p.set_state(held[0], Some(1001)), full(limit_bytes + 1));
    let send = p.send(of_session("", "s"));
    assert_eq!(send, full(limit_bytes + MESSAGE_BYTES).map(|()| None));
    // What takes no more goes, also where the queue has been made smaller.
    p.update(BusQueueOptions {
        requires_session: true,
        ..full_at(1)
    });
    p.set_state(held[0], Some(1000)).unwrap();
    p.set_state(held[1], Some(999)).unwrap();
    p.set_state(held[2], None).unwrap();
    p.set_state(held[11], None).unwrap();
    assert_eq!(
        p.counts().size_bytes,
        limit_bytes - 1 - (least_bytes + 1000)
    );
    assert_eq!((p.replayed(), p.restored()), (p.replayed(), p.replayed()));
    assert_eq!(p.replayed(), p.state);
    assert_eq!(p.size_bytes_when_empty(), 0);
}

#[test]
fn changes_take_a_full_queue_a_tenth_further_and_reasons_are_always_taken() {
    let one_bytes = MESSAGE_BYTES + 872;
    let mut p = Partition::with(full_at(10 * one_bytes));
    for _ in 0..10 {
        p.send(text(&"x".repeat(872))).unwrap();
    }
    let held = locks(&p.receive());
    assert_eq!(p.counts().size_bytes, 10 * one_bytes);
    let settle = |p: &mut Partition, index: usize, disposition| p.settle(held[index], disposition);
    let with = |size_bytes| Disposition::DeadLetter {
        overlay: overlay(size_bytes),
    };
    let long = REASON_SIZE_BYTES_MAX + 1;
    assert_eq!(settle(&mut p, 0, with(long)), Verdict::QuotaExceeded);
    assert_eq!(settle(&mut p, 0, with(600)), Verdict::Settled);
    let abandon = Disposition::Abandon {
        overlay: overlay(401),
    };
    assert_eq!(settle(&mut p, 1, abandon), Verdict::QuotaExceeded);
    let defer = Disposition::Defer {
        overlay: overlay(400),
    };
    assert_eq!(settle(&mut p, 2, defer), Verdict::Settled);
    assert_eq!(p.counts().size_bytes, 11 * one_bytes);
    for (index, disposition) in [
        Disposition::Abandon { overlay: None },
        Disposition::Defer { overlay: None },
        Disposition::DeadLetter { overlay: None },
        Disposition::Abandon {
            overlay: overlay(0),
        },
        Disposition::Release,
        Disposition::Complete,
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(settle(&mut p, 3 + index, disposition), Verdict::Settled);
    }
    // What is completed has made room.
    let abandon = Disposition::Abandon {
        overlay: overlay(1000),
    };
    assert_eq!(settle(&mut p, 9, abandon), Verdict::Settled);
    assert_eq!(p.counts().size_bytes, 11 * one_bytes);
    // There is room for a reason in any case.
    let again = locks(&p.receive());
    let reason = with(REASON_SIZE_BYTES_MAX);
    assert_eq!(p.settle(again[0], reason), Verdict::Settled);
    let reason_bytes = REASON_SIZE_BYTES_MAX as u64;
    assert_eq!(p.counts().size_bytes, 11 * one_bytes + reason_bytes);
    assert_eq!(p.replayed(), p.state);
    assert_eq!(p.restored(), p.state);
    assert_eq!(p.size_bytes_when_empty(), 0);
}

#[test]
fn a_transaction_takes_no_more_than_its_parts_would() {
    let mut p = Partition::with(full_at(4 * MESSAGE_BYTES));
    for _ in 0..4 {
        p.send(text("")).unwrap();
    }
    let held = locks(&p.receive());
    let part = |index: usize, disposition| TransactionPart {
        queue: jobs(),
        incarnation: None,
        work: TransactionWork::Settle(held[index], disposition),
    };
    let defer = |index, size_bytes| {
        let overlay = overlay(size_bytes);
        part(index, Disposition::Defer { overlay })
    };
    let mut transact = |parts| p.ask(BusCommand::Transact { parts });
    // A tenth of 512 is 51.
    let refused = transact(vec![defer(0, 50), defer(1, 2)]).unwrap_err();
    let why = PartRefusal::Unsettled(Verdict::QuotaExceeded);
    assert!(
        matches!(&refused, BusRefusal::Transaction { part: 2, why: it, .. } if **it == why),
        "{refused}"
    );
    let complete = part(3, Disposition::Complete);
    transact(vec![complete, defer(0, 50), defer(1, 2)]).unwrap();
    assert_eq!(p.counts().size_bytes, 3 * MESSAGE_BYTES + 52);
    assert_eq!(p.replayed(), p.state);
}

#[test]
fn ids_that_are_remembered_count_until_their_window_is_over() {
    let id_bytes = 128;
    let detecting = |size_bytes_max| BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..full_at(size_bytes_max)
    };
    let limit_bytes = 100 * id_bytes + MESSAGE_BYTES;
    let mut p = Partition::with(detecting(limit_bytes));
    let fleeting = |id: u32| BusMessage {
        message_id: Some(id.to_string().into()),
        time_to_live_ms: Some(1),
        ..text("")
    };
    for id in 0..100 {
        p.send(fleeting(id)).unwrap();
        p.pass_ms(1);
        p.tick();
    }
    let counts = p.counts();
    assert_eq!((counts.active, counts.size_bytes), (0, 100 * id_bytes));
    let refused = p.send(fleeting(100));
    let expected = Err(BusRefusal::QuotaExceeded {
        size_bytes: limit_bytes + id_bytes,
        limit_bytes,
    });
    assert_eq!(refused, expected);
    // One without an id is remembered by nothing.
    p.send(text("")).unwrap();
    let lock = locks(&p.receive())[0];
    p.settle(lock, Disposition::Complete);
    assert_eq!(p.replayed(), p.state);
    // The first one is forgotten 20 s after it came, with no event. All of its second count until that is over.
    p.pass_ms(WINDOW_MS - 100 + 998);
    assert_eq!(p.counts().size_bytes, 100 * id_bytes);
    p.pass_ms(1);
    assert_eq!(p.counts().size_bytes, 0);
    p.send(fleeting(0)).unwrap();
    p.pass_ms(1);
    p.tick();
    assert_eq!(p.counts().size_bytes, id_bytes);
    // A longer window brings back nothing.
    p.pass_ms(WINDOW_MS + 1000);
    p.update(BusQueueOptions {
        duplicate_window_ms: Some(10 * WINDOW_MS),
        ..detecting(limit_bytes)
    });
    assert_eq!(p.counts().size_bytes, 0);
    p.send(fleeting(5)).unwrap();
    assert_eq!(
        (p.replayed() == p.state, p.restored() == p.state),
        (true, true)
    );
}

#[test]
fn an_id_counts_for_a_message_that_is_sent_again() {
    let mut p = Partition::with(BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..full_at(2 * MESSAGE_BYTES)
    });
    p.send(text("")).unwrap();
    let lock = locks(&p.receive())[0];
    p.settle(lock, Disposition::DeadLetter { overlay: None });
    let mut resubmit = |id: Option<&str>| {
        let message = Resubmission {
            sequence_number: SequenceNumber::FIRST,
            overlay_count: 0,
            body: Bytes::new(),
            message_id: id.map(Into::into),
            session: None,
            time_to_live_ms: None,
        };
        let resubmit = Resubmit {
            to: None,
            messages: vec![message],
        };
        match p.ask(BusCommand::Resubmit {
            queue: dead(),
            resubmit,
        }) {
            Ok(BusOutcome::Resubmitted(verdicts)) => (verdicts[0], p.counts().size_bytes),
            other => panic!("{other:?}"),
        }
    };
    let (sent, size_bytes) = resubmit(Some("id"));
    assert!(matches!(sent, ResubmitVerdict::Resubmitted(_)), "{sent:?}");
    assert_eq!(size_bytes, 2 * MESSAGE_BYTES);
    p.update(BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..full_at(MESSAGE_BYTES)
    });
    assert_eq!(p.size_bytes_when_empty(), 0);
}
