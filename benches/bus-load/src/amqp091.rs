//! The two ends of a queue over AMQP 0.9.1: persistent messages, publisher confirms, and
//! acknowledgements by hand, which this protocol does not confirm.

use std::collections::BTreeSet;

use amqprs::callbacks::{ChannelCallback, DefaultConnectionCallback};
use amqprs::channel::{
    BasicAckArguments, BasicCancelArguments, BasicConsumeArguments, BasicPublishArguments,
    BasicQosArguments, Channel, ConfirmSelectArguments, ExchangeDeclareArguments,
    ExchangeDeleteArguments, QueueBindArguments, QueueDeclareArguments, QueueDeleteArguments,
};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::consumer::AsyncConsumer;
use amqprs::error::Error;
use amqprs::{
    Ack, BasicProperties, Cancel, CloseChannel, DELIVERY_MODE_PERSISTENT, Deliver, FieldTable,
    FieldValue, Nack, Return,
};
use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ends::{COLOR, OTHER_COLOR, Received, Receiving, Sending, stamp_of, subscription};
use crate::options::{DeclareExchange, ExchangeType, QueueType, Subscriptions, Target};

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
    declare_with(&Client::connect(target).await?, queue, queue_type).await
}

async fn declare_with(client: &Client, queue: &str, queue_type: QueueType) -> Result<()> {
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

/// The durable queue of an exchange.
pub(crate) fn queue_of(exchange: &str, number: u32) -> String {
    format!("{exchange}-{}", subscription(number))
}

/// Declares a durable exchange with queues anew, without what was in them.
pub(crate) async fn declare_exchange(target: &Target, options: &DeclareExchange) -> Result<()> {
    let client = Client::connect(target).await?;
    let exchange = &options.topic;
    let deletion = ExchangeDeleteArguments::new(exchange);
    client.channel.exchange_delete(deletion).await?;
    let kind = match options.exchange_type {
        ExchangeType::Topic => "topic",
        ExchangeType::Headers => "headers",
    };
    let mut declaration = ExchangeDeclareArguments::new(exchange, kind);
    declaration.durable(true);
    client.channel.exchange_declare(declaration).await?;
    let Subscriptions {
        subscriptions,
        matching,
    } = options.subscriptions;
    for number in 0..subscriptions {
        let queue = queue_of(exchange, number);
        declare_with(&client, &queue, QueueType::Classic).await?;
        let color = match number < matching {
            true => COLOR,
            false => OTHER_COLOR,
        };
        let mut binding = QueueBindArguments::new(&queue, exchange, color);
        if options.exchange_type == ExchangeType::Headers {
            let mut arguments = colored(color)?;
            arguments.insert("x-match".try_into()?, "all".into());
            binding.arguments(arguments);
        }
        client.channel.queue_bind(binding).await?;
    }
    Ok(())
}

fn colored(color: &str) -> Result<FieldTable> {
    let mut headers = FieldTable::new();
    let color = FieldValue::S(color.try_into()?);
    headers.insert("color".try_into()?, color);
    Ok(headers)
}

/// A channel in confirm mode, on a connection of its own.
pub(crate) struct Sender {
    client: Client,
    exchange: String,
    routing_key: String,
    /// What headers exchanges look at.
    headers: Option<FieldTable>,
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
            exchange: String::new(),
            routing_key: queue.to_owned(),
            headers: None,
            sent_count: 0,
            unconfirmed: BTreeSet::new(),
            confirms,
        })
    }

    pub(crate) async fn connect_exchange(target: &Target, exchange: &str) -> Result<Self> {
        Ok(Self {
            exchange: exchange.to_owned(),
            headers: Some(colored(COLOR)?),
            ..Self::connect(target, COLOR).await?
        })
    }
}

impl Sending for Sender {
    async fn send(&mut self, body: Bytes) -> Result<bool> {
        let mut properties = BasicProperties::default();
        properties.with_delivery_mode(DELIVERY_MODE_PERSISTENT);
        if let Some(headers) = &self.headers {
            properties.with_headers(headers.clone());
        }
        let mut arguments = BasicPublishArguments::new(&self.exchange, &self.routing_key);
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

/// A message of any consumer, with its number on the channel.
struct Arrived {
    number: u64,
    body: Vec<u8>,
}

/// Passes messages on, so that one end has those of all consumers.
struct Forward {
    arrived: mpsc::UnboundedSender<Arrived>,
}

#[async_trait]
impl AsyncConsumer for Forward {
    async fn consume(&mut self, _: &Channel, deliver: Deliver, _: BasicProperties, body: Vec<u8>) {
        let number = deliver.delivery_tag();
        // There is no receiver left.
        let _ = self.arrived.send(Arrived { number, body });
    }
}

/// Consumers, on a connection of their own.
pub(crate) struct Receiver {
    client: Client,
    consumers: Vec<String>,
    messages: mpsc::UnboundedReceiver<Arrived>,
    batch: Vec<Arrived>,
    /// The last unacknowledged message, and how many there are.
    unacknowledged: Option<(u64, usize)>,
}

/// How many messages are acknowledged at once, at most.
const BATCH_MAX: usize = 64;

impl Receiver {
    pub(crate) async fn connect(target: &Target, queue: &str, credit: u32) -> Result<Self> {
        Self::connect_all(target, [queue.to_owned()], credit).await
    }

    /// One consumer for each queue, all on one channel.
    pub(crate) async fn connect_all(
        target: &Target,
        queues: impl IntoIterator<Item = String>,
        credit: u32,
    ) -> Result<Self> {
        let client = Client::connect(target).await?;
        let credit = u16::try_from(credit).context("AMQP 0.9.1 counts credit in 16 bits")?;
        let qos = BasicQosArguments::new(0, credit, false);
        client.channel.basic_qos(qos).await?;
        let (arrived, messages) = mpsc::unbounded_channel();
        let mut consumers = Vec::new();
        for queue in queues {
            let mut arguments = BasicConsumeArguments::new(&queue, &queue);
            arguments.manual_ack(true);
            let arrived = arrived.clone();
            let consumer = client.channel.basic_consume(Forward { arrived }, arguments);
            consumers.push(consumer.await?);
        }
        Ok(Self {
            client,
            consumers,
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
            received.stamps.push(stamp_of(&message.body)?);
            let last = self.unacknowledged.map_or(0, |(number, _)| number);
            self.unacknowledged = Some((message.number.max(last), count));
        }
        if count == 0 {
            bail!("the connection broke");
        }
        Ok(())
    }

    async fn leave(&mut self) -> Result<()> {
        // The broker has read all acknowledgements before it answers this.
        for consumer in &self.consumers {
            let cancel = BasicCancelArguments::new(consumer);
            self.client.channel.basic_cancel(cancel).await?;
        }
        Ok(())
    }
}
