//! Far more bodies than memory: the server may use 512 MiB and gets more data than that.
//!
//! The limit is on writable private memory (`RLIMIT_DATA`), which includes threads' stacks and all
//! of the allocator's memory, used or not. The peak of resident memory is checked too. Beyond the
//! limit an allocation fails, and the process with it. The server may answer busy. It must not end,
//! and all acknowledged data must be there, also for a server that starts again within the same
//! limit. `KEW_PUSH_MIB` sets how much data is sent.

use std::path::Path;
use std::time::Duration;

use crate::load::{self, Ending, Load, Mix, Style, Texts, from_environment, stop_in_order};
use crate::server::{Server, show};
use crate::skip::skip;

const LIMIT_MIB: u64 = 512;

/// Twice the limit.
const PUSH_MIB_DEFAULT: u64 = 1024;

const CONNECTIONS: u64 = 64;

/// The time limit for sending, and for draining.
const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn more_bodies_than_memory_end_nothing() {
    let push_mib = from_environment("KEW_PUSH_MIB").unwrap_or(PUSH_MIB_DEFAULT);
    let prlimit = std::process::Command::new("prlimit")
        .arg("--version")
        .output();
    if let Err(error) = prlimit {
        skip(
            "memory_limit",
            &format!("no prlimit ({error})"),
            "install util-linux",
        );
        return;
    }
    let seed = load::seed();
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(push(place.path(), push_mib, seed));
}

fn start(data_dir: &Path) -> Server {
    Server::start_with(|command| {
        let mut limited = std::process::Command::new("prlimit");
        limited.arg(format!("--data={}", LIMIT_MIB << 20));
        limited.arg(command.get_program());
        limited.arg("serve").arg("--data-dir").arg(data_dir);
        limited.args(["--queue-listen", "127.0.0.1:0"]);
        *command = limited;
    })
}

async fn push(data_dir: &Path, push_mib: u64, seed: u64) {
    let style = Style {
        writers: CONNECTIONS,
        texts: Texts::Large,
        ..Style::default()
    };
    let mut load = Load::new(seed, &style);
    let server = start(data_dir);
    load.create_queues(&server).await;

    let messages = push_mib * 16;
    load.begin_writers(&server.account(), Mix::Puts, Ending::Told);
    load.acknowledged_within(messages, PATIENCE).await;
    load.end().await;
    let peak_mib = server.peak_memory_kib() >> 10;
    show(&format!(
        "pushed_mib={push_mib} peak_rss_mib={peak_mib} limit_mib={LIMIT_MIB}"
    ));
    assert!(peak_mib < LIMIT_MIB);

    // Everything is there after a crash, with the most demanding read: all at once.
    server.kill();
    load.server_is_gone().await;
    let server = start(data_dir);
    load.begin_writers(&server.account(), Mix::Drain, Ending::Told);
    load.acknowledged_within(messages, PATIENCE).await;
    load.end().await;
    load.empty_at_last(&server).await;
    let peak_mib = server.peak_memory_kib() >> 10;
    show(&format!("drained, peak_rss_mib={peak_mib}"));
    assert!(peak_mib < LIMIT_MIB);
    stop_in_order(server).await;
    load.show_report();
}
