//! Messages of sessions, where pages with messages are damaged: a start has to read the pages of their runs.

use kew_engine::bus::{BusCommand, BusMessage, DeferredRead, ReceiveMode, SessionChoice};
use kew_engine::{EntityName, Timestamp, Token};

use super::bus::{self, WITH_SESSIONS};
use super::clients::Clients;
use super::host::Host;
use super::step::Step;
use crate::bus::checker::life::Part;
use crate::bus::named;
use crate::checker::Violation;

/// Steps without messages set the state of the first one.
const SESSIONS: [&str; 3] = ["session-0", "session-1", "session-2"];

fn queue() -> EntityName {
    named(WITH_SESSIONS, Part::Queue)
}

/// The queue with sessions, and its dead letters.
pub(super) fn parts() -> [EntityName; 2] {
    [Part::Queue, Part::DeadLetters].map(|part| named(WITH_SESSIONS, part))
}

/// The command of a step for messages of sessions.
pub(super) fn command(step: Step, clients: &mut Clients, now: Timestamp) -> Option<BusCommand> {
    let nth = usize::try_from(clients.asked() % 3).expect("below three");
    let is_scheduled = clients.asked() % 4 == 3;
    Some(match step {
        Step::BusSendToSession => BusCommand::Send {
            queue: queue(),
            messages: vec![BusMessage {
                session: Some(SESSIONS[nth].into()),
                ..bus::message(clients, is_scheduled.then_some(now))
            }],
        },
        Step::BusReceiveOfSession => match clients.bus_known().session() {
            Some(session) if nth != 0 => receive(2, session),
            Some(_) | None => accept(SESSIONS[nth]),
        },
        _ => return None,
    })
}

fn accept(session: &str) -> BusCommand {
    BusCommand::AcceptSession {
        queue: queue(),
        session: SessionChoice::Named(session.into()),
    }
}

fn receive(count: u32, session: Token) -> BusCommand {
    BusCommand::Receive {
        queue: queue(),
        count,
        mode: ReceiveMode::PeekLock,
        session: Some(session),
    }
}

/// Accepts each session, which has its state, and removes all that it has.
pub(super) fn take_all(host: &mut Host) -> Result<(), Violation> {
    let [queue, dead_letters] = parts();
    bus::ask(host, vec![bus::peek(queue.clone())])?;
    let deferred = host.clients.bus_known().take_deferred();
    for id in SESSIONS {
        let session = accepted(host, id)?;
        let read_state = BusCommand::ReadSessionState {
            queue: queue.clone(),
            session,
        };
        bus::ask(host, vec![read_state, receive(1000, session)])?;
        for number in &deferred {
            let read = DeferredRead {
                queue: queue.clone(),
                numbers: vec![*number],
                mode: ReceiveMode::PeekLock,
                session: Some(session),
            };
            // Those of other sessions are not found.
            bus::ask(host, vec![BusCommand::ReceiveDeferred { read }])?;
        }
        bus::complete_all(host, &queue)?;
        let release = BusCommand::ReleaseSession {
            queue: queue.clone(),
            session,
        };
        bus::ask(host, vec![release])?;
    }
    bus::take_all(host, &dead_letters)?;
    bus::ask(host, vec![bus::peek(queue), bus::peek(dead_letters)])
}

fn accepted(host: &mut Host, id: &str) -> Result<Token, Violation> {
    host.clients.bus_known().take_session();
    bus::ask(host, vec![accept(id)])?;
    let session = host.clients.bus_known().take_session();
    session.ok_or_else(|| Violation {
        promise: "liveness",
        seen: format!("{id} is not locked, and cannot be accepted"),
    })
}
