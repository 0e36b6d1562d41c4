//! A disk that fills up, is drained while it is full, and gets space again.

use std::time::{Duration, Instant};

use kew_client::{PutOptions, QueueClient};

use crate::load::{self, Ending, Load, Mix, Style, stop_in_order};
use crate::server::{PATIENCE, show};
use crate::small_disk::SmallDisk;

#[test]
fn a_full_disk_is_drained_and_works_again_when_freed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = SmallDisk::new(&place.path().join("disk"), 40, 8) else {
        return;
    };
    let seed = load::seed();
    load::run(fill(&disk, seed));
}

async fn fill(disk: &SmallDisk, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let mut server = disk.start();
    server.expect_error("the disk is full: messages can be received");
    load.create_queues(&server).await;

    load.begin_writers(&server.account(), Mix::Puts, Ending::Full);
    load.ended(2 * PATIENCE).await;
    let kept = load.ledger.live_count();
    let client = server.queue_client();
    assert!(is_refused(&client).await, "it does not say that it is full");

    // Existing messages can be received and deleted: this deletes half of them.
    load.begin_writers(&server.account(), Mix::Drain, Ending::Told);
    let begun = Instant::now();
    while load.ledger.live_count() > kept / 2 {
        assert!(begun.elapsed() < PATIENCE, "a full disk cannot be drained");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load.end().await;
    show(&format!(
        "messages_on_a_full_disk={kept} drained_to={} puts_work_before_space_was_freed={}",
        load.ledger.live_count(),
        !is_refused(&client).await
    ));

    disk.free_what_was_taken();
    let begun = Instant::now();
    while is_refused(&client).await {
        assert!(
            begun.elapsed() < PATIENCE,
            "it does not notice that there is space"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    show(&format!("puts_work_again_after={:?}", begun.elapsed()));

    load.begin(&server.account(), Ending::Unanswered);
    load.acknowledged(500).await;
    server.kill();
    load.server_is_gone().await;
    let server = disk.start();
    load.check(&server).await;
    load.empty_at_last(&server).await;
    stop_in_order(server).await;
    load.show_report();
}

/// Whether a put is refused for lack of space. A successful one is deleted again.
async fn is_refused(client: &QueueClient) -> bool {
    client.create_queue("beside", &[]).await.ok();
    match client.put("beside", "text", PutOptions::default()).await {
        Ok(sent) => {
            let receipt = &sent.receipt.value;
            let deleted = client.delete_message("beside", &sent.id, receipt);
            deleted.await.expect("deleted");
            false
        }
        Err(error) if matches!(error.status(), Some(503 | 404)) => true,
        Err(error) => panic!("an answer that was not expected: {error}"),
    }
}
