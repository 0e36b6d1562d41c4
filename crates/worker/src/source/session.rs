//! Message sessions of Service Bus as a source: messages of a session one after the other, sessions side by side.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::{
    BusAdmin, BusClient, Entity, ErrorKind, Lock, Locked, ReceiverOptions, SessionChoice,
    SessionReceiver,
};
use tokio::time::{Instant, timeout};

use super::bury::Burial;
use super::bus::{Settings, bury, end_of_lock, end_of_renewal, incoming, release};
use super::message::{Attempt, Incoming};
use super::{Ask, Checkpoints, Intake, Lease, Source, SourceName};
use crate::delivery::Boxed;
use crate::error::SourceError;

/// How long the service is asked to wait for a session.
const SESSION_WAIT: Duration = Duration::from_secs(60);

/// The code with which the service reports that no session came.
const NO_SESSION: &str = "com.microsoft:timeout";

/// A queue or a subscription of Service Bus with sessions. A dequeue task takes a session and handles its messages in their order;
/// so the number of tasks is the number of sessions side by side.
/// [`tasks_max`](crate::ListenerBuilder::tasks_max) bounds it, also for tasks that a wake-up starts.
///
/// A checkpoint is the state of the session. It belongs to the session, so it is still there at the next message.
#[derive(Clone, Debug)]
pub struct SessionSource {
    settings: Arc<Settings>,
    idle: Duration,
}

impl SessionSource {
    /// A queue or a subscription (`TOPIC/Subscriptions/NAME`) of a namespace. The namespace's name is only used in
    /// metrics and announcements.
    pub fn new(client: BusClient, namespace: &str, entity: impl Into<Entity>) -> Self {
        Self {
            settings: Arc::new(Settings::new(client, namespace, entity.into())),
            idle: Duration::from_secs(1),
        }
    }

    /// Reads the queue's depth from management, which needs the right *Manage*. Without it the depth is unknown.
    #[must_use]
    pub fn admin(mut self, admin: BusAdmin) -> Self {
        Arc::make_mut(&mut self.settings).admin = Some(admin);
        self
    }

    /// The lock duration of the queue. See [`BusSource::lock_duration`](crate::BusSource::lock_duration).
    #[must_use]
    pub fn lock_duration(mut self, duration: Duration) -> Self {
        Arc::make_mut(&mut self.settings).lock_duration = Some(duration);
        self
    }

    /// How long a task waits for the next message of its session before it takes another one. Default 1 s.
    #[must_use]
    pub fn session_idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }
}

impl Source for SessionSource {
    type Lease = SessionLease;
    type Intake = SessionIntake;
    const IS_ORDERED: bool = true;

    fn name(&self) -> &SourceName {
        &self.settings.name
    }

    fn batch_size_max(&self) -> u32 {
        1
    }

    async fn open(&self) -> Result<SessionIntake, SourceError> {
        Ok(SessionIntake {
            settings: self.settings.clone(),
            idle: self.idle,
            held: None,
            idle_since: None,
            taking: None,
            closing: None,
        })
    }

    /// Known only with [`admin`](SessionSource::admin).
    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        self.settings.depth().await
    }
}

/// A session under lock.
#[derive(Debug)]
struct Held {
    receiver: tokio::sync::Mutex<SessionReceiver>,
    ends_at: Mutex<Instant>,
    state: Mutex<Option<Bytes>>,
    /// A message was handed out, and is not certain to be settled.
    is_unsettled: AtomicBool,
}

impl Held {
    fn ends_at(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.ends_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Option<Bytes>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one session after the other, and receives its messages.
pub struct SessionIntake {
    settings: Arc<Settings>,
    idle: Duration,
    held: Option<Arc<Held>>,
    /// A session that was asked for. It outlives the futures of receives, which may be dropped every second.
    taking: Option<Boxed<'static, Result<Option<Arc<Held>>, SourceError>>>,
    /// Since when the session has been waited on for a message. It outlives them too.
    idle_since: Option<Instant>,
    /// A session that is given back, likewise.
    closing: Option<Boxed<'static, Result<(), SourceError>>>,
}

impl SessionIntake {
    /// Takes the next session that has messages. `None` if none came in time.
    async fn take(settings: Arc<Settings>) -> Result<Option<Arc<Held>>, SourceError> {
        let choice = SessionChoice::next(SESSION_WAIT);
        let options = ReceiverOptions::default();
        let taken = settings.client.session(&settings.entity, choice, options);
        let receiver = match taken.await {
            Ok(receiver) => receiver,
            Err(error) if error.code() == Some(NO_SESSION) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (now, wall) = (Instant::now(), SystemTime::now());
        let ends_at = end_of_lock(now, wall, receiver.locked_until(), settings.lock_duration);
        let state = receiver.state().await?;
        Ok(Some(Arc::new(Held {
            receiver: tokio::sync::Mutex::new(receiver),
            ends_at: Mutex::new(ends_at),
            state: Mutex::new(state),
            is_unsettled: AtomicBool::new(false),
        })))
    }
}

impl SessionIntake {
    /// Gives the session back, with messages that came and were not received. To drop its last handle does the same,
    /// but for those messages.
    fn give_back(&mut self) {
        if let Some(held) = self.forget().and_then(Arc::into_inner) {
            self.closing = Some(Box::pin(async move {
                match held.receiver.into_inner().close().await {
                    // A session that is lost has nothing to give back.
                    Err(error) if error.kind() == ErrorKind::Refused => Ok(()),
                    closed => Ok(closed?),
                }
            }));
        }
    }

    async fn given_back(&mut self) -> Result<(), SourceError> {
        let Some(closing) = &mut self.closing else {
            return Ok(());
        };
        let closed = closing.await;
        self.closing = None;
        closed
    }

    fn forget(&mut self) -> Option<Arc<Held>> {
        self.idle_since = None;
        self.held.take()
    }
}

impl Intake for SessionIntake {
    type Lease = SessionLease;
    const WAITS: bool = true;

    async fn receive(&mut self, _: Ask) -> Result<Vec<SessionLease>, SourceError> {
        loop {
            self.given_back().await?;
            let Some(held) = self.held.clone() else {
                let settings = self.settings.clone();
                let taking = self
                    .taking
                    .get_or_insert_with(|| Box::pin(Self::take(settings)));
                let taken = taking.await;
                self.taking = None;
                self.held = taken?;
                continue;
            };
            if held.is_unsettled.load(Ordering::Relaxed) {
                // The next message would overtake it: it returns to its place when the session is given back.
                drop(held);
                self.give_back();
                continue;
            }
            // To drop this future loses no message: it waits in the session's inbox.
            let next = async { held.receiver.lock().await.receive().await };
            let idle_since = *self.idle_since.get_or_insert_with(Instant::now);
            let idle = self.idle.saturating_sub(idle_since.elapsed());
            match timeout(idle, next).await {
                Ok(Ok(locked)) => {
                    self.idle_since = None;
                    let lease = SessionLease::new(&self.settings, locked, held);
                    return Ok(vec![lease]);
                }
                Ok(Err(error)) if error.is_lock_lost() => drop(self.forget()),
                Ok(Err(error)) => {
                    self.forget();
                    return Err(error.into());
                }
                // The session has no more messages.
                Err(_) => {
                    drop(held);
                    self.give_back();
                }
            }
        }
    }

    async fn close(mut self) -> Result<(), SourceError> {
        self.taking = None;
        self.given_back().await?;
        self.give_back();
        self.given_back().await
    }
}

impl fmt::Debug for SessionIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionIntake")
            .field("name", &self.settings.name)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

/// A message of a session. Its lease is the lock of the session.
#[derive(Debug)]
pub struct SessionLease {
    lock: Lock,
    incoming: Incoming,
    held: Arc<Held>,
    lock_duration: Option<Duration>,
}

impl SessionLease {
    fn new(settings: &Settings, locked: Locked, held: Arc<Held>) -> Self {
        let (message, lock) = locked.into_parts();
        let mut incoming = incoming(&settings.name, &message);
        Arc::make_mut(&mut incoming.meta)
            .checkpoint
            .clone_from(&held.state());
        held.is_unsettled.store(true, Ordering::Relaxed);
        Self {
            lock,
            incoming,
            held,
            lock_duration: settings.lock_duration,
        }
    }

    /// The next message of the session can be handed out.
    fn settled(&self) {
        self.held.is_unsettled.store(false, Ordering::Relaxed);
    }
}

impl Lease for SessionLease {
    fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    fn ends_at(&self) -> Instant {
        *self.held.ends_at()
    }

    /// The duration is the queue's, whatever is asked for.
    async fn renew(&mut self, _: Duration) -> Result<(), SourceError> {
        let (asked_at, wall) = (Instant::now(), SystemTime::now());
        let until = self.held.receiver.lock().await.renew().await?;
        *self.held.ends_at() = end_of_renewal(asked_at, wall, until, self.lock_duration);
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        self.lock.complete().await?;
        self.settled();
        Ok(())
    }

    /// An abandoned message is the next one of its session.
    fn hides_released(&self) -> bool {
        false
    }

    async fn release(&mut self, _: Duration, history: &[Attempt]) -> Result<(), SourceError> {
        release(&self.lock, history).await?;
        self.settled();
        Ok(())
    }

    async fn bury(&mut self, burial: &Burial) -> Result<(), SourceError> {
        bury(&self.lock, burial).await?;
        self.settled();
        Ok(())
    }
}

impl Checkpoints for SessionLease {
    /// Replaces the state of the session.
    async fn save(&mut self, progress: Bytes) -> Result<(), SourceError> {
        let receiver = self.held.receiver.lock().await;
        receiver.set_state(Some(progress.clone())).await?;
        *self.held.state() = Some(progress.clone());
        Arc::make_mut(&mut self.incoming.meta).checkpoint = Some(progress);
        Ok(())
    }
}
