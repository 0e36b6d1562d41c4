//! Operations on a bus queue.

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode, SessionChoice,
};
use kew_engine::{Command, EntityName, Outcome, Service, Token};

use super::partition::{Failure, Partition};

fn queue() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "namespace".into(),
        name: "queue".into(),
    }
}

fn ask(p: &mut Partition, command: BusCommand) -> Result<BusOutcome, Failure> {
    match p.ask(Command::Bus(command))? {
        Outcome::Bus(outcome) => Ok(outcome),
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn create(p: &mut Partition, options: BusQueueOptions) -> Result<(), Failure> {
    ask(
        p,
        BusCommand::CreateQueue {
            queue: queue(),
            options,
        },
    )?;
    Ok(())
}

pub(crate) fn message() -> BusMessage {
    BusMessage {
        body: Bytes::from_static(&[b'x'; 64]),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

pub(crate) fn send(p: &mut Partition, messages: Vec<BusMessage>) -> Result<(), Failure> {
    ask(
        p,
        BusCommand::Send {
            queue: queue(),
            messages,
        },
    )?;
    Ok(())
}

/// Locks the next session.
pub(crate) fn accept(p: &mut Partition) -> Result<Token, Failure> {
    let accept = BusCommand::AcceptSession {
        queue: queue(),
        session: SessionChoice::Next,
    };
    match ask(p, accept)? {
        BusOutcome::SessionAccepted(lock) => Ok(lock.lock),
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn release(p: &mut Partition, session: Token) -> Result<(), Failure> {
    let release = BusCommand::ReleaseSession {
        queue: queue(),
        session,
    };
    ask(p, release)?;
    Ok(())
}

/// The locks of the messages that were received.
pub(crate) fn receive(
    p: &mut Partition,
    count: usize,
    mode: ReceiveMode,
    session: Option<Token>,
) -> Result<Vec<Token>, Failure> {
    let receive = BusCommand::Receive {
        queue: queue(),
        count: u32::try_from(count)?,
        mode,
        session,
    };
    match ask(p, receive)? {
        BusOutcome::Received(messages) => {
            Ok(messages.iter().filter_map(|message| message.lock).collect())
        }
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn settle(
    p: &mut Partition,
    locks: Vec<Token>,
    how: &Disposition,
) -> Result<(), Failure> {
    let settlements = locks.into_iter().map(|lock| (lock, how.clone()));
    ask(
        p,
        BusCommand::Settle {
            queue: queue(),
            settlements: settlements.collect(),
        },
    )?;
    Ok(())
}
