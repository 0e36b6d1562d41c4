//! The log lacks what the state has: a crash brings back what is not true any more.

use kew_engine::bus::{BusCommand, BusFact, DeadLetterCause, Effect, TransactionWork};
use kew_engine::storage::{self, OwnEffect, StorageFact};
use kew_engine::{Command, Event, Fact};
use kew_log::LogPosition;
use kew_planted::{Hook, Seam};

use super::hooks::{Arrived, dropped, on, recorded};
use crate::bus::topics::{Kind, kind, named};

/// No bug: the log gets what was decided.
pub(super) fn nothing() -> Hook {
    recorded(|_, effects| keep(effects, |_| true))
}

/// A delete changes the state and is not logged.
pub(super) fn delete_not_logged() -> Hook {
    without(|effect| matches!(effect, storage::Effect::Ended { .. }))
}

/// A clear changes the state and is not logged.
pub(super) fn clear_not_logged() -> Hook {
    without(|effect| matches!(effect, storage::Effect::Own(OwnEffect::RangeEnded { .. })))
}

/// Bodies move, and that is not logged: a crash brings back their old places.
pub(super) fn moves_not_logged() -> Hook {
    on(Seam::Recorded, |events: &mut Vec<Event>| {
        events.retain(|event| !is_move(&event.fact));
    })
}

/// Whether bodies move.
pub(super) fn is_move(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Storage(StorageFact::BodiesMoved { .. }) | Fact::Bus(BusFact::BodiesMoved { .. })
    )
}

fn without(is_lost: fn(&storage::Effect) -> bool) -> Hook {
    on(Seam::Recorded, move |events: &mut Vec<Event>| {
        events.retain(|event| match &event.fact {
            Fact::Storage(StorageFact::Messages { effects }) => {
                !effects.first().is_some_and(is_lost)
            }
            _ => true,
        });
    })
}

/// A message of a bus queue is completed, and that is not logged.
pub(super) fn removal_not_logged() -> Hook {
    recorded(|_, effects| keep(effects, |pair| !matches!(pair, Pair::Alone(_, true))))
}

/// A message is forwarded, and that is not logged.
pub(super) fn forward_not_logged() -> Hook {
    recorded(|_, effects| keep(effects, |pair| !pair.is_forward()))
}

/// A resubmitted message is lost in a crash: only its removal is logged.
pub(super) fn resubmitted_lost() -> Hook {
    recorded(|_, effects| {
        let all = std::mem::take(effects);
        for pair in pairs(all) {
            match pair {
                Pair::Moved(arrived, _, ended) if !arrived.is_moved => effects.push(ended),
                pair => effects.extend(pair.effects()),
            }
        }
    })
}

/// The last part of a transaction is not logged with the others: a crash tears it.
pub(super) fn transaction_torn() -> Hook {
    recorded(|command, effects| {
        let is_transaction = matches!(command, Some(Command::Bus(BusCommand::Transact { .. })));
        if is_transaction && effects.len() > 1 {
            effects.pop();
        }
    })
}

/// A transfer that fails is not logged with the transaction: a crash loses the message.
pub(super) fn transfer_not_logged() -> Hook {
    recorded(|command, effects| {
        let is_transaction = matches!(command, Some(Command::Bus(BusCommand::Transact { .. })));
        if is_transaction {
            for pair in pairs(std::mem::take(effects)) {
                match pair {
                    Pair::Alone(effect, _) if is_failed_transfer(&effect) => {}
                    pair => effects.extend(pair.effects()),
                }
            }
        }
    })
}

pub(super) fn is_failed_transfer(effect: &Effect) -> bool {
    match effect {
        Effect::Arrived { message, .. } => {
            message.record.cause == Some(DeadLetterCause::TransferFailed)
        }
        _ => false,
    }
}

/// A transfer to a topic that does not accept it is nowhere.
pub(super) fn transfer_to_topic_lost() -> Hook {
    dropped(|known, effect| is_failed_transfer(effect) && transfers_to_topics(known.command()))
}

/// Whether whatever a transaction sends via an entity goes to topics.
fn transfers_to_topics(command: Option<&Command>) -> bool {
    let Some(Command::Bus(BusCommand::Transact { parts })) = command else {
        return false;
    };
    let mut destinations = parts.iter().filter_map(|part| match &part.work {
        TransactionWork::SendVia(to, _) => Some(to),
        TransactionWork::Transfer(..) => Some(&part.queue),
        TransactionWork::Send(_)
        | TransactionWork::Settle(..)
        | TransactionWork::CancelScheduled(_) => None,
    });
    destinations.all(|to| named(&to.name).is_some_and(|it| kind(it) == Kind::Topic))
}

/// An effect, or the two that move a message to another entity.
enum Pair {
    /// The effect, and whether it ends a message that did not come to another number in its entity.
    Alone(Effect, bool),
    Moved(Arrived, Effect, Effect),
}

impl Pair {
    /// A dead letter goes to the next sub-queue of its queue, and anything else that moves is forwarded.
    fn is_forward(&self) -> bool {
        match self {
            Self::Moved(arrived, _, ended) => {
                let [_, below, _] = ended.entity().with_sub_queues();
                arrived.is_moved && arrived.to.entity != below
            }
            Self::Alone(..) => false,
        }
    }

    fn effects(self) -> Vec<Effect> {
        match self {
            Self::Alone(effect, _) => vec![effect],
            Self::Moved(_, arrived, ended) => vec![arrived, ended],
        }
    }
}

fn pairs(effects: Vec<Effect>) -> Vec<Pair> {
    let mut effects = effects.into_iter().peekable();
    let mut pairs = Vec::new();
    while let Some(effect) = effects.next() {
        let arrived = match &effect {
            Effect::Arrived { to, message } => Some(Arrived::of(*to, message)),
            _ => None,
        };
        let ended = effects.next_if(|next| {
            let is_ended = matches!(next, Effect::Ended { .. });
            is_ended && arrived.is_some()
        });
        match (arrived, ended) {
            (Some(arrived), Some(ended)) if ended.entity() != arrived.to.entity => {
                pairs.push(Pair::Moved(arrived, effect, ended));
            }
            (_, ended) => {
                let is_end = matches!(effect, Effect::Ended { .. });
                pairs.push(Pair::Alone(effect, is_end));
                pairs.extend(ended.map(|ended| Pair::Alone(ended, false)));
            }
        }
    }
    pairs
}

fn keep(effects: &mut Vec<Effect>, is_kept: impl Fn(&Pair) -> bool) {
    let all = std::mem::take(effects);
    let kept = pairs(all).into_iter().filter(|pair| is_kept(pair));
    effects.extend(kept.flat_map(Pair::effects));
}

/// The last event of an old log is not replayed, so a migration leaves it out.
pub(super) fn last_event_of_log_dropped() -> Hook {
    // Each event waits here for the next one.
    let mut held: Option<(LogPosition, Event)> = None;
    on(
        Seam::Replayed,
        move |read: &mut Vec<(LogPosition, Event)>| {
            for (record, event) in std::mem::take(read) {
                let before = held.replace((record, event));
                // Another replay has begun.
                read.extend(before.filter(|(earlier, _)| *earlier <= record));
            }
        },
    )
}

/// The last event of a batch is dropped when the log is replayed.
pub(super) fn last_event_of_batch_dropped() -> Hook {
    // An event waits here until another one of its record shows that it is not the last.
    let mut held: Option<(LogPosition, Event)> = None;
    Box::new(move |seam, value| {
        if seam == Seam::Opened {
            held = None;
        }
        if seam == Seam::Replayed
            && let Some(read) = value.downcast_mut::<Vec<(LogPosition, Event)>>()
        {
            for (record, event) in std::mem::take(read) {
                if matches!(event.fact, Fact::PartitionInitialized { .. }) {
                    // Without it there is no partition.
                    read.push((record, event));
                    continue;
                }
                let before = held.replace((record, event));
                read.extend(before.filter(|(earlier, _)| *earlier == record));
            }
        }
    })
}
