//! A partition whose next segment is not ready: commands wait, and those who ask how it is get an answer.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kew_broker::{Answers, Broker, BrokerOptions};
use kew_log::{MemoryStorage, Storage, StorageFile};

use crate::metrics::{metrics, value};
use crate::partition::options;
use crate::support::{create, send};

/// A directory in which no file can be created while it is held.
#[derive(Default)]
struct Held {
    storage: MemoryStorage,
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl Held {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.changed.notify_all();
    }
}

struct HeldStorage(Arc<Held>);

impl Storage for HeldStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let (held, limit) = (self.0.is_held.lock().unwrap(), Duration::from_secs(60));
        let waited = self.0.changed.wait_timeout_while(held, limit, |it| *it);
        assert!(!waited.unwrap().1.timed_out(), "it is held for {limit:?}");
        self.0.storage.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.0.storage.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.storage.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.storage.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.storage.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.storage.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.storage.free_bytes()
    }
}

#[tokio::test]
async fn metrics_do_not_wait_for_a_segment() {
    const SENDS: usize = 400;
    let held = Arc::new(Held::default());
    let storage = HeldStorage(Arc::clone(&held));
    let broker_options = BrokerOptions {
        partition: options(),
        ..BrokerOptions::default()
    };
    let (broker, _) = Broker::start(Arc::new(storage), broker_options).unwrap();
    broker.submit(create()).await.unwrap();
    held.hold(true);
    let answers = Arc::<Answers>::default();
    let commands = (0..SENDS as u64).zip((0..SENDS).map(|_| send("a".repeat(1000))));
    (broker.for_source()).submit_among(commands, &answers, |key, rejection| {
        panic!("{key}: {rejection}")
    });
    // Several segments of 64 KiB, of which one may be ready. The time is for the runner to come to its end.
    let mut came = Vec::new();
    let mut answered = 0;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        answers.take(&mut came);
        answered += came.len();
        came.clear();
    }
    assert!(answered < SENDS, "there was room for all");
    for _ in 0..3 {
        let page = metrics(&broker, 10).await;
        assert_eq!(value(&page, "kew_partition_answered", &[]), Some(1.0));
        let messages = value(&page, "kew_messages", &[("state", "visible")]).unwrap();
        assert!((answered as f64..SENDS as f64).contains(&messages));
    }
    held.hold(false);
    broker.stop();
    answers.take(&mut came);
    assert_eq!(answered + came.len(), SENDS);
}
