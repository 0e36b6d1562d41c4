//! The queue of transactions, of either service.

use std::time::Duration;

use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusOptions, ConnectionString, ConnectionStringError,
    QueueClient, QueueOptions, QueueSettings,
};
use kew_worker::{BusTarget, CodecError, QueueTarget, SendError, Sender, SourceError};
use tokio::sync::OnceCell;

use crate::message::{Message, Messages};

/// How long one operation may take, with all its tries. A call of the web service has an answer in that time.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// So many deliveries may fail before a message moves aside. The bank does not give a confirmed transaction up because
/// its database is down for hours: only a message that cannot be read moves aside at once.
pub const ATTEMPTS_MAX: u32 = 100;

/// How long a message may wait for a worker: 10 years, because it is confirmed.
const TIME_TO_LIVE: Duration = Duration::from_hours(10 * 366 * 24);

/// Which service has the queue.
#[derive(Clone, Debug)]
pub enum Service {
    /// Queue Storage. The worker chooses how long a message is hidden.
    Storage(QueueClient),
    /// Service Bus. The queue has a lock duration.
    Bus {
        /// For messages.
        client: BusClient,
        /// For the queue itself.
        admin: BusAdmin,
    },
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    service: Service,
    name: String,
    worker_timeout: Duration,
    sender: OnceCell<Outlet>,
}

/// What sends to the queue.
#[derive(Debug)]
enum Outlet {
    Storage(Sender<Message, Messages, QueueTarget>),
    Bus(Sender<Message, Messages, BusTarget>),
}

/// Why there is no queue of this connection string.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It cannot be read.
    #[error(transparent)]
    ConnectionString(#[from] ConnectionStringError),
    /// It cannot be used.
    #[error(transparent)]
    Client(#[from] kew_client::Error),
}

impl Queue {
    /// A queue of the service that the connection string names. Connects to nothing yet.
    pub fn connect(
        connection_string: &str,
        name: &str,
        worker_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let service = match ConnectionString::parse(connection_string)? {
            ConnectionString::Queue(account) => {
                let options = QueueOptions {
                    timeout: ANSWER_MAX,
                    connect_timeout: CONNECT_MAX,
                    ..QueueOptions::default()
                };
                Service::Storage(QueueClient::new(account, options)?)
            }
            ConnectionString::Bus(namespace) => {
                let options = BusOptions {
                    timeout: Some(ANSWER_MAX),
                    connect_timeout: CONNECT_MAX,
                    ..BusOptions::default()
                };
                let admin = AdminOptions {
                    timeout: Some(ANSWER_MAX),
                    connect_timeout: CONNECT_MAX,
                    ..AdminOptions::default()
                };
                Service::Bus {
                    admin: BusAdmin::new(namespace.clone(), admin)?,
                    client: BusClient::new(namespace, options)?,
                }
            }
        };
        Ok(Self::of(service, name, worker_timeout))
    }

    /// A queue of a service.
    pub fn of(service: Service, name: &str, worker_timeout: Duration) -> Self {
        Self {
            service,
            name: name.to_owned(),
            worker_timeout,
            sender: OnceCell::new(),
        }
    }

    /// Which service has it.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long a worker may have a message.
    pub fn worker_timeout(&self) -> Duration {
        self.worker_timeout
    }

    /// Creates the queue if it does not exist.
    pub async fn ensure(&self) -> Result<(), SourceError> {
        let (created, exists) = match &self.service {
            Service::Storage(client) => {
                let created = client.create_queue(&self.name, &[]).await.map(drop);
                (created, "QueueAlreadyExists")
            }
            Service::Bus { admin, .. } => {
                // A creation that is refused is a line in the audit log of the service.
                if admin.queue(&self.name).await.is_ok() {
                    return Ok(());
                }
                let settings = QueueSettings {
                    lock_duration: Some(self.worker_timeout),
                    max_delivery_count: Some(ATTEMPTS_MAX),
                    default_time_to_live: Some(TIME_TO_LIVE),
                    ..QueueSettings::default()
                };
                let created = admin.create_queue(&self.name, &settings).await.map(drop);
                (created, "40900")
            }
        };
        match created {
            Err(error) if error.code() == Some(exists) => Ok(()),
            created => Ok(created?),
        }
    }

    /// About how many messages it holds.
    pub async fn depth(&self) -> Result<Option<u64>, SourceError> {
        match &self.service {
            Service::Storage(client) => {
                let read = client.queue_properties(&self.name).await?;
                Ok(Some(read.approximate_message_count))
            }
            Service::Bus { admin, .. } => Ok(admin.queue(&self.name).await?.state.active_count),
        }
    }

    /// Sends a message. It is durable when this returns `Ok`. If the queue does not exist, it is created first.
    pub async fn send(&self, message: &Message) -> Result<(), SendError> {
        match self.send_once(message).await {
            Err(SendError::Target(error)) if is_missing(&error) => {
                self.ensure().await?;
                self.send_once(message).await
            }
            sent => sent,
        }
    }

    async fn send_once(&self, message: &Message) -> Result<(), SendError> {
        match self.sender.get_or_try_init(|| self.outlet()).await? {
            // Other programs read the plain shapes, so they are not wrapped; so there is no place for an id.
            Outlet::Storage(sender) => sender.send(message).await.map(drop),
            Outlet::Bus(sender) => {
                let id = message.transaction.id.to_string();
                let change = |outgoing: &mut kew_worker::Outgoing| outgoing.id = Some(id);
                sender.send_with(message, change, None).await.map(drop)
            }
        }
    }

    async fn outlet(&self) -> Result<Outlet, SourceError> {
        Ok(match &self.service {
            Service::Storage(client) => {
                let target = QueueTarget::new(client.clone(), "bank", &self.name);
                let target = target.time_to_live(TIME_TO_LIVE);
                Outlet::Storage(Sender::new(Messages, target, "bank-web"))
            }
            Service::Bus { client, .. } => {
                // A link needs its queue; an error of its creation says more than that of the link.
                self.ensure().await?;
                let target = BusTarget::open(client, "bank", &self.name).await?;
                Outlet::Bus(Sender::new(Messages, target, "bank-web"))
            }
        })
    }
}

fn is_missing(error: &SourceError) -> bool {
    matches!(error.code(), Some("QueueNotFound" | "amqp:not-found"))
}

/// Whether a message was not sent because of itself, and never will be.
pub fn is_unsendable(error: &SendError) -> bool {
    matches!(error, SendError::Codec(CodecError::Malformed(_)))
}
