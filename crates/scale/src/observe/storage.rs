//! A queue of Queue Storage.

use kew_client::QueueClient;
use kew_scaling::Reading;

use super::{ReadError, age_of};

#[derive(Debug)]
pub(super) struct StorageQueue {
    pub(super) client: QueueClient,
    pub(super) name: String,
}

impl StorageQueue {
    /// One request for an empty queue, and two for others.
    ///
    /// The count has messages under lease, and the first peeked message is none of them: the oldest message can be older.
    pub(super) async fn read(&self) -> Result<Reading, ReadError> {
        let properties = self.client.queue_properties(&self.name).await?;
        let backlog = properties.approximate_message_count;
        let oldest = match backlog {
            0 => None,
            _ => self.client.peek(&self.name, 1).await?.pop(),
        };
        Ok(Reading {
            backlog,
            oldest: oldest.map(|it| age_of(it.inserted)),
            ..Reading::default()
        })
    }
}
