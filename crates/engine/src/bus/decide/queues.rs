//! Queues: create, update, delete, read, list.

use std::sync::Arc;

use super::super::role::Role;
use super::super::{
    BusFact, BusOutcome, BusQueueCounts, BusQueueOptions, BusQueueView, BusRefusal, EntityKind,
};
use super::topics::listed;
use super::{Answer, Decision, Turn};
use crate::catalogue::Scope;
use crate::vocabulary::{EntityName, Incarnation};

impl Turn<'_> {
    /// Source: Service Bus, *Create Queue*.
    pub(super) fn create_bus_queue(
        &mut self,
        name: EntityName,
        options: BusQueueOptions,
    ) -> Decision {
        let refusal = if self.catalogue().find(&name).is_some() {
            Some(BusRefusal::QueueAlreadyExists {
                queue: name.name.clone(),
            })
        } else {
            self.check_options(EntityKind::Queue, &name, &options).err()
        };
        if let Some(refusal) = refusal {
            return Decision {
                result: Err(refusal),
                scope: Scope::Catalogue,
            };
        }
        let queue = self.catalogue().next_incarnation;
        self.emit_bus(BusFact::QueueCreated {
            queue,
            name,
            options: Role::Queue.options(&options),
        });
        Decision {
            result: Ok(BusOutcome::QueueCreated(Box::new(self.view(queue)))),
            scope: Scope::Catalogue,
        }
    }

    pub(super) fn check_options(
        &self,
        kind: EntityKind,
        name: &EntityName,
        options: &BusQueueOptions,
    ) -> Result<(), BusRefusal> {
        options.check()?;
        let destinations = [&options.forward_to, &options.forward_dead_letters_to];
        for destination in destinations.into_iter().flatten() {
            let target = EntityName {
                name: destination.clone(),
                ..name.clone()
            };
            let found = self.catalogue().find(&target);
            let entity = found.and_then(|found| self.queues().get(&found));
            let is_there = entity.is_some_and(|entity| entity.role.accepts_forwards());
            // A queue that is being created may name itself as its destination.
            let is_itself = kind == EntityKind::Queue && target == *name;
            if !is_there && !is_itself {
                return Err(BusRefusal::DestinationNotFound {
                    queue: destination.clone(),
                });
            }
        }
        Ok(())
    }

    /// Source: Service Bus, *Update Queue*, *Update Topic* and *Update Subscription*.
    pub(super) fn update_bus_queue(
        &mut self,
        queue: Incarnation,
        options: BusQueueOptions,
    ) -> Answer {
        self.check_is_first(queue)?;
        let (entity, kind) = (self.bus(queue), self.kind_of(queue));
        if let Some(option) = entity.options.unchangeable(&options) {
            return Err(BusRefusal::UnchangeableOption { option });
        }
        self.check_options(kind, &entity.name, &options)?;
        let ids_from = entity.ids_from(&options, self.now());
        self.emit_bus(match kind {
            EntityKind::Queue => BusFact::QueueUpdated {
                queue,
                options: Role::Queue.options(&options),
                ids_from,
            },
            EntityKind::Topic | EntityKind::Subscription => BusFact::EntityUpdated {
                entity: queue,
                options,
                ids_from,
            },
        });
        Ok(BusOutcome::QueueUpdated(Box::new(self.read(queue))))
    }

    /// Source: Service Bus, *Delete Queue*.
    pub(super) fn delete_bus_queue(&mut self, queue: Incarnation) -> Answer {
        self.check_is_first(queue)?;
        self.delete_whole(queue);
        Ok(BusOutcome::QueueDeleted)
    }

    /// Deletes a queue, subscription, or topic with its subscriptions.
    pub(super) fn delete_whole(&mut self, queue: Incarnation) {
        let subscriptions: Vec<_> = self.catalogue().subscriptions_of(queue).collect();
        // The topic ends first, with all its rules: without it, no subscription takes its own out of them.
        self.emit_bus(BusFact::QueueDeleted { queue });
        // Each subscription's receivers learn of its end from an event of its own.
        for queue in subscriptions {
            self.emit_bus(BusFact::QueueDeleted { queue });
        }
    }

    /// Sub-queues cannot be managed: as queues they do not exist.
    fn check_is_first(&self, queue: Incarnation) -> Result<(), BusRefusal> {
        let entity = self.bus(queue);
        if entity.role.is_first() {
            return Ok(());
        }
        Err(BusRefusal::QueueNotFound {
            queue: entity.name.name.clone(),
        })
    }

    /// The view of a queue, topic or subscription. The size of a topic is at least that of its largest subscription, which may
    /// have to be found first.
    pub(super) fn read(&mut self, queue: Incarnation) -> BusQueueView {
        let looked_at = self.0.keep_largest_family(queue);
        self.0.note_steps(looked_at);
        self.view(queue)
    }

    pub(super) fn view(&self, queue: Incarnation) -> BusQueueView {
        let entity = self.bus(queue);
        let backlog = &entity.backlog;
        // What a topic has lost waits for no copies.
        let lost = match entity.role {
            Role::Topic => backlog.table().aside_count(),
            Role::Queue
            | Role::Subscription { .. }
            | Role::DeadLetters { .. }
            | Role::FailedTransfers { .. } => 0,
        };
        let mut counts = BusQueueCounts {
            active: (backlog.count() - backlog.scheduled_count()).saturating_sub(lost),
            ready: backlog.ready_count().saturating_sub(lost),
            scheduled: backlog.scheduled_count(),
            size_bytes: entity.size_bytes(self.now()),
            ..BusQueueCounts::default()
        };
        if entity.role.is_first() {
            let [dead, failed] =
                [queue.next(), queue.next().next()].map(|sub| self.bus_backlog(sub));
            counts.dead_letters = dead.count();
            counts.failed_transfers = failed.count();
            counts.size_bytes = self.size_bytes(queue);
            counts.subscriptions = self.catalogue().subscription_count(queue);
        }
        BusQueueView {
            kind: self.kind_of(queue),
            incarnation: queue,
            name: entity.name.name.clone(),
            options: entity.options.clone(),
            created_at: entity.created_at,
            updated_at: entity.updated_at,
            used_at: entity.used_at,
            is_suspended: self.is_suspended(queue),
            counts,
        }
    }

    /// The size of a queue with its sub-queues, and of a topic with its subscriptions.
    ///
    /// A body that several subscriptions have counts once in the size of their topic. If the message that counts it ends
    /// first, the sum of what they count does not have it any more. So all of them count at least for the largest one. What
    /// waits in the topic comes on top: it may become a message of each.
    ///
    /// Source: Service Bus quotas, *Queue or topic size*.
    pub(super) fn size_bytes(&self, queue: Incarnation) -> u64 {
        let largest = self.catalogue().largest_family_bytes(queue);
        self.size_bytes_with(queue, largest)
    }

    /// A bound of that, without a look at all subscriptions.
    pub(super) fn size_bytes_at_most(&self, queue: Incarnation) -> u64 {
        let largest = self.catalogue().families.largest_at_most(queue);
        self.size_bytes_with(queue, largest)
    }

    /// The size of a queue if it is above a limit. Below, it is perhaps a bound: subscriptions are looked at only if that is
    /// above the limit, and only once until the largest one shrinks. The second number is how many were.
    pub(super) fn size_bytes_above(&mut self, queue: Incarnation, limit_bytes: u64) -> (u64, u64) {
        let at_most = self.size_bytes_at_most(queue);
        if at_most <= limit_bytes {
            return (at_most, 0);
        }
        let looked_at = self.0.keep_largest_family(queue);
        self.0.note_steps(looked_at);
        (self.size_bytes_at_most(queue), looked_at)
    }

    /// The size of a queue, given the largest of its subscriptions.
    fn size_bytes_with(&self, queue: Incarnation, largest_bytes: u64) -> u64 {
        let charged = self.catalogue().families.charge_bytes(queue);
        let own = self.own_size_bytes(queue);
        own.saturating_add(charged.max(largest_bytes))
    }

    /// The size of a queue with its sub-queues, and of a topic without its subscriptions.
    pub(super) fn own_size_bytes(&self, queue: Incarnation) -> u64 {
        let own = queue.with_sub_queues().into_iter();
        let own = own.filter_map(|entity| self.queues().get(&entity));
        own.map(|entity| entity.size_bytes(self.now())).sum()
    }

    /// Queues in the order of their names.
    pub(super) fn list_bus_queues(
        &mut self,
        namespace: Arc<str>,
        from: Box<str>,
        skip: u32,
        limit: u32,
    ) -> Decision {
        let found = self.catalogue().bus_queues_from(&namespace, from);
        let found = found.skip(skip as usize).take(limit as usize);
        listed(found.map(|queue| self.view(queue)).collect())
    }
}
