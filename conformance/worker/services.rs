//! Kew, and Azurite if it is installed, and queues of theirs for listeners.

use std::time::Duration;

use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, Entity, QueueAccount, QueueClient,
    QueueOptions, QueueSettings,
};
use kew_worker::{BusSource, BusTarget, Envelopes, Json, QueueSource, QueueTarget, Sender};

use crate::processes::{Processes, fact};
use crate::scenarios::Door;

const ACCOUNT: &str = "devstoreaccount1";

const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The lock of queues of Service Bus, which long work outlives.
const LOCK: Duration = Duration::from_secs(15);

/// The servers. They end when this is dropped.
pub(crate) struct Services {
    _processes: Processes,
    pub(crate) storage: Vec<Storage>,
    pub(crate) bus: Bus,
}

impl Services {
    pub(crate) fn start() -> Self {
        let mut processes = Processes::new("kew-worker");
        let arguments = [
            "--queue-listen",
            "127.0.0.1:0",
            "--bus-listen",
            "127.0.0.1:0",
        ];
        let facts = processes.start_kew(&arguments);
        let kew = fact(&facts, "KEW_QUEUE_CONNECTION_STRING");
        let mut storage = vec![Storage::new("Queue Storage of Kew", &kew)];
        if let Some(port) = processes.start_azurite("http") {
            let url = format!("http://127.0.0.1:{port}/{ACCOUNT}");
            let azurite = format!("AccountName={ACCOUNT};AccountKey={KEY};QueueEndpoint={url}");
            storage.push(Storage::new("Azurite", &azurite));
        }
        Self {
            storage,
            bus: Bus::new(&fact(&facts, "KEW_BUS_CONNECTION_STRING")),
            _processes: processes,
        }
    }
}

/// Queue Storage of one of them.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    title: &'static str,
    pub(crate) client: QueueClient,
    pub(crate) connection_string: String,
}

impl Storage {
    fn new(title: &'static str, connection_string: &str) -> Self {
        let account = QueueAccount::parse(connection_string).unwrap();
        let client = QueueClient::new(account, QueueOptions::default());
        Self {
            title,
            client: client.unwrap(),
            connection_string: connection_string.to_owned(),
        }
    }

    pub(crate) fn title(&self) -> &str {
        self.title
    }

    /// A new queue.
    pub(crate) async fn door(self) -> Door<QueueSource, QueueTarget> {
        let queue = new_name();
        self.client.create_queue(&queue, &[]).await.unwrap();
        let source = |queue: &str| {
            let source = QueueSource::new(self.client.clone(), ACCOUNT, queue);
            source.envelopes(Envelopes::On)
        };
        let target = QueueTarget::new(self.client.clone(), ACCOUNT, &queue);
        Door {
            source: source(&queue),
            dead: source(&format!("{queue}-poison")),
            sender: Sender::new(Json::new(), target.envelopes(Envelopes::On), "suite"),
            service: Box::new(()),
        }
    }
}

/// Service Bus of Kew.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    namespace: BusNamespace,
}

impl Bus {
    fn new(connection_string: &str) -> Self {
        Self {
            namespace: BusNamespace::parse(connection_string).unwrap(),
        }
    }

    pub(crate) fn title(&self) -> &str {
        "Service Bus of Kew"
    }

    /// A new queue.
    pub(crate) async fn door(self) -> Door<BusSource, BusTarget> {
        let client = BusClient::new(self.namespace.clone(), BusOptions::default()).unwrap();
        let admin = BusAdmin::new(self.namespace, AdminOptions::default()).unwrap();
        let queue = new_name();
        let settings = QueueSettings {
            lock_duration: Some(LOCK),
            ..QueueSettings::default()
        };
        admin.create_queue(&queue, &settings).await.unwrap();
        let source = BusSource::new(client.clone(), "ns", &*queue).admin(admin.clone());
        let dead = Entity::new(&queue).dead_letters();
        let target = BusTarget::open(&client, "ns", &queue).await.unwrap();
        Door {
            source: source.lock_duration(LOCK),
            dead: BusSource::new(client, "ns", dead).admin(admin),
            sender: Sender::new(Json::new(), target, "suite"),
            service: Box::new(()),
        }
    }
}

/// A name that no other scenario uses. Scenarios look for its beginning.
pub(crate) fn new_name() -> String {
    format!("jobs-{:016x}", getrandom::u64().unwrap())
}
