//! The kill loop: a server under load is killed again and again, and its promises are checked.
//!
//! `KEW_KILLS` sets how often the server is killed, `KEW_BUS_KILLS` how often one that serves both
//! protocols at once; `KEW_SEED` repeats a run's choices.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::bus_load::BusLoad;
use crate::load::{self, Ending, Load, Style, from_environment, stop_in_order};
use crate::server::{Server, show};

const KILLS_DEFAULT: u64 = 25;
const BUS_KILLS_DEFAULT: u64 = 12;

/// Once in so many rounds the server is asked to stop instead, and must do so cleanly.
const ROUNDS_TO_A_CLEAN_STOP: u32 = 6;

/// Once in so many rounds the next start is killed too, during its recovery.
const ROUNDS_TO_A_KILLED_START: u32 = 4;

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let kills = from_environment("KEW_KILLS").unwrap_or(KILLS_DEFAULT);
    let seed = load::seed();
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(kill_loop(place.path(), kills, seed));
}

async fn kill_loop(data_dir: &Path, kills: u64, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let mut server = Server::start(data_dir);
    load.create_queues(&server).await;

    let (mut killed, mut round, mut slowest_start) = (0, 0, Duration::ZERO);
    while killed < kills {
        round += 1;
        let clean = round % ROUNDS_TO_A_CLEAN_STOP == 0;
        load.begin(&server.account(), Ending::Unanswered);
        // The stop comes among the operations in flight after this many more.
        let count = 200 + load.random.below(2000);
        load.acknowledged(count).await;
        if clean {
            stop_in_order(server).await;
        } else {
            server.kill();
        }
        load.server_is_gone().await;
        killed += u64::from(!clean);
        if round % ROUNDS_TO_A_KILLED_START == 0 {
            kill_a_start(data_dir, load.random.below(40));
            killed += 1;
        }
        let begun = Instant::now();
        server = Server::start(data_dir);
        slowest_start = slowest_start.max(begun.elapsed());
        load.check(&server).await;
    }
    load.empty_at_last(&server).await;
    stop_in_order(server).await;
    show(&format!(
        "kills={killed} rounds={round} slowest_start={slowest_start:?}"
    ));
    load.show_report();
    load.ledger.assert_tried();
}

#[test]
fn nothing_acknowledged_in_either_protocol_is_lost_by_kills() {
    let kills = from_environment("KEW_BUS_KILLS").unwrap_or(BUS_KILLS_DEFAULT);
    let seed = load::seed();
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(kill_both(place.path(), kills, seed));
}

async fn kill_both(place: &Path, kills: u64, seed: u64) {
    let config = BusLoad::write_config(place);
    let start = || {
        Server::start_with(|command| {
            command
                .arg("serve")
                .arg("--data-dir")
                .arg(place.join("data"));
            command.args(["--queue-listen", "127.0.0.1:0"]);
            command.args(BusLoad::arguments(&config));
        })
    };
    let mut load = Load::new(seed, &Style::default());
    let mut bus = BusLoad::new(seed);
    let mut server = start();
    load.create_queues(&server).await;
    for _ in 0..kills {
        load.begin(&server.account(), Ending::Unanswered);
        bus.begin(&server);
        let count = 100 + load.random.below(800);
        load.acknowledged(count).await;
        server.kill();
        load.server_is_gone().await;
        bus.server_is_gone().await;
        server = start();
        load.check(&server).await;
        bus.check(&server).await;
    }
    load.empty_at_last(&server).await;
    bus.empty_at_last(&server).await;
    stop_in_order(server).await;
    show(&format!("kills_of_both={kills}"));
    load.show_report();
    bus.show_report();
    if kills >= BUS_KILLS_DEFAULT {
        bus.assert_tried();
    }
}

/// Starts a server and kills it within some milliseconds, ready or not.
fn kill_a_start(data_dir: &Path, milliseconds: u64) {
    let server = Server::spawn(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
    });
    // This is not a wait: the moment of the kill is what varies.
    std::thread::sleep(Duration::from_millis(milliseconds));
    server.kill();
}
