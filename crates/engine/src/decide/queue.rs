//! Queues: create, delete, read, set metadata.

use super::{Decision, Scope, Turn};
use crate::{AccessPolicies, EntityName, Fact, Metadata, Outcome, QueueView, Refusal};

impl Turn<'_> {
    /// Creating a queue that exists with the same metadata changes nothing and is no error.
    ///
    /// Source: Queue Storage REST, *Create Queue*.
    pub(super) fn create_queue(&mut self, name: EntityName, metadata: Metadata) -> Decision {
        if let Some((incarnation, entity)) = self.state().find(&name) {
            let result = if entity.metadata.is_same_as(&metadata) {
                Ok(Outcome::QueueUnchanged)
            } else {
                Err(Refusal::QueueAlreadyExists {
                    queue: name.name.clone(),
                })
            };
            return Decision {
                result,
                scope: Scope::Entity(incarnation),
            };
        }
        if let Err(refusal) = self.check_queues(&name.account) {
            return Decision {
                result: Err(refusal),
                scope: Scope::Catalogue,
            };
        }
        let queue = self.state().next_incarnation;
        self.emit(Fact::QueueCreated {
            queue,
            name,
            metadata,
        });
        Decision {
            result: Ok(Outcome::QueueCreated),
            scope: Scope::Entity(queue),
        }
    }

    pub(super) fn delete_queue(&mut self, name: &EntityName) -> Decision {
        self.with_entity(name, |turn, queue| {
            turn.emit(Fact::QueueDeleted { queue });
            Ok(Outcome::QueueDeleted)
        })
    }

    pub(super) fn read_queue(&mut self, name: &EntityName) -> Decision {
        self.with_entity(name, |turn, queue| {
            let entity = turn.entity(queue);
            Ok(Outcome::Queue(QueueView {
                metadata: entity.metadata.clone(),
                approximate_message_count: entity.backlog.count(),
                policies: entity.policies.clone(),
            }))
        })
    }

    pub(super) fn set_queue_metadata(&mut self, name: &EntityName, metadata: Metadata) -> Decision {
        self.with_entity(name, |turn, queue| {
            turn.emit(Fact::QueueMetadataSet { queue, metadata });
            Ok(Outcome::QueueMetadataSet)
        })
    }

    /// Source: Queue Storage REST, *Set Queue ACL*.
    pub(super) fn set_queue_policies(
        &mut self,
        name: &EntityName,
        policies: AccessPolicies,
    ) -> Decision {
        self.with_entity(name, |turn, queue| {
            turn.emit(Fact::QueuePoliciesSet { queue, policies });
            Ok(Outcome::QueuePoliciesSet)
        })
    }
}
