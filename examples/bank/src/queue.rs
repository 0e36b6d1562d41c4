//! The queue of transactions, of either service.

use std::sync::Arc;
use std::time::Duration;

use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusOptions, ConnectionString, ConnectionStringError,
    Message as BusMessage, PutOptions, QueueClient, QueueOptions,
};
use kew_worker::{
    BusTarget, CodecError, Envelopes, ErrorKind, LeaseHint, QueueTarget, SendError, Sender,
    SourceError,
};
use tokio::sync::OnceCell;

use crate::fitness::{UnfitQueue, check, settings_of_new};
use crate::message::{Message, Messages};

/// How long one operation may take, with all its tries. A call of the web service has an answer in that time.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The longest lease that new messages ask for, in times of the worker timeout, however many leases are lost: so long a
/// message waits for another worker if its own one is killed.
const LEASE_TIMES_MAX: u32 = 3;

/// The time to live of a message of Queue Storage that never expires.
const NEVER: i64 = -1;

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

/// The queue. To clone it is cheap.
#[derive(Clone, Debug)]
pub struct Queue {
    service: Service,
    name: String,
    worker_timeout: Duration,
    lease_hint: LeaseHint,
    sender: Arc<OnceCell<Outlet>>,
}

/// What sends to the queue.
#[derive(Debug)]
enum Outlet {
    Storage {
        plain: Sender<Message, Messages, QueueTarget>,
        /// In an envelope, with the lease that the message asks for.
        marked: Sender<Message, Messages, QueueTarget>,
    },
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

/// Why the queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnsureError {
    /// It is there, with settings that lose or bury confirmed work.
    #[error(transparent)]
    Unfit(#[from] UnfitQueue),
    /// The service.
    #[error(transparent)]
    Service(#[from] SourceError),
}

impl EnsureError {
    /// Whether it is of use to try again.
    pub fn can_pass(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}

impl From<kew_client::Error> for EnsureError {
    fn from(error: kew_client::Error) -> Self {
        Self::Service(error.into())
    }
}

impl From<EnsureError> for SourceError {
    fn from(error: EnsureError) -> Self {
        match error {
            EnsureError::Unfit(unfit) => Self::refused(unfit.to_string()),
            EnsureError::Service(error) => error,
        }
    }
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
            lease_hint: LeaseHint::new(worker_timeout, worker_timeout * LEASE_TIMES_MAX),
            sender: Arc::default(),
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

    /// The name of its poison queue, if Queue Storage has it.
    pub fn poison(&self) -> String {
        format!("{}-poison", self.name)
    }

    /// How long a worker may have a message.
    pub fn worker_timeout(&self) -> Duration {
        self.worker_timeout
    }

    /// How long new messages are leased at first, if that is longer than the worker's timeout. Clones share it. Only
    /// messages of Queue Storage carry it: a lock of Service Bus is a setting of the queue.
    pub fn lease_hint(&self) -> &LeaseHint {
        &self.lease_hint
    }

    /// Creates the queue if it does not exist. Fails if it exists with settings that lose or bury confirmed work: a queue
    /// of Queue Storage has none, there each message says how long it lives.
    pub async fn ensure(&self) -> Result<(), EnsureError> {
        match &self.service {
            Service::Storage(client) => match client.create_queue(&self.name, &[]).await {
                Err(error) if error.code() != Some("QueueAlreadyExists") => Err(error.into()),
                Ok(_) | Err(_) => Ok(()),
            },
            Service::Bus { admin, .. } => {
                let (name, timeout) = (&self.name, self.worker_timeout);
                let found = match admin.queue(name).await {
                    Err(error) if error.status() == Some(404) => {
                        match admin.create_queue(name, &settings_of_new(timeout)).await {
                            // Another program was faster.
                            Err(error) if error.code() == Some("40900") => {
                                admin.queue(name).await?
                            }
                            created => created?,
                        }
                    }
                    found => found?,
                };
                Ok(check(name, &found.settings, timeout)?)
            }
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
                self.ensure().await.map_err(SourceError::from)?;
                self.send_once(message).await
            }
            sent => sent,
        }
    }

    /// Sends a body again that was in the queue before, as a new message: its deliveries count from the beginning. It has
    /// no message id, because a queue that detects duplicates would drop it.
    pub async fn send_again(&self, body: String) -> Result<(), SourceError> {
        match &self.service {
            Service::Storage(client) => {
                let options = PutOptions {
                    time_to_live: Some(NEVER),
                    ..PutOptions::default()
                };
                client.put(&self.name, &body, options).await?;
            }
            Service::Bus { client, .. } => {
                let sender = client.sender(&self.name).await?;
                sender.send(&BusMessage::new(body)).await?;
            }
        }
        Ok(())
    }

    async fn send_once(&self, message: &Message) -> Result<(), SendError> {
        match self.sender.get_or_try_init(|| self.outlet()).await? {
            // Other programs read the plain shapes, so they are not wrapped; so there is no place for an id.
            // While a message asks for a longer lease, an envelope is that place.
            Outlet::Storage { plain, marked } => {
                let sender = match self.lease_hint.get() {
                    Some(_) => marked,
                    None => plain,
                };
                sender.send(message).await.map(drop)
            }
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
                let target = target.never_expires();
                let enveloped = target.clone().envelopes(Envelopes::On);
                let marked = Sender::new(Messages, enveloped, "bank-web");
                Outlet::Storage {
                    plain: Sender::new(Messages, target, "bank-web"),
                    marked: marked.lease_hint(self.lease_hint.clone()),
                }
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

/// Whether a message may be in the queue although its sending failed.
pub fn may_be_sent(error: &SendError) -> bool {
    matches!(error, SendError::Target(error) if error.kind() == ErrorKind::OutcomeUnknown)
}
