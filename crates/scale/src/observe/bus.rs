//! A queue or subscription of Service Bus.

use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, EntityDescription, Error,
    MessageState,
};
use kew_scaling::Reading;

use super::{ReadError, age_of};

/// How many messages are peeked to find one that is active: scheduled and deferred ones are among them.
const PEEKED: u32 = 16;

#[derive(Debug)]
pub(super) struct BusQueue {
    pub(super) client: BusClient,
    pub(super) admin: BusAdmin,
    pub(super) name: String,
}

/// Management with the same options as the client.
pub(super) fn admin_of(namespace: BusNamespace, options: &BusOptions) -> Result<BusAdmin, Error> {
    let options = AdminOptions {
        timeout: options.timeout,
        connect_timeout: options.connect_timeout,
        retry: options.retry,
        connections_max: 1,
        extra_roots_pem: options.extra_roots_pem.clone(),
        dial: options.dial.clone(),
    };
    BusAdmin::new(namespace, options)
}

impl BusQueue {
    /// One request for an empty queue, and two for others. Scheduled messages and dead letters do not count.
    pub(super) async fn read(&self) -> Result<Reading, ReadError> {
        let entity = self.admin.entity(&self.name).await?;
        if let EntityDescription::Topic(_) = entity {
            let what = "it is a topic: name one of its subscriptions, as TOPIC/subscriptions/NAME";
            return Err(ReadError::of_answer(what));
        }
        let backlog = entity.state().active_count.ok_or_else(|| {
            ReadError::of_answer("the service does not say how many messages are active")
        })?;
        let peeked = match backlog {
            0 => Vec::new(),
            _ => self.client.peek(&self.name, 0, PEEKED).await?,
        };
        let active = peeked
            .iter()
            .filter(|it| it.state() == MessageState::Active);
        let oldest = active.filter_map(|it| it.enqueued_at()).min();
        Ok(Reading {
            backlog,
            oldest: oldest.map(age_of),
            ..Reading::default()
        })
    }
}
