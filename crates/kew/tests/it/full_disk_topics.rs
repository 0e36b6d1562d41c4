//! A disk that fills up while the copies of a topic are made: `topic_load` has the clients and the check.

use std::time::Instant;

use kew_client::{Message, QueueSettings};

use crate::bus_load::Door;
use crate::load::{self, stop_in_order};
use crate::operate::ok;
use crate::server::{Server, show};
use crate::small_disk::SmallDisk;
use crate::topic_load::TopicLoad;
use crate::transfer::admin;

const FULL: &str = "the disk is full: messages can be received";

/// Has most of the disk, so that the topic fills the rest soon.
const FILLER: &str = "filler";
const FILLER_SIZE: usize = 60 * 1024;
const FILLERS: usize = 300;

#[test]
fn a_disk_that_fills_up_during_a_fan_out_loses_and_doubles_no_copy() {
    let place = tempfile::tempdir().expect("a temporary directory");
    if let Some(disk) = SmallDisk::new(&place.path().join("disk"), 40, 0) {
        load::run(fill(&disk));
    }
}

fn start(disk: &SmallDisk) -> Server {
    disk.start_with(&["--bus-listen", "127.0.0.1:0"])
}

async fn fill(disk: &SmallDisk) {
    let mut server = start(disk);
    server.expect_error(FULL);
    TopicLoad::create(&server).await;
    let settings = QueueSettings::default();
    let created = admin(&server).create_queue(FILLER, &settings).await;
    created.expect("created");
    let client = Door::of(&server).client();
    let filler = client.sender(FILLER).await.expect("attached");
    for _ in 0..FILLERS {
        let message = Message::new(vec![b'x'; FILLER_SIZE]);
        filler.send(&message).await.expect("accepted");
    }

    let mut load = TopicLoad::default();
    let begun = Instant::now();
    load.fill_disk(&server).await;
    let waiting = load.waiting(&server).await;
    show(&format!(
        "topic_full_after={:?} waiting={waiting}",
        begun.elapsed()
    ));
    assert!(waiting > 0, "the disk was full between two publishes");
    // What is there can be received.
    load.complete(&server, 10).await;
    server.kill();

    let mut server = start(disk);
    // What was received, and files that the kill left unfinished, may have made room.
    server.tolerate_error(FULL);
    let still = load.waiting(&server).await;
    load.complete(&server, 10).await;
    // As soon as there is room, the copies are made.
    ok(&server, &["bus", "purge", FILLER, "--yes"]);
    let begun = Instant::now();
    load.check(&server).await;
    show(&format!(
        "topic_waiting_after_a_kill={still} checked_after={:?}",
        begun.elapsed()
    ));
    stop_in_order(server).await;
}
