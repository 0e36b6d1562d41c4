//! Every operation on a message in every state. The partition of these tests gives each command to a state with nothing
//! in memory too, and compares.

use super::*;

/// The state of the message that the operation finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Ready,
    Expired,
    Locked,
    LockEnded,
    Deferred,
    DeferredLocked,
    Scheduled,
    ScheduleDue,
    Gone,
}

const ALL: [Found; 9] = [
    Found::Ready,
    Found::Expired,
    Found::Locked,
    Found::LockEnded,
    Found::Deferred,
    Found::DeferredLocked,
    Found::Scheduled,
    Found::ScheduleDue,
    Found::Gone,
];

/// A message in a state, with others around it.
struct Case {
    p: Partition,
    number: SequenceNumber,
    lock: Token,
    session: Option<Token>,
}

impl Case {
    fn new(found: Found, by_session: bool, forward_to: Option<&str>) -> Self {
        let mut p = Partition::new();
        p.create(&entity("destination"), BusQueueOptions::default())
            .unwrap();
        p.create(
            &jobs(),
            BusQueueOptions {
                requires_session: by_session,
                dead_letters_expired: found == Found::Expired,
                max_delivery_count: 2,
                lock_duration_ms: 10_000,
                ..BusQueueOptions::default()
            },
        )
        .unwrap();
        let message = |text: &str| BusMessage {
            session: by_session.then(|| "s".into()),
            ..super::text(text)
        };
        let is_scheduled = matches!(found, Found::Scheduled | Found::ScheduleDue);
        let meant = BusMessage {
            time_to_live_ms: (found == Found::Expired).then_some(5_000),
            scheduled_at: is_scheduled.then(|| p.now.plus_ms(5_000)),
            ..message("meant")
        };
        let number = p.send(meant).unwrap().unwrap();
        for _ in 0..6 {
            p.send(message("another")).unwrap();
        }
        let number = SequenceNumber::new(number);
        let session = by_session.then(|| p.accept(SessionChoice::Next).unwrap().lock);
        let mut case = Self {
            p,
            number,
            lock: Token::from_bytes([0; 16]),
            session,
        };
        case.bring_to(found);
        if let Some(to) = forward_to {
            let options = BusQueueOptions {
                forward_to: Some(to.into()),
                requires_session: by_session,
                lock_duration_ms: 10_000,
                max_delivery_count: 2,
                ..BusQueueOptions::default()
            };
            let queue = jobs();
            case.p
                .ask(BusCommand::UpdateQueue { queue, options })
                .unwrap();
        }
        case
    }

    fn bring_to(&mut self, found: Found) {
        match found {
            Found::Ready => {}
            Found::Expired | Found::ScheduleDue => self.p.pass_ms(5_000),
            Found::Scheduled => {}
            Found::Locked => self.receive_first(),
            Found::LockEnded => {
                self.receive_first();
                self.p.pass_ms(10_000);
            }
            Found::Deferred | Found::DeferredLocked | Found::Gone => {
                self.receive_first();
                let disposition = match found {
                    Found::Gone => Disposition::Complete,
                    _ => Disposition::Defer { overlay: None },
                };
                self.p.settle(self.lock, disposition);
                if found == Found::DeferredLocked {
                    let read = self.deferred_read(ReceiveMode::PeekLock);
                    self.p.ask(BusCommand::ReceiveDeferred { read }).unwrap();
                }
            }
        }
    }

    fn receive_first(&mut self) {
        let received = self.p.ask(BusCommand::Receive {
            queue: jobs(),
            count: 1,
            mode: ReceiveMode::PeekLock,
            session: self.session,
        });
        let Ok(BusOutcome::Received(messages)) = received else {
            panic!("{received:?}");
        };
        assert_eq!(messages[0].sequence_number, self.number);
        self.lock = messages[0].lock.unwrap();
    }

    fn deferred_read(&self, mode: ReceiveMode) -> DeferredRead {
        DeferredRead {
            queue: jobs(),
            numbers: vec![self.number],
            mode,
            session: self.session,
        }
    }

    fn operations(&self) -> Vec<BusCommand> {
        let Self {
            number,
            lock,
            session,
            ..
        } = *self;
        let queue = jobs;
        let overlay = || Some(Bytes::from_static(b"changed"));
        let settle = |disposition| BusCommand::Settle {
            queue: queue(),
            settlements: vec![(lock, disposition)],
        };
        let receive = |count, mode| BusCommand::Receive {
            queue: queue(),
            count,
            mode,
            session,
        };
        let take = |mode| BusCommand::TakeMessage {
            queue: queue(),
            number,
            mode,
        };
        let purge = |with_locked, is_dry_run| BusCommand::Purge {
            queue: queue(),
            purge: Purge {
                from: number,
                until: None,
                before: None,
                count: 3,
                with_locked,
                is_dry_run,
            },
        };
        let batch = |session: Option<Box<str>>| BusCommand::DeleteBatch {
            queue: queue(),
            from: SequenceNumber::default(),
            before: Timestamp::NEVER,
            count: 3,
            session,
        };
        let peek = |session: Option<Box<str>>| BusCommand::Peek {
            queue: queue(),
            from: number,
            count: 3,
            session,
        };
        let part = |work| TransactionPart {
            queue: queue(),
            incarnation: None,
            work,
        };
        let resubmit = |to: Option<&str>| BusCommand::Resubmit {
            queue: queue(),
            resubmit: Resubmit {
                to: to.map(Into::into),
                messages: vec![Resubmission {
                    sequence_number: number,
                    overlay_count: 0,
                    body: Bytes::from_static(b"again"),
                    message_id: None,
                    session: None,
                    time_to_live_ms: None,
                }],
            },
        };
        let by_number = [
            take(ReceiveMode::PeekLock),
            take(ReceiveMode::ReceiveAndDelete),
            BusCommand::DeleteMessage {
                queue: queue(),
                number,
                with_locked: false,
            },
            BusCommand::DeleteMessage {
                queue: queue(),
                number,
                with_locked: true,
            },
            BusCommand::BreakLock {
                queue: queue(),
                target: BreakTarget::Message(number),
            },
            BusCommand::BreakLock {
                queue: queue(),
                target: BreakTarget::Session("s".into()),
            },
            BusCommand::CancelScheduled {
                queue: queue(),
                numbers: vec![number],
            },
            resubmit(Some("destination")),
            resubmit(None),
        ];
        let by_lock = [
            settle(Disposition::Complete),
            settle(Disposition::Abandon { overlay: None }),
            settle(Disposition::Abandon { overlay: overlay() }),
            settle(Disposition::Defer { overlay: overlay() }),
            settle(Disposition::DeadLetter { overlay: overlay() }),
            settle(Disposition::Release),
            BusCommand::RenewLocks {
                queue: queue(),
                locks: vec![lock],
            },
            BusCommand::ReadLocked {
                queue: queue(),
                lock,
            },
            BusCommand::Transact {
                parts: vec![
                    part(TransactionWork::Settle(lock, Disposition::Complete)),
                    part(TransactionWork::Send(vec![text("sent")])),
                ],
            },
            BusCommand::Transact {
                parts: vec![part(TransactionWork::CancelScheduled(vec![number]))],
            },
        ];
        let walks = [
            receive(1, ReceiveMode::PeekLock),
            receive(3, ReceiveMode::PeekLock),
            receive(3, ReceiveMode::ReceiveAndDelete),
            peek(None),
            peek(Some("s".into())),
            purge(false, false),
            purge(true, false),
            purge(true, true),
            batch(None),
            batch(Some("s".into())),
            BusCommand::ReceiveDeferred {
                read: self.deferred_read(ReceiveMode::PeekLock),
            },
            BusCommand::ReceiveDeferred {
                read: self.deferred_read(ReceiveMode::ReceiveAndDelete),
            },
        ];
        let without = [
            BusCommand::ReadQueue { queue: queue() },
            BusCommand::Send {
                queue: queue(),
                messages: vec![of_session("more", "s")],
            },
            BusCommand::ClearSessionStates {
                queue: queue(),
                from: "".into(),
                count: 3,
                is_dry_run: false,
            },
            BusCommand::ListSessions {
                queue: queue(),
                from: "".into(),
                state_set_after: None,
                skip: 0,
                limit: 3,
            },
            BusCommand::AcceptSession {
                queue: queue(),
                session: SessionChoice::Next,
            },
            BusCommand::AcceptSession {
                queue: queue(),
                session: SessionChoice::Named("s".into()),
            },
            BusCommand::DeleteQueue { queue: queue() },
        ];
        let of_session = session.into_iter().flat_map(|session| {
            [
                BusCommand::RenewSession {
                    queue: queue(),
                    session,
                },
                BusCommand::ReleaseSession {
                    queue: queue(),
                    session,
                },
                BusCommand::ReadSessionState {
                    queue: queue(),
                    session,
                },
                BusCommand::SetSessionState {
                    queue: queue(),
                    session,
                    state: Some(Bytes::from_static(b"state")),
                },
            ]
        });
        let all = by_number.into_iter().chain(by_lock).chain(walks);
        all.chain(without).chain(of_session).collect()
    }
}

fn every_operation(by_session: bool, forward_to: Option<&str>) {
    for found in ALL {
        let count = Case::new(found, by_session, forward_to).operations().len();
        for nth in 0..count {
            let mut case = Case::new(found, by_session, forward_to);
            let operation = case.operations().swap_remove(nth);
            // Many are refused in that state. That is compared too.
            let _ = case.p.ask(operation);
            case.p.pass_ms(20_000);
            case.p.tick();
        }
    }
}

#[test]
fn every_operation_in_every_state_decides_the_same_without_memory() {
    every_operation(false, None);
}

#[test]
fn likewise_by_session() {
    every_operation(true, None);
}

#[test]
fn likewise_in_a_queue_that_forwards() {
    every_operation(false, Some("destination"));
    every_operation(true, Some("destination"));
}
