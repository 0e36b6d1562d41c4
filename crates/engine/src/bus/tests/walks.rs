//! One command looks at a bounded number of messages, however many the queue holds.

use super::*;

/// More than one command looks at.
const MANY: usize = 4 * ITEMS_MAX + 1;

impl Partition {
    /// Sends so many at once as one command may bring.
    fn send_many(&mut self, count: usize, message: impl Fn(usize) -> BusMessage) {
        let all: Vec<_> = (0..count).map(message).collect();
        for messages in all.chunks(ITEMS_MAX) {
            let messages = messages.to_vec();
            let queue = jobs();
            self.ask(BusCommand::Send { queue, messages }).unwrap();
        }
    }

    fn delete_from(&mut self, from: SequenceNumber, session: Option<&str>) -> BatchDeleted {
        let delete = BusCommand::DeleteBatch {
            queue: jobs(),
            from,
            before: self.now,
            count: 10,
            session: session.map(Into::into),
        };
        match self.ask(delete) {
            Ok(BusOutcome::BatchDeleted(deleted)) => deleted,
            other => panic!("{other:?}"),
        }
    }

    fn list_from(&mut self, from: Box<str>, skip: u32) -> ListedSessions {
        let list = BusCommand::ListSessions {
            queue: jobs(),
            from,
            state_set_after: None,
            skip,
            limit: 3,
        };
        match self.ask(list) {
            Ok(BusOutcome::Sessions(listed)) => listed,
            other => panic!("{other:?}"),
        }
    }
}

fn session_queue() -> BusQueueOptions {
    BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    }
}

#[test]
fn a_deletion_goes_on_behind_what_it_leaves() {
    for options in [BusQueueOptions::default(), session_queue()] {
        let mut p = Partition::with(options);
        let later = p.now.plus_ms(1_000_000);
        p.send_many(MANY, |_| BusMessage {
            scheduled_at: Some(later),
            ..of_session("", "s")
        });
        p.send(of_session("ready", "t")).unwrap();
        p.pass_ms(1);
        let first = p.delete_from(SequenceNumber::default(), None);
        assert_eq!(first.count, 0);
        let next = first.next.unwrap();
        let last = SequenceNumber::new(MANY as u64);
        assert_eq!(next, last);
        // A session's own are looked at alone.
        let of_session = p.delete_from(SequenceNumber::default(), Some("t"));
        assert_eq!((of_session.count, of_session.next), (1, None));
        let rest = p.delete_from(next, None);
        assert_eq!((rest.count, rest.next), (0, None));
    }
}

#[test]
fn a_list_of_sessions_goes_on_behind_what_it_skips() {
    let mut p = Partition::with(session_queue());
    p.send_many(MANY + 1, |index| of_session("", &format!("{index:05}")));
    let skip = u32::try_from(MANY).unwrap();
    let first = p.list_from("".into(), skip);
    assert_eq!((first.ids.len(), first.skipped), (0, skip - 1));
    let rest = p.list_from(first.next.unwrap(), skip - first.skipped);
    let last = format!("{MANY:05}");
    assert_eq!(rest.ids, [last.into_boxed_str()]);
    assert_eq!((rest.skipped, rest.next), (1, None));
    let some = p.list_from("".into(), 0);
    assert_eq!(some.ids.len(), 3);
    assert_eq!(some.next.as_deref(), Some("00003"));
}

#[test]
fn a_peek_of_a_session_shows_its_messages_in_every_state_and_in_order() {
    let mut p = Partition::with(session_queue());
    let later = p.now.plus_ms(1_000_000);
    for index in 0..6 {
        p.send(of_session("", "other")).unwrap();
        p.send(BusMessage {
            scheduled_at: (index == 2).then_some(later),
            ..of_session("", "s")
        })
        .unwrap();
    }
    let lock = p.accept(SessionChoice::Named("s".into())).unwrap().lock;
    let locked = p.receive_from(&jobs(), Some(lock));
    let defer = Disposition::Defer { overlay: None };
    assert_eq!(p.settle(locks(&locked)[0], defer), Verdict::Settled);
    assert_eq!(
        p.settle(locks(&locked)[1], Disposition::Release),
        Verdict::Settled
    );
    let bury = Disposition::DeadLetter { overlay: None };
    assert_eq!(p.settle(locks(&locked)[2], bury), Verdict::Settled);
    let mut peek = |queue: EntityName, from: u64| -> Vec<u64> {
        let peek = BusCommand::Peek {
            queue,
            from: SequenceNumber::new(from),
            count: 10,
            session: Some("s".into()),
        };
        match p.ask(peek) {
            Ok(BusOutcome::Peeked(messages)) => messages
                .iter()
                .map(|message| message.sequence_number.as_u64())
                .collect(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(peek(jobs(), 0), [2, 4, 6, 10, 12]);
    assert_eq!(peek(jobs(), 5), [6, 10, 12]);
    assert_eq!(peek(dead(), 0), [1]);
}
