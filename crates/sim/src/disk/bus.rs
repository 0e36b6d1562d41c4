//! Bus queues under the disk suites: the steps, and how everything comes out at the end.

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessage, BusQueueOptions, DeferredRead, Disposition, ReceiveMode,
};
use kew_engine::{Command, EntityName, SequenceNumber, Timestamp, Token};

use super::clients::Clients;
use super::host::Host;
use super::step::{Step, body};
use crate::bus::checker::life::Part;
use crate::bus::named;
use crate::checker::Violation;

/// The shortest lock that a queue may give.
const LOCK_MS: u64 = 5_000;
/// Longer than any lock, schedule or life of a message here.
const REST_MS: u64 = 21_000;

/// All clients here use one queue: what is tested is the disk.
fn queue(part: Part) -> EntityName {
    named(0, part)
}

pub(super) fn create_queue() -> Command {
    Command::Bus(BusCommand::CreateQueue {
        queue: queue(Part::Queue),
        options: BusQueueOptions {
            lock_duration_ms: LOCK_MS,
            max_delivery_count: 2,
            dead_letters_expired: true,
            ..BusQueueOptions::default()
        },
    })
}

/// What a step asks of the bus queue, if it is about it. Without a lock to use it sends.
pub(super) fn command(step: Step, clients: &mut Clients, now: Timestamp) -> Option<BusCommand> {
    let settle = |clients: &mut Clients, disposition| match clients.take_bus_lock() {
        Some((part, lock)) => BusCommand::Settle {
            queue: queue(part),
            settlements: vec![(lock, disposition)],
        },
        None => send(clients, None),
    };
    let overlay = Some(Bytes::copy_from_slice(&clients.asked().to_be_bytes()));
    Some(match step {
        Step::BusSend => send(clients, None),
        Step::BusSendScheduled => send(clients, Some(now)),
        Step::BusReceive => receive(Part::Queue, 2),
        Step::BusComplete => settle(clients, Disposition::Complete),
        Step::BusAbandon => settle(clients, Disposition::Abandon { overlay }),
        Step::BusDefer => settle(clients, Disposition::Defer { overlay: None }),
        Step::BusDeadLetter => settle(clients, Disposition::DeadLetter { overlay }),
        Step::BusRenew => match clients.last_bus_lock() {
            Some((part, lock)) => BusCommand::RenewLocks {
                queue: queue(part),
                locks: vec![lock],
            },
            None => send(clients, None),
        },
        _ => return None,
    })
}

/// A message whose number is that of what was asked; scheduled for a while after `now`.
fn send(clients: &Clients, now: Option<Timestamp>) -> BusCommand {
    let mut bytes = (clients.asked() + 1).to_be_bytes().to_vec();
    bytes.extend(body(clients, "on the bus"));
    let message = BusMessage {
        body: bytes.into(),
        message_id: None,
        session: None,
        time_to_live_ms: now.map(|_| 40_000),
        scheduled_at: now.map(|now| now.plus_ms(10_000)),
    };
    BusCommand::Send {
        queue: queue(Part::Queue),
        messages: vec![message],
    }
}

fn receive(part: Part, count: u32) -> BusCommand {
    BusCommand::Receive {
        queue: queue(part),
        count,
        mode: ReceiveMode::PeekLock,
        session: None,
    }
}

fn peek(part: Part) -> BusCommand {
    BusCommand::Peek {
        queue: queue(part),
        from: SequenceNumber::default(),
        count: 1000,
        session: None,
    }
}

/// Takes everything out, and looks whether nothing is left.
pub(super) fn drain(host: &mut Host) -> Result<(), Violation> {
    let parts = [Part::Queue, Part::DeadLetters];
    for _ in 0..3 {
        host.pass_time(REST_MS);
        // What is due may take more than one turn.
        for _ in 0..4 {
            host.ask_all(Vec::new())?;
        }
        let read = BusCommand::ReadQueue {
            queue: queue(Part::Queue),
        };
        ask(host, vec![read])?;
        for part in parts {
            ask(host, vec![peek(part), receive(part, 1000)])?;
            while let Some(number) = host.clients.take_bus_deferred() {
                let read = DeferredRead {
                    queue: queue(part),
                    numbers: vec![number],
                    mode: ReceiveMode::PeekLock,
                    session: None,
                };
                ask(host, vec![BusCommand::ReceiveDeferred { read }])?;
            }
            let mut settlements: Vec<(Token, Disposition)> = Vec::new();
            while let Some((of, lock)) = host.clients.take_bus_lock() {
                if of == part {
                    settlements.push((lock, Disposition::Complete));
                }
            }
            let queue = queue(part);
            ask(host, vec![BusCommand::Settle { queue, settlements }])?;
        }
    }
    // Whoever misses one of these says so.
    ask(host, parts.map(peek).to_vec())?;
    host.clients.check_bus_drained()
}

fn ask(host: &mut Host, commands: Vec<BusCommand>) -> Result<(), Violation> {
    host.ask_all(commands.into_iter().map(Command::Bus).collect())
}
