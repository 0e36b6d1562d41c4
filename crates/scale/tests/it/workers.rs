//! Metrics pages of instances: what they have completed, their tasks, and how long a message takes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{Dial, DialFuture, Stream};
use kew_scale::{ClientSources, Sources as _, Workers};
use kew_worker::{Listener, QueueSource, Stop, Text, handler_fn, metrics_page};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::kew::Kew;
use crate::support::{open, source};

const PATIENCE: Duration = Duration::from_secs(60);

/// The port of pages. Others are those of Kew in memory.
const PORT: u16 = 9100;

/// Kew, and the pages of instances by their hosts.
struct World {
    kew: Arc<Kew>,
    pages: Mutex<BTreeMap<String, String>>,
}

impl Dial for World {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        if port != PORT {
            return self.kew.dial(host, port);
        }
        let page = self.pages.lock().unwrap().get(host).cloned();
        Box::pin(async move {
            let page = page.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(async move {
                let _ = theirs.read(&mut [0; 4096]).await;
                let length = page.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ = theirs.write_all((head + &page).as_bytes()).await;
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

impl World {
    async fn new() -> Arc<Self> {
        Arc::new(Self {
            kew: Kew::start().await,
            pages: Mutex::default(),
        })
    }

    fn set(&self, host: &str, page: String) {
        self.pages.lock().unwrap().insert(host.to_owned(), page);
    }

    /// The queue without counters, and two instances.
    fn sources(self: &Arc<Self>) -> ClientSources {
        let pages = "metrics = ['http://w1:9100', 'http://w2:9100/metrics']";
        open(pages, &source("jobs", "STORAGE", ""), self.clone())
    }
}

/// The page of an instance that has completed so many messages, of 0.25 s each, with so many tasks.
fn page(completed: u32, tasks: u32) -> String {
    let labels = "account=\"a\",queue=\"jobs\"";
    let seconds = f64::from(completed) * 0.25;
    format!(
        "# HELP kew_worker_completed_total C.\n# TYPE kew_worker_completed_total counter\n\
         kew_worker_completed_total{{{labels}}} {completed}\n\
         kew_worker_completed_total{{account=\"a\",queue=\"other\"}} 77\n\
         # HELP kew_worker_active_tasks T.\n# TYPE kew_worker_active_tasks gauge\n\
         kew_worker_active_tasks{{{labels}}} {tasks}\n\
         # HELP kew_worker_handling_seconds H.\n# TYPE kew_worker_handling_seconds histogram\n\
         kew_worker_handling_seconds_bucket{{{labels},le=\"+Inf\"}} {completed}\n\
         kew_worker_handling_seconds_sum{{{labels}}} {seconds}\n\
         kew_worker_handling_seconds_count{{{labels}}} {completed}\n"
    )
}

/// Completions of the queue, and what the instances say.
async fn look(sources: &mut ClientSources) -> (Option<u64>, Workers) {
    let seen = sources.read().await;
    let reading = seen[0].reading.as_ref().unwrap();
    assert_eq!(reading.arrived, None);
    (reading.completed, sources.workers().unwrap())
}

#[tokio::test]
async fn completions_are_added_up_and_never_taken_back() {
    let world = World::new().await;
    let mut sources = world.sources();
    let all = |tasks, handling| Workers {
        answered: 2,
        silent: 0,
        tasks: Some(tasks),
        handling,
    };
    let quarter = Some(Duration::from_millis(250));
    world.set("w1", page(1000, 8));
    world.set("w2", page(500, 3));
    // They may have run for long.
    assert_eq!(look(&mut sources).await, (Some(0), all(6, None)));
    world.set("w1", page(1010, 8));
    world.set("w2", page(505, 8));
    assert_eq!(look(&mut sources).await, (Some(15), all(8, quarter)));
    // The second one has started again.
    world.set("w2", page(3, 8));
    assert_eq!(look(&mut sources).await, (Some(18), all(8, None)));
    // One that does not answer may have completed anything.
    world.pages.lock().unwrap().remove("w2");
    world.set("w1", page(1012, 8));
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.answered, workers.silent), (None, 1, 1));
    world.set("w2", page(7, 8));
    assert_eq!(look(&mut sources).await, (Some(24), all(8, quarter)));
}

#[tokio::test]
async fn the_page_of_a_listener_is_read() {
    let world = World::new().await;
    let storage = world.kew.queue_client();
    let source = QueueSource::new(storage.clone(), "devstoreaccount1", "jobs");
    let handler = handler_fn(|_| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(())
    });
    let listener = Listener::builder(source, Text).subscribe(handler).build();
    let shown = || metrics_page([listener.metrics()]);
    world.set("w1", shown());
    world.set("w2", page(0, 0));
    let mut sources = world.sources();
    assert_eq!(look(&mut sources).await.0, Some(0));
    listener.start(1).unwrap();
    for _ in 0..3 {
        storage.put("jobs", "x", Default::default()).await.unwrap();
    }
    let handled = async {
        while listener.state().completed < 3 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, handled).await.unwrap();
    world.set("w1", shown());
    let (completed, workers) = look(&mut sources).await;
    assert_eq!(completed, Some(3));
    assert_eq!(workers.answered, 2);
    assert!(workers.tasks.is_some(), "{workers:?}");
    assert!(
        workers.handling >= Some(Duration::from_millis(2)),
        "{workers:?}"
    );
    listener.stop(Stop::default()).await;
}
