//! The entity of a link.

use std::sync::Arc;

use kew_amqp::error::Error;
use kew_amqp::performative::Role;
use kew_broker::{Answer, Broker, ChangeWatch, Rejection};
use kew_engine::bus::{BusOutcome, BusQueueView, BusRefusal, EntityKind};
use kew_engine::{EntityName, Incarnation, Outcome, Refusal};
use tokio::sync::Notify;

use crate::ground::refusal::error_of;

/// The entity of a link, as it was when it was attached.
pub(crate) struct Attached {
    pub(crate) entity: EntityName,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: EntityKind,
    change: ChangeWatch,
}

impl Attached {
    /// An entity that was found under this name. `changes` is notified when it changes.
    pub(crate) fn new(
        broker: &Broker,
        entity: EntityName,
        view: &BusQueueView,
        changes: &Arc<Notify>,
    ) -> Self {
        let change = broker.watch_changes(view.incarnation, changes);
        Self {
            entity,
            incarnation: view.incarnation,
            kind: view.kind,
            change,
        }
    }

    /// Whether the entity may have changed since the last call.
    pub(crate) fn may_have_changed(&self) -> bool {
        self.change.take()
    }

    /// Bytes of its texts.
    pub(crate) fn size_bytes(&self) -> usize {
        self.entity.name.len()
    }
}

/// The queue in the answer to a look-up.
pub(crate) fn view_of(answer: Answer) -> Option<Box<BusQueueView>> {
    match answer.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => Some(view),
        _ => None,
    }
}

/// Refuses a link whose purpose the entity does not support. `role` is the client's.
pub(crate) fn check_usable(view: &BusQueueView, role: Role) -> Result<(), Error> {
    let options = &view.options;
    let queue = view.name.clone();
    let is_allowed = match role {
        Role::Sender => options.status.allows_send(),
        Role::Receiver => options.status.allows_receive() && !view.is_suspended,
    };
    let is_sub_queue = queue.contains("/$");
    let refusal = if role == Role::Receiver && view.kind == EntityKind::Topic && !is_sub_queue {
        BusRefusal::NotReceivable { queue }
    } else if role == Role::Sender && view.kind == EntityKind::Subscription && !is_sub_queue {
        BusRefusal::NotSendableSubscription { queue }
    } else if !is_allowed {
        BusRefusal::Disabled { queue }
    } else if role == Role::Receiver && destination(view).is_some() {
        BusRefusal::Forwards { queue }
    } else {
        return Ok(());
    };
    Err(error_of(&Rejection::Refused(Refusal::Bus(refusal))))
}

/// Refuses an entity that messages cannot be sent to, whatever its status is. If it is disabled, messages that are sent to
/// it via another one become failed transfers of that one.
pub(crate) fn check_is_destination(view: &BusQueueView) -> Result<(), Error> {
    let queue = view.name.clone();
    let refusal = match view.kind {
        _ if queue.contains("/$") => BusRefusal::NotSendable { queue },
        EntityKind::Subscription => BusRefusal::NotSendableSubscription { queue },
        EntityKind::Queue | EntityKind::Topic => return Ok(()),
    };
    Err(error_of(&Rejection::Refused(Refusal::Bus(refusal))))
}

/// The destination that a queue or sub-queue forwards to.
fn destination(view: &BusQueueView) -> Option<&str> {
    match view.name.split_once("/$") {
        None => view.options.forward_to.as_deref(),
        Some((_, "deadletterqueue")) => view.options.forward_dead_letters_to.as_deref(),
        Some(_) => None,
    }
}
