//! Push across processes: one queue of Service Bus for each listener.
//!
//! A queue hands each message to one receiver, so each listener has a queue of its own, and the announcer sends to
//! all queues below a prefix. `topic` does the same in the service.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kew_client::{BusAdmin, BusClient, DeletingReceiver, Message, QueueSettings, ReceiverOptions};
use tokio::time::{Instant, timeout};

use super::message::{AUTO_DELETE, SEND_MAX, TIME_TO_LIVE, message_of};
use super::{Announce, Announcement, Announcements, Heard};
use crate::error::SourceError;

/// For how long the announcer trusts its list of queues.
const LIST_KEPT: Duration = Duration::from_secs(30);

/// A queue with announcements that wait in so many lists in a row has no listener any more. One that lives receives an
/// announcement at once.
const UNHEARD_MAX: u32 = 4;

/// How long announcers may not know a listener whose queue is new: as long as they trust their lists, with a margin.
const UNKNOWN_FOR: Duration = Duration::from_secs(40);

/// Queues that are sent to side by side.
const IN_FLIGHT_MAX: usize = 64;

/// Queues that are announced to. Others are not, and a warning is logged.
const QUEUES_MAX: usize = 1_000;

/// Creates the queue of a listener if it does not exist. The service deletes it five minutes after its last use.
///
/// `name` must be unique among listeners, and begin with the announcer's prefix. An announcer deletes the queue if its
/// listener does not receive for about two minutes.
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
///
/// To send is to use a queue, so the service would keep the queue of a listener that crashed. The announcer deletes it:
/// a queue of [`create_push_queue`] in which announcements wait in four lists in a row. A listener that lives creates it
/// again.
#[derive(Clone, Debug)]
pub struct BusAnnouncer {
    client: BusClient,
    admin: BusAdmin,
    prefix: Arc<str>,
    list_kept: Duration,
    known: Arc<Mutex<Known>>,
}

/// Queues, and when they were listed.
#[derive(Debug, Default)]
struct Known {
    queues: HashMap<String, Hearer>,
    listed_at: Option<Instant>,
}

/// The queue of a listener.
#[derive(Clone, Debug, Default)]
struct Hearer {
    /// There is none yet, or its last send failed.
    sender: Option<Arc<kew_client::Sender>>,
    /// In how many lists in a row announcements waited in it.
    unheard: u32,
}

impl BusAnnouncer {
    /// Announces to the queues whose names begin with this prefix. They are listed every 30 s.
    pub fn new(client: BusClient, admin: BusAdmin, prefix: &str) -> Self {
        Self {
            client,
            admin,
            prefix: prefix.into(),
            list_kept: LIST_KEPT,
            known: Arc::default(),
        }
    }

    /// For how long a list of queues is used, at most 30 s. A shorter time finds new listeners sooner, and queues of
    /// listeners that crashed. Lists are only made when something is announced.
    #[must_use]
    pub fn list_kept(mut self, time: Duration) -> Self {
        self.list_kept = time.min(LIST_KEPT);
        self
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the list of queues, unless it is fresh. One without queues is never trusted: the first listener may
    /// have come meanwhile.
    async fn refresh(&self) -> Result<(), SourceError> {
        let is_fresh = {
            let known = self.known();
            let listed_at = known.listed_at;
            let is_fresh = listed_at.is_some_and(|at| at.elapsed() < self.list_kept);
            is_fresh && !known.queues.is_empty()
        };
        if is_fresh {
            return Ok(());
        }
        let listed = self.list().await?;
        for name in self.learn(&listed) {
            tracing::warn!(target: "kew::worker", queue = name, "its listener does not receive: deleting the queue");
            if let Err(error) = self.admin.delete_queue(&name).await {
                tracing::warn!(target: "kew::worker", queue = name, %error, "the queue of a listener stays");
            }
        }
        Ok(())
    }

    /// Takes in a list of queues, and returns those to be deleted, which are forgotten.
    fn learn(&self, listed: &HashMap<String, bool>) -> Vec<String> {
        let mut known = self.known();
        known.queues.retain(|name, _| listed.contains_key(name));
        for (name, waits) in listed {
            let hearer = known.queues.entry(name.clone()).or_default();
            hearer.unheard = if *waits { hearer.unheard + 1 } else { 0 };
        }
        known.listed_at = Some(Instant::now());
        let is_dead = |_: &String, it: &mut Hearer| it.unheard >= UNHEARD_MAX;
        known
            .queues
            .extract_if(is_dead)
            .map(|(name, _)| name)
            .collect()
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
        if let Some(hearer) = known.queues.get_mut(&name) {
            hearer.sender = sender;
        }
        told
    }

    /// The queues below the prefix, and whether announcements wait in them although they are made for one listener.
    async fn list(&self) -> Result<HashMap<String, bool>, SourceError> {
        let (mut listed, mut skip) = (HashMap::new(), Some(0));
        while let Some(from) = skip {
            let page = self.admin.queues(from).await?;
            let found = page.items.into_iter();
            for queue in found.filter(|queue| queue.name.starts_with(&*self.prefix)) {
                if listed.len() == QUEUES_MAX {
                    tracing::warn!(target: "kew::worker", QUEUES_MAX, "too many listeners: some hear nothing");
                    return Ok(listed);
                }
                let is_temporary = queue.settings.auto_delete_on_idle == Some(AUTO_DELETE);
                let waits = queue.state.active_count.is_some_and(|count| count > 0);
                listed.insert(queue.name, is_temporary && waits);
            }
            skip = page.next;
        }
        Ok(listed)
    }
}

impl Announce for BusAnnouncer {
    /// Sends to all queues side by side. If one fails, the others have it, and the list is read again next time.
    async fn announce(&self, announcement: &Announcement) -> Result<(), SourceError> {
        let message = message_of(announcement);
        // Without a new list those that are known are told all the same.
        let mut result = self.refresh().await;
        let queues = self.known().queues.clone();
        let (mut left, mut under_way) = (queues.into_iter(), FuturesUnordered::new());
        loop {
            while under_way.len() < IN_FLIGHT_MAX {
                let Some((name, hearer)) = left.next() else {
                    break;
                };
                under_way.push(self.tell(name, hearer.sender, &message));
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
    /// when the listener stops. After a crash an announcer deletes it, or the service five minutes after its last use.
    /// Without an `admin` the listener polls when its queue does not exist.
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
        super::message::next(self.receiver.as_mut()).await
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
