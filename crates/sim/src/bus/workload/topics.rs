//! Commands for topics and subscriptions, besides those that subscriptions share with queues.

use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions};
use kew_engine::{EntityName, SequenceNumber, Timestamp};

use super::settings::{options, subscription_options, topic_options};
use super::{SCHEDULE_MS_MAX, Workload, plain_options, session_name};
use crate::bus::checker::life::Part;
use crate::bus::rules::{self, Rule};
use crate::bus::topics::{Kind, TopicSwarm, kind, topic_of};
use crate::bus::{BusSwarm, NAMESPACE, named};

/// Commands that create all topics and subscriptions.
pub(super) fn create_all(topics: &TopicSwarm) -> impl Iterator<Item = BusCommand> {
    let topic = |topic: &usize| BusCommand::CreateTopic {
        topic: whole(*topic),
        options: plain_options(*topic),
    };
    let subscription = |subscription: &usize| BusCommand::CreateSubscription {
        topic: whole(topic_of(*subscription).expect("it is a subscription")),
        subscription: whole(*subscription),
        options: plain_options(*subscription),
        rule: None,
    };
    let subscriptions = topics.subscriptions.iter().map(subscription);
    let all: Vec<_> = topics
        .topics
        .iter()
        .map(topic)
        .chain(subscriptions)
        .collect();
    all.into_iter()
}

fn whole(entity: usize) -> EntityName {
    named(entity, Part::Queue)
}

impl Workload {
    /// A command that no queue gets, now and then.
    pub(super) fn next_of_topics(
        &mut self,
        queue: usize,
        topics: &TopicSwarm,
        swarm: &BusSwarm,
    ) -> Option<BusCommand> {
        if self.random.happens(100)
            && let Some(again) = self.again.pop_front()
        {
            return Some(again);
        }
        if self.random.happens(topics.delete_per_mille) {
            return Some(self.delete(queue, topics, swarm));
        }
        if self.random.happens(topics.rule_per_mille) {
            return Some(self.set_rule(topics));
        }
        let topic = topics.topic_for(queue, &mut self.random);
        Some(match self.random.below(100) {
            0..3 => BusCommand::ReadQueue {
                queue: whole(topic),
            },
            3 => BusCommand::ListTopics {
                namespace: NAMESPACE.into(),
                skip: 0,
                limit: 100,
            },
            4..6 => BusCommand::ListSubscriptions {
                topic: whole(topic),
                skip: 0,
                limit: 100,
            },
            6 => match self.random.below(4) {
                0 => self.receive_from(topic),
                1 => self.create(topic, swarm),
                2 => self.read_rule(topics),
                _ => self.update(topic, swarm),
            },
            7..9 => self.failed_of(topic),
            _ => return None,
        })
    }

    /// What a subscription gets in place of a queue's command of that kind, if that differs.
    pub(super) fn of_subscription(
        &mut self,
        subscription: usize,
        chosen: usize,
        swarm: &BusSwarm,
        now: Timestamp,
    ) -> Option<BusCommand> {
        let Kind::Subscription { of, .. } = kind(subscription) else {
            return None;
        };
        match chosen {
            0 if self.random.happens(980) => Some(self.publish(of, swarm, now)),
            0 => Some(self.send_to(subscription)),
            12 => Some(self.update(subscription, swarm)),
            13 | 14 => Some(self.create(subscription, swarm)),
            _ => None,
        }
    }

    /// Half of them select all messages.
    fn set_rule(&mut self, topics: &TopicSwarm) -> BusCommand {
        let r = &mut self.random;
        let subscription = topics.subscriptions[r.index(topics.subscriptions.len())];
        let rule = match r.happens(500) {
            true => Rule::All,
            false => Rule::ALL[r.index(Rule::ALL.len())],
        };
        BusCommand::SetRule {
            topic: whole(topic_of(subscription).expect("it is a subscription")),
            subscription: whole(subscription),
            rule: Box::new(rule.as_new()),
        }
    }

    fn read_rule(&mut self, topics: &TopicSwarm) -> BusCommand {
        let index = self.random.index(topics.subscriptions.len());
        BusCommand::ReadRule {
            subscription: whole(topics.subscriptions[index]),
            name: rules::NAME.into(),
        }
    }

    fn publish(&mut self, topic: usize, swarm: &BusSwarm, now: Timestamp) -> BusCommand {
        let count = [1, 1, 2, 5][self.random.index(4)];
        let topics = swarm.topics.as_ref();
        let per_mille = topics.map_or(0, |it| it.schedule_per_mille);
        let messages = (0..count).map(|_| {
            let message = self.message_to_topic(swarm);
            // Worlds without schedules stay what they are.
            let is_scheduled = per_mille > 0 && self.random.happens(per_mille);
            let scheduled_at =
                is_scheduled.then(|| now.plus_ms(self.random.below(SCHEDULE_MS_MAX)));
            BusMessage {
                scheduled_at,
                ..message
            }
        });
        BusCommand::Send {
            messages: messages.collect(),
            queue: whole(topic),
        }
    }

    pub(super) fn message_to_topic(&mut self, swarm: &BusSwarm) -> BusMessage {
        let size = self.random.below(swarm.body_size_max);
        let body = self.body(size);
        let r = &mut self.random;
        BusMessage {
            body,
            message_id: r.happens(300).then(|| r.below(12).to_string().into()),
            session: r.happens(850).then(|| session_name(r)),
            time_to_live_ms: r
                .happens(swarm.time_to_live_per_mille)
                .then(|| 1 + r.below(60_000)),
            scheduled_at: None,
        }
    }

    /// Nothing is received from a topic.
    fn receive_from(&mut self, topic: usize) -> BusCommand {
        BusCommand::Receive {
            queue: whole(topic),
            count: 1,
            mode: self.mode(),
            session: None,
        }
    }

    /// What was sent via a topic, and could not arrive.
    fn failed_of(&mut self, topic: usize) -> BusCommand {
        let queue = named(topic, Part::FailedTransfers);
        match self.random.happens(300) {
            true => BusCommand::Peek {
                queue,
                from: SequenceNumber::default(),
                count: 1 + self.random.below_u32(10),
                session: None,
            },
            false => BusCommand::Receive {
                queue,
                count: 1 + self.random.below_u32(4),
                mode: self.mode(),
                session: None,
            },
        }
    }

    /// Nothing is sent to a subscription by itself.
    fn send_to(&mut self, subscription: usize) -> BusCommand {
        BusCommand::Send {
            messages: vec![BusMessage {
                body: self.body(8),
                message_id: None,
                session: Some(session_name(&mut self.random)),
                time_to_live_ms: None,
                scheduled_at: None,
            }],
            queue: whole(subscription),
        }
    }

    fn create(&mut self, entity: usize, swarm: &BusSwarm) -> BusCommand {
        let options = self.options_of(entity, swarm);
        match kind(entity) {
            Kind::Queue => BusCommand::CreateQueue {
                queue: whole(entity),
                options,
            },
            Kind::Topic => BusCommand::CreateTopic {
                topic: whole(entity),
                options,
            },
            Kind::Subscription { of, .. } => BusCommand::CreateSubscription {
                topic: whole(of),
                subscription: whole(entity),
                options,
                rule: None,
            },
        }
    }

    fn options_of(&mut self, entity: usize, swarm: &BusSwarm) -> BusQueueOptions {
        match kind(entity) {
            Kind::Queue => options(&mut self.random, entity, swarm),
            Kind::Topic => topic_options(&mut self.random, entity),
            Kind::Subscription { .. } => subscription_options(&mut self.random, entity, swarm),
        }
    }

    fn update(&mut self, entity: usize, swarm: &BusSwarm) -> BusCommand {
        BusCommand::UpdateQueue {
            queue: whole(entity),
            options: self.options_of(entity, swarm),
        }
    }

    /// Deletes a subscription or a whole topic, which are made again soon.
    fn delete(&mut self, queue: usize, topics: &TopicSwarm, swarm: &BusSwarm) -> BusCommand {
        let topic = topics.topic_for(queue, &mut self.random);
        let is_alone = kind(queue) != Kind::Queue && self.random.happens(600);
        let deleted = if is_alone { queue } else { topic };
        let of_topic = topics.subscriptions.iter().copied();
        let of_topic = of_topic.filter(|it| !is_alone && topic_of(*it) == Some(topic));
        for entity in std::iter::once(deleted).chain(of_topic) {
            let again = self.create(entity, swarm);
            self.again.push_back(again);
        }
        BusCommand::DeleteQueue {
            queue: whole(deleted),
        }
    }
}
