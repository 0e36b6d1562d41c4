//! What each command about storage queues is: see [`Description`].

use super::limits::BODY_SIZE_BYTES_MAX;
use super::{AccessPolicies, Metadata, StorageCommand, StorageRefusal};
use crate::catalogue::description::{
    BODY_OVERHEAD_BYTES, Class, Description, EVENT_SIZE_BYTES, NUMBER_SIZE_BYTES, Touches, Writes,
};

impl StorageCommand {
    pub(crate) fn describe(&self) -> Description<'_, StorageRefusal> {
        use Class::{Consume, Manage, Produce};
        let writes = |class, queue, size_bytes| {
            Description::new(class, Touches::Queue(queue), Writes::AtMost(size_bytes))
        };
        match self {
            Self::CreateQueue { queue, metadata } => {
                let texts = (queue.account.len() + queue.name.len()) as u64;
                let size_bytes = EVENT_SIZE_BYTES + texts + metadata_size_bytes(metadata);
                let created = Writes::ToCreate(queue, size_bytes);
                Description::new(Manage, Touches::Queue(queue), created)
            }
            Self::DeleteQueue { queue } | Self::Clear { queue } => {
                writes(Consume, queue, EVENT_SIZE_BYTES)
            }
            Self::SetQueueMetadata { queue, metadata } => writes(
                Manage,
                queue,
                EVENT_SIZE_BYTES + metadata_size_bytes(metadata),
            ),
            Self::SetQueuePolicies { queue, policies } => writes(
                Manage,
                queue,
                EVENT_SIZE_BYTES + policies_size_bytes(policies),
            ),
            Self::ReadQueue { queue } => Description::reads(Touches::Queue(queue)),
            Self::ListQueues { limit, .. } => {
                Description::reads(Touches::Catalogue).looking_at((*limit).into())
            }
            Self::Send { queue, body, .. } => {
                let stored = BODY_OVERHEAD_BYTES + body.len() as u64;
                writes(Produce, queue, EVENT_SIZE_BYTES + stored)
                    .with_bodies(body.len() as u64)
                    .refused(refuse_body(body.len(), BODY_SIZE_BYTES_MAX))
            }
            Self::Receive { queue, count, .. } => {
                let count = u64::from(*count);
                writes(Consume, queue, count * EVENT_SIZE_BYTES).looking_at(count)
            }
            Self::Peek { queue, count } => {
                Description::reads(Touches::Queue(queue)).looking_at((*count).into())
            }
            Self::Update {
                queue, body: None, ..
            } => writes(Consume, queue, EVENT_SIZE_BYTES),
            Self::Update {
                queue,
                body: Some((_, body)),
                ..
            } => {
                let stored = BODY_OVERHEAD_BYTES + body.len() as u64;
                // It renews a lease, which its holder must not lose to producers.
                writes(Consume, queue, EVENT_SIZE_BYTES + stored)
                    .with_bodies(body.len() as u64)
                    .refused(refuse_body(body.len(), BODY_SIZE_BYTES_MAX))
            }
            Self::Delete { queue, .. } => writes(Consume, queue, EVENT_SIZE_BYTES),
        }
    }
}

fn refuse_body(size_bytes: usize, limit_bytes: usize) -> Option<StorageRefusal> {
    (size_bytes > limit_bytes).then_some(StorageRefusal::BodyTooLarge {
        size_bytes,
        limit_bytes,
    })
}

fn metadata_size_bytes(metadata: &Metadata) -> u64 {
    metadata.size_bytes() as u64 + metadata.len() as u64 * 2 * NUMBER_SIZE_BYTES
}

fn policies_size_bytes(policies: &AccessPolicies) -> u64 {
    let sizes = policies.iter().map(|policy| {
        let permissions = policy.permissions.as_deref().map_or(0, str::len);
        // Two lengths, two times, and whether three parts are there.
        (policy.id.len() + permissions) as u64 + 5 * NUMBER_SIZE_BYTES
    });
    sizes.sum()
}
