//! Bus queues in the disk suites: the steps, the knowledge of clients, and the drain at the end.

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessage, BusMessageState, BusOutcome, BusQueueOptions, DeferredRead,
    Disposition, ReceiveMode, Resubmission, Resubmit, SessionChoice,
};
use kew_engine::{BodyLocation, Command, EntityName, Outcome, SequenceNumber, Timestamp, Token};

use super::clients::Clients;
use super::host::Host;
use super::sessions;
use super::step::{Step, body};
use crate::bus::checker::life::Part;
use crate::bus::{named, queue_name, topics};
use crate::checker::Violation;

/// The shortest lock duration of a queue.
const LOCK_MS: u64 = 5_000;
/// Longer than any lock, schedule or life of a message here.
pub(super) const REST_MS: u64 = 21_000;
/// The queue that most steps use.
const USED: usize = 0;
/// A queue with a session that has a state. It has messages in the suite of messages that are set aside alone.
pub(super) const WITH_SESSIONS: usize = 1;
/// A queue that is created and deleted repeatedly; resubmitted messages may go there.
const OTHER: usize = 2;

/// The topic. What is resubmitted to it waits there for its copies.
pub(super) const TOPIC: usize = topics::GATHERING;
/// Its subscriptions: the first one, and one without sessions.
pub(super) const SUBSCRIPTIONS: [usize; 2] = [TOPIC + 1, TOPIC + 3];

const SESSION: &str = "session-0";

/// Most clients use one queue here, because the disk is under test.
fn queue(part: Part) -> EntityName {
    named(USED, part)
}

/// What clients know about bus queues. The latest is last.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    locks: Vec<(EntityName, Token)>,
    /// Numbers of deferred messages.
    deferred: Vec<SequenceNumber>,
    /// Messages that were shown, with the first bytes of their bodies.
    shown: Vec<Shown>,
    session: Option<Token>,
    /// Whether the other queue exists.
    has_other: bool,
    /// Whether messages of sessions were sent.
    has_session_messages: bool,
}

#[derive(Clone, Debug)]
struct Shown {
    queue: EntityName,
    number: SequenceNumber,
    body: [u8; 8],
    overlay_count: u32,
}

impl Known {
    /// Learns from an answer that was read completely.
    pub(super) fn learn(&mut self, command: &Command, outcome: &Outcome, bodies: &[Bytes]) {
        let (Command::Bus(command), Outcome::Bus(outcome)) = (command, outcome) else {
            return;
        };
        let mut bodies = bodies.iter();
        match (command, outcome) {
            (
                BusCommand::Receive { queue, .. }
                | BusCommand::ReceiveDeferred {
                    read: DeferredRead { queue, .. },
                },
                BusOutcome::Received(messages),
            ) => {
                for message in messages {
                    self.locks
                        .extend(message.lock.map(|lock| (queue.clone(), lock)));
                    let number = message.sequence_number;
                    self.learn_shown(queue, number, &message.overlays, &mut bodies);
                }
            }
            (BusCommand::Peek { queue, .. }, BusOutcome::Peeked(messages)) => {
                for message in messages {
                    let number = message.sequence_number;
                    if message.state == BusMessageState::Deferred {
                        self.deferred.push(number);
                    }
                    self.learn_shown(queue, number, &message.overlays, &mut bodies);
                }
            }
            (_, BusOutcome::SessionAccepted(accepted)) => self.session = Some(accepted.lock),
            (BusCommand::CreateQueue { queue, .. }, BusOutcome::QueueCreated(_)) => {
                self.has_other |= *queue == named(OTHER, Part::Queue);
            }
            (_, BusOutcome::QueueDeleted) => self.has_other = false,
            (BusCommand::Send { queue, .. }, BusOutcome::Sent(_)) => {
                self.has_session_messages |= *queue == named(WITH_SESSIONS, Part::Queue);
            }
            _ => {}
        }
    }

    fn learn_shown<'a>(
        &mut self,
        queue: &EntityName,
        number: SequenceNumber,
        overlays: &[BodyLocation],
        bodies: &mut impl Iterator<Item = &'a Bytes>,
    ) {
        let body = bodies.next().and_then(|body| body.first_chunk::<8>());
        bodies.take(overlays.len()).for_each(drop);
        let Some(body) = body.copied() else { return };
        self.shown
            .retain(|known| known.number != number || known.queue != *queue);
        self.shown.push(Shown {
            queue: queue.clone(),
            number,
            body,
            overlay_count: u32::try_from(overlays.len()).expect("a message has few changes"),
        });
    }

    /// A message of this part that was shown, for a step that removes it.
    fn take_shown(&mut self, part: Part) -> Option<Shown> {
        let queue = queue(part);
        let place = self.shown.iter().rposition(|known| known.queue == queue)?;
        Some(self.shown.remove(place))
    }

    /// The session that was accepted last.
    pub(super) fn session(&self) -> Option<Token> {
        self.session
    }

    /// The same, and from now on none is known.
    pub(super) fn take_session(&mut self) -> Option<Token> {
        self.session.take()
    }

    /// The numbers of messages that were shown as deferred.
    pub(super) fn take_deferred(&mut self) -> Vec<SequenceNumber> {
        std::mem::take(&mut self.deferred)
    }

    /// Whether a client has a lock to use.
    pub(super) fn has_lock(&self) -> bool {
        !self.locks.is_empty()
    }
}

/// Commands that create the queues, and the topic with its subscriptions.
pub(super) fn create_queues() -> Vec<Command> {
    let topic = named(TOPIC, Part::Queue);
    let create_topic = BusCommand::CreateTopic {
        topic: topic.clone(),
        options: BusQueueOptions::default(),
    };
    let subscriptions = SUBSCRIPTIONS.map(|it| BusCommand::CreateSubscription {
        topic: topic.clone(),
        subscription: named(it, Part::Queue),
        options: options(false),
        rule: None,
    });
    let queues = [
        create(USED, false),
        create(WITH_SESSIONS, true),
        create_topic,
    ];
    let all = queues.into_iter().chain(subscriptions);
    all.map(Command::Bus).collect()
}

fn create(queue: usize, requires_session: bool) -> BusCommand {
    BusCommand::CreateQueue {
        queue: named(queue, Part::Queue),
        options: options(requires_session),
    }
}

fn options(requires_session: bool) -> BusQueueOptions {
    BusQueueOptions {
        lock_duration_ms: LOCK_MS,
        max_delivery_count: 2,
        dead_letters_expired: true,
        requires_session,
        ..BusQueueOptions::default()
    }
}

/// The bus command of a step, if it has one. Without a lock to use it sends.
pub(super) fn command(step: Step, clients: &mut Clients, now: Timestamp) -> Option<BusCommand> {
    let settle = |clients: &mut Clients, disposition| match clients.bus_known().locks.pop() {
        Some((queue, lock)) => BusCommand::Settle {
            queue,
            settlements: vec![(lock, disposition)],
        },
        None => send(clients, None),
    };
    let overlay = Some(Bytes::copy_from_slice(&clients.asked().to_be_bytes()));
    Some(match step {
        Step::BusSend => send(clients, None),
        Step::BusSendScheduled => send(clients, Some(now)),
        Step::BusReceive => receive(queue(Part::Queue), 2),
        Step::BusPublish => BusCommand::Send {
            queue: named(TOPIC, Part::Queue),
            messages: vec![message(clients, None)],
        },
        Step::BusReceiveCopy => receive(named(SUBSCRIPTIONS[0], Part::Queue), 2),
        Step::BusComplete => settle(clients, Disposition::Complete),
        Step::BusAbandon => settle(clients, Disposition::Abandon { overlay }),
        Step::BusDefer => settle(clients, Disposition::Defer { overlay: None }),
        Step::BusDeadLetter => settle(clients, Disposition::DeadLetter { overlay }),
        Step::BusRenew => match clients.bus_known().locks.last().cloned() {
            Some((queue, lock)) => BusCommand::RenewLocks {
                queue,
                locks: vec![lock],
            },
            None => send(clients, None),
        },
        Step::BusPeek => peek(queue(Part::DeadLetters)),
        Step::BusResubmit => resubmit(clients),
        Step::BusDelete => match clients.bus_known().take_shown(Part::Queue) {
            Some(known) => BusCommand::DeleteMessage {
                queue: known.queue,
                number: known.number,
                with_locked: true,
            },
            None => peek(queue(Part::Queue)),
        },
        Step::BusSession => use_session(clients),
        Step::BusQueue if clients.bus_known().has_other => BusCommand::DeleteQueue {
            queue: named(OTHER, Part::Queue),
        },
        Step::BusQueue => create(OTHER, false),
        _ => return None,
    })
}

fn send(clients: &Clients, now: Option<Timestamp>) -> BusCommand {
    BusCommand::Send {
        queue: queue(Part::Queue),
        messages: vec![message(clients, now)],
    }
}

/// A message with the number of this operation; scheduled for a while after `now`. Then it expires: while clients empty
/// their queues, or long after that.
pub(super) fn message(clients: &Clients, now: Option<Timestamp>) -> BusMessage {
    let mut bytes = (clients.asked() + 1).to_be_bytes().to_vec();
    bytes.extend(body(clients, "on the bus"));
    let lives_ms = match clients.asked().is_multiple_of(2) {
        true => 40_000,
        false => 4_000_000,
    };
    BusMessage {
        body: bytes.into(),
        message_id: None,
        session: None,
        time_to_live_ms: now.map(|_| lives_ms),
        scheduled_at: now.map(|now| now.plus_ms(10_000)),
    }
}

/// Resubmits a dead letter, with other bytes after its number. If none was shown, it peeks for
/// some.
fn resubmit(clients: &mut Clients) -> BusCommand {
    let Some(known) = clients.bus_known().take_shown(Part::DeadLetters) else {
        return peek(queue(Part::DeadLetters));
    };
    let to = match clients.asked().is_multiple_of(2) {
        true => Some(TOPIC),
        false => clients.bus_known().has_other.then_some(OTHER),
    };
    let mut bytes = known.body.to_vec();
    bytes.extend(body(clients, "again"));
    let message = Resubmission {
        sequence_number: known.number,
        overlay_count: known.overlay_count,
        body: bytes.into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
    };
    BusCommand::Resubmit {
        queue: known.queue,
        resubmit: Resubmit {
            to: to.map(|to| queue_name(to).into()),
            messages: vec![message],
        },
    }
}

/// Sets a session's state or, without its lock, accepts it.
fn use_session(clients: &mut Clients) -> BusCommand {
    let state = clients.asked().to_string();
    let queue = named(WITH_SESSIONS, Part::Queue);
    match clients.bus_known().session.take() {
        Some(session) => BusCommand::SetSessionState {
            queue,
            session,
            state: Some(state.into()),
        },
        None => BusCommand::AcceptSession {
            queue,
            session: SessionChoice::Named(SESSION.into()),
        },
    }
}

pub(super) fn receive(queue: EntityName, count: u32) -> BusCommand {
    BusCommand::Receive {
        queue,
        count,
        mode: ReceiveMode::PeekLock,
        session: None,
    }
}

pub(super) fn peek(queue: EntityName) -> BusCommand {
    BusCommand::Peek {
        queue,
        from: SequenceNumber::default(),
        count: 1000,
        session: None,
    }
}

/// Every entity that may have messages. The failed transfers of the topic come first: what is there has no copies.
pub(super) fn parts() -> Vec<EntityName> {
    let parts = [
        (TOPIC, Part::FailedTransfers),
        (USED, Part::Queue),
        (USED, Part::DeadLetters),
        (OTHER, Part::Queue),
        (OTHER, Part::DeadLetters),
        (SUBSCRIPTIONS[0], Part::Queue),
        (SUBSCRIPTIONS[0], Part::DeadLetters),
        (SUBSCRIPTIONS[1], Part::Queue),
        (SUBSCRIPTIONS[1], Part::DeadLetters),
    ];
    parts
        .into_iter()
        .map(|(queue, part)| named(queue, part))
        .collect()
}

/// Removes everything, and checks that nothing is left.
pub(super) fn drain(host: &mut Host) -> Result<(), Violation> {
    let parts = parts();
    let [failed, received @ ..] = &parts[..] else {
        return Ok(());
    };
    for _ in 0..3 {
        host.rest()?;
        ask(host, vec![peek(failed.clone())])?;
        let list = BusCommand::ListQueues {
            namespace: crate::bus::NAMESPACE.into(),
            from: "".into(),
            skip: 0,
            limit: 10,
        };
        ask(host, vec![list])?;
        for part in received {
            take_all(host, part)?;
        }
        if host.clients.bus_known().has_session_messages {
            sessions::take_all(host)?;
        }
    }
    // The checker reports a message that is missing here.
    ask(host, parts.into_iter().map(peek).collect())?;
    check_session(host)?;
    host.clients.check_bus_drained()
}

/// Receives all that can be received of an entity without sessions, and all that is deferred there, and completes it.
pub(super) fn take_all(host: &mut Host, part: &EntityName) -> Result<(), Violation> {
    ask(host, vec![peek(part.clone()), receive(part.clone(), 1000)])?;
    while let Some(number) = host.clients.bus_known().deferred.pop() {
        let read = DeferredRead {
            queue: part.clone(),
            numbers: vec![number],
            mode: ReceiveMode::PeekLock,
            session: None,
        };
        ask(host, vec![BusCommand::ReceiveDeferred { read }])?;
    }
    complete_all(host, part)
}

/// Completes all messages of an entity whose locks are known.
pub(super) fn complete_all(host: &mut Host, part: &EntityName) -> Result<(), Violation> {
    let locks = std::mem::take(&mut host.clients.bus_known().locks);
    let of_part = locks.into_iter().filter(|(queue, _)| queue == part);
    let settlements: Vec<_> = of_part
        .map(|(_, lock)| (lock, Disposition::Complete))
        .collect();
    let queue = part.clone();
    ask(host, vec![BusCommand::Settle { queue, settlements }])
}

/// The session has the state that was set.
fn check_session(host: &mut Host) -> Result<(), Violation> {
    host.clients.bus_known().session = None;
    let accept = use_session(&mut host.clients);
    ask(host, vec![accept])?;
    let session = host.clients.bus_known().session.take();
    let Some(session) = session else {
        return Err(Violation {
            promise: "liveness",
            seen: "a session is not locked, and cannot be accepted".to_owned(),
        });
    };
    let queue = named(WITH_SESSIONS, Part::Queue);
    let read = BusCommand::ReadSessionState { queue, session };
    ask(host, vec![read])
}

pub(super) fn ask(host: &mut Host, commands: Vec<BusCommand>) -> Result<(), Violation> {
    host.ask_all(commands.into_iter().map(Command::Bus).collect())
}
