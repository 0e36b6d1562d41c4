//! The handle that the server holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kew_broker::Broker;
use kew_metrics::{Family, OnceASecond};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::driver::Driver;
use crate::first::{Begun, First, first_of};
use crate::holdings::room_for_answers;
use crate::metrics::{Instruments, Overdue};
use crate::rights::AuthorizationRule;
use crate::{Limits, Origin, http};

/// The one namespace, under the name that the emulator's configuration gives it.
pub const NAMESPACE: &str = "sbemulatorns";
/// The rule of the emulator's connection string.
pub const WELL_KNOWN_RULE: &str = "RootManageSharedAccessKey";
/// Its key, which is public: it must only be served to this machine.
pub const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

/// Service Bus over AMQP. Clones share it.
#[derive(Clone, Debug)]
pub struct BusApi {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) rules: Vec<AuthorizationRule>,
    pub(crate) limits: Limits,
    connections: AtomicUsize,
    pub(crate) instruments: Instruments,
    /// Room for answers with messages in them.
    pub(crate) answers: Arc<Semaphore>,
    pub(crate) busy_log: OnceASecond,
    pub(crate) refused_log: OnceASecond,
}

/// The place that a connection takes, as long as it lives.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<Shared>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BusApi {
    /// A front end for a broker. Whoever knows the key of one of the rules may do everything.
    pub fn new(broker: Broker, rules: Vec<AuthorizationRule>, limits: Limits) -> Self {
        let shared = Shared {
            broker,
            rules,
            answers: room_for_answers(limits.held_size_bytes_max),
            limits,
            connections: AtomicUsize::new(0),
            instruments: Instruments::new(),
            busy_log: OnceASecond::default(),
            refused_log: OnceASecond::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// A place for one more connection, unless there are as many as there may be: then it is to be
    /// closed, and was counted and logged.
    pub fn admit(&self, peer: SocketAddr) -> Option<ConnectionPermit> {
        let permit = ConnectionPermit(Arc::clone(&self.shared));
        let before = self.shared.connections.fetch_add(1, Ordering::Relaxed);
        if before < self.shared.limits.connections_max {
            self.shared.instruments.accepted.increment();
            return Some(permit);
        }
        self.shared.note_turned_away(peer);
        None
    }

    /// What it has counted, for a page of metrics. Does not block.
    pub fn metrics(&self) -> Vec<Family> {
        let open = self.shared.connections.load(Ordering::Relaxed);
        self.shared.instruments.families(open)
    }

    /// Serves one connection until it ends, in the protocol that its first byte tells. When
    /// `shutdown` completes, the client is told to come back later.
    pub async fn serve<S>(
        &self,
        mut stream: S,
        origin: Origin,
        permit: ConnectionPermit,
        shutdown: impl Future<Output = ()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut shutdown = std::pin::pin!(shutdown);
        let patience = self.shared.limits.token_timeout;
        let first = tokio::select! {
            first = tokio::time::timeout(patience, first_of(&mut stream)) => first,
            // Nothing was asked yet.
            () = &mut shutdown => return,
        };
        match first {
            Ok(Ok(First::Amqp(begun))) => {
                let driver = Driver::new(Arc::clone(&self.shared), origin, &begun);
                driver.run(stream, shutdown).await;
            }
            Ok(Ok(First::Http(begun))) => {
                let stream = Begun::new(begun, stream);
                // Its state must not make AMQP connections larger.
                Box::pin(http::serve(
                    Arc::clone(&self.shared),
                    stream,
                    origin,
                    shutdown,
                ))
                .await;
            }
            Ok(Err(error)) => {
                self.shared.instruments.broken.increment();
                tracing::debug!(target: "kew::access", peer = %origin.peer, %error, "nothing was said");
            }
            Err(_) => {
                self.shared.instruments.note_overdue(Overdue::Handshake);
                tracing::debug!(target: "kew::access", peer = %origin.peer, "nothing was said in time");
            }
        }
        drop(permit);
    }
}
