//! Transactions: some work in one to several queues.

use kew_engine::bus::{BusCommand, BusMessage, TransactionPart, TransactionWork};
use kew_engine::{EntityName, Incarnation, Timestamp};

use super::known::{Held, remember};
use super::settings::{WITH_DUPLICATES, WITH_SESSIONS};
use super::{SCHEDULE_MS_MAX, Workload, session_name};
use crate::bus::checker::life::Part;
use crate::bus::topics::{self, Kind, TopicSwarm};
use crate::bus::{BusSwarm, named};

/// How many parts there are at most.
const PARTS_MAX: u64 = 6;
/// Of the locks that are probably valid, the latest are the most likely.
const LATEST: usize = 12;

impl Workload {
    /// A transaction, if it is the turn of one.
    pub(super) fn transact(&mut self, swarm: &BusSwarm, now: Timestamp) -> Option<BusCommand> {
        if !self.transact.happens(swarm.transact_per_mille) {
            return None;
        }
        // One impossible part is enough: most clients know what they do.
        let is_careless = self.transact.happens(250);
        let mut parts: Vec<TransactionPart> = Vec::new();
        for _ in 0..1 + self.transact.below(PARTS_MAX) {
            let (queue, work) = match self.transact.below(10) {
                0..=4 => self.sends(swarm, now, is_careless),
                5..=8 => match self.settles(&parts, is_careless) {
                    Some(settles) => settles,
                    None => self.sends(swarm, now, is_careless),
                },
                _ => match self.cancels(is_careless) {
                    Some(cancels) => cancels,
                    None => self.sends(swarm, now, is_careless),
                },
            };
            let incarnation = self.life_of(&queue, is_careless);
            let is_transfer = matches!(work, TransactionWork::Transfer(..));
            parts.push(TransactionPart {
                // The destination of a transfer is whatever has its name.
                incarnation: incarnation.filter(|_| !is_transfer),
                queue,
                work,
            });
        }
        Some(BusCommand::Transact { parts })
    }

    fn sends(
        &mut self,
        swarm: &BusSwarm,
        now: Timestamp,
        is_careless: bool,
    ) -> (EntityName, TransactionWork) {
        if let Some(topics) = &swarm.topics
            && self.transact.happens(500)
        {
            return self.sends_of_topics(topics, swarm, now, is_careless);
        }
        let queue = self.transact.index(swarm.queues);
        let count = [1, 1, 2, 3][self.transact.index(4)];
        let messages = (0..count).map(|_| self.message(queue, swarm, now, is_careless));
        let work = TransactionWork::Send(messages.collect());
        let is_odd = is_careless && self.transact.happens(20);
        let part = if is_odd {
            Part::DeadLetters
        } else {
            Part::Queue
        };
        (named(queue, part), work)
    }

    /// Sends to a topic, or via a queue or topic to a queue or topic.
    fn sends_of_topics(
        &mut self,
        topics: &TopicSwarm,
        swarm: &BusSwarm,
        now: Timestamp,
        is_careless: bool,
    ) -> (EntityName, TransactionWork) {
        let r = &mut self.transact;
        let topic = topics.topics[r.index(topics.topics.len())];
        let via = r.happens(600).then(|| match r.happens(300) {
            true => topics.topics[r.index(topics.topics.len())],
            false => r.index(swarm.queues),
        });
        let to = match via {
            Some(_) if r.happens(500) => r.index(swarm.queues),
            _ => topic,
        };
        let count = [1, 1, 2][r.index(3)];
        let messages = (0..count).map(|_| match to == topic {
            true => self.message_to_topic(swarm),
            false => self.message(to, swarm, now, is_careless),
        });
        let messages = messages.collect();
        let to = named(to, Part::Queue);
        match via {
            None => (to, TransactionWork::Send(messages)),
            Some(via) => {
                let via = named(via, Part::Queue);
                // Every third one only names the other queue for what fails. It takes no random number of its own.
                match self.bodies.is_multiple_of(3) {
                    true => (to, TransactionWork::Transfer(via, messages)),
                    false => (via, TransactionWork::SendVia(to, messages)),
                }
            }
        }
    }

    fn message(
        &mut self,
        queue: usize,
        swarm: &BusSwarm,
        now: Timestamp,
        is_careless: bool,
    ) -> BusMessage {
        let size = self.transact.below(swarm.body_size_max);
        let body = self.body(size);
        let r = &mut self.transact;
        let in_session = match queue {
            WITH_SESSIONS => !(is_careless && r.happens(100)),
            _ => r.happens(300),
        };
        let due = now.plus_ms(r.below(SCHEDULE_MS_MAX));
        BusMessage {
            body,
            message_id: (queue == WITH_DUPLICATES || r.happens(100))
                .then(|| r.below(12).to_string().into()),
            session: in_session.then(|| session_name(r)),
            time_to_live_ms: r
                .happens(swarm.time_to_live_per_mille)
                .then(|| 1 + r.below(60_000)),
            scheduled_at: r.happens(swarm.schedule_per_mille).then_some(due),
        }
    }

    /// Ends a lock, usually one that no earlier part ends.
    fn settles(
        &mut self,
        before: &[TransactionPart],
        is_careless: bool,
    ) -> Option<(EntityName, TransactionWork)> {
        let r = &mut self.transact;
        let is_stale = is_careless && r.happens(300);
        let held = if is_stale && !self.known.stale.is_empty() {
            self.known.stale[r.index(self.known.stale.len())].clone()
        } else {
            let all = &mut self.known.held;
            let latest = all.len().min(LATEST);
            if latest == 0 {
                return None;
            }
            let index = all.len() - 1 - r.index(latest);
            // A client keeps the lock if its transaction is refused.
            if r.happens(400) {
                all[index].clone()
            } else {
                let held = all.remove(index);
                remember(&mut self.known.stale, held.clone());
                held
            }
        };
        let ends = |part: &TransactionPart| matches!(&part.work, TransactionWork::Settle(own, _) if *own == held.lock);
        if !is_careless && before.iter().any(ends) {
            return None;
        }
        let (kind, is_changed) = (r.below(12), r.happens(300));
        let Held { queue, lock } = held;
        let disposition = self.disposition_of(kind, is_changed);
        Some((queue, TransactionWork::Settle(lock, disposition)))
    }

    fn cancels(&mut self, is_careless: bool) -> Option<(EntityName, TransactionWork)> {
        let r = &mut self.transact;
        let all = if r.happens(500) {
            &mut self.known.scheduled
        } else {
            &mut self.known.shown_scheduled
        };
        if all.is_empty() {
            return None;
        }
        let index = r.index(all.len());
        // Those of topics are cancelled by commands of their own.
        let queue = topics::named(&all[index].queue.name);
        if queue.is_some_and(|it| topics::kind(it) == Kind::Topic) {
            return None;
        }
        let first = if is_careless {
            all[index].clone()
        } else {
            all.swap_remove(index)
        };
        let mut numbers = vec![first.number];
        if r.happens(200) {
            let same = all.iter().find(|it| it.queue == first.queue);
            numbers.extend(same.map(|it| it.number));
        }
        Some((first.queue, TransactionWork::CancelScheduled(numbers)))
    }

    /// The incarnation of a queue that a client means.
    fn life_of(&mut self, queue: &EntityName, is_careless: bool) -> Option<Incarnation> {
        let r = &mut self.transact;
        let lives = self.known.lives.get(queue)?;
        if is_careless && r.happens(200) {
            return lives.get(r.index(lives.len())).copied();
        }
        lives.last().copied().filter(|_| r.happens(600))
    }
}
