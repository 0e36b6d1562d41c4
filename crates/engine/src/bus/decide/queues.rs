//! Queues: create, update, delete, read, list.

use std::sync::Arc;

use super::super::queue::Role;
use super::super::{
    BusFact, BusOutcome, BusQueueCounts, BusQueueOptions, BusQueueView, BusRefusal,
};
use super::{Answer, Decision, Turn};
use crate::catalogue::Scope;
use crate::vocabulary::{EntityName, Incarnation, Service};

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
            self.check_options(&name, &options).err()
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
            options,
        });
        Decision {
            result: Ok(BusOutcome::QueueCreated(self.view(queue))),
            scope: Scope::Catalogue,
        }
    }

    fn check_options(
        &self,
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
            let is_queue = entity.is_some_and(|entity| entity.role == Role::Queue);
            // A queue that is being created may name itself as its destination.
            if !is_queue && target != *name {
                return Err(BusRefusal::DestinationNotFound {
                    queue: destination.clone(),
                });
            }
        }
        Ok(())
    }

    /// Source: Service Bus, *Update Queue*.
    pub(super) fn update_bus_queue(
        &mut self,
        queue: Incarnation,
        options: BusQueueOptions,
    ) -> Answer {
        self.check_is_queue(queue)?;
        let entity = self.bus(queue);
        if let Some(option) = entity.options.unchangeable(&options) {
            return Err(BusRefusal::UnchangeableOption { option });
        }
        self.check_options(&entity.name.clone(), &options)?;
        let ids_from = self.bus(queue).ids_from(&options, self.now());
        self.emit_bus(BusFact::QueueUpdated {
            queue,
            options,
            ids_from,
        });
        Ok(BusOutcome::QueueUpdated(self.view(queue)))
    }

    /// Source: Service Bus, *Delete Queue*.
    pub(super) fn delete_bus_queue(&mut self, queue: Incarnation) -> Answer {
        self.check_is_queue(queue)?;
        self.emit_bus(BusFact::QueueDeleted { queue });
        Ok(BusOutcome::QueueDeleted)
    }

    /// Sub-queues cannot be managed: as queues they do not exist.
    fn check_is_queue(&self, queue: Incarnation) -> Result<(), BusRefusal> {
        let entity = self.bus(queue);
        if entity.role == Role::Queue {
            return Ok(());
        }
        Err(BusRefusal::QueueNotFound {
            queue: entity.name.name.clone(),
        })
    }

    pub(super) fn view(&self, queue: Incarnation) -> BusQueueView {
        let entity = self.bus(queue);
        let backlog = &entity.backlog;
        let mut counts = BusQueueCounts {
            active: backlog.count() - backlog.scheduled_count(),
            ready: backlog.ready_count(),
            scheduled: backlog.scheduled_count(),
            size_bytes: entity.size_bytes(self.now()),
            ..BusQueueCounts::default()
        };
        if entity.role == Role::Queue {
            let [dead, failed] =
                [queue.next(), queue.next().next()].map(|sub| self.bus_backlog(sub));
            counts.dead_letters = dead.count();
            counts.failed_transfers = failed.count();
            counts.size_bytes = self.size_bytes(queue);
        }
        BusQueueView {
            incarnation: queue,
            name: entity.name.name.clone(),
            options: entity.options.clone(),
            created_at: entity.created_at,
            updated_at: entity.updated_at,
            used_at: entity.used_at,
            counts,
        }
    }

    /// The size of a queue with its sub-queues.
    pub(super) fn size_bytes(&self, queue: Incarnation) -> u64 {
        queue
            .with_sub_queues()
            .map(|entity| self.bus(entity).size_bytes(self.now()))
            .iter()
            .sum()
    }

    pub(super) fn list_bus_queues(
        &mut self,
        namespace: Arc<str>,
        from: Box<str>,
        skip: u32,
        limit: u32,
    ) -> Decision {
        let first = EntityName {
            service: Service::ServiceBus,
            account: namespace.clone(),
            name: from,
        };
        let queues = self
            .catalogue()
            .names
            .range(first..)
            .take_while(|(name, _)| {
                name.service == Service::ServiceBus && name.account == namespace
            })
            .filter(|(_, queue)| {
                let entity = self.queues().get(queue);
                entity.is_some_and(|entity| entity.role == Role::Queue)
            })
            .skip(skip as usize)
            .take(limit as usize)
            .map(|(_, queue)| self.view(*queue));
        Decision {
            result: Ok(BusOutcome::Queues(queues.collect())),
            scope: Scope::Catalogue,
        }
    }
}
