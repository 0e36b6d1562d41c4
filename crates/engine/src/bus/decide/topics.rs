//! Topics and subscriptions: create, and what follows from what an entity is.

use std::sync::Arc;

use super::super::role::Role;
use super::super::{
    BusFact, BusOutcome, BusQueueOptions, BusQueueView, BusRefusal, EntityKind, EntityStatus,
    SUBSCRIPTIONS_MAX, Verdict,
};
use super::{Answer, Decision, Turn};
use crate::bus::NewRule;
use crate::catalogue::Scope;
use crate::vocabulary::{EntityName, Incarnation};

impl Turn<'_> {
    /// Source: Service Bus, *Create Topic*.
    pub(super) fn create_topic(&mut self, name: EntityName, options: BusQueueOptions) -> Decision {
        let checked = self
            .check_is_new(&name)
            .and_then(|()| self.check_options(EntityKind::Topic, &name, &options));
        let topic = self.catalogue().next_incarnation;
        in_catalogue(checked.map(|()| {
            self.emit_bus(BusFact::TopicCreated {
                topic,
                name,
                options,
            });
            BusOutcome::QueueCreated(Box::new(self.view(topic)))
        }))
    }

    /// Source: Service Bus, *Create Subscription*.
    pub(super) fn create_subscription(
        &mut self,
        topic: &EntityName,
        name: EntityName,
        options: BusQueueOptions,
        rule: Option<Box<NewRule>>,
    ) -> Decision {
        // What becomes active before a subscription is there does not come into it.
        self.do_due_in_both([topic, &name]);
        let checked = self.check_topic_has_room(topic, &name);
        let checked = checked.and_then(|of| {
            let kind = EntityKind::Subscription;
            self.check_options(kind, &name, &options)?;
            let rule = rule.as_ref();
            rule.map_or(Ok(()), |rule| self.check_first_rule(of, rule))?;
            Ok(of)
        });
        let subscription = self.catalogue().next_incarnation;
        in_catalogue(checked.and_then(|of| {
            self.emit_bus(BusFact::SubscriptionCreated {
                subscription,
                name,
                options,
                of,
            });
            if let Some(rule) = rule {
                self.replace_default_rule(of, subscription, *rule)?;
            }
            Ok(BusOutcome::QueueCreated(Box::new(self.view(subscription))))
        }))
    }

    /// Source: Service Bus, *List Topics*.
    pub(super) fn list_topics(&mut self, namespace: Arc<str>, skip: u32, limit: u32) -> Decision {
        let topics = self.catalogue().topics_of(&namespace);
        let page = topics.skip(skip as usize).take(limit as usize);
        let page: Vec<_> = page.collect();
        listed(page.into_iter().map(|topic| self.read(topic)).collect())
    }

    /// Source: Service Bus, *List Subscriptions*.
    pub(super) fn list_subscriptions(
        &mut self,
        topic: Incarnation,
        skip: u32,
        limit: u32,
    ) -> Answer {
        if self.bus(topic).role.kind() != Some(EntityKind::Topic) {
            return Err(BusRefusal::QueueNotFound {
                queue: self.bus(topic).name.name.clone(),
            });
        }
        let subscriptions = self.catalogue().subscriptions_of(topic);
        let named = |it: Incarnation| (&self.bus(it).name.name, it);
        let mut named: Vec<_> = subscriptions.map(named).collect();
        named.sort();
        let page = named.into_iter().skip(skip as usize).take(limit as usize);
        let views = page.map(|(_, it)| self.view(it));
        Ok(BusOutcome::Queues(views.collect()))
    }

    fn check_is_new(&self, name: &EntityName) -> Result<(), BusRefusal> {
        match self.catalogue().find(name) {
            None => Ok(()),
            Some(_) => Err(BusRefusal::QueueAlreadyExists {
                queue: name.name.clone(),
            }),
        }
    }

    /// The topic, if it has room for a subscription of that name.
    fn check_topic_has_room(
        &self,
        topic: &EntityName,
        name: &EntityName,
    ) -> Result<Incarnation, BusRefusal> {
        let found = self.catalogue().find(topic);
        let found = found.filter(|it| {
            let entity = self.queues().get(it);
            entity.and_then(|entity| entity.role.kind()) == Some(EntityKind::Topic)
        });
        let Some(of) = found else {
            return Err(BusRefusal::QueueNotFound {
                queue: topic.name.clone(),
            });
        };
        self.check_is_new(name)?;
        if self.catalogue().subscription_count(of) >= SUBSCRIPTIONS_MAX as u64 {
            return Err(BusRefusal::TooManySubscriptions {
                queue: topic.name.clone(),
                limit: SUBSCRIPTIONS_MAX as u64,
            });
        }
        Ok(of)
    }

    /// What clients know an entity as, or what it is a sub-queue of.
    pub(super) fn kind_of(&self, entity: Incarnation) -> EntityKind {
        self.first_and_kind_of(entity).1
    }

    /// The queue, topic or subscription that an entity is or belongs to, and what clients know that as.
    fn first_and_kind_of(&self, entity: Incarnation) -> (Incarnation, EntityKind) {
        let role = |of| self.queues().get(&of).map(|found| found.role);
        // Most are no sub-queues, so one look is enough.
        let own = role(entity);
        let first = own.map_or(entity, |own| own.first_of(entity));
        let kind = own.and_then(Role::kind);
        let kind = kind.or_else(|| role(first).and_then(Role::kind));
        (first, kind.unwrap_or_default())
    }

    /// Whether clients can name the entity. A topic has no dead letters of its own.
    pub(super) fn is_addressable(&self, entity: Incarnation) -> bool {
        let Some(found) = self.queues().get(&entity) else {
            return false;
        };
        let dead_letters_of = found.role.dead_letters_of();
        dead_letters_of.is_none_or(|of| self.kind_of(of) != EntityKind::Topic)
    }

    /// The entity whose limits hold for another one, and whose size counts: a queue, or the topic of a subscription.
    pub(super) fn charged(&self, entity: Incarnation) -> Incarnation {
        let first = self.first_of(entity);
        let topic = self.queues().get(&first).and_then(|it| it.role.topic());
        // In a damaged history the topic may be missing.
        let topic = topic.filter(|topic| self.queues().contains_key(topic));
        topic.unwrap_or(first)
    }

    /// Whether it belongs to a subscription whose topic is disabled: nobody receives from it. One that is SendDisabled is
    /// there to be drained.
    ///
    /// Source: Service Bus, *EntityStatus*, and *Suspend and reactivate messaging entities*. The second page has what is
    /// already in a subscription received from a disabled topic, too.
    pub(super) fn is_suspended(&self, entity: Incarnation) -> bool {
        let charged = self.charged(entity);
        let topic = self.queues().get(&charged);
        let topic = topic.filter(|it| it.role == Role::Topic && charged != self.first_of(entity));
        topic.is_some_and(|it| it.options.status == EntityStatus::Disabled)
    }

    /// Deletes a topic that was idle for long, with its subscriptions. While one of these has locks, that is a use.
    pub(super) fn end_idle(&mut self, queue: Incarnation) {
        let subscriptions = self.catalogue().subscriptions_of(queue);
        let is_used = |it: Incarnation| {
            let entity = self.queues().get(&it);
            entity.is_some_and(|entity| entity.backlog.is_in_use())
        };
        let is_used = subscriptions
            .flat_map(Incarnation::with_sub_queues)
            .any(is_used);
        if is_used {
            self.emit_bus(BusFact::Used { queue });
        } else {
            self.delete_whole(queue);
        }
    }

    /// What an answer about an entity rests on. That of a topic rests on its subscriptions, too; and a refusal of a
    /// subscription may rest on its topic and on all others of it.
    pub(super) fn scope_of(&self, entity: Incarnation, answer: &Answer) -> Scope {
        let (first, kind) = self.first_and_kind_of(entity);
        match kind {
            EntityKind::Queue => Scope::BusQueue(first),
            EntityKind::Topic => Scope::Everything,
            EntityKind::Subscription => match answer {
                Err(_) => Scope::Everything,
                Ok(BusOutcome::Settled(verdicts)) if verdicts.contains(&Verdict::QuotaExceeded) => {
                    Scope::Everything
                }
                Ok(_) => Scope::BusQueue(first),
            },
        }
    }

    /// Refuses what clients cannot send to.
    pub(super) fn check_takes_sends(&self, entity: Incarnation) -> Result<(), BusRefusal> {
        let found = self.bus(entity);
        if found.role.accepts_sends() {
            return Ok(());
        }
        let queue = found.name.name.clone();
        Err(match found.role.kind() {
            Some(_) => BusRefusal::NotSendableSubscription { queue },
            None => BusRefusal::NotSendable { queue },
        })
    }
}

/// A list of entities. It has their counts, so it rests on their messages, too.
pub(super) fn listed(views: Vec<BusQueueView>) -> Decision {
    Decision {
        result: Ok(BusOutcome::Queues(views)),
        scope: Scope::Everything,
    }
}

fn in_catalogue(result: Answer) -> Decision {
    Decision {
        result,
        scope: Scope::Catalogue,
    }
}
