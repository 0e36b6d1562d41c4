//! Queues and subscriptions of Service Bus as a source.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::{
    BodyKind, BusAdmin, BusClient, Changes, Entity, ErrorKind, Lock, Locked, Received, Receiver,
    ReceiverOptions, Value,
};
use tokio::time::Instant;

use super::bury::Burial;
use super::key::Key;
use super::message::{Attempt, HISTORY, Incoming, Meta, cut, history_of};
use super::{Ask, Intake, Lease, Source, SourceName, history_text, properties_of_bus};
use crate::error::SourceError;

/// The most messages of one request: what a receiver of the client asks for.
const BATCH_SIZE_MAX: u32 = 1_000;

/// A lock whose end the service does not report.
const LOCK_UNSAID: Duration = Duration::from_secs(30);

/// The shortest lock duration that the service accepts.
const LOCK_MIN: Duration = Duration::from_secs(5);

/// A description that fits when nothing else does, in bytes.
const SHORT_SIZE_MAX: usize = 200;

/// What sources of Service Bus share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) client: BusClient,
    pub(super) admin: Option<BusAdmin>,
    pub(super) name: SourceName,
    pub(super) entity: Entity,
    pub(super) lock_duration: Option<Duration>,
}

impl Settings {
    pub(super) fn new(client: BusClient, namespace: &str, entity: Entity) -> Self {
        Self {
            client,
            admin: None,
            name: SourceName::new(namespace, entity.address()),
            entity,
            lock_duration: None,
        }
    }

    /// Active messages, or dead letters if the entity is the dead-letter queue.
    pub(super) async fn depth(&self) -> Result<Option<u64>, SourceError> {
        let Some(admin) = &self.admin else {
            return Ok(None);
        };
        let address = self.entity.address();
        let (name, is_dead) = match address.split_once("/$") {
            Some((name, _)) => (name, true),
            None => (address, false),
        };
        let entity = admin.entity(name).await?;
        let state = entity.state();
        Ok(match is_dead {
            true => state.dead_letter_count,
            false => state.active_count,
        })
    }
}

/// A queue or a subscription of Service Bus without sessions, or a dead-letter queue.
///
/// The lease is the lock: its duration is a setting of the queue, so a listener has no visibility policy here.
/// There is no place for checkpoints either: use a queue with sessions and [`SessionSource`](crate::SessionSource).
#[derive(Clone, Debug)]
pub struct BusSource {
    settings: Arc<Settings>,
}

impl BusSource {
    /// A queue or a subscription (`TOPIC/Subscriptions/NAME`) of a namespace. The namespace's name is only used in
    /// metrics and announcements.
    pub fn new(client: BusClient, namespace: &str, entity: impl Into<Entity>) -> Self {
        Self {
            settings: Arc::new(Settings::new(client, namespace, entity.into())),
        }
    }

    /// Reads the queue's depth from management, which needs the right *Manage*. Without it the depth is unknown.
    #[must_use]
    pub fn admin(mut self, admin: BusAdmin) -> Self {
        Arc::make_mut(&mut self.settings).admin = Some(admin);
        self
    }

    /// The lock duration of the queue. Without it, ends of locks are computed from the wall clock, which must then
    /// agree with that of the service to within a second or two.
    #[must_use]
    pub fn lock_duration(mut self, duration: Duration) -> Self {
        Arc::make_mut(&mut self.settings).lock_duration = Some(duration);
        self
    }
}

impl Source for BusSource {
    type Lease = BusLease;
    type Intake = BusIntake;

    fn name(&self) -> &SourceName {
        &self.settings.name
    }

    fn batch_size_max(&self) -> u32 {
        BATCH_SIZE_MAX
    }

    async fn open(&self) -> Result<BusIntake, SourceError> {
        let settings = self.settings.clone();
        let options = ReceiverOptions::default();
        let receiver = settings.client.receiver(&settings.entity, options).await?;
        Ok(BusIntake { settings, receiver })
    }

    /// Known only with [`admin`](BusSource::admin).
    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        self.settings.depth().await
    }
}

/// Receives from a queue of Service Bus, over a link of its own.
#[derive(Debug)]
pub struct BusIntake {
    settings: Arc<Settings>,
    receiver: Receiver,
}

impl Intake for BusIntake {
    type Lease = BusLease;
    const WAITS: bool = true;

    async fn receive(&mut self, ask: Ask) -> Result<Vec<BusLease>, SourceError> {
        let batch = self.receiver.receive_batch(ask.count, Duration::ZERO);
        let received = batch.await?.into_iter();
        let now = (Instant::now(), SystemTime::now());
        let leases = received.map(|it| BusLease::new(&self.settings, it, now));
        Ok(leases.collect())
    }

    async fn close(self) -> Result<(), SourceError> {
        Ok(self.receiver.close().await?)
    }
}

/// A message under lock.
#[derive(Debug)]
pub struct BusLease {
    lock: Lock,
    incoming: Incoming,
    ends_at: Instant,
    lock_duration: Option<Duration>,
}

impl BusLease {
    /// `now` is when it came, by our clock and by the wall clock.
    fn new(settings: &Settings, locked: Locked, now: (Instant, SystemTime)) -> Self {
        let ends_at = end_of_lock(now.0, now.1, locked.locked_until(), settings.lock_duration);
        // The message itself is large, and not needed any more.
        let (message, lock) = locked.into_parts();
        Self {
            incoming: incoming(&settings.name, &message),
            lock,
            ends_at,
            lock_duration: settings.lock_duration,
        }
    }
}

impl Lease for BusLease {
    fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    fn ends_at(&self) -> Instant {
        self.ends_at
    }

    /// The duration is the queue's, whatever is asked for.
    async fn renew(&mut self, _: Duration) -> Result<(), SourceError> {
        let (asked_at, wall) = (Instant::now(), SystemTime::now());
        let until = self.lock.renew().await?;
        self.ends_at = end_of_renewal(asked_at, wall, until, self.lock_duration);
        Ok(())
    }

    fn handled(&mut self) {
        self.incoming.body = Bytes::new();
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        Ok(self.lock.complete().await?)
    }

    const COMPLETES_TOGETHER: bool = true;

    async fn complete_all(leases: Vec<&mut Self>) -> Vec<Result<(), SourceError>> {
        let locks: Vec<_> = leases.iter().map(|it| &it.lock).collect();
        let outcomes = Lock::complete_all(&locks).await.into_iter();
        outcomes.map(|it| Ok(it?)).collect()
    }

    /// An abandoned message comes back at once.
    fn hides_released(&self) -> bool {
        false
    }

    async fn release(&mut self, _: Duration, history: &[Attempt]) -> Result<(), SourceError> {
        release(&self.lock, history).await
    }

    async fn bury(&mut self, burial: &Burial) -> Result<(), SourceError> {
        bury(&self.lock, burial).await
    }
}

pub(super) async fn release(lock: &Lock, history: &[Attempt]) -> Result<(), SourceError> {
    let changes = match history.is_empty() {
        true => Changes::new(),
        false => vec![text_property(HISTORY, &history_text(history))],
    };
    match lock.abandon(changes).await {
        // The history does not fit: the message returns without it.
        Err(error) if error.kind() == ErrorKind::Refused && !error.is_lock_lost() => {
            Ok(lock.abandon(Changes::new()).await?)
        }
        abandoned => Ok(abandoned?),
    }
}

pub(super) async fn bury(lock: &Lock, burial: &Burial) -> Result<(), SourceError> {
    let mut changes = vec![text_property(HISTORY, &history_text(&burial.history))];
    if !burial.chain.is_empty() {
        changes.push(text_property("kew-error-chain", &burial.chain_text()));
    }
    if let Some(backtrace) = &burial.backtrace {
        changes.push(text_property("kew-backtrace", backtrace));
    }
    let (reason, description) = (&burial.reason, &burial.description);
    match lock.dead_letter(reason, description, changes).await {
        // The details do not fit: the message goes with little.
        Err(error) if error.kind() == ErrorKind::Refused && !error.is_lock_lost() => {
            let [reason, description] = [reason, description].map(|text| cut(text, SHORT_SIZE_MAX));
            Ok(lock
                .dead_letter(reason, description, Changes::new())
                .await?)
        }
        buried => Ok(buried?),
    }
}

fn text_property(name: &str, text: &str) -> (String, Value) {
    (name.to_owned(), Value::String(text.into()))
}

/// When a lock ends by our clock: the earlier of what the wall clock and the setting of the queue say.
pub(super) fn end_of_lock(
    now: Instant,
    wall: SystemTime,
    until: Option<SystemTime>,
    lock_duration: Option<Duration>,
) -> Instant {
    let left = until.map(|until| until.duration_since(wall).unwrap_or_default());
    let left = match (left, lock_duration) {
        (Some(left), Some(duration)) => left.min(duration),
        (Some(left), None) => left,
        (None, duration) => duration.unwrap_or(LOCK_UNSAID),
    };
    now + left
}

/// The same of a lock that was renewed just now: by the setting, or else by the wall clock, whose error is bounded by
/// the shortest lock of the service.
pub(super) fn end_of_renewal(
    asked_at: Instant,
    wall: SystemTime,
    until: SystemTime,
    lock_duration: Option<Duration>,
) -> Instant {
    match lock_duration {
        Some(duration) => asked_at + duration,
        None => end_of_lock(asked_at, wall, Some(until), None).max(asked_at + LOCK_MIN),
    }
}

/// A message with everything that handlers can see of it.
pub(super) fn incoming(name: &SourceName, received: &Received) -> Incoming {
    let number = received.sequence_number().unwrap_or_default();
    let enqueued = received.enqueued_at();
    let since = enqueued.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let key = match (received.sequence_number(), since) {
        (Some(number), Some(since)) => {
            let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            Key::numbered(number, ms)
        }
        (None, _) | (_, None) => Key::default(),
    };
    let attempt = received.delivery_count().saturating_add(1);
    let id = received.id().unwrap_or_else(|| number.to_string());
    let mut meta = Meta::with_id(name.queue.clone(), key, id, attempt);
    meta.enqueued_at = enqueued;
    meta.content_type = received.content_type().map(str::to_owned);
    meta.subject = received.subject().map(str::to_owned);
    meta.correlation_id = received.correlation_id();
    meta.session_id = received.session_id().map(str::to_owned);
    meta.set_properties(properties_of_bus(received.properties()));
    meta.history = meta.property(HISTORY).map(history_of).unwrap_or_default();
    let body = body(received).unwrap_or_else(|why| {
        meta.unreadable = Some(why);
        Bytes::new()
    });
    let meta = Arc::new(meta);
    Incoming { body, meta }
}

/// Bytes, or a single value that is text or bytes, as some SDKs send it.
fn body(received: &Received) -> Result<Bytes, String> {
    if received.body_kind() == BodyKind::Data {
        return Ok(received.body());
    }
    let value = received.raw().body_values().next();
    match value.map(|value| value.value()) {
        None => Ok(Bytes::new()),
        Some(Value::Binary(bytes)) => Ok(bytes),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            None => Err("the body is an AMQP value that is neither bytes nor text".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_lock_is_the_earlier_of_two() {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let seconds = Duration::from_secs;
        let left = |until: Option<u64>, lock: Option<u64>| {
            let until = until.map(|it| wall + seconds(it));
            end_of_lock(now, wall, until, lock.map(seconds)) - now
        };
        assert_eq!(left(Some(50), None), seconds(50));
        assert_eq!(left(Some(50), Some(30)), seconds(30));
        assert_eq!(left(Some(20), Some(30)), seconds(20));
        assert_eq!(left(None, Some(30)), seconds(30));
        assert_eq!(left(None, None), LOCK_UNSAID);
        let past = end_of_lock(now, wall, Some(wall - seconds(5)), None);
        assert_eq!(past, now);
        let renewed = |until, lock| end_of_renewal(now, wall, until, lock) - now;
        assert_eq!(renewed(wall + seconds(50), None), seconds(50));
        assert_eq!(renewed(wall - seconds(50), None), LOCK_MIN, "clocks differ");
        assert_eq!(renewed(wall - seconds(50), Some(seconds(30))), seconds(30));
    }
}
