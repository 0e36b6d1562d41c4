//! Push across processes: one queue of Service Bus for each listener.
//!
//! A queue hands each message to one receiver, so each listener has a queue of its own, and the announcer sends to
//! all queues below a prefix. (A topic would do the same in the service.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kew_client::{BusAdmin, BusClient, DeletingReceiver, Message, QueueSettings, ReceiverOptions};
use tokio::time::{Instant, timeout};

use super::{Announce, Announcement, Announcements, Heard};
use crate::error::SourceError;

/// An announcement that nobody received is worth nothing after this time.
const TIME_TO_LIVE: Duration = Duration::from_mins(1);

/// A queue that no listener has used for so long is deleted: the shortest time that the service accepts.
const AUTO_DELETE: Duration = Duration::from_mins(5);

/// For how long the announcer trusts its list of queues.
const LIST_KEPT: Duration = Duration::from_secs(30);

/// How long announcers may not know a listener whose queue is new: as long as they trust their lists, with a margin.
const UNKNOWN_FOR: Duration = Duration::from_secs(40);

/// Queues that are sent to side by side.
const IN_FLIGHT_MAX: usize = 64;

/// Queues that are announced to. Others are not, and a warning is logged.
const QUEUES_MAX: usize = 1_000;

/// How long one queue may take, so that a slow one holds up nothing.
const SEND_MAX: Duration = Duration::from_secs(10);

/// Creates the queue of a listener if it does not exist. The service deletes it five minutes after its last use.
///
/// `name` must be unique among listeners, and begin with the announcer's prefix.
pub async fn create_push_queue(admin: &BusAdmin, name: &str) -> Result<(), SourceError> {
    if admin.queue_exists(name).await? {
        return Ok(());
    }
    let settings = QueueSettings {
        default_time_to_live: Some(TIME_TO_LIVE),
        auto_delete_on_idle: Some(AUTO_DELETE),
        ..QueueSettings::default()
    };
    match admin.create_queue(name, &settings).await {
        // Another one created it meanwhile.
        Err(error) if error.status() == Some(409) => Ok(()),
        created => Ok(created.map(drop)?),
    }
}

/// Announces work to all listeners whose queues begin with a prefix. Clones share their senders.
#[derive(Clone, Debug)]
pub struct BusAnnouncer {
    client: BusClient,
    admin: BusAdmin,
    prefix: Arc<str>,
    known: Arc<Mutex<Known>>,
}

/// Queues, and when they were listed. A queue without a sender has none yet, or its last send failed.
#[derive(Debug, Default)]
struct Known {
    queues: HashMap<String, Option<Arc<kew_client::Sender>>>,
    listed_at: Option<Instant>,
}

impl BusAnnouncer {
    /// Announces to the queues whose names begin with this prefix. They are listed every 30 s.
    pub fn new(client: BusClient, admin: BusAdmin, prefix: &str) -> Self {
        Self {
            client,
            admin,
            prefix: prefix.into(),
            known: Arc::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the list of queues, unless it is fresh. One without queues is never trusted: the first listener may
    /// have come meanwhile.
    async fn refresh(&self) -> Result<(), SourceError> {
        let is_fresh = {
            let known = self.known();
            let is_fresh = known.listed_at.is_some_and(|at| at.elapsed() < LIST_KEPT);
            is_fresh && !known.queues.is_empty()
        };
        if is_fresh {
            return Ok(());
        }
        let names = self.list().await?;
        let mut known = self.known();
        known.queues.retain(|name, _| names.contains(name));
        for name in names {
            known.queues.entry(name).or_default();
        }
        known.listed_at = Some(Instant::now());
        Ok(())
    }

    /// Sends to one queue, and attaches before if need be.
    async fn tell(
        &self,
        name: String,
        sender: Option<Arc<kew_client::Sender>>,
        message: &Message,
    ) -> Result<(), SourceError> {
        let told = async {
            let sender = match sender {
                Some(sender) => sender,
                None => Arc::new(self.client.sender(&name).await?),
            };
            sender.send(message).await?;
            Ok(sender)
        };
        let busy = |_| Err(SourceError::busy("a listener's queue did not answer"));
        let told = timeout(SEND_MAX, told).await.unwrap_or_else(busy);
        if let Err(error) = &told {
            tracing::warn!(target: "kew::worker", queue = name, %error, "a listener hears nothing");
        }
        let mut known = self.known();
        if told.is_err() {
            // It may have been deleted.
            known.listed_at = None;
        }
        let (sender, told) = match told {
            Ok(sender) => (Some(sender), Ok(())),
            Err(error) => (None, Err(error)),
        };
        if let Some(queue) = known.queues.get_mut(&name) {
            *queue = sender;
        }
        told
    }

    async fn list(&self) -> Result<Vec<String>, SourceError> {
        let (mut names, mut skip) = (Vec::new(), Some(0));
        while let Some(from) = skip {
            let page = self.admin.queues(from).await?;
            let found = page.queues.into_iter().map(|queue| queue.name);
            names.extend(found.filter(|name| name.starts_with(&*self.prefix)));
            skip = page.next;
            if names.len() > QUEUES_MAX {
                names.truncate(QUEUES_MAX);
                tracing::warn!(target: "kew::worker", QUEUES_MAX, "too many listeners: some hear nothing");
                break;
            }
        }
        Ok(names)
    }
}

impl Announce for BusAnnouncer {
    /// Sends to all queues side by side. If one fails, the others have it, and the list is read again next time.
    async fn announce(&self, announcement: &Announcement) -> Result<(), SourceError> {
        // Its types cannot fail: strings and a number.
        let body = serde_json::to_vec(announcement).unwrap_or_default();
        let message = Message {
            subject: Some("work detected".to_owned()),
            content_type: Some("application/json".to_owned()),
            time_to_live: Some(TIME_TO_LIVE),
            ..Message::new(body)
        };
        // Without a new list those that are known are told all the same.
        let mut result = self.refresh().await;
        let queues = self.known().queues.clone();
        let (mut left, mut under_way) = (queues.into_iter(), FuturesUnordered::new());
        loop {
            while under_way.len() < IN_FLIGHT_MAX {
                let Some((name, sender)) = left.next() else {
                    break;
                };
                under_way.push(self.tell(name, sender, &message));
            }
            match under_way.next().await {
                None => return result,
                Some(Ok(())) => {}
                Some(Err(error)) => result = Err(error),
            }
        }
    }
}

/// What one listener hears over its queue.
#[derive(Debug)]
pub struct BusAnnouncements {
    client: BusClient,
    admin: Option<BusAdmin>,
    queue: String,
    receiver: Option<DeletingReceiver>,
}

impl BusAnnouncements {
    /// Over a queue of this listener alone. With an `admin` the queue is created when it does not exist, and deleted
    /// when the listener stops. Without one, or after a crash, it stays for as long as announcers send to it: delete
    /// it, or let a listener with the same name use it again.
    pub fn new(client: BusClient, admin: Option<BusAdmin>, queue: &str) -> Self {
        Self {
            client,
            admin,
            queue: queue.to_owned(),
            receiver: None,
        }
    }
}

impl Announcements for BusAnnouncements {
    async fn ready(&mut self) -> Result<(), SourceError> {
        self.receiver = None;
        if let Some(admin) = &self.admin {
            create_push_queue(admin, &self.queue).await?;
        }
        let options = ReceiverOptions { prefetch: 16 };
        let receiver = self.client.deleting_receiver(&self.queue, options);
        self.receiver = Some(receiver.await?);
        Ok(())
    }

    async fn next(&mut self) -> Result<Heard, SourceError> {
        let not_ready = || SourceError::refused("the announcements are not ready");
        let receiver = self.receiver.as_mut().ok_or_else(not_ready)?;
        let received = receiver.receive().await?;
        // One that cannot be read is of another program.
        let read = serde_json::from_slice(&received.body()).ok();
        Ok(read.map_or(Heard::Missed, Heard::Work))
    }

    fn unknown_for(&self) -> Duration {
        UNKNOWN_FOR
    }

    async fn close(&mut self) {
        self.receiver = None;
        if let Some(admin) = &self.admin
            && let Err(error) = admin.delete_queue(&self.queue).await
        {
            tracing::warn!(target: "kew::worker", queue = self.queue, %error, "the queue of a listener stays");
        }
    }
}
