//! The two ends of a queue over AMQP 0.9.1: persistent messages, publisher confirms, and
//! acknowledgements by hand, which this protocol does not confirm.

use std::collections::BTreeSet;

use amqprs::callbacks::{ChannelCallback, DefaultConnectionCallback};
use amqprs::channel::{
    BasicAckArguments, BasicCancelArguments, BasicConsumeArguments, BasicPublishArguments,
    BasicQosArguments, Channel, ConfirmSelectArguments, ConsumerMessage, QueueDeclareArguments,
    QueueDeleteArguments,
};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::error::Error;
use amqprs::{
    Ack, BasicProperties, Cancel, CloseChannel, DELIVERY_MODE_PERSISTENT, FieldTable, Nack, Return,
};
use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ends::{Received, Receiving, Sending, stamp_of};
use crate::options::{QueueType, Target};

/// A connection with one channel, which live together.
struct Client {
    _connection: Connection,
    channel: Channel,
}

impl Client {
    async fn connect(target: &Target) -> Result<Self> {
        let host = target.address.ip().to_string();
        let port = target.address.port();
        let arguments = OpenConnectionArguments::new(&host, port, &target.user, &target.password);
        let connection = Connection::open(&arguments)
            .await
            .with_context(|| format!("cannot connect to {}", target.address))?;
        connection
            .register_callback(DefaultConnectionCallback)
            .await?;
        let channel = connection.open_channel(None).await?;
        Ok(Self {
            _connection: connection,
            channel,
        })
    }
}

/// Declares a durable queue anew, without what was in it.
pub(crate) async fn declare(target: &Target, queue: &str, queue_type: QueueType) -> Result<()> {
    let client = Client::connect(target).await?;
    let deletion = QueueDeleteArguments::new(queue);
    client.channel.queue_delete(deletion).await?;
    let queue_type = match queue_type {
        QueueType::Classic => "classic",
        QueueType::Quorum => "quorum",
    };
    let mut arguments = FieldTable::new();
    arguments.insert("x-queue-type".try_into()?, queue_type.into());
    let mut declaration = QueueDeclareArguments::durable_client_named(queue);
    declaration.arguments(arguments);
    client.channel.queue_declare(declaration).await?;
    Ok(())
}

/// A channel in confirm mode, on a connection of its own.
pub(crate) struct Sender {
    client: Client,
    queue: String,
    sent_count: u64,
    /// Messages that are not confirmed.
    unconfirmed: BTreeSet<u64>,
    confirms: mpsc::UnboundedReceiver<Confirm>,
}

/// The broker's confirmation of a message, or of all up to it.
#[derive(Debug)]
enum Confirm {
    Safe { number: u64, is_multiple: bool },
    Trouble(&'static str),
}

impl Sender {
    pub(crate) async fn connect(target: &Target, queue: &str) -> Result<Self> {
        let client = Client::connect(target).await?;
        let (told, confirms) = mpsc::unbounded_channel();
        client.channel.register_callback(Callback { told }).await?;
        let confirm = ConfirmSelectArguments::default();
        client.channel.confirm_select(confirm).await?;
        Ok(Self {
            client,
            queue: queue.to_owned(),
            sent_count: 0,
            unconfirmed: BTreeSet::new(),
            confirms,
        })
    }
}

impl Sending for Sender {
    async fn send(&mut self, body: Bytes) -> Result<bool> {
        let mut properties = BasicProperties::default();
        properties.with_delivery_mode(DELIVERY_MODE_PERSISTENT);
        let mut arguments = BasicPublishArguments::new("", &self.queue);
        arguments.mandatory(true);
        let channel = &self.client.channel;
        channel
            .basic_publish(properties, body.into(), arguments)
            .await?;
        self.sent_count += 1;
        self.unconfirmed.insert(self.sent_count);
        Ok(true)
    }

    async fn settled(&mut self) -> Result<usize> {
        let confirm = self.confirms.recv().await.context("the connection broke")?;
        let (number, is_multiple) = match confirm {
            Confirm::Safe {
                number,
                is_multiple,
            } => (number, is_multiple),
            Confirm::Trouble(what) => bail!("{what}"),
        };
        if !is_multiple {
            return Ok(usize::from(self.unconfirmed.remove(&number)));
        }
        let left = self.unconfirmed.split_off(&(number + 1));
        Ok(std::mem::replace(&mut self.unconfirmed, left).len())
    }
}

/// Passes confirms on.
struct Callback {
    told: mpsc::UnboundedSender<Confirm>,
}

impl Callback {
    fn trouble(&self, what: &'static str) {
        // There is no receiver left.
        let _ = self.told.send(Confirm::Trouble(what));
    }
}

#[async_trait]
impl ChannelCallback for Callback {
    async fn close(&mut self, _: &Channel, _: CloseChannel) -> Result<(), Error> {
        self.trouble("the channel was closed");
        Ok(())
    }

    async fn cancel(&mut self, _: &Channel, _: Cancel) -> Result<(), Error> {
        self.trouble("the consumer was cancelled");
        Ok(())
    }

    async fn flow(&mut self, _: &Channel, active: bool) -> Result<bool, Error> {
        Ok(active)
    }

    async fn publish_ack(&mut self, _: &Channel, ack: Ack) {
        let safe = Confirm::Safe {
            number: ack.delivery_tag(),
            is_multiple: ack.mutiple(),
        };
        let _ = self.told.send(safe);
    }

    async fn publish_nack(&mut self, _: &Channel, _: Nack) {
        self.trouble("a message was rejected");
    }

    async fn publish_return(&mut self, _: &Channel, _: Return, _: BasicProperties, _: Vec<u8>) {
        self.trouble("a message found no queue");
    }
}

/// A consumer, on a connection of its own.
pub(crate) struct Receiver {
    client: Client,
    messages: mpsc::UnboundedReceiver<ConsumerMessage>,
    batch: Vec<ConsumerMessage>,
    /// The last unacknowledged message, and how many there are.
    unacknowledged: Option<(u64, usize)>,
}

/// How many messages are acknowledged at once, at most.
const BATCH_MAX: usize = 64;

impl Receiver {
    pub(crate) async fn connect(target: &Target, queue: &str, credit: u32) -> Result<Self> {
        let client = Client::connect(target).await?;
        let credit = u16::try_from(credit).context("AMQP 0.9.1 counts credit in 16 bits")?;
        let qos = BasicQosArguments::new(0, credit, false);
        client.channel.basic_qos(qos).await?;
        let mut arguments = BasicConsumeArguments::new(queue, "kew-bus-load");
        arguments.manual_ack(true);
        let (_, messages) = client.channel.basic_consume_rx(arguments).await?;
        Ok(Self {
            client,
            messages,
            batch: Vec::new(),
            unacknowledged: None,
        })
    }
}

impl Receiving for Receiver {
    async fn received(&mut self, received: &mut Received) -> Result<()> {
        if let Some((number, count)) = self.unacknowledged {
            let ack = BasicAckArguments::new(number, true);
            self.client.channel.basic_ack(ack).await?;
            self.unacknowledged = None;
            received.completed += count;
            return Ok(());
        }
        let count = self.messages.recv_many(&mut self.batch, BATCH_MAX).await;
        for message in self.batch.drain(..) {
            let body = message.content.as_deref().unwrap_or_default();
            received.stamps.push(stamp_of(body)?);
            let deliver = message.deliver.context("a message without a number")?;
            self.unacknowledged = Some((deliver.delivery_tag(), count));
        }
        if count == 0 {
            bail!("the connection broke");
        }
        Ok(())
    }

    async fn leave(&mut self) -> Result<()> {
        // The broker has read all acknowledgements before it answers this.
        let cancel = BasicCancelArguments::new("kew-bus-load");
        self.client.channel.basic_cancel(cancel).await?;
        Ok(())
    }
}
