//! What becomes of links when their entity is changed or deleted.
//!
//! A link is detached once its entity is gone, or no longer does what the link is for. That holds for
//! links that wait as for those that have not asked for anything.

use kew_amqp::LinkId;
use kew_amqp::error::Error;
use kew_amqp::performative::Role;
use kew_broker::{Answer, ChangeWatch, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, BusRefusal};
use kew_engine::{EntityName, Incarnation, Outcome, Refusal};

use super::{Client, Done, Link};
use crate::ground::refusal::{error_of, not_found};
use crate::ground::submit::Submitted;

/// The entity of a link, as it was when it was attached.
pub(super) struct Attached {
    pub(super) entity: EntityName,
    pub(super) incarnation: Incarnation,
    change: ChangeWatch,
}

impl Attached {
    /// Bytes of its texts.
    pub(super) fn size_bytes(&self) -> usize {
        self.entity.name.len()
    }
}

impl Client {
    /// The entity of a link that is about to be attached.
    pub(super) fn attached(&self, entity: EntityName, incarnation: Incarnation) -> Attached {
        let change = self.shared.broker.watch_changes(incarnation, &self.changes);
        Attached {
            entity,
            incarnation,
            change,
        }
    }

    /// Reads what a link's entity is now.
    pub(super) fn look(&mut self, link: LinkId) {
        let Some(attached) = self.links.get(&link).and_then(Link::attached) else {
            return;
        };
        let queue = attached.entity.clone();
        let read = Submitted::new(&self.shared.broker, BusCommand::ReadQueue { queue });
        self.looks += 1;
        self.tasks.spawn(async move {
            let view = read.answer().await.map(view_of);
            Done::Looked(link, view)
        });
    }

    pub(super) fn on_looked(
        &mut self,
        link: LinkId,
        view: Result<Option<Box<BusQueueView>>, Rejection>,
    ) {
        let Some(own) = self.links.get(&link) else {
            return;
        };
        let (Some(attached), Some(role)) = (own.attached(), own.role()) else {
            return;
        };
        let error = match view {
            // There may be another of that name by now: it is not the one that was attached to.
            Ok(Some(view)) if view.incarnation == attached.incarnation => {
                check_usable(&view, role).err()
            }
            Ok(_) => Some(not_found(&attached.entity.name)),
            Err(rejection @ Rejection::Refused(_)) => Some(error_of(&rejection)),
            // It is looked at again, when the broker has room.
            Err(Rejection::Busy | Rejection::Full) => {
                self.tasks.spawn(async move {
                    tokio::time::sleep(super::BUSY_PAUSE).await;
                    Done::LookAgain(link)
                });
                None
            }
            // To look at a queue reads no message.
            Err(Rejection::Stopped | Rejection::Unreadable) => None,
        };
        if let Some(error) = error {
            self.detach(link, error);
        }
    }
}

/// What the answer to a look at a queue says of it.
pub(super) fn view_of(answer: Answer) -> Option<Box<BusQueueView>> {
    match answer.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => Some(Box::new(view)),
        _ => None,
    }
}

impl Link {
    /// Whether its entity may have changed since this was asked last.
    pub(super) fn may_have_changed(&self) -> bool {
        self.attached().is_some_and(|it| it.change.take())
    }

    /// Its entity, if it is a link to one.
    fn attached(&self) -> Option<&Attached> {
        match self {
            Self::Sender(sender) => Some(&sender.attached),
            Self::Receiver(receiver) => Some(&receiver.attached),
            Self::Opening(_) | Self::Requests(_) | Self::Replies(_) | Self::Coordinator => None,
        }
    }

    /// What the client is there.
    fn role(&self) -> Option<Role> {
        match self {
            Self::Sender(_) => Some(Role::Sender),
            Self::Receiver(_) => Some(Role::Receiver),
            Self::Opening(_) | Self::Requests(_) | Self::Replies(_) | Self::Coordinator => None,
        }
    }
}

/// Refuses a link to an entity that does not do what the link is for. `role` is the client's.
pub(super) fn check_usable(view: &BusQueueView, role: Role) -> Result<(), Error> {
    let options = &view.options;
    let queue = view.name.clone();
    let is_allowed = match role {
        Role::Sender => options.status.allows_send(),
        Role::Receiver => options.status.allows_receive(),
    };
    let refusal = if !is_allowed {
        BusRefusal::Disabled { queue }
    } else if role == Role::Receiver && destination(view).is_some() {
        BusRefusal::Forwards { queue }
    } else {
        return Ok(());
    };
    Err(error_of(&Rejection::Refused(Refusal::Bus(refusal))))
}

/// Where the messages of a queue or sub-queue go on to.
fn destination(view: &BusQueueView) -> Option<&str> {
    match view.name.split_once("/$") {
        None => view.options.forward_to.as_deref(),
        Some((_, "deadletterqueue")) => view.options.forward_dead_letters_to.as_deref(),
        Some(_) => None,
    }
}
