//! Where the billing system is: the queues, the topic of announcements, the stores, and the settings for them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use kew_claim_check::{Checked, ClaimCheck, ClaimCheckOptions, ClaimStore};
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, QueueAccount, QueueClient,
    QueueOptions,
};
use kew_worker::{Json, QueueTarget, Sender, TopicAnnouncer, create_push_topic};

use crate::archive::{Archive, Format};

/// Packages that customers submitted.
pub const PACKAGES: &str = "billing-packages";
/// Work items.
pub const ITEMS: &str = "billing-items";
/// Results.
pub const RESULTS: &str = "billing-results";
/// Announcements of work.
pub const TOPIC: &str = "billing-work";

/// The queues, in the order in which a transaction passes them.
pub const QUEUES: [&str; 3] = [PACKAGES, ITEMS, RESULTS];

/// The account in announcements. All programs use the same.
const ACCOUNT: &str = "billing";

/// What all programs need.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Folder for the data of the billing system. It is created if it does not exist.
    #[arg(long, env = "BILLING_DATA", default_value = "billing-data")]
    pub data: PathBuf,
    /// Connection string of Queue Storage.
    #[arg(
        long,
        env = "BILLING_STORAGE",
        default_value = "UseDevelopmentStorage=true",
        hide_env_values = true
    )]
    pub storage: String,
    /// Connection string of Service Bus with the right Manage, for announcements. Without it, idle programs poll.
    #[arg(long, env = "BILLING_BUS", hide_env_values = true)]
    pub bus: Option<String>,
    /// Seconds that a program may have a message before another one gets it.
    #[arg(long, env = "BILLING_TIMEOUT_S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=7200))]
    pub timeout_s: u32,
    /// Bytes after compression that a message has itself. A longer one is an object that the message names.
    #[arg(long, env = "BILLING_INLINE_BYTES", default_value_t = INLINE_BYTES)]
    pub inline_bytes: usize,
    /// Seconds between two looks at an idle queue without an announcement. Messages of a program that died come back
    /// unannounced.
    #[arg(long, env = "BILLING_RECHECK_S", default_value_t = RECHECK_S, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub recheck_s: u32,
}

/// Seconds between two looks without an announcement, by default.
pub const RECHECK_S: u32 = 30;

/// What a message of Queue Storage has room for, also in base64 and with its envelope.
pub const INLINE_BYTES: usize = 24 << 10;

/// A sender of messages that are large.
pub type ClaimSender<T> = Sender<T, Checked<Json<T>>, QueueTarget>;

/// Service Bus, for announcements.
#[derive(Clone, Debug)]
pub struct Bus {
    /// Sends and receives them.
    pub client: BusClient,
    /// Creates topic and subscriptions.
    pub admin: BusAdmin,
}

/// All connections of a program. Clones share them.
#[derive(Clone, Debug)]
pub struct Place {
    /// Queue Storage.
    pub queues: QueueClient,
    /// Service Bus, if announcements are to be heard.
    pub bus: Option<Bus>,
    /// The store of the objects of messages that are large.
    store: ClaimStore,
    inline_bytes: usize,
    /// The folder for data.
    pub data: PathBuf,
    /// How long a program may have a message.
    pub timeout: Duration,
    /// How often an idle program looks without an announcement.
    pub recheck: Duration,
}

impl Settings {
    /// The place. Connects to nothing yet.
    pub fn place(&self) -> Result<Place> {
        let account = QueueAccount::parse(&self.storage).context("BILLING_STORAGE")?;
        let bus = self.bus.as_deref().map(bus_of).transpose()?;
        Ok(Place {
            queues: QueueClient::new(account, QueueOptions::default())?,
            bus,
            store: ClaimStore::folder(self.data.join("claims"))?,
            inline_bytes: self.inline_bytes,
            data: self.data.clone(),
            timeout: Duration::from_secs(self.timeout_s.into()),
            recheck: Duration::from_secs(self.recheck_s.into()),
        })
    }
}

fn bus_of(text: &str) -> Result<Bus> {
    let namespace = BusNamespace::parse(text).context("BILLING_BUS")?;
    Ok(Bus {
        client: BusClient::new(namespace.clone(), BusOptions::default())?,
        admin: BusAdmin::new(namespace, AdminOptions::default())?,
    })
}

impl Place {
    /// Creates the queues and the topic that do not exist.
    pub async fn ensure(&self) -> Result<()> {
        for queue in QUEUES {
            // It succeeds if there is one.
            self.queues.create_queue(queue, &[]).await?;
        }
        if let Some(bus) = &self.bus {
            create_push_topic(&bus.admin, TOPIC).await?;
        }
        Ok(())
    }

    /// The name of the account in announcements.
    pub fn account(&self) -> &'static str {
        ACCOUNT
    }

    /// The objects of the messages of a queue, in a folder of their own.
    pub fn claims(&self, queue: &str) -> Result<ClaimCheck> {
        let options = ClaimCheckOptions {
            prefix: queue.to_owned(),
            message_size_max_bytes: self.inline_bytes,
            ..ClaimCheckOptions::default()
        };
        Ok(ClaimCheck::new(self.store.clone(), options)?)
    }

    /// Sends to a queue. `name` names the program in announcements.
    pub fn sender<T>(&self, queue: &str, name: &str) -> Result<ClaimSender<T>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        let target = QueueTarget::new(self.queues.clone(), ACCOUNT, queue).never_expires();
        let codec = Checked::new(self.claims(queue)?, Json::<T>::new());
        Ok(Sender::new(codec, target, name))
    }

    /// Announces work.
    pub fn announcer(&self) -> Announcer {
        let over = |bus: &Bus| TopicAnnouncer::new(bus.client.clone(), TOPIC);
        Announcer(self.bus.as_ref().map(over))
    }

    /// The files with charges.
    pub async fn archive<F: Format>(&self) -> Result<Archive<F>> {
        let folder = self.data.join("archive");
        let opened = Archive::folder(&folder).await;
        opened.with_context(|| format!("cannot open {}", folder.display()))
    }
}

/// Announces over the topic, or not at all.
#[derive(Clone, Debug)]
pub struct Announcer(Option<TopicAnnouncer>);

impl kew_worker::Announce for Announcer {
    async fn announce(
        &self,
        announcement: &kew_worker::Announcement,
    ) -> Result<(), kew_worker::SourceError> {
        match &self.0 {
            Some(topic) => topic.announce(announcement).await,
            None => Ok(()),
        }
    }
}
