//! Where messages are sent to: a queue of one of the services.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use kew_client::{BusAdmin, BusClient, Message, PutOptions, QueueClient, Value};

use crate::error::SourceError;
use crate::source::{Envelope, Envelopes, Outgoing, SourceName, TextEncoding, text_of};

/// The time to live of a message of Queue Storage that never expires.
const NEVER: i64 = -1;

/// A queue that takes messages.
pub trait Target: Send + Sync + 'static {
    /// Which queue it is; of several, the first.
    fn name(&self) -> &SourceName;

    /// Whether a message can have properties, such as a trace context.
    fn carries_properties(&self) -> bool;

    /// Sends a message, and returns the queue that has it.
    fn send(
        &self,
        message: &Outgoing,
    ) -> impl Future<Output = Result<SourceName, SourceError>> + Send;

    /// About how many messages the queue holds, or `None` if this target cannot know.
    fn depth(&self) -> impl Future<Output = Result<Option<u64>, SourceError>> + Send;
}

/// A queue of Queue Storage.
#[derive(Clone, Debug)]
pub struct QueueTarget {
    client: QueueClient,
    name: SourceName,
    encoding: TextEncoding,
    envelopes: Envelopes,
    time_to_live: Option<i64>,
}

impl QueueTarget {
    /// A queue of an account. The account's name is only used in announcements.
    pub fn new(client: QueueClient, account: &str, queue: &str) -> Self {
        Self {
            client,
            name: SourceName::new(account, queue),
            encoding: TextEncoding::Plain,
            envelopes: Envelopes::Off,
            time_to_live: None,
        }
    }

    /// How bytes become texts. Default: plain. The listener needs the same.
    #[must_use]
    pub fn encoding(mut self, encoding: TextEncoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// Whether messages are sent in envelopes. Default: off; then ids and properties are refused.
    #[must_use]
    pub fn envelopes(mut self, envelopes: Envelopes) -> Self {
        self.envelopes = envelopes;
        self
    }

    /// After how long messages expire, in whole seconds, at least one. Default: what the service does, seven days.
    #[must_use]
    pub fn time_to_live(mut self, duration: Duration) -> Self {
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        self.time_to_live = Some(seconds.max(1));
        self
    }

    /// Messages never expire.
    #[must_use]
    pub fn never_expires(mut self) -> Self {
        self.time_to_live = Some(NEVER);
        self
    }

    fn text(&self, message: &Outgoing) -> Result<String, SourceError> {
        if message.session_id.is_some() {
            return Err(SourceError::refused(
                "Queue Storage has no message sessions",
            ));
        }
        match self.envelopes {
            Envelopes::On => {
                let envelope = Envelope::of_outgoing(message);
                text_of(self.encoding, &Bytes::from(envelope.text()))
            }
            Envelopes::Off if message.id.is_none() && message.properties.is_empty() => {
                text_of(self.encoding, &message.body)
            }
            Envelopes::Off => Err(SourceError::refused(
                "a message of Queue Storage has an id or properties only in an envelope: \
                 QueueTarget::envelopes turns them on",
            )),
        }
    }
}

impl Target for QueueTarget {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn carries_properties(&self) -> bool {
        self.envelopes == Envelopes::On
    }

    async fn send(&self, message: &Outgoing) -> Result<SourceName, SourceError> {
        let options = PutOptions {
            time_to_live: self.time_to_live,
            ..PutOptions::default()
        };
        let text = self.text(message)?;
        self.client.put(&self.name.queue, &text, options).await?;
        Ok(self.name.clone())
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        let read = self.client.queue_properties(&self.name.queue).await?;
        Ok(Some(read.approximate_message_count))
    }
}

/// A queue or a topic of Service Bus.
#[derive(Debug)]
pub struct BusTarget {
    sender: kew_client::Sender,
    admin: Option<BusAdmin>,
    name: SourceName,
}

impl BusTarget {
    /// Opens a sender. The namespace's name is only used in announcements.
    pub async fn open(
        client: &BusClient,
        namespace: &str,
        queue: &str,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            sender: client.sender(queue).await?,
            admin: None,
            name: SourceName::new(namespace, queue),
        })
    }

    /// Reads the depth of the queue from management.
    #[must_use]
    pub fn admin(mut self, admin: BusAdmin) -> Self {
        self.admin = Some(admin);
        self
    }
}

impl Target for BusTarget {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn carries_properties(&self) -> bool {
        true
    }

    async fn send(&self, message: &Outgoing) -> Result<SourceName, SourceError> {
        let properties = message.properties.iter();
        let message = Message {
            id: message.id.clone(),
            session_id: message.session_id.clone(),
            content_type: message.content_type.clone(),
            properties: properties
                .map(|(name, value)| (name.clone(), Value::String(value.as_str().into())))
                .collect(),
            ..Message::new(message.body.clone())
        };
        self.sender.send(&message).await?;
        Ok(self.name.clone())
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        match &self.admin {
            Some(admin) => {
                let entity = admin.entity(&self.name.queue).await?;
                Ok(entity.state().active_count)
            }
            None => Ok(None),
        }
    }
}
