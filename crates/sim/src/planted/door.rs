//! What clients and the machine give the partition, and what clients get from it, is wrong on its way.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use kew_broker::{AnswerBodies, Answered, ClockReading, Rejection, Reply, Share};
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, BusRefusal, DeliveredMessage, Disposition,
    TransactionPart, TransactionWork,
};
use kew_engine::storage::StorageOutcome;
use kew_engine::{Command, EntityName, Outcome, Refusal};
use kew_planted::{Hook, Seam};

use super::hooks::{bus_effects, on};
use super::lost::is_failed_transfer;
use crate::bus::queue_index;
use crate::bus::topics::subscriptions_of;
use crate::seam::Replies;

/// No bug: answers are as they were given.
pub(super) fn nothing() -> Hook {
    answers(|_, reply, _| reorder(reply, |_| ()))
}

/// One of several answers that become due at once is forgotten.
pub(super) fn answer_forgotten() -> Hook {
    on(Seam::Replies, |(replies, _): &mut Replies| {
        let is_success = replies.last().is_some_and(|(_, reply)| reply.is_ok());
        if replies.len() > 2 && is_success {
            replies.pop();
        }
    })
}

/// A listing leaves out the last queue.
pub(super) fn queue_not_listed() -> Hook {
    on(Seam::Replies, |(replies, _): &mut Replies| {
        for (_, reply) in replies {
            if let Ok(answered) = reply
                && let Outcome::Storage(StorageOutcome::Queues(page)) = &mut answered.outcome
            {
                page.queues.pop();
            }
        }
    })
}

/// A bug on answers, with the commands that they answer, and on commands that follow from them.
pub(super) fn answers(
    mut bug: impl FnMut(Command, &mut Reply, &mut Vec<Command>) + 'static,
) -> Hook {
    let mut waiting: BTreeMap<u64, Command> = BTreeMap::new();
    Box::new(move |seam, value| {
        if seam == Seam::Asked
            && let Some((id, command)) = value.downcast_ref::<(u64, Command)>()
        {
            waiting.insert(*id, command.clone());
        }
        if seam == Seam::Replies
            && let Some((replies, follow)) = value.downcast_mut::<Replies>()
        {
            for (id, reply) in replies {
                if let Some(command) = waiting.remove(id) {
                    bug(command, reply, follow);
                }
            }
        }
    })
}

/// The messages of a session come in another order than that of their numbers.
pub(super) fn session_order_broken() -> Hook {
    answers(|command, reply, _| {
        if let Command::Bus(BusCommand::Receive {
            session: Some(_), ..
        }) = command
        {
            reorder(reply, <[_]>::reverse);
        }
    })
}

/// A message that comes back to a bus queue comes last.
pub(super) fn abandoned_at_tail() -> Hook {
    answers(|command, reply, _| {
        if let Command::Bus(BusCommand::Receive { .. }) = command {
            reorder(reply, |all| {
                all.sort_by_key(|(message, _)| message.delivery_count > 0);
            });
        }
    })
}

/// A message with the places of its bytes among those of the answer.
type Delivered = (DeliveredMessage, Range<usize>);

fn reorder(reply: &mut Reply, order: impl FnOnce(&mut [Delivered])) {
    let Ok(Answered {
        outcome: Outcome::Bus(BusOutcome::Received(messages)),
        bodies,
        ..
    }) = reply
    else {
        return;
    };
    let mut next = 0;
    let mut all: Vec<Delivered> = std::mem::take(messages)
        .into_iter()
        .map(|message| {
            let from = next;
            next += 1 + message.overlays.len();
            (message, from..next)
        })
        .collect();
    order(&mut all);
    let (ordered, places): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let places: Vec<usize> = places.into_iter().flatten().collect();
    *messages = ordered;
    match bodies {
        AnswerBodies::Read(bodies) => put_in_order(bodies, &places),
        AnswerBodies::Stored(bodies) => put_in_order(bodies, &places),
    }
}

fn put_in_order<T: Clone>(all: &mut Vec<T>, places: &[usize]) {
    *all = places.iter().map(|place| all[*place].clone()).collect();
}

/// A dry run of a purge takes the messages.
pub(super) fn dry_run_purges() -> Hook {
    on(Seam::Asked, |(_, command): &mut (u64, Command)| {
        if let Command::Bus(BusCommand::Purge { purge, .. }) = command {
            purge.is_dry_run = false;
        }
    })
}

/// A transaction works on a new queue with the same name as the queue that was meant.
pub(super) fn transaction_in_other_queue() -> Hook {
    on(Seam::Asked, |(_, command): &mut (u64, Command)| {
        if let Command::Bus(BusCommand::Transact { parts }) = command {
            parts.iter_mut().for_each(|part| part.incarnation = None);
        }
    })
}

/// Parts of a transaction are done although a later one is refused.
pub(super) fn transaction_half_done() -> Hook {
    after_refusal(|parts| vec![BusCommand::Transact { parts }])
}

/// A refused transaction counts as a failed delivery of the messages that it would have settled.
pub(super) fn transaction_refusal_counts() -> Hook {
    after_refusal(|parts| {
        let failed = parts.into_iter().filter_map(|part| match part.work {
            TransactionWork::Settle(lock, _) => Some(BusCommand::Settle {
                queue: part.queue,
                settlements: vec![(lock, Disposition::Abandon { overlay: None })],
            }),
            TransactionWork::Send(_)
            | TransactionWork::SendVia(..)
            | TransactionWork::Transfer(..)
            | TransactionWork::CancelScheduled(_) => None,
        });
        failed.collect()
    })
}

/// What is sent via an entity is sent before the commit: it is there although the transaction is refused.
pub(super) fn via_sent_early() -> Hook {
    after_refusal(|parts| {
        let sent = parts.into_iter().filter_map(|part| match part.work {
            TransactionWork::SendVia(to, messages) => Some(BusCommand::SendVia {
                via: part.queue,
                to,
                messages,
            }),
            TransactionWork::Send(_)
            | TransactionWork::Transfer(..)
            | TransactionWork::Settle(..)
            | TransactionWork::CancelScheduled(_) => None,
        });
        sent.collect()
    })
}

/// What a topic accepts via a queue is a failed transfer, too. That is so for topics that may be too full, while the
/// subscription is gone whose copies have the numbers of messages in queues.
pub(super) fn transfer_fails_too() -> Hook {
    let failed = Rc::new(RefCell::new(BTreeSet::new()));
    let has_failed = Rc::clone(&failed);
    let mut effects = bus_effects(move |known, effects| {
        if let Some(Command::Bus(BusCommand::Transact { parts })) = known.command()
            && effects.iter().any(is_failed_transfer)
        {
            has_failed.borrow_mut().extend(bodies(parts));
        }
    });
    let mut topics = SmallTopics::default();
    let mut answers = answers(move |command, reply, commands| {
        let Command::Bus(command) = command else {
            return;
        };
        if reply.is_err() {
            return;
        }
        topics.note(&command);
        let BusCommand::Transact { parts } = command else {
            return;
        };
        let failed = failed.borrow();
        if !bodies(&parts).any(|body| failed.contains(&body)) {
            let also = parts.into_iter().filter_map(|part| match part.work {
                TransactionWork::SendVia(to, messages) if topics.has(&to) => {
                    Some(fails(part.queue, to, messages))
                }
                _ => None,
            });
            commands.extend(also);
        }
    });
    Box::new(move |seam, value| {
        effects(seam, value);
        answers(seam, value);
    })
}

/// The topics that may be too full, and the subscriptions that are gone.
#[derive(Default)]
struct SmallTopics {
    small: BTreeSet<usize>,
    gone: BTreeSet<usize>,
}

impl SmallTopics {
    fn note(&mut self, command: &BusCommand) {
        let limit_bytes = BusQueueOptions::default().size_bytes_max;
        match command {
            BusCommand::CreateTopic { topic, options }
            | BusCommand::UpdateQueue {
                queue: topic,
                options,
            } => {
                let topic = queue_index(&topic.name);
                match options.size_bytes_max < limit_bytes {
                    true => self.small.insert(topic),
                    false => self.small.remove(&topic),
                };
            }
            BusCommand::CreateSubscription { subscription, .. } => {
                self.gone.remove(&queue_index(&subscription.name));
            }
            BusCommand::DeleteQueue { queue } => {
                let queue = queue_index(&queue.name);
                self.gone.insert(queue);
                self.gone.extend(subscriptions_of(queue));
            }
            _ => {}
        }
    }

    fn has(&self, to: &EntityName) -> bool {
        let to = queue_index(&to.name);
        let mut first = subscriptions_of(to).take(1);
        self.small.contains(&to) && first.any(|it| self.gone.contains(&it))
    }
}

/// What is sent via entities, by its bytes.
fn bodies(parts: &[TransactionPart]) -> impl Iterator<Item = Bytes> {
    let messages = parts.iter().flat_map(|part| match &part.work {
        TransactionWork::SendVia(_, messages) | TransactionWork::Transfer(_, messages) => {
            messages.as_slice()
        }
        _ => &[],
    });
    messages.map(|message| message.body.clone())
}

/// Sends via a queue to what does not exist, instead of to a topic.
fn fails(via: EntityName, to: EntityName, messages: Vec<BusMessage>) -> Command {
    let to = EntityName {
        name: "nowhere".into(),
        ..to
    };
    Command::Bus(BusCommand::SendVia { via, to, messages })
}

/// What follows from the parts of a transaction before the one that was refused.
fn after_refusal(follow: fn(Vec<TransactionPart>) -> Vec<BusCommand>) -> Hook {
    answers(move |command, reply, commands| {
        if let Command::Bus(BusCommand::Transact { mut parts }) = command
            && let Err(Rejection::Refused(Refusal::Bus(BusRefusal::Transaction { part, .. }))) =
                reply
        {
            let before = part.saturating_sub(1);
            parts.truncate(usize::try_from(before).unwrap_or_default());
            if !parts.is_empty() {
                commands.extend(follow(parts).into_iter().map(Command::Bus));
            }
        }
    })
}

/// The partition's clock follows the wall clock when that jumps ahead.
pub(super) fn clock_follows_wall() -> Hook {
    let mut began: Option<ClockReading> = None;
    on(Seam::Reading, move |reading: &mut ClockReading| {
        let began = began.get_or_insert(*reading);
        let passed_us = reading.wall_us.saturating_sub(began.wall_us);
        reading.boot_us = reading.boot_us.max(began.boot_us + passed_us);
    })
}

/// A source is served beyond its share of a turn.
pub(super) fn rotation_stuck() -> Hook {
    on(Seam::Share, |share: &mut Share| {
        *share = Share {
            commands: u64::MAX,
            size_bytes: u64::MAX,
            steps: u64::MAX,
        };
    })
}
