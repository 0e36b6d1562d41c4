//! Kew, and Azurite if it is installed, and clients for them.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use kew_client::{QueueAccount, QueueClient, QueueOptions, Retry};

use crate::processes::{Processes, certificate, fact};

const ACCOUNT: &str = "devstoreaccount1";

const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The servers. They end when this is dropped.
pub(crate) struct Services {
    _processes: Processes,
    doors: Vec<Door>,
}

/// One way to one service.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    service: Service,
    /// The URL of the account.
    url: String,
}

#[derive(Clone, Copy, Debug)]
enum Service {
    Kew,
    Azurite,
}

impl Services {
    pub(crate) fn start() -> Self {
        let mut processes = Processes::new("kew-client");
        let facts = processes.start_kew(&["--queue-listen", "127.0.0.1:0"]);
        let kew = fact(&facts, "KEW_QUEUE_LISTEN");
        let mut doors = vec![
            Door::new(Service::Kew, &format!("http://{kew}")),
            Door::new(Service::Kew, &format!("https://{kew}")),
        ];
        for scheme in ["http", "https"] {
            if let Some(port) = processes.start_azurite(scheme) {
                let url = format!("{scheme}://127.0.0.1:{port}");
                doors.push(Door::new(Service::Azurite, &url));
            }
        }
        Self {
            _processes: processes,
            doors,
        }
    }

    /// Every scenario runs through each door.
    pub(crate) fn doors(&self) -> Vec<Door> {
        self.doors.clone()
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, _) = self.url.split_once("://").unwrap_or_default();
        write!(f, "{:?}, {scheme}", self.service)
    }
}

impl Door {
    fn new(service: Service, url: &str) -> Self {
        let url = format!("{url}/{ACCOUNT}");
        Self { service, url }
    }

    /// The account, known by its key.
    pub(crate) fn account(&self) -> QueueAccount {
        self.account_with(KEY)
    }

    pub(crate) fn account_with(&self, key: &str) -> QueueAccount {
        let url = &self.url;
        let text = format!("AccountName={ACCOUNT};AccountKey={key};QueueEndpoint={url}");
        QueueAccount::parse(&text).expect("a connection string")
    }

    /// The account, known by the signature in an address of the service or of a queue.
    pub(crate) fn signed(&self, address: &str) -> QueueAccount {
        let (_, query) = address.split_once('?').expect("a signature");
        QueueAccount::parse(&format!("{}?{query}", self.url)).expect("an address")
    }

    pub(crate) fn client(&self) -> QueueClient {
        self.client_of(self.account())
    }

    pub(crate) fn client_of(&self, account: QueueAccount) -> QueueClient {
        QueueClient::new(account, self.options()).expect("a client")
    }

    /// Without retries, which would hide an answer.
    pub(crate) fn options(&self) -> QueueOptions {
        let roots = std::fs::read(certificate("ca.pem")).expect("an authority");
        QueueOptions {
            retry: Retry {
                retries: 0,
                ..Retry::default()
            },
            extra_roots_pem: Some(roots),
            ..QueueOptions::default()
        }
    }

    /// A queue that is new, and a client for it.
    pub(crate) async fn fresh(&self) -> (QueueClient, String) {
        let (client, queue) = (self.client(), new_name());
        client.create_queue(&queue, &[]).await.expect("a new queue");
        (client, queue)
    }
}

/// A name that no other scenario uses.
pub(crate) fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("client-{number}")
}
