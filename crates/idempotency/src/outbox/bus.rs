//! Messages of the outbox go to Service Bus.

use std::collections::HashMap;
use std::sync::Arc;

use kew_client::{BusClient, Message, Sender, Value};
use tokio::sync::Mutex;

use crate::outbox::{OutboxMessage, Publish, PublishError};

/// How many destinations keep their link.
const SENDERS_MAX: usize = 64;

/// Sends to the queues of a Service Bus namespace. The destination is the name of the queue.
///
/// The message id is the id of the message. Create the queues with duplicate detection, and choose its window longer
/// than the longest time between two tries: a repeated message is dropped then.
#[derive(Debug)]
pub struct BusPublisher {
    client: BusClient,
    senders: Mutex<HashMap<String, Arc<Sender>>>,
}

impl BusPublisher {
    /// Sends with this client.
    pub fn new(client: BusClient) -> Self {
        Self {
            client,
            senders: Mutex::new(HashMap::new()),
        }
    }

    async fn sender(&self, queue: &str) -> Result<Arc<Sender>, kew_client::Error> {
        if let Some(sender) = self.senders.lock().await.get(queue) {
            return Ok(sender.clone());
        }
        let sender = Arc::new(self.client.sender(queue).await?);
        let mut senders = self.senders.lock().await;
        if senders.len() >= SENDERS_MAX {
            // Links end when nothing is under way on them.
            senders.clear();
        }
        Ok(senders.entry(queue.to_owned()).or_insert(sender).clone())
    }
}

impl Publish for BusPublisher {
    async fn publish(&self, message: &OutboxMessage) -> Result<(), PublishError> {
        let sender = self.sender(&message.destination).await.map_err(told)?;
        sender.send(&to_bus(message)).await.map_err(told)
    }
}

fn to_bus(message: &OutboxMessage) -> Message {
    let properties = message.properties.iter();
    Message {
        id: Some(message.id.clone()),
        session_id: message.session_id.clone(),
        content_type: message.content_type.clone(),
        subject: message.subject.clone(),
        properties: properties
            .map(|(name, value)| (name.clone(), Value::String(value.as_str().into())))
            .collect(),
        ..Message::new(message.body.clone())
    }
}

fn told(error: kew_client::Error) -> PublishError {
    match error.kind() {
        kew_client::ErrorKind::Refused => PublishError::refused(error),
        kew_client::ErrorKind::TryAgainLater => PublishError::later(error),
        kew_client::ErrorKind::OutcomeUnknown => PublishError::unknown(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_sent() {
        let message = OutboxMessage {
            session_id: Some("s".to_owned()),
            content_type: Some("text/plain".to_owned()),
            subject: Some("u".to_owned()),
            properties: [("n".to_owned(), "v".to_owned())].into(),
            ..OutboxMessage::new("q", "1", "body")
        };
        let sent = to_bus(&message);
        assert_eq!(
            (sent.id, sent.session_id),
            (Some("1".into()), Some("s".into()))
        );
        assert_eq!(sent.content_type.as_deref(), Some("text/plain"));
        assert_eq!(
            (sent.subject.as_deref(), &sent.body[..]),
            (Some("u"), &b"body"[..])
        );
        assert_eq!(
            sent.properties,
            [("n".to_owned(), Value::String("v".into()))]
        );
    }
}
