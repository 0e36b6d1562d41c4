//! The client: one connection to a namespace, shared by all handles.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::codec::Uuid;
use tokio::sync::mpsc;

use super::connector::Connector;
use super::core::{Attached, Core, LinkSpec, LinkUse, Settings};
use super::driver::Driver;
use super::entity::Entity;
use super::held::HeldLock;
use super::inbox::{INBOX_MAX, Inbox, Messages};
use super::management::{self, Peek};
use super::nudges::Nudges;
use super::received::Received;
use super::receiver::{DeletingReceiver, Receiver, ReceiverOptions};
use super::room::Room;
use super::sender::Sender;
use super::session::{SessionChoice, SessionReceiver};
use super::shared::{LinkHandle, Shared};
use super::tokens::TokenMaker;
use super::transaction::Transaction;
use crate::connection_string::BusNamespace;
use crate::error::{Error, bus_condition};
use crate::retry::Retry;
use crate::transport::{Dial, Route};

/// The largest message of the largest tier, and 1 MiB for annotations and for what settlements have changed.
const MESSAGE_SIZE_MAX: u64 = 101 << 20;

/// How a client behaves, and what bounds it.
#[derive(Clone)]
pub struct BusOptions {
    /// How long an operation may take, with all its tries. Default 60 s, or what the connection string says.
    /// To wait for a message is not bounded by it.
    pub timeout: Option<Duration>,
    /// How long a connection may take to be made. Default 30 s.
    pub connect_timeout: Duration,
    /// When an operation is tried again.
    pub retry: Retry,
    /// How long tokens hold that the client signs. Default 1 h. They are renewed after three quarters of it, and
    /// after 5 s at the earliest.
    pub token_lifetime: Duration,
    /// The largest message that comes in, in bytes. Default 101 MiB: the largest message of any tier (100 MiB) and
    /// what the service adds to it. A larger one stays in its queue, and its receiver is *refused*.
    ///
    /// A receiver holds no more messages than it asked for, so this size times that count bounds its memory. Messages
    /// use memory as they come: set a lower limit only if you do not trust those who send to the queue.
    pub message_size_max: u64,
    /// Certificate authorities to be trusted beside those of the system, in PEM.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// What makes connections in place of TCP.
    pub dial: Option<Arc<dyn Dial>>,
    /// Sends under way. One more waits. Default 1,024.
    pub sends_max: usize,
    /// The messages of sends under way, in bytes. Default 16 MiB. A larger message is sent alone.
    pub sends_size_bytes_max: usize,
    /// Settlements and requests under way. One more waits. Default 1,024.
    pub requests_max: usize,
    /// Senders and receivers. One more is refused. Default 1,024.
    pub links_max: usize,
}

impl Default for BusOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            connect_timeout: Duration::from_secs(30),
            retry: Retry::default(),
            token_lifetime: Duration::from_hours(1),
            message_size_max: MESSAGE_SIZE_MAX,
            extra_roots_pem: None,
            dial: None,
            sends_max: 1_024,
            sends_size_bytes_max: 16 << 20,
            requests_max: 1_024,
            links_max: 1_024,
        }
    }
}

impl std::fmt::Debug for BusOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusOptions")
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("message_size_max", &self.message_size_max)
            .finish_non_exhaustive()
    }
}

/// A client of one namespace of Service Bus.
///
/// It is cheap to clone, and all clones share one connection, which is made when it is needed and closed when the
/// last handle is dropped: clients, senders, receivers and messages under lock. Wait for
/// [`Sender::settled`] before, if you have dropped futures of sends.
#[derive(Clone, Debug)]
pub struct BusClient {
    shared: Arc<Shared>,
}

impl BusClient {
    /// A client. Nothing is connected yet.
    ///
    /// Fails if TLS cannot be set up, for example because `extra_roots_pem` has no certificate.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, on which the connection's task runs.
    pub fn new(namespace: BusNamespace, options: BusOptions) -> Result<Self, Error> {
        let connector = Connector {
            route: Route::new(
                namespace.host(),
                namespace.amqp_port(),
                namespace.is_tls(),
                options.extra_roots_pem.as_deref(),
                options.dial,
                options.connect_timeout,
            )?,
            transport: namespace.transport(),
        };
        let core = Core::new(Settings {
            host: namespace.host().to_owned(),
            name: format!("kew-client-{:08x}", getrandom::u32().unwrap_or_default()),
            message_size_max: options.message_size_max,
            links_max: options.links_max,
            retry: options.retry,
        });
        let maker = TokenMaker::new(namespace.credential().clone(), options.token_lifetime);
        // A command holds a place of the rooms or is made by the handle of a link.
        let (commands, received) = mpsc::channel(64);
        let nudges = Arc::new(Nudges::default());
        let driver = Driver::new(core, received, nudges.clone(), connector, maker);
        tokio::spawn(driver.run());
        let timeout = options.timeout.or(namespace.timeout());
        let sends = Room::new(options.sends_max, options.sends_size_bytes_max);
        let requests = Room::new(options.requests_max, usize::MAX);
        let timeout = timeout.unwrap_or(Duration::from_secs(60));
        let shared = Shared::new(commands, nudges, sends, requests, options.retry, timeout);
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// A sender to a queue or a topic. Nothing is sent to a subscription itself: its topic's rules decide.
    ///
    /// To drop the future gives the link up.
    pub async fn sender(&self, entity: impl Into<Entity>) -> Result<Sender, Error> {
        let entity = entity.into();
        let (link, attached, _) = self.attach(&entity, LinkUse::Send).await?;
        Ok(Sender::new(link, entity, attached.message_size_max))
    }

    /// A receiver of a queue or a subscription (`TOPIC/Subscriptions/NAME`) whose messages stay locked until they are
    /// settled.
    ///
    /// To drop the future gives the link up.
    pub async fn receiver(
        &self,
        entity: impl Into<Entity>,
        options: ReceiverOptions,
    ) -> Result<Receiver, Error> {
        let entity = entity.into();
        let (link, _, messages) = self.attach(&entity, LinkUse::Receive).await?;
        Ok(Receiver::new(
            Inbox::new(link, messages, options.prefetch),
            entity,
        ))
    }

    /// A receiver whose messages are gone as soon as the service sends them. One that is lost on its way is
    /// lost: use it for what has little or brief value.
    ///
    /// To drop the future gives the link up.
    pub async fn deleting_receiver(
        &self,
        entity: impl Into<Entity>,
        options: ReceiverOptions,
    ) -> Result<DeletingReceiver, Error> {
        let entity = entity.into();
        let (link, _, messages) = self.attach(&entity, LinkUse::ReceiveAndDelete).await?;
        Ok(DeletingReceiver::new(Inbox::new(
            link,
            messages,
            options.prefetch,
        )))
    }

    /// Locks a message session, and receives its messages.
    ///
    /// If none comes within the time of the choice, the error is *try again later* with the code
    /// `com.microsoft:timeout`. If another receiver holds the session, it is *refused* with
    /// `com.microsoft:session-cannot-be-locked`. To drop the future gives the session back.
    pub async fn session(
        &self,
        entity: impl Into<Entity>,
        choice: SessionChoice,
        options: ReceiverOptions,
    ) -> Result<SessionReceiver, Error> {
        let entity = entity.into();
        let purpose = LinkUse::ReceiveSession {
            id: choice.id,
            within: choice.within,
        };
        let (link, attached, messages) = self.attach(&entity, purpose).await?;
        let (id, until) = attached
            .session
            .ok_or_else(|| Error::refused("the service named no session"))?;
        let inbox = Inbox::new(link, messages, options.prefetch);
        Ok(SessionReceiver::new(inbox, entity, id, until))
    }

    /// Shows up to `count` messages from a sequence number on, in any state, without locking them. Fewer can come
    /// although there are more; none means that there are none. To drop the future loses nothing.
    pub async fn peek(
        &self,
        entity: impl Into<Entity>,
        from: i64,
        count: u32,
    ) -> Result<Vec<Received>, Error> {
        let peek = Peek {
            from,
            count,
            session: None,
        };
        management::peek(&self.shared, &entity.into(), &peek).await
    }

    /// The ids of an entity's message sessions that have messages or a state: a page after the first `skip`. Begin with
    /// 0, and go on with the second value until it is `None`.
    ///
    /// Sessions that come or go meanwhile can move others to another page. To drop the future loses nothing.
    pub async fn sessions(
        &self,
        entity: impl Into<Entity>,
        skip: u32,
    ) -> Result<(Vec<String>, Option<u32>), Error> {
        management::sessions(&self.shared, &entity.into(), skip).await
    }

    /// A lock on a message of which only the token is known. Nothing is asked of the service yet.
    pub fn held(&self, entity: impl Into<Entity>, token: Uuid) -> HeldLock {
        HeldLock::new(&self.shared, entity.into(), token)
    }

    /// Begins a transaction over any queues of the namespace.
    ///
    /// To drop the future gives it up.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        let (link, _, _) = self.attach(&Entity::new(""), LinkUse::Coordinate).await?;
        Transaction::begin(link).await
    }

    async fn attach(
        &self,
        entity: &Entity,
        purpose: LinkUse,
    ) -> Result<(LinkHandle, Attached, Messages), Error> {
        let shared = &self.shared;
        if purpose != LinkUse::Coordinate {
            entity.check()?;
        }
        let waits = match &purpose {
            LinkUse::ReceiveSession { within, .. } => *within,
            LinkUse::Send | LinkUse::Coordinate | LinkUse::Receive | LinkUse::ReceiveAndDelete => {
                Duration::ZERO
            }
        };
        let deadline = shared.deadline() + waits;
        let mut failures = 0;
        loop {
            let (inbox, messages) = mpsc::channel(INBOX_MAX);
            let inbox = purpose.receives().then_some(inbox);
            let spec = LinkSpec {
                address: entity.address_arc(),
                audience: entity.base(),
                purpose: purpose.clone(),
            };
            let link = LinkHandle::new(shared);
            match link.attach(spec, inbox, deadline).await {
                Ok(attached) => return Ok((link, attached, messages)),
                // That no session came is an answer.
                Err(error) if error.code() == Some(bus_condition::TIMEOUT) => return Err(error),
                Err(error) => {
                    failures += 1;
                    drop(link);
                    shared.pause(error, failures, deadline).await?;
                }
            }
        }
    }
}
