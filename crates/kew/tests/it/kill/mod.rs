//! The kill loop: a server under load is killed again and again, and its promises are checked.
//!
//! Sixteen writers mix all message operations over a few queues. A [`ledger::Ledger`] keeps what
//! was acknowledged and what has an unknown outcome. After every restart and at the end, a full
//! check compares all that the server holds with it. `KEW_KILLS` sets how often the server is
//! killed, `KEW_SEED` repeats a run's choices (not its timing).
//!
//! What is checked, at every answer and in the full check:
//!
//! - no acknowledged message is lost, none that was acknowledged as deleted comes back, and nothing
//!   appears that nobody put;
//! - id and text stay what they were, except for acknowledged updates, or unknown ones;
//! - the latest receipt works, across a crash too, and a stale one does not;
//! - dequeue counts rise with each delivery, by no more than acknowledged and unknown ones explain;
//! - a message is not delivered before its lease has run out;
//! - a queue at rest counts as many messages as it delivers;
//! - queues and metadata are what was last acknowledged.

mod catalogue;
mod check;
mod ledger;
mod random;
mod text;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::catalogue::Catalogue;
use self::ledger::Ledger;
use self::random::Random;
use crate::server::{PATIENCE, Server, show};

const QUEUES: [&str; 4] = ["kill-a", "kill-b", "kill-c", "kill-d"];
const WRITERS: u64 = 16;

/// Every so many rounds the server is asked to stop, for a change, and must do so cleanly.
const ROUNDS_TO_A_CLEAN_STOP: u32 = 6;

/// Every so many rounds the next start is killed as well, while it recovers.
const ROUNDS_TO_A_KILLED_START: u32 = 4;

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let kills = from_environment("KEW_KILLS").unwrap_or(20);
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seed = from_environment("KEW_SEED").unwrap_or(u64::from(time.subsec_nanos()));
    show(&format!("KEW_KILLS={kills} KEW_SEED={seed}"));

    let place = tempfile::tempdir().expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(kill_loop(place.path(), kills, seed));
}

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {value}")),
    )
}

async fn kill_loop(data_dir: &Path, kills: u64, seed: u64) {
    let mut random = Random::new(seed);
    let ledger = Arc::new(Ledger::new(&QUEUES));
    let catalogue = Arc::new(Catalogue::default());
    let mut server = Server::start(data_dir);
    let mut client = server.client();
    for queue in QUEUES {
        client.create_queue(queue, &[]).await.expect("created");
    }

    let (mut killed, mut round, mut slowest_start) = (0, 0, Duration::ZERO);
    while killed < kills {
        round += 1;
        let clean = round % ROUNDS_TO_A_CLEAN_STOP == 0;
        load_and_stop(server, &ledger, &catalogue, &mut random, clean).await;
        killed += u64::from(!clean);
        if round % ROUNDS_TO_A_KILLED_START == 0 {
            kill_a_start(data_dir, random.below(40));
            killed += 1;
        }
        let begun = Instant::now();
        server = Server::start(data_dir);
        slowest_start = slowest_start.max(begun.elapsed());
        check::everything(&server, &ledger, &mut random).await;
        catalogue.check(&mut server.client()).await;
    }
    check::empty_at_last(&server, &ledger).await;
    let ended = server.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    show(&format!(
        "kills={killed} rounds={round} slowest_start={slowest_start:?}"
    ));
    show(&ledger.report());
    show(&catalogue.report());
}

/// Runs the writers on a server, and stops it while they write.
async fn load_and_stop(
    server: Server,
    ledger: &Arc<Ledger>,
    catalogue: &Arc<Catalogue>,
    random: &mut Random,
    clean: bool,
) {
    let endpoint = server.endpoint();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let random = Random::new(random.next() ^ number);
        tasks.spawn(writer::run(endpoint.clone(), ledger.clone(), random));
    }
    tasks.spawn(catalogue.clone().run(endpoint));

    // The stop falls somewhere among the operations in flight when this many more are answered.
    let enough = ledger.acknowledged_count() + 200 + random.below(2000);
    let begun = Instant::now();
    while ledger.acknowledged_count() < enough {
        assert!(begun.elapsed() < PATIENCE, "the writers stand still");
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if clean {
        let ended = tokio::task::spawn_blocking(|| server.terminate()).await;
        let ended = ended.expect("it does not panic");
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    } else {
        server.kill();
    }
    let all = async {
        while tasks
            .join_next()
            .await
            .transpose()
            .expect("no panic")
            .is_some()
        {}
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("writers notice that the server is gone");
    ledger.assert_sound();
}

/// Starts a server and kills it within some milliseconds, ready or not.
fn kill_a_start(data_dir: &Path, milliseconds: u64) {
    let server = Server::spawn(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
    });
    // Not a wait for anything: the moment of the kill is what is varied.
    std::thread::sleep(Duration::from_millis(milliseconds));
    server.kill();
}
