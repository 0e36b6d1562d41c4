//! Detached links, and the messages and locks that are released with them.

use std::sync::Arc;

use kew_amqp::error::Error;
use kew_amqp::{DeliveryId, LinkId};
use kew_broker::Rejection;
use kew_engine::bus::BusCommand;

use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::transactions::gone;
use crate::connection::client::patience::submit_again;
use crate::ground::submit::Submitted;
use crate::metrics::Scope;

impl Client {
    /// Detaches a link on our own account.
    pub(super) fn detach(&mut self, link: LinkId, error: Error) {
        self.shared
            .observer
            .note_refusal(&self.peer.origin, Scope::Link, &error);
        self.fail_transactions_over(link, Some(error.clone()));
        self.connection.detach(link, true, Some(error));
        self.forget(link);
    }

    /// It is not known whether what a delivery is about was carried out. So it stays unsettled, and its link is detached.
    pub(super) fn leave_unsettled(&mut self, delivery: DeliveryId, error: Error) {
        if let Some(link) = self.connection.link_of(delivery) {
            // Nothing of a transaction was done: the error is not about it.
            self.fail_transactions_over(link, None);
            self.detach(link, error);
        }
    }

    /// Detaches a link on our side. Operations that its client starts before it learns of that are
    /// lost, and may belong to any of its transactions.
    pub(super) fn fail_transactions_over(&mut self, link: LinkId, error: Option<Error>) {
        let link = self.links.get(&link);
        if link.is_some_and(Link::may_be_in_transactions) {
            self.transactions.fail_all(&error.unwrap_or_else(gone));
        }
    }

    /// Forgets a detached link. Locks of messages stay, as in Azure; the lock of a session ends.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.stirred.forget(link, &mut self.links);
        match self.links.remove(link) {
            Some(Link::Receiver(receiver)) => {
                if let Some(key) = receiver.looked_as {
                    self.orders.give_up_look(link, key);
                }
                self.close_receiver(*receiver);
            }
            Some(Link::Opening(opening)) => {
                self.load.forget();
                opening.give_up();
            }
            Some(Link::Coordinator) => self.forget_coordinator(link),
            _ => {}
        }
    }

    /// Submits a command without waiting for its answer. It releases locks that would otherwise
    /// last for their whole duration, so it is retried if the broker is busy.
    pub(super) fn submit_and_forget(&mut self, command: BusCommand) {
        self.flush_outbox();
        let broker = Arc::clone(&self.broker);
        let submitted = Submitted::new(&broker, command.clone());
        self.load.forget();
        self.tasks.spawn(async move {
            let answer = submitted.answer().await;
            if matches!(
                answer,
                Err(Rejection::Busy
                    | Rejection::NotOwner
                    | Rejection::Full
                    | Rejection::ReadFailed)
            ) {
                // There is no client left to inform.
                let _ = submit_again(&broker, command).await;
            }
            Done::Released
        });
    }
}
