//! Damaged partitions: messages listed as lost are lost, and everything else is unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

use kew_broker::{Answered, Losses, Partition, PartitionOptions, Repair};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, EntityName, Outcome, Timestamp, Token, VisibilityTimeout};
use kew_log::{FaultyStorage, verify};

use crate::damaged::{Bench, Dice, Sizes, damage};

mod pages;

const QUEUES: [&str; 3] = ["apples", "pears", "plums"];

fn options() -> PartitionOptions {
    let sizes = Sizes {
        segment_kib: 16,
        batch_kib: 8,
        turn_kib: 4,
        settlement_kib: 1,
    };
    sizes.options()
}

fn name(queue: &str) -> EntityName {
    EntityName::storage_queue("acct", queue)
}

/// Messages as their senders know them.
type Known = BTreeMap<[u8; 16], (String, String)>;

struct Driver {
    bench: Bench,
    /// Messages that were sent and not deleted, by id, with queue and body.
    alive: Known,
    /// All messages ever sent.
    sent: Known,
}

impl Driver {
    fn new() -> Self {
        let mut driver = Self::on(FaultyStorage::new());
        for queue in QUEUES {
            let queue = name(queue);
            let metadata = [("colour", "green")].into_iter().collect();
            driver.ask(Command::Storage(StorageCommand::CreateQueue {
                queue,
                metadata,
            }));
        }
        driver
    }

    fn on(storage: FaultyStorage) -> Self {
        Self {
            bench: Bench::on(storage, options()),
            alive: Known::new(),
            sent: Known::new(),
        }
    }

    fn ask(&mut self, command: Command) -> Answered {
        self.bench.ask(command).unwrap()
    }

    fn send(&mut self, queue: &str, number: usize) {
        let body = format!("{queue} {number} {}", "x".repeat(number * 37 % 700));
        let answered = self.ask(Command::Storage(StorageCommand::Send {
            queue: name(queue),
            body: body.clone().into(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: VisibilityTimeout::ZERO,
        }));
        let Outcome::Storage(StorageOutcome::Sent(sent)) = answered.outcome else {
            panic!("a send sends");
        };
        let known = (queue.to_owned(), body);
        self.alive.insert(*sent.message.as_bytes(), known.clone());
        self.sent.insert(*sent.message.as_bytes(), known);
    }

    fn send_many(&mut self, from: usize, count: usize) {
        for number in from..from + count {
            self.send(QUEUES[number % QUEUES.len()], number);
        }
    }

    fn receive(&mut self, queue: &str, count: u32) -> Vec<(Token, Token, String)> {
        let answered = self.ask(Command::Storage(StorageCommand::Receive {
            queue: name(queue),
            count,
            visibility_timeout: VisibilityTimeout::from_seconds(600).unwrap(),
        }));
        let Outcome::Storage(StorageOutcome::Received(messages)) = &answered.outcome else {
            panic!("a receive receives");
        };
        let bodies = answered.bodies.read().into_iter();
        let bodies = bodies.map(|body| String::from_utf8(body.unwrap().to_vec()).unwrap());
        messages
            .iter()
            .zip(bodies)
            .map(|(message, body)| (message.message, message.receipt, body))
            .collect()
    }

    fn delete_some(&mut self, queue: &str, count: u32) {
        for (message, receipt, _) in self.receive(queue, count) {
            let queue = name(queue);
            self.ask(Command::Storage(StorageCommand::Delete {
                queue,
                message,
                receipt,
            }));
            self.alive.remove(message.as_bytes());
        }
    }

    /// Deletes all but every nth of the messages that can be received.
    fn delete_most(&mut self, queue: &str, nth: usize) {
        let received = (0..).map_while(|_| {
            let messages = self.receive(queue, 32);
            (!messages.is_empty()).then_some(messages)
        });
        let received: Vec<_> = received.flatten().collect();
        for (number, (message, receipt, _)) in received.into_iter().enumerate() {
            if number % nth > 0 {
                let queue = name(queue);
                self.ask(Command::Storage(StorageCommand::Delete {
                    queue,
                    message,
                    receipt,
                }));
                self.alive.remove(message.as_bytes());
            }
        }
    }

    fn close(mut self) -> (FaultyStorage, Known, Known) {
        self.bench.mark();
        (self.bench.storage.kill(), self.alive, self.sent)
    }

    /// Every remaining message, by id.
    fn everything(&mut self) -> Known {
        self.bench.now = self.bench.now.plus_seconds(3600);
        let queues: Vec<String> = self
            .bench
            .partition
            .state()
            .queues()
            .map(|(_, name)| name.name.to_string())
            .collect();
        let mut found = Known::new();
        for queue in queues {
            loop {
                let messages = self.receive(&queue, 32);
                if messages.is_empty() {
                    break;
                }
                for (id, _, body) in messages {
                    found.insert(*id.as_bytes(), (queue.clone(), body));
                }
            }
        }
        found
    }
}

/// No snapshot: the whole history is in the log.
fn plain() -> (FaultyStorage, Known, Known) {
    let mut driver = Driver::new();
    driver.send_many(0, 60);
    driver.delete_some("pears", 5);
    driver.send_many(60, 40);
    driver.delete_some("apples", 7);
    driver.send_many(100, 20);
    driver.close()
}

/// Two snapshots, and a log whose beginning is retired; some old bodies are still live.
fn snapshotted() -> (FaultyStorage, Known, Known) {
    let mut driver = Driver::new();
    driver.send_many(0, 60);
    for queue in QUEUES {
        driver.delete_some(queue, 18);
    }
    driver.send_many(60, 30);
    driver.bench.snapshot();
    driver.send_many(90, 30);
    driver.delete_some("plums", 3);
    driver.bench.snapshot();
    driver.send_many(120, 30);
    driver.delete_some("plums", 3);
    driver.bench.snapshot();
    driver.send_many(150, 45);
    driver.delete_some("apples", 4);
    driver.close()
}

fn names(storage: &FaultyStorage, prefix: &str) -> Vec<String> {
    let files = storage.files().into_iter().map(|(name, _)| name);
    files.filter(|name| name.starts_with(prefix)).collect()
}

fn ids(losses: &Losses) -> BTreeSet<[u8; 16]> {
    let messages = losses.messages.iter();
    messages
        .filter_map(|message| Some(*message.id?.as_bytes()))
        .collect()
}

fn look(storage: &FaultyStorage) -> Repair {
    Repair::look(Arc::new(storage.clone()), "acct").unwrap()
}

/// Repairs, and checks the promise: messages that are not listed exist, and there is none that no
/// client sent.
fn repair(storage: &FaultyStorage, alive: &Known, sent: &Known, story: &str) -> Losses {
    let repair = look(storage);
    let losses = repair.losses().clone();
    assert!(repair.is_needed(), "{story}");
    repair.carry_out(options(), 99, [2; 16]).unwrap();
    check_repaired(storage, &losses, alive, sent, story);
    losses
}

fn check_repaired(
    storage: &FaultyStorage,
    losses: &Losses,
    alive: &Known,
    sent: &Known,
    story: &str,
) {
    verify(storage).unwrap();
    assert!(!look(storage).is_needed(), "{story}");
    let mut driver = Driver::on(storage.kill());
    let found = driver.everything();
    if losses.secret_is_lost {
        let bodies: BTreeSet<&String> = found.values().map(|(_, body)| body).collect();
        let were_sent: BTreeSet<&String> = sent.values().map(|(_, body)| body).collect();
        assert!(bodies.is_subset(&were_sent), "{story}");
        return;
    }
    let listed = ids(losses);
    for (id, (queue, body)) in &found {
        let (old_queue, old_body) = sent.get(id).expect("it was sent under this id");
        assert_eq!(body, old_body, "{story}");
        assert!(
            queue == old_queue || queue.starts_with("recovered-"),
            "{story}: {queue} was {old_queue}"
        );
        assert!(!listed.contains(id), "{story}: listed as lost, and there");
        if !alive.contains_key(id) {
            assert!(
                !losses.may_return.is_empty(),
                "{story}: {queue} {body} came back: {losses:?}"
            );
        }
    }
    for (id, message) in alive {
        let is_told = listed.contains(id) || !losses.gaps.is_empty();
        assert!(
            found.contains_key(id) || is_told,
            "{story}: {message:?} is lost and nothing says so"
        );
    }
    // It works on like a new partition, and issues no id a second time.
    driver.alive.clear();
    driver.ask(Command::Storage(StorageCommand::CreateQueue {
        queue: name("new"),
        metadata: Default::default(),
    }));
    driver.sent = sent.clone();
    for queue in ["new", "apples"] {
        if driver.bench.partition.state().has_entity(&name(queue)) {
            let before = driver.sent.len();
            driver.send(queue, 7);
            assert_eq!(driver.sent.len(), before + 1, "{story}: an id comes again");
        }
    }
    let (storage, alive, _) = driver.close();
    let found = Driver::on(storage).everything();
    assert!(alive.keys().all(|id| found.contains_key(id)), "{story}");
}

/// How many live messages are missing.
fn missing(storage: &FaultyStorage, alive: &Known) -> usize {
    let found = Driver::on(storage.kill()).everything();
    alive.keys().filter(|id| !found.contains_key(*id)).count()
}

#[test]
fn an_intact_partition_needs_no_repair() {
    for (storage, ..) in [plain(), snapshotted()] {
        let repair = look(&storage);
        assert!(!repair.is_needed());
        assert_eq!(repair.losses(), &Losses::default());
    }
    assert!(!look(&FaultyStorage::new()).is_needed());
}

#[test]
fn a_damaged_record_costs_its_messages_and_each_is_listed_by_its_id() {
    let (storage, alive, sent) = plain();
    let segments = names(&storage, "segment-");
    for (segment, offset) in [
        (&segments[0], 9000),
        (&segments[1], 5000),
        (&segments[2], 6000),
    ] {
        let disk = storage.kill();
        disk.flip(segment, offset, 4);
        let before = disk.files();
        let listing = look(&disk);
        let refusal = listing.refusal().unwrap().to_string();
        assert!(refusal.starts_with(&**segment), "{refusal}");
        assert_eq!(disk.files(), before, "a listing changes nothing");
        drop(listing);
        let losses = repair(&disk, &alive, &sent, segment);
        assert_eq!(losses.gaps.len(), 1);
        assert_eq!(&losses.gaps[0].file, segment);
        assert_eq!(missing(&disk, &alive), losses.messages.len());
        assert!(losses.messages.len() <= 1, "one record, one message");
        assert!(losses.renamed.is_empty());
    }
}

#[test]
fn a_segment_with_a_damaged_header_loses_nothing() {
    for (storage, alive, sent) in [plain(), snapshotted()] {
        for segment in names(&storage, "segment-") {
            for zeros in [
                0..1,
                8..9,
                16..24,
                24..32,
                32..40,
                40..48,
                48..56,
                0..68,
                0..4096,
            ] {
                let disk = storage.kill();
                let story = format!("{segment} without bytes {zeros:?} of its header");
                let count = zeros.end - zeros.start;
                let at = u64::try_from(zeros.start).unwrap();
                let content = disk.content(&segment).unwrap();
                let flipped: Vec<u8> = content[zeros].iter().map(|byte| !byte).collect();
                disk.corrupt(
                    &segment,
                    at,
                    &if count > 60 { vec![0; count] } else { flipped },
                );
                let losses = repair(&disk, &alive, &sent, &story);
                assert_eq!(losses.messages, [], "{story}");
                assert_eq!(losses.gaps, [], "{story}");
                assert_eq!(missing(&disk, &alive), 0, "{story}");
                assert!(!names(&disk, "damaged-1-").is_empty());
            }
        }
    }
}

/// Which log it is, in the header of a segment.
fn identity(disk: &FaultyStorage, segment: &str) -> Vec<u8> {
    disk.content(segment).unwrap()[68..84].to_vec()
}

/// Then only other files say which log it is: a segment that is prepared, or the proof.
#[test]
fn the_only_segment_with_records_loses_nothing_with_its_header() {
    let mut driver = Driver::new();
    driver.send_many(0, 6);
    driver.bench.mark();
    let storage = driver.bench.storage.kill();
    let segments = names(&storage, "segment-");
    assert_eq!(segments.len(), 2, "one is prepared");
    for lost in ["", &*segments[1], "proof"] {
        for zeros in [8..9, 12..16, 48..56, 68..84, 0..88, 0..4096] {
            let disk = storage.kill();
            let story = format!("bytes {zeros:?} of the header, without {lost}");
            let count = zeros.end - zeros.start;
            let at = u64::try_from(zeros.start).unwrap();
            disk.corrupt(&segments[0], at, &vec![0xa5; count]);
            disk.lose_file(lost);
            let losses = repair(&disk, &driver.alive, &driver.sent, &story);
            assert_eq!(losses.messages, [], "{story}");
            assert_eq!(losses.gaps, [], "{story}");
            assert_eq!(missing(&disk, &driver.alive), 0, "{story}");
            for segment in names(&disk, "segment-") {
                let found = identity(&disk, &segment);
                assert_eq!(found, identity(&storage, &segments[0]), "{story}");
            }
        }
    }
}

#[test]
fn two_damaged_snapshots_make_up_for_each_other() {
    let (storage, alive, sent) = snapshotted();
    let snapshots = names(&storage, "snapshot-");
    assert_eq!(snapshots.len(), 2);
    let sizes: Vec<u64> = snapshots
        .iter()
        .map(|name| storage.content(name).unwrap().len() as u64)
        .collect();
    let mut lossless = 0;
    for (older, newer) in (0..40).map(|n| (sizes[0] * n / 40, sizes[1] * (n * 7 % 40) / 40)) {
        let disk = storage.kill();
        disk.flip(&snapshots[0], older, 2);
        disk.flip(&snapshots[1], newer, 2);
        let story = format!("snapshots damaged at {older} and {newer}");
        repair(&disk, &alive, &sent, &story);
        lossless += usize::from(missing(&disk, &alive) == 0);
    }
    assert!(lossless >= 20, "{lossless} of 40 lost nothing");
}

#[test]
fn a_message_that_moved_is_restored_from_its_move() {
    let mut driver = Driver::new();
    driver.send_many(0, 600);
    let segments = names(&driver.bench.storage, "segment-");
    for queue in QUEUES {
        driver.delete_most(queue, 20);
    }
    driver.bench.rest();
    assert!(driver.bench.partition.moved_count() > 0);
    let left = names(&driver.bench.storage, "segment-");
    assert!(!left.contains(&segments[0]) && !left.contains(&segments[3]));
    let (storage, alive, sent) = driver.close();
    assert_eq!(alive.len(), 30);
    for snapshot in names(&storage, "snapshot-") {
        storage.lose_file(&snapshot);
    }
    repair(&storage, &alive, &sent, "moved, and snapshots are gone");
    let found = Driver::on(storage.kill()).everything();
    let found: BTreeSet<_> = found.into_values().map(|(_, body)| body).collect();
    let lost = alive.values().filter(|(_, body)| !found.contains(body));
    let lost: Vec<_> = lost.map(|(_, body)| &body[..12.min(body.len())]).collect();
    assert!(lost.is_empty(), "{lost:?} are lost of {}", alive.len());
}

#[test]
fn without_any_snapshot_the_messages_of_the_remaining_log_are_kept() {
    let (storage, alive, sent) = snapshotted();
    for snapshot in names(&storage, "snapshot-") {
        storage.put(&snapshot, b"nothing");
    }
    let losses = repair(&storage, &alive, &sent, "snapshots are gone");
    assert!(losses.secret_is_lost);
    assert_eq!(losses.renamed.len(), 3);
    let found = Driver::on(storage.kill()).everything();
    assert!(found.len() >= 45, "{}", found.len());
    assert!(
        found
            .values()
            .all(|(queue, _)| queue.starts_with("recovered-"))
    );
}

#[test]
fn a_missing_segment_costs_only_its_content() {
    let (storage, alive, sent) = plain();
    let segments = names(&storage, "segment-");
    for segment in &segments[..segments.len() - 1] {
        let disk = storage.kill();
        disk.lose_file(segment);
        let losses = repair(&disk, &alive, &sent, segment);
        let missing = missing(&disk, &alive);
        assert!(
            missing > 5 && !losses.gaps.is_empty(),
            "{segment}: {missing}"
        );
        if segment != &segments[0] {
            assert!(missing < 60, "{segment}: {missing}");
        }
    }
}

#[test]
fn a_damaged_body_costs_only_that_message() {
    let (storage, alive, sent) = snapshotted();
    // The oldest live body is before both snapshots: no start reads it.
    let mut segments = names(&storage, "segment-").into_iter();
    let (segment, content, (id, body)) = segments
        .find_map(|segment| {
            let content = storage.content(&segment).unwrap();
            let mut bodies = alive.iter().map(|(id, (_, body))| (id, body));
            let is_here = |body: &str| content.windows(body.len()).any(|w| w == body.as_bytes());
            let found = bodies.find(|(_, body)| body.len() > 100 && is_here(body))?;
            Some((segment, content, found))
        })
        .unwrap();
    let at = content
        .windows(body.len())
        .position(|window| window == body.as_bytes())
        .unwrap();
    storage.flip(&segment, at as u64 + 50, 1);
    Partition::<u32>::open(
        Arc::new(storage.kill()),
        options(),
        1,
        [1; 16],
        Timestamp::ZERO,
    )
    .unwrap();
    let losses = repair(&storage, &alive, &sent, "a body");
    assert_eq!(losses.gaps, []);
    assert_eq!(ids(&losses), BTreeSet::from([*id]));
    assert_eq!(
        losses.messages[0].size_bytes,
        Some(u32::try_from(body.len()).unwrap())
    );
    assert_eq!(missing(&storage, &alive), 1);
    assert_eq!(names(&storage, "damaged-1-snapshot-").len(), 2);
    assert!(!names(&storage, "damaged-1-pages-").is_empty());
}

#[test]
fn a_repair_that_is_cut_off_leaves_the_old_log_or_the_new_one() {
    let damages: [fn(&FaultyStorage); 3] = [
        // A record, and a body before both snapshots.
        |disk| {
            let segments = names(disk, "segment-");
            disk.flip(&segments[0], 6000, 1);
            disk.flip(&segments[segments.len() - 2], 7000, 1);
        },
        // Headers of segments with live bodies.
        |disk| {
            let segments = names(disk, "segment-");
            disk.corrupt(&segments[0], 0, &[0; 512]);
            disk.corrupt(&segments[2], 0, &[0; 512]);
        },
        // Every snapshot, in part: the last page of each pair of files, in both copies.
        |disk| {
            for pages in names(disk, "pages-") {
                let size = disk.content(&pages).unwrap().len() as u64;
                disk.flip(&pages, size - 20, 1);
            }
        },
    ];
    let snapshotted = snapshotted();
    thread::scope(|scope| {
        for (number, damage) in damages.iter().enumerate() {
            let snapshotted = &snapshotted;
            scope.spawn(move || cut_off_anywhere(number, damage, snapshotted));
        }
    });
}

fn cut_off_anywhere(
    number: usize,
    damage: &fn(&FaultyStorage),
    (storage, alive, sent): &(FaultyStorage, Known, Known),
) {
    let damaged = storage.kill();
    damage(&damaged);
    let losses = look(&damaged).losses().clone();
    let missing_then = missing(&repaired(&damaged), alive);
    let mut states = 0;
    for calls in 0.. {
        let disk = damaged.kill();
        let repair = look(&disk);
        assert_eq!(repair.losses(), &losses);
        disk.crash_after(calls);
        let done = repair.carry_out(options(), calls, [2; 16]).is_ok();
        for seed in 0..3u64 {
            let mut random = seed * 7919 + calls;
            let disk = disk.crash(&mut |bound| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                u32::try_from((random >> 33) % u64::from(bound)).unwrap()
            });
            let story = format!("damage {number}, cut off after {calls} calls, seed {seed}");
            states += 1;
            let again = look(&disk);
            if again.is_needed() {
                // Whether the first one reached its new state or not.
                let listed = again.losses().clone();
                assert!(listed == losses || listed.gaps.is_empty(), "{story}");
                again.carry_out(options(), 5, [2; 16]).unwrap();
            }
            // Files that the new state no longer needed may still be damaged.
            let mut driver = Driver::on(disk.kill());
            let found = driver.everything();
            for (id, message) in alive {
                let is_told = ids(&losses).contains(id) || !losses.gaps.is_empty();
                assert!(
                    found.get(id).is_none_or(|found| found == message),
                    "{story}: {message:?} is {:?}",
                    found.get(id)
                );
                assert!(found.contains_key(id) || is_told, "{story}: {message:?}");
            }
            let lost = alive.keys().filter(|id| !found.contains_key(*id)).count();
            assert_eq!(lost, missing_then, "{story}");
        }
        if done {
            break;
        }
    }
    assert!(states > 90, "{states} states");
    check_repaired(&repaired(&damaged), &losses, alive, sent, "not cut off");
}

fn repaired(damaged: &FaultyStorage) -> FaultyStorage {
    let disk = damaged.kill();
    look(&disk).carry_out(options(), 99, [2; 16]).unwrap();
    disk
}

#[test]
fn a_full_disk_is_repaired_in_the_place_of_the_ballast() {
    let (storage, alive, sent) = snapshotted();
    let segments = names(&storage, "segment-");
    storage.flip(&segments[segments.len() - 2], 7000, 1);
    let losses = look(&storage).losses().clone();
    let ballast = |disk: &FaultyStorage| disk.content("ballast").map_or(0, |bytes| bytes.len());
    for room in 0u64.. {
        let disk = storage.kill();
        disk.set_capacity_bytes(Some(disk.used_bytes() + (room << 10)));
        let done = look(&disk).carry_out(options(), 99, [2; 16]).is_ok();
        disk.set_capacity_bytes(None);
        if done {
            assert!(ballast(&disk) < ballast(&storage), "with {room} KiB");
            check_repaired(&disk, &losses, &alive, &sent, "a full disk");
            return;
        }
        // With too little space it fails, and succeeds when there is more.
        if look(&disk).is_needed() {
            look(&disk).carry_out(options(), 99, [2; 16]).unwrap();
        }
        check_repaired(&disk, &losses, &alive, &sent, &format!("{room} KiB"));
    }
}

#[test]
fn without_space_nothing_is_repaired_and_nothing_changed() {
    let (storage, ..) = snapshotted();
    let segments = names(&storage, "segment-");
    storage.flip(&segments[segments.len() - 2], 7000, 1);
    storage.lose_file("ballast");
    storage.set_capacity_bytes(Some(storage.used_bytes()));
    let before = storage.files();
    let error = look(&storage)
        .carry_out(options(), 1, [2; 16])
        .err()
        .unwrap();
    assert!(error.to_string().contains("cannot write"), "{error}");
    assert_eq!(storage.files(), before);
}

/// Any damage in any place, one to three at once.
#[test]
fn random_damage_is_repaired_and_nothing_is_lost_in_silence() {
    let histories = [plain(), snapshotted()];
    let mut repaired = 0;
    for seed in 0..600u64 {
        let mut dice = Dice(seed);
        let (storage, alive, sent) = &histories[usize::try_from(dice.below(2)).unwrap()];
        let disk = storage.kill();
        damage(&disk, &mut dice);
        let story = format!("seed {seed}");
        if look(&disk).is_needed() {
            repair(&disk, alive, sent, &story);
            repaired += 1;
        }
    }
    assert!(repaired > 200, "{repaired} repairs");
}
