//! Metrics pages of instances: what they have completed, their tasks, and how long a message takes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_client::{Dial, DialFuture, Stream};
use kew_scale::{ClientSources, Config, Connecting, OwnPage, Resolve, Sources as _, Workers};
use kew_worker::{Listener, QueueSource, Stop, Text, handler_fn, metrics_page};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::kew::Kew;
use crate::support::{open, open_by, source, variable};

const PATIENCE: Duration = Duration::from_secs(60);

/// The port of pages. Others are those of Kew in memory.
const PORT: u16 = 9100;

/// Kew, and the pages of instances by their hosts.
struct World {
    kew: Arc<Kew>,
    pages: Mutex<BTreeMap<String, String>>,
    /// How long they take to answer.
    answers_after: Mutex<Duration>,
    /// The addresses of hosts.
    addresses: Mutex<BTreeMap<String, Vec<IpAddr>>>,
}

#[async_trait::async_trait]
impl Resolve for World {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = self.addresses.lock().unwrap().get(host).cloned();
        found.ok_or_else(|| io::Error::other("no such host"))
    }
}

impl Dial for World {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        if port != PORT {
            return self.kew.dial(host, port);
        }
        let page = self.pages.lock().unwrap().get(host).cloned();
        let after = *self.answers_after.lock().unwrap();
        Box::pin(async move {
            let page = page.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(async move {
                let _ = theirs.read(&mut [0; 4096]).await;
                tokio::time::sleep(after).await;
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
            answers_after: Mutex::default(),
            addresses: Mutex::default(),
        })
    }

    fn set(&self, host: &str, page: String) {
        self.pages.lock().unwrap().insert(host.to_owned(), page);
    }

    fn resolve(&self, host: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        self.addresses
            .lock()
            .unwrap()
            .insert(host.to_owned(), addresses);
    }

    /// The queue without counters, and instances at the addresses of hosts.
    fn resolved(self: &Arc<Self>, pages: &str) -> ClientSources {
        let connecting = Connecting {
            dial: Some(self.clone()),
            resolve: Some(self.clone()),
        };
        open_by(
            &format!("metrics = {pages}"),
            &source("jobs", "STORAGE", ""),
            &connecting,
        )
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

/// The page of an instance with several listeners: the account and the queue of each, what it has completed, of 1 s
/// each, and its tasks.
fn page_of(listeners: &[(&str, &str, u32, u32)]) -> String {
    let mut page = String::new();
    let mut family = |name: &str, kind: &str, lines: &dyn Fn(&str, u32, u32) -> String| {
        page += &format!("# HELP {name} H.\n# TYPE {name} {kind}\n");
        for (account, queue, completed, tasks) in listeners {
            let labels = format!("account=\"{account}\",queue=\"{queue}\"");
            page += &lines(&labels, *completed, *tasks);
        }
    };
    family(
        "kew_worker_completed_total",
        "counter",
        &|labels, completed, _| format!("kew_worker_completed_total{{{labels}}} {completed}\n"),
    );
    family("kew_worker_active_tasks", "gauge", &|labels, _, tasks| {
        format!("kew_worker_active_tasks{{{labels}}} {tasks}\n")
    });
    let name = "kew_worker_handling_seconds";
    family(name, "histogram", &|labels, completed, _| {
        format!(
            "{name}_bucket{{{labels},le=\"+Inf\"}} {completed}\n{name}_sum{{{labels}}} {completed}\n{name}_count{{{labels}}} {completed}\n"
        )
    });
    page
}

#[tokio::test]
async fn other_queues_and_accounts_of_a_page_do_not_count() {
    let world = World::new().await;
    let pages = "metrics = ['http://w1:9100']";
    let mut sources = open(pages, &source("jobs", "STORAGE", ""), world.clone());
    let own = "DevStoreAccount1";
    // Programs name the account as they like. If that leaves no doubt, it is the queue.
    world.set(
        "w1",
        page_of(&[("mine", "jobs", 10, 4), ("mine", "other", 70, 8)]),
    );
    assert_eq!(look(&mut sources).await.0, Some(0));
    world.set(
        "w1",
        page_of(&[("mine", "jobs", 12, 4), ("mine", "other", 90, 8)]),
    );
    let (completed, workers) = look(&mut sources).await;
    let handling = Some(Duration::from_secs(1));
    assert_eq!(
        (completed, workers.tasks, workers.handling),
        (Some(2), Some(4), handling)
    );
    // Of two, that with the account's own name is.
    let both = |ours, others| page_of(&[("other", "jobs", others, 8), (own, "jobs", ours, 2)]);
    let mut sources = open(pages, &source("jobs", "STORAGE", ""), world.clone());
    world.set("w1", both(10, 1000));
    assert_eq!(look(&mut sources).await.0, Some(0));
    world.set("w1", both(13, 2000));
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.tasks), (Some(3), Some(2)));
    // Without one of that name, it could be either.
    let mut sources = open(pages, &source("jobs", "STORAGE", ""), world.clone());
    world.set("w1", page_of(&[("a", "jobs", 10, 4), ("b", "jobs", 10, 4)]));
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.tasks), (None, None));
}

#[tokio::test]
async fn queues_of_one_name_do_not_share_their_completions() {
    let world = World::new().await;
    // The same queue at both services.
    let jobs = source("jobs", "STORAGE", "") + &source("jobs", "BUS", "");
    let mut sources = open("metrics = ['http://w1:9100']", &jobs, world.clone());
    let mut completed = async |page: String| {
        world.set("w1", page);
        let seen = sources.read().await;
        let completed = |it: &kew_scale::Seen| it.reading.as_ref().unwrap().completed;
        seen.iter().map(completed).collect::<Vec<_>>()
    };
    assert_eq!(
        completed(page_of(&[("x", "jobs", 10, 4)])).await,
        [None, None]
    );
    let named = |count| page_of(&[("devstoreaccount1", "jobs", count, 4)]);
    completed(named(10)).await;
    // The instance has counted it from its beginning.
    assert_eq!(completed(named(15)).await, [Some(15), None]);
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
        own: BTreeSet::new(),
        silent: 0,
        error: None,
        tasks: Some(tasks),
        handling,
        cpu: None,
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

/// The page of an instance that has used so many seconds of its processors.
fn busy(seconds: f64, processors: f64) -> String {
    page(5, 8)
        + &format!(
            "# HELP process_cpu_seconds_total P.\n# TYPE process_cpu_seconds_total counter\n\
                 process_cpu_seconds_total {seconds}\n\
                 # HELP kew_worker_processors N.\n# TYPE kew_worker_processors gauge\n\
                 kew_worker_processors {processors}\n"
        )
}

/// A page that comes late says what was used until then.
#[tokio::test]
async fn the_time_between_two_answers_counts() {
    let world = World::new().await;
    let mut sources = world.sources();
    world.set("w1", busy(10.0, 1.0));
    world.set("w2", busy(10.0, 1.0));
    assert_eq!(look(&mut sources).await.1.cpu, None);
    *world.answers_after.lock().unwrap() = Duration::from_millis(600);
    world.set("w1", busy(10.3, 1.0));
    world.set("w2", busy(10.3, 1.0));
    let cpu = look(&mut sources).await.1.cpu.unwrap();
    assert!(cpu > 0.0 && cpu <= 0.5, "{cpu}");
}

/// Where something else runs the instances, only they know how busy their processors are.
#[tokio::test]
async fn instances_say_how_busy_their_processors_are() {
    let world = World::new().await;
    let mut sources = world.sources();
    world.set("w1", busy(100.0, 2.0));
    world.set("w2", busy(7.0, 1.0));
    // Nothing to compare with.
    assert_eq!(look(&mut sources).await.1.cpu, None);
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    // A tenth of a second of three processors in at least a fifth of a second.
    world.set("w1", busy(100.06, 2.0));
    world.set("w2", busy(7.04, 1.0));
    let cpu = look(&mut sources).await.1.cpu.unwrap();
    let least = 0.1 / 3.0 / began.elapsed().as_secs_f64();
    assert!(
        (least * 0.9..0.17).contains(&cpu),
        "{cpu}, at least {least}"
    );
    // The first one has started again, and the second one does not say it any more.
    world.set("w1", busy(0.5, 2.0));
    world.set("w2", page(5, 8));
    assert_eq!(look(&mut sources).await.1.cpu, None);
    world.set("w1", busy(9000.0, 2.0));
    assert_eq!(look(&mut sources).await.1.cpu, Some(1.0));
    // A container may have half of a processor. The first one has done nothing since.
    world.set("w2", busy(1.0, 0.5));
    assert_eq!(look(&mut sources).await.1.cpu, Some(0.0));
    world.set("w2", busy(2000.0, 0.5));
    assert_eq!(look(&mut sources).await.1.cpu, Some(1.0));
}

/// Instances that the agent has started have a port each, and no line of the file.
#[tokio::test]
async fn instances_of_the_target_have_pages_of_their_own() {
    let world = World::new().await;
    let text = "[[group]]\nname = 'jobs'\n[[group.source]]\nqueue = 'jobs'\nconnection_env = 'STORAGE'\n\
        [group.target.process]\ncommand = ['x', '{port}']\nstate_directory = '/x'\nports = '9100-9199'\n";
    let config = Config::parse(std::path::Path::new("scale.toml"), text).unwrap();
    let connecting = Connecting {
        dial: Some(world.clone()),
        resolve: None,
    };
    let opened = ClientSources::open(&config.groups[0], &variable, &connecting);
    let mut sources = opened.unwrap();
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.answered), (None, 0));
    let own = |instance| OwnPage {
        instance,
        port: PORT,
        is_starting: false,
    };
    sources.own_pages(&[own(1)]);
    world.set("127.0.0.1", page(0, 4));
    look(&mut sources).await;
    world.set("127.0.0.1", page(50, 4));
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.tasks), (Some(50), Some(4)));
    // The next instance has the port of one that has ended. What it had done when it was seen first does not count.
    sources.own_pages(&[own(2)]);
    world.set("127.0.0.1", page(70, 4));
    assert_eq!(look(&mut sources).await.0, Some(50));
    world.set("127.0.0.1", page(75, 4));
    assert_eq!(look(&mut sources).await.0, Some(55));
    sources.own_pages(&[]);
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.answered), (Some(55), 0));
    // One that still starts may be silent. Another one may not.
    let starting = OwnPage {
        is_starting: true,
        ..own(3)
    };
    world.pages.lock().unwrap().clear();
    for (page, silent, completed) in [(starting, 0, Some(55)), (own(3), 1, None)] {
        sources.own_pages(&[page]);
        let (found, workers) = look(&mut sources).await;
        assert_eq!((found, workers.silent), (completed, silent), "{workers:?}");
        assert_eq!(workers.error.is_some(), silent > 0, "{workers:?}");
        assert!(workers.own.is_empty(), "{workers:?}");
    }
    world.set("127.0.0.1", page(0, 4));
    sources.own_pages(&[starting]);
    let (_, workers) = look(&mut sources).await;
    assert_eq!((workers.own, workers.answered), ([3].into(), 1));
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

#[tokio::test]
async fn an_instance_with_several_addresses_counts_once() {
    let world = World::new().await;
    // Two pods of a service with both families, and a second name of one of them.
    world.resolve("all", &["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2"]);
    world.resolve("one", &["fd00::2"]);
    let mut sources = world.resolved("['http://all:9100', 'http://one:9100']");
    let set = |one, two| {
        for (host, completed) in [
            ("fd00::1", one),
            ("10.0.0.1", one),
            ("fd00::2", two),
            ("10.0.0.2", two),
        ] {
            world.set(host, page(completed, 8));
        }
    };
    set(100, 200);
    assert_eq!(look(&mut sources).await.0, Some(0));
    set(110, 205);
    let (completed, workers) = look(&mut sources).await;
    assert_eq!(
        (completed, workers.answered, workers.silent),
        (Some(15), 2, 0)
    );
    // The other family is no instance, also while this one does not answer.
    world.pages.lock().unwrap().remove("fd00::1");
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.answered, workers.silent), (None, 1, 1));
}

#[tokio::test]
async fn the_family_that_answers_is_asked() {
    let world = World::new().await;
    world.resolve("localhost", &["::1", "127.0.0.1"]);
    let mut sources = world.resolved("['http://localhost:9100']");
    let (completed, workers) = look(&mut sources).await;
    assert_eq!((completed, workers.answered, workers.silent), (None, 0, 1));
    let error = workers.error.unwrap();
    assert!(
        error.contains("http://localhost:9100/metrics") && error.ends_with("(at ::1)"),
        "{error}"
    );
    world.set("127.0.0.1", page(5, 8));
    let (completed, workers) = look(&mut sources).await;
    assert_eq!(
        (completed, workers.answered, workers.silent),
        (Some(0), 1, 0)
    );
}

#[tokio::test]
async fn pages_that_cannot_be_read_are_named() {
    let world = World::new().await;
    world.resolve("full", &["10.0.0.1"]);
    world.resolve("empty", &[]);
    for (pages, expected) in [
        (
            "['http://nowhere:9100']",
            "the host of the metrics page http://nowhere:9100/metrics: no such host",
        ),
        (
            "['http://empty:9100']",
            "the host of the metrics page http://empty:9100/metrics: it has no address",
        ),
        (
            "['http://full:9100']",
            "length limit exceeded (at 10.0.0.1)",
        ),
    ] {
        world.set("10.0.0.1", "#".repeat((1 << 20) + 1));
        let (completed, workers) = look(&mut world.resolved(pages)).await;
        assert_eq!((completed, workers.silent), (None, 1));
        let error = workers.error.unwrap();
        assert!(error.ends_with(expected), "{error}");
    }
    // More than one look can ask.
    let addresses: Vec<String> = (0..1001)
        .map(|it| format!("10.1.{}.{}", it / 256, it % 256))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    addresses.iter().for_each(|it| world.set(it, page(1, 1)));
    world.resolve("many", &addresses);
    let (completed, workers) = look(&mut world.resolved("['http://many:9100']")).await;
    assert_eq!(
        (completed, workers.answered, workers.silent),
        (None, 1000, 1)
    );
}

#[tokio::test]
async fn huge_counters_are_no_failure() {
    let world = World::new().await;
    // The first line is that of the counter.
    let huge = |completed: &str| page(7, 8).replacen("} 7\n", &format!("}} {completed}\n"), 1);
    let mut sources = world.sources();
    for (completed, expected) in [("0", 0), ("1.8e19", u64::MAX)] {
        world.set("w1", huge(completed));
        world.set("w2", huge(completed));
        assert_eq!(look(&mut sources).await.0, Some(expected));
    }
}

#[tokio::test]
async fn messages_that_are_moved_away_are_completed() {
    let world = World::new().await;
    let mut sources = world.sources();
    world.set("w1", page(0, 8));
    let buried = |count: u32| {
        let name = "kew_worker_buried_total";
        let head = format!("# HELP {name} B.\n# TYPE {name} counter\n");
        page(10, 8) + &head + &format!("{name}{{account=\"a\",queue=\"jobs\"}} {count}\n")
    };
    world.set("w2", buried(2));
    assert_eq!(look(&mut sources).await.0, Some(0));
    world.set("w2", buried(5));
    assert_eq!(look(&mut sources).await.0, Some(3));
}
