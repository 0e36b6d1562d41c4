//! Settlements: of one message, or of several at once.

use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_amqp::performative::DeliveryState;

use super::transfers::{DeliveryName, TransactionName};
use super::{Core, LinkKey};
use crate::bus::job::Job;
use crate::error::Error;

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bus) enum Settled {
    Done,
    /// The link that the message came over is gone, and nothing was said.
    LinkGone,
}

type Outcome = Result<Settled, Error>;

/// What became of each of several settlements, as far as it is known. Their caller reads it when it stops waiting, so
/// an answer that is missing does not make the others unknown.
#[derive(Clone, Debug)]
pub(in crate::bus) struct Answers(Arc<Mutex<Vec<Option<Outcome>>>>);

impl Answers {
    pub(in crate::bus) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; count])))
    }

    /// Takes what is known now.
    pub(in crate::bus) fn take(&self) -> Vec<Option<Outcome>> {
        std::mem::take(&mut self.lock())
    }

    fn set(&self, place: usize, outcome: Outcome) {
        if let Some(answer) = self.lock().get_mut(place) {
            *answer = Some(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Outcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settlements that were asked for at once. Their caller is told when the last of them is forgotten.
#[derive(Debug)]
struct Together {
    answers: Answers,
    job: Option<Job<()>>,
}

impl Drop for Together {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            job.finish(Ok(()));
        }
    }
}

/// Where the result of a settlement goes.
#[derive(Debug)]
enum Asker {
    /// In a box, so that those of many stay small.
    One(Box<Job<Settled>>),
    OneOf(Arc<Together>, usize),
}

/// A settlement that went out and has no answer.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) link: LinkKey,
    pub(super) is_in_transaction: bool,
    asker: Asker,
}

impl Settling {
    /// Tells its outcome.
    pub(super) fn finish(self, outcome: Outcome) {
        match self.asker {
            Asker::One(job) => job.finish(outcome),
            Asker::OneOf(together, place) => together.answers.set(place, outcome),
        }
    }

    /// It failed, because its link or its connection is gone.
    pub(super) fn lose(self, error: &Error) {
        match self.asker {
            Asker::One(job) => job.lose(error),
            Asker::OneOf(together, place) => {
                let effect = together.job.as_ref().map(Job::effect);
                let error = effect.map_or_else(|| error.clone(), |it| error.lost_under_way(it));
                together.answers.set(place, Err(error));
            }
        }
    }
}

impl Core {
    pub(super) fn settle(
        &mut self,
        link: LinkKey,
        delivery: DeliveryName,
        state: DeliveryState,
        transaction: Option<&Arc<TransactionName>>,
        job: Job<Settled>,
    ) {
        if let Some(error) = self.end_of(transaction) {
            job.finish(Err(error));
            return;
        }
        let state = match (transaction, state) {
            (Some(transaction), DeliveryState::Outcome(outcome)) => {
                transaction.state(Some(outcome))
            }
            (_, state) => state,
        };
        if !job.start() {
            return;
        }
        let settling = Settling {
            link,
            is_in_transaction: transaction.is_some(),
            asker: Asker::One(Box::new(job)),
        };
        self.settle_one(delivery, state, settling);
    }

    /// Settles messages of one link in the same way.
    pub(super) fn settle_all(
        &mut self,
        link: LinkKey,
        deliveries: &[DeliveryName],
        state: &DeliveryState,
        answers: Answers,
        job: Job<()>,
    ) {
        if !job.start() {
            return;
        }
        let job = Some(job);
        let together = Arc::new(Together { answers, job });
        for (place, &delivery) in deliveries.iter().enumerate() {
            let settling = Settling {
                link,
                is_in_transaction: false,
                asker: Asker::OneOf(together.clone(), place),
            };
            self.settle_one(delivery, state.clone(), settling);
        }
    }

    fn settle_one(&mut self, delivery: DeliveryName, state: DeliveryState, settling: Settling) {
        let is_of_this = delivery.connection == self.connection_number;
        if is_of_this
            && let Some(wire) = &mut self.wire
            && let Entry::Vacant(place) = self.settling.entry(delivery.id)
            && wire.amqp.update(delivery.id, state)
        {
            if let Some(link) = self.links.get_mut(&settling.link) {
                link.begin_one(self.now);
            }
            place.insert(settling);
        } else {
            settling.finish(Ok(Settled::LinkGone));
        }
    }
}
