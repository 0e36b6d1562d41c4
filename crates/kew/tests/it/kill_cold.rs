//! Kills of a server whose backlog is larger than the memory for it: most of it is on the disk alone, also right after a
//! start.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kew_client::{PutOptions, QueueClient};
use kew_log::Storage;
use tokio::task::JoinSet;

use crate::bus::{metric, metric_becomes};
use crate::load::{self, stop_in_order};
use crate::scrub::listed;
use crate::server::{PATIENCE, Server};

const QUEUE: &str = "backlog";

/// So many that some are on the disk alone at each kill: three quarters of a MiB have room for 12,900.
const BACKLOG: u64 = 20_000;

const KILLS: u64 = 4;

/// How many messages are deleted between two kills, beside those in flight.
const DELETED_EACH: usize = 800;

const CLIENTS: usize = 16;

/// Much less than the limit, and than all messages take: what a start has read, and what it has replayed.
const STARTED_BYTES_MAX: f64 = 400_000.0;

/// A received message comes again after this long.
const LEASE_SECONDS: u32 = 4;

fn start(data_dir: &Path) -> Server {
    start_with(data_dir, &[])
}

fn start_with(data_dir: &Path, more: &[&str]) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--metrics-listen", "127.0.0.1:0"]);
        command.args(["--resident-memory", "1"]);
        command.args(more);
    })
}

#[test]
fn kills_lose_nothing_of_a_backlog_that_is_on_the_disk_alone() {
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(kill_loop(place.path()));
}

async fn kill_loop(data_dir: &Path) {
    let mut server = start(data_dir);
    fill(&server).await;
    // The last snapshot has all of it.
    stop_in_order(server).await;
    let done = Arc::new(Done::default());
    for _ in 0..KILLS {
        server = start(data_dir);
        metric_becomes(&server, "kew_partition_cold_runs", &[], |it| it > 2.0);
        let started_bytes = metric(&server, "kew_partition_resident_bytes", &[]);
        assert!(started_bytes < STARTED_BYTES_MAX, "{started_bytes}");
        let wanted = done.deleted().len() + DELETED_EACH;
        let consumers = consume(&server, &done);
        wait_for(&done, wanted).await;
        server.kill();
        join(consumers).await;
    }
    server = start(data_dir);
    join(consume(&server, &done)).await;
    metric_becomes(&server, "kew_partition_loads_total", &[], |it| it > 0.0);
    stop_in_order(server).await;
    let (deleted, unsure) = (done.deleted(), done.unsure());
    let all = 0..BACKLOG;
    let lost: Vec<u64> = all
        .filter(|number| !deleted.contains(number) && !unsure.contains(number))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

/// Nobody reads such pages at a start. Their messages are set aside and listed, and everything else goes on.
#[test]
fn messages_on_pages_that_are_damaged_in_both_copies_are_set_aside() {
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(serve_the_rest(place.path()));
}

async fn serve_the_rest(data_dir: &Path) {
    let server = start(data_dir);
    fill(&server).await;
    stop_in_order(server).await;
    // What one snapshot has alone, a start would take from the log. A second one shares these pages.
    let server = start(data_dir);
    let put = server
        .queue_client()
        .put(QUEUE, "last", PutOptions::default())
        .await;
    put.expect("put");
    stop_in_order(server).await;
    assert!(damage_runs(data_dir) >= BACKLOG / 1024);
    // A scrub would report the pages, too, if it came by in time.
    let start = || start_with(data_dir, &["--scrub-rate", "0"]);
    let mut server = start();
    server.expect_error("a page cannot be read");
    server.expect_error("messages are set aside");
    let client = server.queue_client();
    let whole = received(&client).await;
    assert!(whole.contains("last"), "{whole:?}");
    let lost = BACKLOG + 1 - whole.len() as u64;
    assert_set_aside(&server, data_dir, lost);
    server.kill();
    let server = start();
    assert_set_aside(&server, data_dir, lost);
    let count = metric(&server, "kew_messages", &[]);
    assert_eq!(count, (BACKLOG + 1) as f64);
    server.queue_client().clear(QUEUE).await.expect("cleared");
    assert_set_aside(&server, data_dir, 0);
    server.kill();
}

/// What can be received, without deleting it.
async fn received(client: &QueueClient) -> BTreeSet<String> {
    let mut whole = BTreeSet::new();
    loop {
        let messages = client.get(QUEUE, 32, Some(3600)).await;
        let messages = messages.expect("those that are whole are served");
        if messages.is_empty() {
            return whole;
        }
        whole.extend(messages.into_iter().map(|message| message.text));
    }
}

/// So many messages are set aside, say the metrics and the list of the damage.
fn assert_set_aside(server: &Server, data_dir: &Path, count: u64) {
    let seen = metric(server, "kew_quarantined_messages", &[]);
    assert_eq!(seen, count as f64);
    let (_, damage) = listed(data_dir);
    assert_eq!(damage["quarantined_count"], count, "{damage}");
    let runs = damage["quarantined"].as_array().expect("a list");
    let counts = runs.iter().map(|run| {
        assert_eq!(run["queue"], QUEUE, "{run}");
        run["count"].as_u64().expect("a number")
    });
    assert_eq!(counts.sum::<u64>(), count);
}

/// Damages both copies of the pages of runs in the newest snapshot: those of the queue and of its directory come first.
fn damage_runs(data_dir: &Path) -> u64 {
    let folder = kew_log::DataDir::log_path(data_dir);
    let storage = kew_log::FileStorage::read_only(folder.clone()).expect("readable");
    let names = storage.list().expect("the folder can be read").into_iter();
    let snapshots = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let newest = snapshots.map(kew_log::LogPosition::new).max();
    let read = kew_log::read_table(&storage, newest.expect("a snapshot"));
    let table = read.expect("it is whole").table;
    let places: Vec<_> = table.pages().iter().skip(2).map(|it| it.place).collect();
    for place in &places {
        for copy in 0..2 {
            let name = format!("pages-{:020}", 2 * u64::from(place.pair) + copy);
            let file = fs::OpenOptions::new().write(true).open(folder.join(name));
            let damage = vec![0x55; place.size_bytes as usize];
            let file = file.expect("a file of pages");
            let written = file.write_all_at(&damage, place.offset.into());
            written.expect("it can be damaged");
        }
    }
    places.len() as u64
}

async fn fill(server: &Server) {
    let client = server.queue_client();
    client.create_queue(QUEUE, &[]).await.expect("created");
    let mut writers = JoinSet::new();
    for writer in 0..CLIENTS {
        let client = server.queue_client();
        writers.spawn(async move {
            for number in (writer as u64..BACKLOG).step_by(CLIENTS) {
                let text = format!("number {number}");
                let put = client.put(QUEUE, &text, PutOptions::default()).await;
                put.expect("put");
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.expect("all of it was written");
    }
}

/// What clients have deleted, and what they have tried to delete without an answer.
#[derive(Default)]
struct Done {
    deleted: Mutex<BTreeSet<u64>>,
    unsure: Mutex<BTreeSet<u64>>,
}

impl Done {
    fn deleted(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.deleted.lock().expect("no client fails with it")
    }

    fn unsure(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unsure.lock().expect("no client fails with it")
    }
}

type Consumers = JoinSet<()>;

/// Begins to receive and delete, until the server is gone, or nothing comes any more.
fn consume(server: &Server, done: &Arc<Done>) -> Consumers {
    let mut consumers = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, done) = (server.queue_client(), Arc::clone(done));
        consumers.spawn(async move { receive(&client, &done).await });
    }
    consumers
}

/// Ends once nothing has come for longer than a lease: then nothing is left that this client has received without deleting
/// it, or that a client had before the server was killed.
async fn receive(client: &QueueClient, done: &Done) {
    let lease = Duration::from_secs(LEASE_SECONDS.into());
    let mut came_last = Instant::now();
    loop {
        let asked_at = Instant::now();
        let Ok(messages) = client.get(QUEUE, 32, Some(LEASE_SECONDS)).await else {
            return;
        };
        if messages.is_empty() {
            if asked_at > came_last + lease {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        for message in messages {
            let number = message.text.strip_prefix("number ");
            let number = number.and_then(|it| it.parse().ok()).expect("a number");
            let is_again = done.deleted().contains(&number);
            assert!(!is_again, "{number} comes after it was deleted");
            let receipt = &message.receipt.as_ref().expect("a receipt").value;
            let answer = client.delete_message(QUEUE, &message.id, receipt).await;
            if answer.is_ok() {
                done.deleted().insert(number);
            } else {
                done.unsure().insert(number);
            }
        }
        came_last = Instant::now();
    }
}

async fn wait_for(done: &Done, wanted: usize) {
    let begun = Instant::now();
    loop {
        let found = done.deleted().len();
        if found >= wanted {
            return;
        }
        assert!(begun.elapsed() < 4 * PATIENCE, "{found} of {wanted} come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn join(mut consumers: Consumers) {
    while let Some(ended) = consumers.join_next().await {
        ended.expect("messages are as they were sent, and come once");
    }
}
