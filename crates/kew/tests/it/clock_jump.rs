//! The wall clock jumps by an hour, in both directions, under a running server.
//!
//! `preload/clock.c` gives the server another wall clock, which a file sets; elapsed time stays
//! true. Clients date their requests by the same clock, or send none that counts.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use kew_client::{QueueAccount, QueueSas};
use queue_load::{Client, Endpoint, PutOptions};

use crate::load::{self, Ending, Load, Style};
use crate::preload;
use crate::server::{PATIENCE, Server, show};

const HOUR_SECONDS: i64 = 3600;

/// The clock's offsets, one after the other, in seconds from the real clock.
const JUMPS: [i64; 4] = [HOUR_SECONDS, 0, -HOUR_SECONDS, 0];

/// The server's clock closes the gap at half a percent of elapsed time, so leases of two seconds
/// end up to 10 ms early or late, and a restart undoes that.
const CLOCK_GRAIN: Duration = Duration::from_millis(100);

/// The offset of the clock of server and clients, in seconds from the real clock.
static OFFSET_SECONDS: AtomicI64 = AtomicI64::new(0);

fn clock() -> SystemTime {
    let offset = OFFSET_SECONDS.load(SeqCst);
    let distance = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 {
        SystemTime::now() - distance
    } else {
        SystemTime::now() + distance
    }
}

/// The account, known by a signature instead of its key: then the date of a request does not matter.
fn undated(account: &QueueAccount) -> QueueAccount {
    let url = account.signed_url(&QueueSas {
        queue: None,
        permissions: None,
        expiry: "2099-01-01T00:00:00Z",
        https_only: false,
    });
    QueueAccount::parse(url.expect("it has a key").expose()).expect("a usable URL")
}

/// A wall clock that can be set.
struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// `None` if this machine does not support it.
    fn new(place: &Path) -> Option<Self> {
        let clock = Self {
            library: preload::build("clock", place)?,
            file: place.join("offset"),
        };
        clock.set(0);
        Some(clock)
    }

    fn set(&self, offset_seconds: i64) {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.file)
            .expect("writable");
        // One write in place: the server has the file mapped.
        file.write_all_at(&offset_seconds.to_ne_bytes(), 0)
            .expect("writable");
        OFFSET_SECONDS.store(offset_seconds, SeqCst);
    }

    fn arrange(&self, command: &mut Command, data_dir: &Path) {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.env("LD_PRELOAD", &self.library);
        command.env("CLOCK_OFFSET_FILE", &self.file);
    }

    fn start(&self, data_dir: &Path) -> Server {
        Server::start_with(|command| self.arrange(command, data_dir))
    }
}

#[test]
fn a_jump_of_the_clock_ends_no_lease_early_and_expires_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(clock) = WallClock::new(place.path()) else {
        return;
    };
    let seed = load::seed();
    load::run(jump(&clock, &place.path().join("data"), seed));
}

async fn jump(wall: &WallClock, data_dir: &Path, seed: u64) {
    let style = Style {
        clock_grain: CLOCK_GRAIN,
        ..Style::default()
    };
    let mut load = Load::new(seed, &style);
    let server = wall.start(data_dir);
    load.create_queues(&server).await;
    let endpoint = || {
        let endpoint = Endpoint::development(server.addresses()[0]);
        std::sync::Arc::new(endpoint.with_clock(clock))
    };
    let undated = undated(&server.account());
    let mut client = Client::new(endpoint());
    client.create_queue("leases", &[]).await.expect("created");

    for offset in JUMPS {
        load.begin(&undated, Ending::Told);
        load.acknowledged(500).await;
        load.end().await;
        client.clear("leases").await.expect("cleared");
        for text in ["long", "short"] {
            let options = PutOptions {
                time_to_live: Some(600),
                ..PutOptions::default()
            };
            client.put("leases", text, options).await.expect("put");
        }
        let leased = Instant::now();
        for lease in [600, 2] {
            let got = client.get("leases", 1, lease).await.expect("received");
            assert_eq!(got.len(), 1);
        }

        wall.set(offset);
        // A request with the old date is refused, which shows that the server saw the jump.
        let mut real = Client::new(server.endpoint());
        let refused = real.peek("leases", 1).await;
        assert_eq!(refused.is_ok(), offset == 0, "{offset:+} s: {refused:?}");

        // The load continues across the jump with its earlier leases and receipts.
        load.begin(&undated, Ending::Told);
        let found = loop {
            let got = client.get("leases", 32, 600).await.expect("received");
            if !got.is_empty() {
                break got;
            }
            assert!(leased.elapsed() < PATIENCE, "{offset:+} s: no lease ends");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let ended = leased.elapsed();
        assert_eq!(found[0].text, "short");
        assert_eq!(found.len(), 1, "{offset:+} s: a lease of 600 s has ended");
        assert!(
            ended + CLOCK_GRAIN > Duration::from_secs(2),
            "{offset:+} s: {ended:?}"
        );
        load.acknowledged(500).await;
        load.end().await;
        let count = client.queue_properties("leases").await.expect("it exists");
        assert_eq!(count.approximate_message_count, 2, "{offset:+} s: expired");
    }
    show(&format!("clock_jumps={}", JUMPS.len()));
    load.finish(server, || wall.start(data_dir)).await;
}
