//! Every operation on a message in every state and every kind of entity. The partition of these tests gives each command to
//! a state with nothing in memory too, and compares.

mod operations;

use super::*;
use crate::event::Fact;

/// Where the message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Queue,
    /// The dead letters of a queue.
    DeadLetters,
    Subscription,
}

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
    SetAside,
    Gone,
}

const ALL: [Found; 10] = [
    Found::Ready,
    Found::Expired,
    Found::Locked,
    Found::LockEnded,
    Found::Deferred,
    Found::DeferredLocked,
    Found::Scheduled,
    Found::ScheduleDue,
    Found::SetAside,
    Found::Gone,
];

impl Place {
    /// Whether a message can be in that state there: dead letters do not expire, and what is scheduled waits in the topic.
    fn has(self, found: Found) -> bool {
        match found {
            Found::Scheduled | Found::ScheduleDue => self == Self::Queue,
            Found::Expired => self != Self::DeadLetters,
            Found::Ready
            | Found::Locked
            | Found::LockEnded
            | Found::Deferred
            | Found::DeferredLocked
            | Found::SetAside
            | Found::Gone => true,
        }
    }

    fn entity(self) -> EntityName {
        match self {
            Self::Queue => jobs(),
            Self::DeadLetters => dead(),
            Self::Subscription => subscription(),
        }
    }

    /// What its messages are sent to.
    fn sent_to(self) -> EntityName {
        match self {
            Self::Queue | Self::DeadLetters => jobs(),
            Self::Subscription => topic(),
        }
    }
}

fn topic() -> EntityName {
    entity("t")
}

fn subscription() -> EntityName {
    entity("t/subscriptions/s")
}

/// How the entities are set up.
#[derive(Clone, Copy, Debug)]
struct Setting {
    place: Place,
    by_session: bool,
    forwards: bool,
}

impl Setting {
    fn options(self) -> BusQueueOptions {
        BusQueueOptions {
            requires_session: self.by_session,
            max_delivery_count: 2,
            lock_duration_ms: 10_000,
            ..BusQueueOptions::default()
        }
    }
}

/// A message in a state, with others around it.
struct Case {
    p: Partition,
    setting: Setting,
    number: SequenceNumber,
    lock: Token,
    session: Option<Token>,
}

impl Case {
    fn new(found: Found, setting: Setting) -> Self {
        let mut case = Self {
            p: Partition::new(),
            setting,
            number: SequenceNumber::default(),
            lock: Token::from_bytes([0; 16]),
            session: None,
        };
        case.create(found);
        case.send_all(found);
        match setting.place {
            Place::DeadLetters => case.bury_all(),
            Place::Queue | Place::Subscription => {
                case.session = case.lock_session(setting.place.entity());
            }
        }
        case.number = case.first();
        case.bring_to(found);
        if setting.forwards {
            let options = BusQueueOptions {
                forward_to: Some("destination".into()),
                ..setting.options()
            };
            let queue = setting.place.entity();
            case.p
                .ask(BusCommand::UpdateQueue { queue, options })
                .unwrap();
        }
        case
    }

    fn create(&mut self, found: Found) {
        let p = &mut self.p;
        p.create(&entity("destination"), BusQueueOptions::default())
            .unwrap();
        let options = BusQueueOptions {
            dead_letters_expired: found == Found::Expired,
            ..self.setting.options()
        };
        match self.setting.place {
            Place::Queue | Place::DeadLetters => drop(p.create(&jobs(), options).unwrap()),
            Place::Subscription => {
                let (topic, subscription) = (topic(), subscription());
                p.ask(BusCommand::CreateTopic {
                    topic: topic.clone(),
                    options: BusQueueOptions::default(),
                })
                .unwrap();
                p.ask(BusCommand::CreateSubscription {
                    topic,
                    subscription,
                    options,
                    rule: None,
                })
                .unwrap();
            }
        }
    }

    /// The message that is meant comes first.
    fn send_all(&mut self, found: Found) {
        let by_session = self.setting.by_session;
        let message = |text: &str| BusMessage {
            session: by_session.then(|| "s".into()),
            ..super::text(text)
        };
        let is_scheduled = matches!(found, Found::Scheduled | Found::ScheduleDue);
        let meant = BusMessage {
            time_to_live_ms: (found == Found::Expired).then_some(5_000),
            scheduled_at: is_scheduled.then(|| self.p.now.plus_ms(5_000)),
            ..message("meant")
        };
        let others = [(); 6].map(|()| message("another"));
        for message in [meant].into_iter().chain(others) {
            let queue = self.setting.place.sent_to();
            let messages = vec![message];
            self.p.ask(BusCommand::Send { queue, messages }).unwrap();
        }
        self.p.tick();
    }

    fn bury_all(&mut self) {
        let session = self.lock_session(jobs());
        for message in self.p.receive_from(&jobs(), session) {
            let bury = Disposition::DeadLetter { overlay: None };
            self.p.settle(message.lock.unwrap(), bury);
        }
    }

    fn lock_session(&mut self, queue: EntityName) -> Option<Token> {
        let session = SessionChoice::Next;
        let accepted = |p: &mut Partition| p.ask(BusCommand::AcceptSession { queue, session });
        let accepted = self.setting.by_session.then(|| accepted(&mut self.p));
        accepted.map(|accepted| match accepted {
            Ok(BusOutcome::SessionAccepted(lock)) => lock.lock,
            other => panic!("{other:?}"),
        })
    }

    fn first(&mut self) -> SequenceNumber {
        let peeked = self.p.ask(BusCommand::Peek {
            queue: self.setting.place.entity(),
            from: SequenceNumber::default(),
            count: 1,
            session: None,
        });
        match peeked {
            Ok(BusOutcome::Peeked(messages)) => messages[0].sequence_number,
            other => panic!("{other:?}"),
        }
    }

    fn bring_to(&mut self, found: Found) {
        match found {
            Found::Ready | Found::Scheduled => {}
            Found::Expired | Found::ScheduleDue => self.p.pass_ms(5_000),
            Found::Locked => self.receive_first(),
            Found::LockEnded => {
                self.receive_first();
                self.p.pass_ms(10_000);
            }
            Found::SetAside => self.set_aside(),
            Found::Deferred | Found::DeferredLocked | Found::Gone => {
                self.receive_first();
                let disposition = match found {
                    Found::Gone => Disposition::Complete,
                    _ => Disposition::Defer { overlay: None },
                };
                let queue = self.setting.place.entity();
                self.p.settle_in(&queue, self.lock, disposition);
                if found == Found::DeferredLocked {
                    let read = self.deferred_read(ReceiveMode::PeekLock);
                    self.p.ask(BusCommand::ReceiveDeferred { read }).unwrap();
                }
            }
        }
    }

    /// As if its record could not be read any more.
    fn set_aside(&mut self) {
        let queue = self.setting.place.entity();
        let entity = self.p.state.catalogue.find(&queue).unwrap();
        let (at, first) = (self.p.now, self.number);
        self.p.change(|state| {
            state.apply(Event {
                at,
                fact: Fact::Quarantined {
                    entity,
                    first,
                    messages: 1,
                },
            });
        });
    }

    fn receive_first(&mut self) {
        let received = self.p.ask(BusCommand::Receive {
            queue: self.setting.place.entity(),
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
            queue: self.setting.place.entity(),
            numbers: vec![self.number],
            mode,
            session: self.session,
        }
    }
}

fn every_operation(place: Place, by_session: bool, forwards: bool) {
    let setting = Setting {
        place,
        by_session,
        forwards,
    };
    for found in ALL.into_iter().filter(|found| place.has(*found)) {
        let count = Case::new(found, setting).operations().len();
        for nth in 0..count {
            let mut case = Case::new(found, setting);
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
    every_operation(Place::Queue, false, false);
}

#[test]
fn likewise_by_session() {
    every_operation(Place::Queue, true, false);
}

#[test]
fn likewise_in_a_queue_that_forwards() {
    every_operation(Place::Queue, false, true);
    every_operation(Place::Queue, true, true);
}

#[test]
fn likewise_among_dead_letters() {
    every_operation(Place::DeadLetters, false, false);
    every_operation(Place::DeadLetters, true, false);
}

#[test]
fn likewise_in_a_subscription() {
    every_operation(Place::Subscription, false, false);
    every_operation(Place::Subscription, true, true);
}
