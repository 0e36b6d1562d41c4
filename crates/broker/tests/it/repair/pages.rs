//! Snapshots that have lost pages, in both copies and to all of them.

use std::sync::Arc;

use kew_broker::{Losses, Restore};
use kew_log::FaultyStorage;

use super::{Driver, Known, QUEUES, ids, missing, names, options, repair, snapshotted};
use crate::damaged::{Bench, DIRECTORY, HEADS, RUN, lose_pages};

/// Two snapshots that share their pages, and what came later. The log's beginning is retired.
fn paged() -> (FaultyStorage, Known, Known) {
    let mut driver = Driver::new();
    (500..600).for_each(|number| driver.send("plums", number));
    (0..4).for_each(|_| driver.delete_some("plums", 32));
    (0..150).for_each(|number| driver.send("apples", number));
    (200..220).for_each(|number| driver.send("pears", number));
    driver.bench.snapshot();
    driver.receive("apples", 1);
    driver.delete_some("apples", 3);
    driver.bench.snapshot();
    driver.send_many(300, 6);
    let first = names(&driver.bench.storage, "segment-")[0].clone();
    assert_ne!(first, "segment-00000000000000000000");
    driver.close()
}

/// Loses all pages of a kind, and repairs. Returns how many messages are lost, and what the repair says.
fn without_pages(kind: u8, story: &str) -> (usize, Losses, Known) {
    let (storage, alive, sent) = paged();
    assert!(lose_pages(&storage, kind) > 0, "{story}");
    let losses = repair(&storage, &alive, &sent, story);
    assert!(!losses.gaps.is_empty(), "{story}");
    (missing(&storage, &alive), losses, alive)
}

#[test]
fn without_the_pages_of_queues_their_messages_are_kept() {
    let (lost, losses, _) = without_pages(HEADS, "queues");
    assert_eq!((lost, losses.messages.as_slice()), (0, &[][..]));
    assert_eq!(losses.renamed.len(), QUEUES.len());
    assert_eq!(losses.dropped, []);
}

#[test]
fn without_directories_the_pages_of_runs_are_used() {
    let (lost, losses, _) = without_pages(DIRECTORY, "directories");
    // Few lie in directories alone. What was deleted comes back.
    assert!((1..12).contains(&lost), "{lost}");
    assert!(losses.may_return.values().sum::<u64>() > 130);
}

#[test]
fn without_the_pages_of_runs_those_that_changed_are_left_and_the_others_are_listed() {
    let (lost, losses, alive) = without_pages(RUN, "runs");
    assert!(lost > 100, "{lost}");
    assert!(lost < alive.len() - 2, "those that changed are left");
    let listed = ids(&losses);
    let known = alive.keys().filter(|id| listed.contains(*id)).count();
    assert_eq!((known, listed.len()), (lost, lost));
}

/// A queue can have lost its page, and a part of its messages too.
#[test]
fn messages_of_a_queue_that_is_lost_are_listed_as_well() {
    let (storage, alive, sent) = paged();
    lose_pages(&storage, HEADS);
    lose_pages(&storage, RUN);
    let losses = repair(&storage, &alive, &sent, "queues and runs");
    assert_eq!(missing(&storage, &alive), losses.messages.len());
    assert!(losses.messages.len() > 100);
}

/// The header says how many parts the table has, too.
#[test]
fn without_the_first_part_of_a_snapshot_its_pages_are_found() {
    let (storage, alive, sent) = paged();
    for snapshot in names(&storage, "snapshot-") {
        storage.flip(&snapshot, 76 + 16, 1);
    }
    let losses = repair(&storage, &alive, &sent, "first parts");
    assert_eq!((missing(&storage, &alive), losses.gaps.len()), (0, 2));
    assert_eq!((losses.renamed.len(), losses.secret_is_lost), (0, false));
}

#[test]
fn pages_in_bad_sectors_are_lost_like_damaged_ones() {
    let (storage, alive, sent) = snapshotted();
    for file in names(&storage, "pages-") {
        storage.spoil(&file, 4096..1 << 20);
    }
    let losses = repair(&storage, &alive, &sent, "no page can be read");
    assert!(!losses.gaps.is_empty() && !losses.damage.is_empty());
}

/// What lies in the same sector is lost, and what else there is is kept.
#[test]
fn bad_sectors_in_all_snapshots_are_lost_like_damaged_parts() {
    let (storage, alive, sent) = snapshotted();
    for snapshot in names(&storage, "snapshot-") {
        storage.spoil(&snapshot, 100..101);
    }
    let losses = repair(&storage, &alive, &sent, "no snapshot can be read");
    assert!(!losses.gaps.is_empty() && !losses.damage.is_empty());
}

/// A queue with one old message, behind which a thousand came and went. Nothing needs the log's beginning.
fn worn() -> Driver {
    let mut driver = Driver::new();
    (500..600).for_each(|number| driver.send("plums", number));
    (0..4).for_each(|_| driver.delete_some("plums", 32));
    (0..1000).for_each(|number| driver.send("apples", number));
    driver.delete_most("apples", 1000);
    driver
}

/// Two snapshots, and one more message behind them. The pages of queues are lost.
fn worn_and_lost(mut driver: Driver) -> (FaultyStorage, Known, Known) {
    driver.bench.snapshot();
    driver.send("pears", 700);
    driver.bench.snapshot();
    driver.send("apples", 1001);
    let (storage, alive, sent) = driver.close();
    assert!(lose_pages(&storage, HEADS) > 0);
    (storage, alive, sent)
}

/// With its page, a queue loses its next number. What was received and deleted before the snapshot is not lost.
#[test]
fn a_queue_whose_next_number_is_lost_has_lost_no_messages() {
    let (storage, alive, sent) = worn_and_lost(worn());
    let losses = repair(&storage, &alive, &sent, "next number");
    assert_eq!(
        (losses.messages.as_slice(), losses.renamed.len()),
        (&[][..], 2)
    );
    assert_eq!(missing(&storage, &alive), 0);
}

/// After a restore, no message has one of very many numbers.
#[test]
fn numbers_that_a_restore_has_passed_over_are_no_losses() {
    let (storage, alive, sent) = worn().close();
    let restore = Restore::read(&storage).unwrap();
    restore
        .carry_out(Arc::new(storage.clone()), options(), 3, [7; 16])
        .unwrap();
    let driver = Driver {
        bench: Bench::on(storage, options()),
        alive,
        sent,
    };
    let (storage, alive, sent) = worn_and_lost(driver);
    let losses = repair(&storage, &alive, &sent, "numbers passed over");
    assert_eq!(
        (losses.messages.as_slice(), losses.renamed.len()),
        (&[][..], 2)
    );
    assert_eq!(missing(&storage, &alive), 0);
}

/// The log's beginning is there, and what a restore has passed over lies in a gap: nothing says that nobody sent messages of
/// these numbers. They are too many to list.
#[test]
fn numbers_that_may_have_been_sent_are_counted_if_they_are_too_many() {
    let mut driver = Driver::new();
    driver.send("apples", 1);
    (500..600).for_each(|number| driver.send("plums", number));
    driver.send("apples", 2);
    let (storage, alive, sent) = driver.close();
    let restore = Restore::read(&storage).unwrap();
    restore
        .carry_out(Arc::new(storage.clone()), options(), 3, [7; 16])
        .unwrap();
    let mut driver = Driver {
        bench: Bench::on(storage, options()),
        alive,
        sent,
    };
    (0..4).for_each(|_| driver.delete_some("plums", 32));
    let (storage, alive, sent) = worn_and_lost(driver);
    let losses = repair(&storage, &alive, &sent, "too many numbers");
    // Two queues got a message behind the gap.
    assert!((200_000..201_000).contains(&losses.messages.len()));
    let counts: Vec<u64> = losses.more_messages.values().copied().collect();
    assert_eq!(counts.len(), 2);
    assert!(counts.iter().all(|it| *it > 1 << 39), "{counts:?}");
}
