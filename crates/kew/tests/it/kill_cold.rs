//! Kills of a server whose backlog is larger than the memory for it: most of it is on the disk alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kew_client::{PutOptions, QueueClient};
use tokio::task::JoinSet;

use crate::bus::metric_becomes;
use crate::load::{self, stop_in_order};
use crate::server::{PATIENCE, Server};

const QUEUE: &str = "backlog";

/// So many that some are on the disk alone at each kill: three quarters of a MiB have room for 12,900.
const BACKLOG: u64 = 20_000;

const KILLS: u64 = 4;

/// How many messages are deleted between two kills, beside those in flight.
const DELETED_EACH: u64 = 800;

const CLIENTS: usize = 16;

/// A received message comes again after this long.
const LEASE_SECONDS: u32 = 4;

fn start(data_dir: &Path) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--metrics-listen", "127.0.0.1:0"]);
        command.args(["--resident-memory", "1"]);
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
    let mut deleted = Arc::new(BTreeSet::new());
    let mut unsure = BTreeSet::new();
    for _ in 0..KILLS {
        server = start(data_dir);
        metric_becomes(&server, "kew_partition_cold_runs", &[], |it| it > 2.0);
        let (consumers, count) = consume(&server, &deleted, DELETED_EACH);
        wait_for(&count, DELETED_EACH).await;
        server.kill();
        note(consumers, &mut deleted, &mut unsure).await;
    }
    server = start(data_dir);
    let rest = BACKLOG - deleted.len() as u64 - unsure.len() as u64;
    let (consumers, count) = consume(&server, &deleted, rest + unsure.len() as u64);
    wait_for(&count, rest).await;
    // Those of which nobody knows whether they were deleted may come, too, and count.
    let mut before = 0;
    while count.load(Ordering::Relaxed) > before {
        before = count.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(u64::from(LEASE_SECONDS) + 1)).await;
    }
    metric_becomes(&server, "kew_partition_loads_total", &[], |it| it > 0.0);
    stop_in_order(server).await;
    note(consumers, &mut deleted, &mut unsure).await;
    let lost: Vec<u64> = (0..BACKLOG)
        .filter(|number| !deleted.contains(number) && !unsure.contains(number))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
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

/// What a client has deleted, and what it has tried to delete without an answer.
#[derive(Default)]
struct Done {
    deleted: BTreeSet<u64>,
    unsure: BTreeSet<u64>,
}

type Consumers = JoinSet<Done>;

/// Begins to receive and delete, until so many messages are deleted, or the server is gone.
fn consume(
    server: &Server,
    deleted: &Arc<BTreeSet<u64>>,
    count_max: u64,
) -> (Consumers, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let mut consumers = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, before) = (server.queue_client(), Arc::clone(deleted));
        let count = Arc::clone(&count);
        consumers.spawn(async move { receive(&client, &before, &count, count_max).await });
    }
    (consumers, count)
}

async fn receive(
    client: &QueueClient,
    before: &BTreeSet<u64>,
    count: &AtomicU64,
    count_max: u64,
) -> Done {
    let mut done = Done::default();
    // A few more than wanted are in flight when the server is killed.
    while count.load(Ordering::Relaxed) < count_max + 10 * CLIENTS as u64 {
        let Ok(messages) = client.get(QUEUE, 32, Some(LEASE_SECONDS)).await else {
            break;
        };
        if messages.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for message in messages {
            let number = message.text.strip_prefix("number ");
            let number = number.and_then(|it| it.parse().ok()).expect("a number");
            assert!(
                !before.contains(&number),
                "{number} comes after it was deleted"
            );
            let receipt = &message.receipt.as_ref().expect("a receipt").value;
            let answer = client.delete_message(QUEUE, &message.id, receipt).await;
            if answer.is_ok() {
                done.unsure.remove(&number);
                done.deleted.insert(number);
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                done.unsure.insert(number);
            }
        }
    }
    done
}

async fn wait_for(count: &AtomicU64, wanted: u64) {
    let begun = Instant::now();
    while count.load(Ordering::Relaxed) < wanted {
        let found = count.load(Ordering::Relaxed);
        assert!(begun.elapsed() < 4 * PATIENCE, "{found} of {wanted} come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn note(
    mut consumers: Consumers,
    deleted: &mut Arc<BTreeSet<u64>>,
    unsure: &mut BTreeSet<u64>,
) {
    while let Some(done) = consumers.join_next().await {
        let done = done.expect("messages are as they were sent");
        let deleted = Arc::make_mut(deleted);
        unsure.extend(done.unsure);
        deleted.extend(done.deleted);
    }
    unsure.retain(|number| !deleted.contains(number));
}
