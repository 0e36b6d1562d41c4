//! Queues: create, delete, read, set metadata.

use super::{Decision, Scope, Turn};
use crate::storage::{
    AccessPolicies, Metadata, QueueView, StorageFact, StorageOutcome, StorageRefusal,
};
use crate::vocabulary::EntityName;

impl Turn<'_> {
    /// Creating a queue that exists with the same metadata changes nothing and is no error.
    ///
    /// Source: Queue Storage REST, *Create Queue*.
    pub(super) fn create_queue(&mut self, name: EntityName, metadata: Metadata) -> Decision {
        if let Some((incarnation, entity)) = self.0.queues().find(self.catalogue(), &name) {
            let result = if entity.metadata.is_same_as(&metadata) {
                Ok(StorageOutcome::QueueUnchanged)
            } else {
                Err(StorageRefusal::QueueAlreadyExists {
                    queue: name.name.clone(),
                })
            };
            return Decision {
                result,
                scope: Scope::Entity(incarnation),
            };
        }
        if let Err(refusal) = self.catalogue().check_queues(&name.account) {
            return Decision {
                result: Err(refusal.into()),
                scope: Scope::Catalogue,
            };
        }
        let queue = self.catalogue().next_incarnation;
        self.emit(StorageFact::QueueCreated {
            queue,
            name,
            metadata,
        });
        Decision {
            result: Ok(StorageOutcome::QueueCreated),
            scope: Scope::Entity(queue),
        }
    }

    pub(super) fn delete_queue(&mut self, name: &EntityName) -> Decision {
        self.with_entity(name, |turn, queue| {
            turn.emit(StorageFact::QueueDeleted { queue });
            Ok(StorageOutcome::QueueDeleted)
        })
    }

    pub(super) fn read_queue(&mut self, name: &EntityName) -> Decision {
        self.with_entity(name, |turn, queue| {
            let entity = turn.entity(queue);
            Ok(StorageOutcome::Queue(QueueView {
                metadata: entity.metadata.clone(),
                approximate_message_count: entity.backlog.count(),
                policies: entity.policies.clone(),
            }))
        })
    }

    pub(super) fn set_queue_metadata(&mut self, name: &EntityName, metadata: Metadata) -> Decision {
        self.with_entity(name, |turn, queue| {
            turn.emit(StorageFact::QueueMetadataSet { queue, metadata });
            Ok(StorageOutcome::QueueMetadataSet)
        })
    }

    /// Source: Queue Storage REST, *Set Queue ACL*.
    pub(super) fn set_queue_policies(
        &mut self,
        name: &EntityName,
        policies: AccessPolicies,
    ) -> Decision {
        self.with_entity(name, |turn, queue| {
            turn.emit(StorageFact::QueuePoliciesSet { queue, policies });
            Ok(StorageOutcome::QueuePoliciesSet)
        })
    }
}
