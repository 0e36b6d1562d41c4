//! Push across processes: one queue of Service Bus for each listener.
//!
//! A queue hands each message to one receiver, so each listener has a queue of its own, and the announcer sends to
//! all queues below a prefix. (A topic would do the same in the service.)

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kew_client::{BusAdmin, BusClient, DeletingReceiver, Message, QueueSettings, ReceiverOptions};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{Announce, Announcement, Announcements, Heard};
use crate::error::SourceError;

/// An announcement that nobody received is worth nothing after this time.
const TIME_TO_LIVE: Duration = Duration::from_mins(1);

/// A queue that no listener has used for so long is deleted: the shortest time that the service accepts.
const AUTO_DELETE: Duration = Duration::from_mins(5);

/// For how long the announcer trusts its list of queues.
const LIST_KEPT: Duration = Duration::from_secs(30);

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

/// Queues, and when they were listed.
#[derive(Debug, Default)]
struct Known {
    queues: Vec<(String, Arc<kew_client::Sender>)>,
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

    async fn senders(&self) -> Result<Vec<Arc<kew_client::Sender>>, SourceError> {
        let mut known = self.known.lock().await;
        let is_fresh = known.listed_at.is_some_and(|at| at.elapsed() < LIST_KEPT);
        if !is_fresh {
            let names = self.list().await?;
            known.queues.retain(|(name, _)| names.contains(name));
            for name in names {
                if known.queues.iter().all(|(it, _)| *it != name) {
                    let sender = Arc::new(self.client.sender(&name).await?);
                    known.queues.push((name, sender));
                }
            }
            known.listed_at = Some(Instant::now());
        }
        Ok(known
            .queues
            .iter()
            .map(|(_, sender)| sender.clone())
            .collect())
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
    /// Sends to all queues at once. If one fails, the others have it, and the list is read again next time.
    async fn announce(&self, announcement: &Announcement) -> Result<(), SourceError> {
        // Its types cannot fail: strings and a number.
        let body = serde_json::to_vec(announcement).unwrap_or_default();
        let message = Message {
            subject: Some("work detected".to_owned()),
            content_type: Some("application/json".to_owned()),
            time_to_live: Some(TIME_TO_LIVE),
            ..Message::new(body)
        };
        let senders = self.senders().await?;
        let sends = senders
            .iter()
            .map(|it| timeout(SEND_MAX, it.send(&message)));
        let mut result = Ok(());
        for sent in join_all(sends).await {
            let sent = sent.map_err(|_| SourceError::busy("a listener's queue did not answer"));
            if let Err(error) = sent.and_then(|it| it.map_err(SourceError::from)) {
                result = Err(error);
            }
        }
        if result.is_err() {
            self.known.lock().await.listed_at = None;
        }
        result
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
    /// Over a queue of this listener alone. With an `admin` the queue is created when it does not exist.
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
}
