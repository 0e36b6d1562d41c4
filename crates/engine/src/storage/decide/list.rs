//! Listings of an account's queues.

use std::sync::Arc;

use super::{Decision, Scope, Turn};
use crate::storage::{ListedQueue, Metadata, QueuePage, StorageOutcome};
use crate::vocabulary::{EntityName, Service};

impl Turn<'_> {
    /// The page begins at the first name that is not below `from`, so that a queue that was deleted
    /// between two pages neither ends the listing nor repeats it.
    ///
    /// Source: Queue Storage REST, *List Queues*.
    pub(super) fn list_queues(
        &mut self,
        service: Service,
        account: Arc<str>,
        prefix: &str,
        from: Box<str>,
        limit: u32,
        metadata_size_bytes_max: Option<usize>,
    ) -> Decision {
        let first = EntityName {
            service,
            account: account.clone(),
            name: if *from < *prefix { prefix.into() } else { from },
        };
        let mut matches = self
            .catalogue()
            .names
            .range(first..)
            .take_while(|(name, _)| {
                name.service == service && name.account == account && name.name.starts_with(prefix)
            });
        let mut queues = Vec::new();
        let mut metadata_size_bytes = 0;
        for (name, incarnation) in matches.by_ref().take(limit as usize) {
            let metadata = match metadata_size_bytes_max {
                Some(_) => self.entity(*incarnation).metadata.clone(),
                None => Metadata::default(),
            };
            metadata_size_bytes += metadata.size_bytes();
            queues.push(ListedQueue {
                name: name.name.clone(),
                metadata,
            });
            if metadata_size_bytes_max.is_some_and(|max| metadata_size_bytes >= max) {
                break;
            }
        }
        let next = matches.next().map(|(name, _)| name.name.clone());
        Decision {
            result: Ok(StorageOutcome::Queues(QueuePage { queues, next })),
            scope: Scope::Catalogue,
        }
    }
}
