//! A server that is stopped for longer than leases last, as on a suspended or starved machine.

use std::path::Path;
use std::time::{Duration, Instant};

use kew_client::PutOptions;
use rustix::process::Signal;

use crate::load::{self, CLOCK_GRAIN, Ending, LEASE_MAX, Load, Style};
use crate::server::{Server, show};

const FREEZES: u32 = 3;

#[test]
fn a_freeze_ends_leases_on_time_and_loses_nothing() {
    let seed = load::seed();
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(freeze(place.path(), seed));
}

async fn freeze(data_dir: &Path, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let server = Server::start(data_dir);
    load.create_queues(&server).await;
    let client = server.queue_client();
    client.create_queue("leases", &[]).await.expect("created");

    for _ in 0..FREEZES {
        load.begin(&server.account(), Ending::Told);
        load.acknowledged(500).await;
        client.clear("leases").await.expect("cleared");
        for text in ["long", "short"] {
            let put = client.put("leases", text, PutOptions::default()).await;
            put.expect("put");
        }
        let leased = Instant::now();
        for lease in [600, 1] {
            let got = client
                .get("leases", 1, Some(lease))
                .await
                .expect("received");
            assert_eq!(got.len(), 1);
        }

        // Requests are in flight while it is stopped, and their clients keep waiting.
        server.signal(Signal::STOP);
        tokio::time::sleep(LEASE_MAX + Duration::from_millis(500)).await;
        server.signal(Signal::CONT);

        let got = client.get("leases", 32, Some(600)).await.expect("received");
        assert!(leased.elapsed() + CLOCK_GRAIN >= Duration::from_secs(1));
        let texts: Vec<&str> = got.iter().map(|message| message.text.as_str()).collect();
        assert_eq!(texts, ["short"], "only the lease that is over has ended");
        load.acknowledged(500).await;
        load.end().await;
    }
    show(&format!("freezes={FREEZES}"));
    load.finish(server, || Server::start(data_dir)).await;
}
