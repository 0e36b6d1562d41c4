//! Transactions: all of the work in several queues, or none of it.

use proptest::prelude::*;

use super::random::{Client, Step, step};
use super::*;
use crate::turn::DUE_BUDGET;

fn part(queue: &EntityName, work: TransactionWork) -> TransactionPart {
    TransactionPart {
        incarnation: None,
        queue: queue.clone(),
        work,
    }
}

fn sends(queue: &EntityName, messages: Vec<BusMessage>) -> TransactionPart {
    part(queue, TransactionWork::Send(messages))
}

fn settles(queue: &EntityName, lock: Token, disposition: Disposition) -> TransactionPart {
    part(queue, TransactionWork::Settle(lock, disposition))
}

fn cancels(queue: &EntityName, numbers: &[u64]) -> TransactionPart {
    let numbers = numbers.iter().copied().map(SequenceNumber::new).collect();
    part(queue, TransactionWork::CancelScheduled(numbers))
}

fn other() -> EntityName {
    entity("other")
}

impl Partition {
    pub(super) fn transact(
        &mut self,
        parts: Vec<TransactionPart>,
    ) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::Transact { parts })
    }

    /// A transaction that is refused, and has changed nothing: which part and why.
    pub(super) fn refused(&mut self, parts: Vec<TransactionPart>) -> (u64, PartRefusal) {
        self.tick();
        let before = self.replayed();
        let refusal = self.transact(parts).unwrap_err();
        assert_eq!(self.state, before, "{refusal}");
        match refusal {
            BusRefusal::Transaction { part, why, .. } => (part, *why),
            other => panic!("{other}"),
        }
    }

    fn peek(&mut self, queue: &EntityName) -> Vec<(u64, BusMessageState)> {
        let peek = BusCommand::Peek {
            queue: queue.clone(),
            from: SequenceNumber::default(),
            count: 100,
            session: None,
        };
        match self.ask(peek) {
            Ok(BusOutcome::Peeked(messages)) => messages
                .iter()
                .map(|message| (message.sequence_number.as_u64(), message.state))
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn all_of_a_transaction_is_done_in_its_order() {
    let options = BusQueueOptions {
        max_delivery_count: 1,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with(options);
    p.create(&other(), BusQueueOptions::default()).unwrap();
    for body in ["done", "failed", "deferred", "dead", "released"] {
        p.send(text(body)).unwrap();
    }
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(60_000)),
        ..text("later")
    };
    p.send(later.clone()).unwrap();
    let held = locks(&p.receive());
    let overlay = || Some(Bytes::from_static(b"o"));
    let parts = vec![
        sends(&other(), vec![text("a"), later]),
        settles(&jobs(), held[0], Disposition::Complete),
        settles(
            &jobs(),
            held[1],
            Disposition::Abandon { overlay: overlay() },
        ),
        settles(&jobs(), held[2], Disposition::Defer { overlay: overlay() }),
        settles(&jobs(), held[3], Disposition::DeadLetter { overlay: None }),
        settles(&jobs(), held[4], Disposition::Release),
        cancels(&jobs(), &[6]),
        sends(&other(), vec![text("b")]),
    ];
    assert_eq!(p.transact(parts), Ok(BusOutcome::Transacted));
    use BusMessageState::{Deferred, Ready, Scheduled};
    assert_eq!(p.peek(&jobs()), [(3, Deferred), (5, Ready)]);
    assert_eq!(p.peek(&dead()), [(1, Ready), (2, Ready)]);
    assert_eq!(p.peek(&other()), [(1, Ready), (2, Scheduled), (3, Ready)]);
    let received = p.receive_from(&other(), None);
    assert_eq!(p.body(&received[0]), "a");
    assert_eq!(p.body(&received[1]), "b");
    assert_eq!(p.replayed(), p.state);
    assert_eq!(p.restored(), p.state);
}

#[test]
fn one_part_that_cannot_be_done_leaves_everything_as_it_was() {
    let mut p = Partition::with(BusQueueOptions::default());
    let sessions = BusQueueOptions {
        requires_session: true,
        message_size_bytes_max: 1024,
        ..BusQueueOptions::default()
    };
    p.create(&entity("steps"), sessions).unwrap();
    let disabled = BusQueueOptions {
        status: EntityStatus::SendDisabled,
        ..BusQueueOptions::default()
    };
    p.create(&entity("off"), disabled).unwrap();
    for _ in 0..2 {
        p.send(text("a")).unwrap();
    }
    let held = locks(&p.receive());
    let complete = |lock| settles(&jobs(), lock, Disposition::Complete);
    let refused = |why| (2, PartRefusal::Refused(why));
    let unsettled = |verdict| (2, PartRefusal::Unsettled(verdict));
    let steps = entity("steps");
    let queue = |name: &str| Box::<str>::from(name);
    let large = BusMessage {
        body: vec![0; 1025].into(),
        ..of_session("", "s")
    };
    for (bad, expected) in [
        (
            sends(&other(), vec![text("x")]),
            refused(BusRefusal::QueueNotFound {
                queue: queue("other"),
            }),
        ),
        (
            sends(&entity("off"), vec![text("x")]),
            refused(BusRefusal::Disabled {
                queue: queue("off"),
            }),
        ),
        (
            sends(&dead(), vec![text("x")]),
            refused(BusRefusal::NotSendable { queue: dead().name }),
        ),
        (
            sends(&steps, vec![of_session("x", "s"), text("x")]),
            refused(BusRefusal::SessionRequired),
        ),
        (
            sends(&steps, vec![large]),
            refused(BusRefusal::MessageTooLarge {
                size_bytes: 1025,
                limit_bytes: 1024,
            }),
        ),
        (
            cancels(&jobs(), &[2]),
            refused(BusRefusal::MessageNotFound { sequence_number: 2 }),
        ),
        // Of another queue, and twice.
        (
            settles(&dead(), held[1], Disposition::Complete),
            unsettled(Verdict::LockLost),
        ),
        (complete(held[0]), unsettled(Verdict::LockLost)),
    ] {
        let parts = vec![complete(held[0]), bad.clone(), complete(held[1])];
        assert_eq!(p.refused(parts), expected, "{bad:?}");
    }
    // And without it there is nothing against the rest.
    p.transact(vec![complete(held[0]), complete(held[1])])
        .unwrap();
    assert_eq!(p.counts().active, 0);
}

#[test]
fn a_lock_that_ends_before_the_commit_is_lost_for_all_of_it() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.create(&other(), BusQueueOptions::default()).unwrap();
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    let parts = vec![
        sends(&other(), vec![text("x")]),
        settles(&jobs(), lock, Disposition::Complete),
    ];
    let lock_ms = BusQueueOptions::default().lock_duration_ms;
    p.pass_ms(lock_ms);
    // No tick: what is due in a queue is done before it is looked at.
    let refusal = p.transact(parts.clone()).unwrap_err();
    let lost = Box::new(PartRefusal::Unsettled(Verdict::LockLost));
    let expected = BusRefusal::Transaction {
        part: 2,
        queue: jobs().name,
        why: lost,
    };
    assert_eq!(refusal, expected);
    assert_eq!(p.peek(&other()), []);
    let again = p.receive();
    assert_eq!(again[0].delivery_count, 1);
    let renewed = p.ask(BusCommand::RenewLocks {
        queue: jobs(),
        locks: locks(&again),
    });
    assert!(matches!(renewed, Ok(BusOutcome::LocksRenewed(_))));
    p.pass_ms(lock_ms - 1);
    let parts = vec![
        sends(&other(), vec![text("x")]),
        settles(&jobs(), locks(&again)[0], Disposition::Complete),
    ];
    p.transact(parts).unwrap();
    assert_eq!(p.peek(&jobs()), []);
}

#[test]
fn a_session_lock_that_ends_is_lost_for_all_of_it() {
    let options = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with(options.clone());
    p.send(of_session("a", "s")).unwrap();
    let session = p.accept(SessionChoice::Named("s".into())).unwrap().lock;
    let lock = locks(&p.receive_from(&jobs(), Some(session)))[0];
    let parts = || vec![settles(&jobs(), lock, Disposition::Complete)];
    let answer = vec![
        settles(&jobs(), lock, Disposition::Abandon { overlay: None }),
        sends(&jobs(), vec![of_session("b", "s")]),
    ];
    p.transact(answer).unwrap();
    let lock = locks(&p.receive_from(&jobs(), Some(session)))[0];
    assert_eq!(
        p.refused(parts()).1,
        PartRefusal::Unsettled(Verdict::LockLost)
    );
    p.pass_ms(options.lock_duration_ms);
    let parts = vec![settles(&jobs(), lock, Disposition::Complete)];
    assert!(matches!(p.refused(parts).1, PartRefusal::Unsettled(_)));
}

#[test]
fn what_parts_add_and_free_counts_for_those_that_follow() {
    let mut p = Partition::with(BusQueueOptions::default());
    let body = vec![b'x'; 100];
    let message = || BusMessage {
        body: body.clone().into(),
        ..text("")
    };
    p.send(message()).unwrap();
    p.send(message()).unwrap();
    let full = BusQueueOptions {
        size_bytes_max: p.counts().size_bytes,
        ..BusQueueOptions::default()
    };
    p.ask(BusCommand::UpdateQueue {
        queue: jobs(),
        options: full,
    })
    .unwrap();
    let held = locks(&p.receive());
    let complete = |index: usize| settles(&jobs(), held[index], Disposition::Complete);
    let send = || sends(&jobs(), vec![message()]);
    let is_full = |refused: (u64, PartRefusal), part| {
        let why = PartRefusal::Refused(BusRefusal::QuotaExceeded {
            size_bytes: 3 * 228,
            limit_bytes: 2 * 228,
        });
        assert_eq!(refused, (part, why));
    };
    is_full(p.refused(vec![send(), complete(0)]), 1);
    is_full(p.refused(vec![complete(0), send(), send()]), 3);
    let dead_letter = settles(&jobs(), held[0], Disposition::DeadLetter { overlay: None });
    is_full(p.refused(vec![dead_letter, send()]), 2);
    p.transact(vec![complete(0), send(), complete(1), send()])
        .unwrap();
    assert_eq!(p.counts().size_bytes, 2 * 228);
}

#[test]
fn a_queue_that_was_created_since_is_not_meant() {
    let mut p = Partition::with(BusQueueOptions::default());
    let meant = p.state.catalogue.names[&jobs()];
    let send = || TransactionPart {
        incarnation: Some(meant),
        ..sends(&jobs(), vec![text("x")])
    };
    p.transact(vec![send()]).unwrap();
    p.ask(BusCommand::DeleteQueue { queue: jobs() }).unwrap();
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    let queue = jobs().name;
    let expected = PartRefusal::Refused(BusRefusal::QueueNotFound { queue });
    assert_eq!(p.refused(vec![send()]), (1, expected));
    assert_eq!(p.counts().active, 0);
}

#[test]
fn duplicates_are_dropped_within_a_transaction_and_after_it() {
    let mut p = Partition::with(BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    });
    let with_id = || BusMessage {
        message_id: Some("id".into()),
        ..text("a")
    };
    p.transact(vec![
        sends(&jobs(), vec![with_id(), with_id()]),
        sends(&jobs(), vec![with_id()]),
    ])
    .unwrap();
    assert_eq!(p.send(with_id()), Ok(None));
    assert_eq!(p.counts().active, 1);
}

#[test]
fn what_is_sent_in_a_transaction_is_forwarded() {
    let mut p = Partition::new();
    p.create(&other(), BusQueueOptions::default()).unwrap();
    p.create(
        &jobs(),
        BusQueueOptions {
            forward_to: Some("other".into()),
            ..BusQueueOptions::default()
        },
    )
    .unwrap();
    p.transact(vec![sends(&jobs(), vec![text("a")])]).unwrap();
    p.tick();
    assert_eq!(p.peek(&other()).len(), 1);
}

#[test]
fn a_transaction_has_bounds() {
    let mut p = Partition::with(BusQueueOptions::default());
    let too_many = |count: usize, limit: usize| {
        Err(BusRefusal::TooMany {
            count: count as u64,
            limit: limit as u64,
        })
    };
    let most = vec![
        sends(&jobs(), vec![text("a"); 60]),
        sends(&jobs(), vec![text("a"); 40]),
    ];
    let more = [most.clone(), vec![sends(&jobs(), vec![text("a")])]].concat();
    assert_eq!(p.transact(more), too_many(101, TRANSACTION_MESSAGES_MAX));
    p.transact(most).unwrap();
    let numbers: Vec<u64> = (0..1001).collect();
    let refused = p.transact(vec![cancels(&jobs(), &numbers)]);
    assert_eq!(refused, too_many(1001, TRANSACTION_ENDED_MAX));
    let nothing = vec![sends(&jobs(), Vec::new()); 1101];
    assert_eq!(p.transact(nothing), too_many(1101, 1100));
    let large = BusMessage {
        body: vec![0; 1024 * 1024].into(),
        ..text("")
    };
    let parts = vec![sends(&jobs(), vec![large.clone()]); 5];
    assert!(matches!(
        p.transact(parts),
        Err(BusRefusal::MessageTooLarge { .. })
    ));
    let long = vec![sends(&jobs(), vec![of_session("a", &"s".repeat(513))])];
    assert!(matches!(
        p.transact(long),
        Err(BusRefusal::SessionIdTooLong { .. })
    ));
    let parts = vec![sends(&jobs(), vec![large]); 4];
    p.transact(parts).unwrap();
    assert_eq!(p.transact(Vec::new()), Ok(BusOutcome::Transacted));
    assert_eq!(p.counts().active, 104);
}

/// A log takes batches of 16 MiB at most, with what is due in the same turn.
#[test]
fn the_largest_commands_fit_into_a_batch() {
    let p = Partition::with(BusQueueOptions::default());
    let message = BusMessage {
        body: vec![0; 41_900].into(),
        ..of_session("a", &"s".repeat(128))
    };
    let mut parts = vec![sends(&jobs(), vec![message; TRANSACTION_MESSAGES_MAX])];
    let moves = || {
        let disposition = Disposition::DeadLetter { overlay: None };
        settles(&jobs(), Token::from_bytes([0; 16]), disposition)
    };
    parts.extend((0..TRANSACTION_ENDED_MAX).map(|_| moves()));
    let transaction = BusCommand::Transact { parts };
    let overlay = Some(vec![0; (1 << 20) / ITEMS_MAX].into());
    let settlement = (Token::from_bytes([0; 16]), Disposition::Abandon { overlay });
    let settlements = BusCommand::Settle {
        queue: jobs(),
        settlements: vec![settlement; ITEMS_MAX],
    };
    for (command, least_mib) in [(transaction, 4), (settlements, 7)] {
        let command = Command::Bus(command);
        let described = command.describe();
        let size_bytes = described.room_size_bytes_max(&p.state, DUE_BUDGET);
        assert!(size_bytes > least_mib << 20, "{size_bytes}");
        // The rest is for what else is due.
        assert!(size_bytes <= 14 << 20, "{size_bytes}");
    }
}

#[test]
fn settlements_of_dead_letters_keep_their_queue_from_going() {
    let idle_ms = 600_000;
    let mut p = Partition::with(BusQueueOptions {
        auto_delete_on_idle_ms: idle_ms,
        ..BusQueueOptions::default()
    });
    p.send(text("a")).unwrap();
    let lock = locks(&p.receive())[0];
    p.settle(lock, Disposition::DeadLetter { overlay: None });
    let lock = locks(&p.receive_from(&dead(), None))[0];
    p.pass_ms(30_000);
    p.ask(BusCommand::RenewLocks {
        queue: dead(),
        locks: vec![lock],
    })
    .unwrap();
    p.pass_ms(59_000);
    let before = p.now;
    p.transact(vec![settles(&dead(), lock, Disposition::Complete)])
        .unwrap();
    assert!(
        p.state
            .bus
            .values()
            .any(|queue| queue.used_at >= before && queue.role.is_first())
    );
}

/// A part of a random transaction.
#[derive(Clone, Debug)]
enum Work {
    Send {
        to_other: bool,
        id: u8,
        later: bool,
        /// Whether it is sent via the other one of the two queues.
        is_via: bool,
    },
    Settle {
        which: usize,
        how: u8,
        is_swapped: bool,
    },
    Cancel(u64),
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        3 => (any::<bool>(), 0u8..6, any::<bool>(), any::<bool>())
            .prop_map(|(to_other, id, later, is_via)| Work::Send { to_other, id, later, is_via }),
        6 => (any::<usize>(), 0u8..5, proptest::bool::weighted(0.05))
            .prop_map(|(which, how, is_swapped)| Work::Settle { which, how, is_swapped }),
        1 => (0u64..12).prop_map(Work::Cancel),
    ]
}

impl Work {
    fn part(
        &self,
        p: &Partition,
        held: &mut Vec<Token>,
        sessions: bool,
    ) -> Option<TransactionPart> {
        Some(match self {
            Self::Send {
                to_other,
                id,
                later,
                is_via,
            } => {
                let (queue, via) = match to_other {
                    true => (other(), jobs()),
                    false => (jobs(), other()),
                };
                let message = BusMessage {
                    message_id: Some(format!("{id}").into()),
                    // Without a session, a transfer fails.
                    session: (sessions && !(*is_via && *id == 0)).then(|| "s1".into()),
                    scheduled_at: later.then(|| p.now.plus_ms(1_000)),
                    ..text("t")
                };
                match is_via {
                    true if id % 2 == 1 => {
                        part(&queue, TransactionWork::Transfer(via, vec![message]))
                    }
                    true => part(&via, TransactionWork::SendVia(queue, vec![message])),
                    false => sends(&queue, vec![message]),
                }
            }
            Self::Settle { .. } if held.is_empty() => return None,
            Self::Settle {
                which,
                how,
                is_swapped,
            } => {
                let index = which % held.len();
                // Now and then one that the transaction has ended already.
                let lock = match which % 16 {
                    0 => held[index],
                    _ => held.swap_remove(index),
                };
                let queue = if *is_swapped { dead() } else { jobs() };
                let overlay = Some(Bytes::from_static(b"o"));
                let how = match how {
                    0 => Disposition::Complete,
                    1 => Disposition::Abandon { overlay },
                    2 => Disposition::Defer { overlay },
                    3 => Disposition::DeadLetter { overlay },
                    _ => Disposition::Release,
                };
                settles(&queue, lock, how)
            }
            // The numbers of messages that the transaction itself sends are not known yet.
            Self::Cancel(number) if *number >= p.next_number(&jobs()) => return None,
            Self::Cancel(number) => cancels(&jobs(), &[*number]),
        })
    }
}

impl Partition {
    fn next_number(&self, queue: &EntityName) -> u64 {
        let queue = self.state.catalogue.names[queue];
        self.state.bus[&queue].backlog.next().as_u64()
    }

    /// Does one part by itself, and says whether it was done.
    fn alone(&mut self, part: TransactionPart) -> bool {
        let queue = part.queue.clone();
        match part.work.clone() {
            TransactionWork::Send(messages) => {
                self.ask(BusCommand::Send { queue, messages }).is_ok()
            }
            TransactionWork::SendVia(to, messages) => {
                let via = queue;
                self.ask(BusCommand::SendVia { via, to, messages }).is_ok()
            }
            TransactionWork::Transfer(..) => self.transact(vec![part]).is_ok(),
            TransactionWork::Settle(lock, disposition) => {
                self.settle_in(&queue, lock, disposition) == Verdict::Settled
            }
            TransactionWork::CancelScheduled(numbers) => self
                .ask(BusCommand::CancelScheduled { queue, numbers })
                .is_ok(),
        }
    }
}

proptest! {
    /// Whatever came before, a transaction leaves what its parts leave one by one if every one of them
    /// can be done; and if one cannot, it leaves nothing.
    #[test]
    fn a_transaction_is_its_parts_or_nothing(
        steps in proptest::collection::vec(step(), 1..60),
        works in proptest::collection::vec(work(), 1..12),
        sessions: bool,
        duplicates: bool,
    ) {
        let begin = || {
            let mut p = Partition::with(BusQueueOptions {
                requires_session: sessions,
                duplicate_window_ms: duplicates.then_some(20_000),
                max_delivery_count: 2,
                ..BusQueueOptions::default()
            });
            p.create(&other(), BusQueueOptions::default()).unwrap();
            let mut client = Client::default();
            for step in steps.clone() {
                client.step(&mut p, step, sessions);
            }
            client.step(&mut p, Step::Accept(1), sessions);
            client.step(&mut p, Step::Receive { delete: false }, sessions);
            p.tick();
            (p, client.held)
        };
        let (mut whole, mut held) = begin();
        let (mut single, _) = begin();
        let parts: Vec<_> = works
            .iter()
            .filter_map(|work| work.part(&whole, &mut held, sessions))
            .collect();
        let before = whole.replayed();
        let done = whole.transact(parts.clone());
        if done.is_ok() {
            for part in parts {
                prop_assert!(single.alone(part));
            }
            // What is due in a queue is done before each of its commands.
            whole.tick();
            single.tick();
            prop_assert_eq!(&whole.state, &single.state);
        } else {
            prop_assert_eq!(&whole.state, &before);
            let mut alone = parts.into_iter().map(|part| single.alone(part));
            prop_assert!(!alone.all(|is_done| is_done), "{done:?}");
        }
        prop_assert_eq!(&whole.replayed(), &whole.state);
        for queue in whole.state.bus.values() {
            queue.backlog.check();
        }
    }
}
