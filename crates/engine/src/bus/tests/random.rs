//! A random client: after any of its commands, a replay and a snapshot give the same state.

use proptest::prelude::*;

use super::*;
use crate::snapshot::tests::{UnderWay, meanwhile};

/// What a random client does next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send {
        session: u8,
        ttl_ms: Option<u64>,
        delay_ms: Option<u64>,
        id: u8,
    },
    Receive {
        delete: bool,
    },
    Settle {
        which: usize,
        how: u8,
    },
    Accept(u8),
    SetState(Option<u8>),
    Leave,
    Defer(usize),
    ReadDeferred(usize),
    Operate {
        number: u64,
        how: u8,
    },
    Pass(u64),
    Tick,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..3, proptest::option::of(1_000u64..90_000), proptest::option::of(0u64..90_000), 0u8..20)
            .prop_map(|(session, ttl_ms, delay_ms, id)| Step::Send { session, ttl_ms, delay_ms, id }),
        4 => any::<bool>().prop_map(|delete| Step::Receive { delete }),
        4 => (any::<usize>(), 0u8..4).prop_map(|(which, how)| Step::Settle { which, how }),
        1 => (0u8..4).prop_map(Step::Accept),
        1 => proptest::option::of(any::<u8>()).prop_map(Step::SetState),
        1 => Just(Step::Leave),
        1 => any::<usize>().prop_map(Step::Defer),
        1 => any::<usize>().prop_map(Step::ReadDeferred),
        2 => (0u64..12, 0u8..9).prop_map(|(number, how)| Step::Operate { number, how }),
        2 => (0u64..70_000).prop_map(Step::Pass),
        1 => Just(Step::Tick),
    ]
}

#[derive(Default)]
pub(super) struct Client {
    pub(super) held: Vec<Token>,
    seen: Vec<SequenceNumber>,
    session: Option<Token>,
}

impl Client {
    pub(super) fn step(&mut self, p: &mut Partition, step: Step, sessions: bool) {
        match step {
            Step::Send {
                session,
                ttl_ms,
                delay_ms,
                id,
            } => {
                let message = BusMessage {
                    session: sessions.then(|| format!("s{session}").into()),
                    time_to_live_ms: ttl_ms,
                    scheduled_at: delay_ms.map(|ms| p.now.plus_ms(ms)),
                    message_id: Some(format!("{id}").into()),
                    ..text("x")
                };
                match p.send(message) {
                    Ok(_) | Err(BusRefusal::QuotaExceeded { .. }) => {}
                    Err(refusal) => panic!("{refusal}"),
                }
            }
            Step::Receive { delete } => {
                let mode = if delete {
                    ReceiveMode::ReceiveAndDelete
                } else {
                    ReceiveMode::PeekLock
                };
                let session = self.session.filter(|_| sessions);
                let command = BusCommand::Receive {
                    queue: jobs(),
                    count: 2,
                    mode,
                    session,
                };
                if let Ok(BusOutcome::Received(messages)) = p.ask(command) {
                    self.seen
                        .extend(messages.iter().map(|message| message.sequence_number));
                    self.held
                        .extend(messages.iter().filter_map(|message| message.lock));
                }
            }
            Step::Settle { which, how } if !self.held.is_empty() => {
                let lock = self.held.swap_remove(which % self.held.len());
                p.settle(
                    lock,
                    match how {
                        0 => Disposition::Complete,
                        1 => Disposition::Abandon {
                            overlay: Some(Bytes::from_static(b"o")),
                        },
                        2 => Disposition::DeadLetter { overlay: None },
                        _ => Disposition::Release,
                    },
                );
            }
            Step::Accept(which) => {
                let choice = match which {
                    3 => SessionChoice::Next,
                    which => SessionChoice::Named(format!("s{which}").into()),
                };
                self.session = p.accept(choice).ok().map(|lock| lock.lock).or(self.session);
            }
            Step::SetState(size_bytes) => {
                if let Some(session) = self.session {
                    let state = size_bytes.map(|it| vec![0; it.into()].into());
                    // It may be lost, and the queue may be full.
                    let _ = p.ask(BusCommand::SetSessionState {
                        queue: jobs(),
                        session,
                        state,
                    });
                }
            }
            Step::Leave => {
                if let Some(session) = self.session.take() {
                    let _ = p.ask(BusCommand::ReleaseSession {
                        queue: jobs(),
                        session,
                    });
                }
            }
            Step::Defer(which) if !self.held.is_empty() => {
                let lock = self.held.swap_remove(which % self.held.len());
                p.settle(lock, Disposition::Defer { overlay: None });
            }
            Step::ReadDeferred(which) if !self.seen.is_empty() => {
                let read = DeferredRead {
                    queue: jobs(),
                    numbers: vec![self.seen[which % self.seen.len()]],
                    mode: ReceiveMode::PeekLock,
                    session: self.session.filter(|_| sessions),
                };
                if let Ok(BusOutcome::Received(messages)) =
                    p.ask(BusCommand::ReceiveDeferred { read })
                {
                    self.held
                        .extend(messages.iter().filter_map(|message| message.lock));
                }
            }
            Step::Operate { number, how } => operate::random(p, number, how),
            Step::Pass(ms) => p.pass_ms(ms),
            Step::Tick => p.tick(),
            Step::Settle { .. } | Step::Defer(_) | Step::ReadDeferred(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn a_replay_and_a_snapshot_give_the_same_state(
        steps in proptest::collection::vec((step(), meanwhile()), 1..120),
        sessions: bool,
        duplicates: bool,
        dead_letters_expired: bool,
        is_small: bool,
    ) {
        let mut p = Partition::with(BusQueueOptions {
            requires_session: sessions,
            duplicate_window_ms: duplicates.then_some(20_000),
            max_delivery_count: 3,
            dead_letters_expired,
            size_bytes_max: if is_small { 1_500 } else { 1 << 30 },
            ..BusQueueOptions::default()
        });
        let (mut client, mut snapshots) = (Client::default(), UnderWay::default());
        for (step, meanwhile) in steps {
            client.step(&mut p, step, sessions);
            snapshots.pass(&mut p.state, meanwhile);
            for queue in p.state.bus.values() {
                queue.backlog.check();
            }
            overview::check(&mut p.state, p.now);
            p.state.check_live_bytes();
        }
        snapshots.finish(&mut p.state);
        prop_assert_eq!(&p.replayed(), &p.state);
        prop_assert_eq!(&p.restored(), &p.state);
        prop_assert_eq!(p.size_bytes_when_empty(), 0);
        prop_assert_eq!(&p.replayed(), &p.state);
    }
}
