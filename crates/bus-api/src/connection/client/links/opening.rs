//! A link that waits for its entity, and perhaps for a session.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::error::Error;
use kew_amqp::performative::Attach;
use kew_broker::{Broker, Rejection};
use kew_engine::bus::{
    Awaited, BusCommand, BusOutcome, BusQueueView, BusRefusal, EntityKind, SessionChoice,
    SessionLock,
};
use kew_engine::{EntityName, Outcome, Refusal};

use super::attached::check_is_destination;
use super::cancel::Cancel;
use crate::ground::address::topic_of;
use crate::ground::refusal::{bus_condition, error_of, not_found};
use crate::ground::submit::Submitted;
use crate::memory::account::Part;

/// A link that waits for its entity.
pub(crate) struct Opening {
    pub(crate) attach: Box<Attach>,
    pub(crate) entity: EntityName,
    /// Where its messages go, if the client only sends them via the entity.
    pub(crate) destination: Option<EntityName>,
    pub(crate) cancel: Arc<Cancel>,
    /// The memory that it takes meanwhile.
    pub(crate) _size: Part,
}

impl Opening {
    /// The client wants it no more.
    pub(crate) fn give_up(self) {
        self.cancel.give_up();
    }
}

/// The entity of a link, and its session.
pub(crate) struct Opened {
    pub(crate) view: BusQueueView,
    pub(crate) session: Option<SessionLock>,
    /// The largest message that the entity, and a destination, accept.
    pub(crate) message_size_bytes_max: u64,
}

/// Reads an entity.
async fn read(broker: &Broker, entity: &EntityName) -> Result<BusQueueView, Error> {
    let read = BusCommand::ReadQueue {
        queue: entity.clone(),
    };
    match Submitted::new(broker, read).answer().await {
        Ok(answer) => match answer.outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => Ok(*view),
            _ => Err(not_found(&entity.name)),
        },
        Err(rejection) => Err(error_of(&rejection)),
    }
}

/// Finds the entity and a destination, and waits for the session.
pub(crate) async fn find(
    broker: Broker,
    (entity, destination): (EntityName, Option<EntityName>),
    choice: Option<SessionChoice>,
    wait: Duration,
    cancel: Arc<Cancel>,
) -> Result<Opened, Error> {
    let mut view = read(&broker, &entity).await?;
    let mut message_size_bytes_max = u64::MAX;
    if let Some(destination) = destination {
        // Failed transfers of a subscription are its topic's: messages are sent via that.
        let topic = topic_of(&entity).filter(|_| view.kind == EntityKind::Subscription);
        if let Some(topic) = topic {
            view = read(&broker, &topic).await?;
        }
        let destination = read(&broker, &destination).await?;
        check_is_destination(&destination)?;
        message_size_bytes_max = destination.options.message_size_bytes_max;
    }
    let message_size_bytes_max = message_size_bytes_max.min(view.options.message_size_bytes_max);
    let Some(session) = choice else {
        return Ok(Opened {
            view,
            session: None,
            message_size_bytes_max,
        });
    };
    // A client that names a session is answered at once.
    let mut watch = match session {
        SessionChoice::Next => Some(broker.watch(view.incarnation, Awaited::Session)),
        SessionChoice::Named(_) => None,
    };
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let accept = BusCommand::AcceptSession {
            queue: entity.clone(),
            session: session.clone(),
        };
        let accepted = Submitted::new(&broker, accept).answer().await;
        if let Some(watch) = &mut watch
            && !matches!(
                accepted,
                Err(Rejection::Busy
                    | Rejection::NotOwner
                    | Rejection::Unknown
                    | Rejection::Full
                    | Rejection::ReadFailed
                    | Rejection::Stopped)
            )
        {
            watch.looked();
        }
        match accepted {
            Ok(answer) => {
                if let Outcome::Bus(BusOutcome::SessionAccepted(lock)) = answer.outcome {
                    return Ok(Opened {
                        view,
                        session: Some(lock),
                        message_size_bytes_max,
                    });
                }
            }
            Err(Rejection::Refused(Refusal::Bus(BusRefusal::NoSessionAvailable))) => {}
            Err(rejection) => return Err(error_of(&rejection)),
        }
        let timeout = || {
            let text = "No session was available within the requested time.";
            Error::new(bus_condition::TIMEOUT, text)
        };
        let Some(watch) = &mut watch else {
            return Err(timeout());
        };
        tokio::select! {
            () = watch.woken() => {}
            () = cancel.cancelled() => return Err(timeout()),
            () = tokio::time::sleep_until(deadline) => return Err(timeout()),
        }
    }
}
