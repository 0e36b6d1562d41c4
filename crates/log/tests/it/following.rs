//! A log that is followed: its pieces are what a replay gives, and nothing changes before the promotion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use kew_log::{
    AllPages, Base, BatchBuilder, BoxError, Epoch, Fault, FaultyStorage, FollowError, FollowedLog,
    Gap, JobKind, LogEnd, LogOptions, LogPosition, LogSource, Need, OpenError, OwnedLog,
    PageChoice, PageContent, PageLeft, PageNumber, Piece, Progress, Repeat, Replay, Rescue,
    Salvage, SegmentLog, SegmentSource, TablePage, read_table, replay,
};

use crate::manifests::{places, snapshot};
use crate::node::{Messages, Node, Told, body_of, small};

const PIECE_SIZE_BYTES: u64 = 128 * 1024;

/// What a log has, one thing after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Snapshot(LogPosition),
    Part(Vec<u8>),
    Page(PageNumber, PageContent, bool),
    Left(PageNumber, PageLeft),
    PassedOver(PageNumber),
    SnapshotEnd,
    Batch(LogPosition, Epoch, u64),
    Event(LogPosition, Vec<u8>),
}

/// What was given since the last beginning.
struct Items {
    items: Vec<Item>,
    has_begun: bool,
    is_at_risk: bool,
    passes_over: fn(PageNumber) -> bool,
    /// Whether what is left of a damaged page is enough.
    is_left_enough: bool,
}

fn none(_: PageNumber) -> bool {
    false
}

fn odd(page: PageNumber) -> bool {
    page.as_u64() % 2 == 1
}

impl Items {
    fn new(passes_over: fn(PageNumber) -> bool) -> Self {
        Self {
            items: Vec::new(),
            has_begun: false,
            is_at_risk: false,
            passes_over,
            is_left_enough: false,
        }
    }

    fn take(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            self.has_begun |= piece == Piece::Begin;
            assert!(self.has_begun, "nothing comes before the beginning");
            match piece {
                Piece::Begin => self.items.clear(),
                Piece::SnapshotBegin(position) => self.items.push(Item::Snapshot(position)),
                Piece::Part(part) => self.items.push(Item::Part(part.to_vec())),
                Piece::Page {
                    number,
                    content,
                    is_at_risk,
                } => self.items.push(Item::Page(number, content, is_at_risk)),
                Piece::PageLeft { number, left } => self.items.push(Item::Left(number, left)),
                Piece::PassedOver(page) => self.items.push(Item::PassedOver(page)),
                Piece::SnapshotEnd => self.items.push(Item::SnapshotEnd),
                Piece::Batches(batches) => {
                    for batch in batches.iter() {
                        let head = Item::Batch(batch.record, batch.epoch, batch.time_ms);
                        self.items.push(head);
                        let events = batch.events();
                        let events = events.map(|event| Item::Event(batch.record, event.to_vec()));
                        self.items.extend(events);
                    }
                }
            }
        }
    }
}

impl Replay for Items {
    fn begin(&mut self) {
        self.items.clear();
    }

    fn snapshot_begin(&mut self, position: LogPosition) {
        self.items.push(Item::Snapshot(position));
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.items.push(Item::Part(part.to_vec()));
        Ok(())
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        let passes_over = (self.passes_over)(page);
        if passes_over {
            self.items.push(Item::PassedOver(page));
        }
        Ok(passes_over)
    }

    fn page_is_at_risk(&mut self) {
        self.is_at_risk = true;
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let is_at_risk = std::mem::take(&mut self.is_at_risk);
        self.items
            .push(Item::Page(page, content.clone(), is_at_risk));
        Ok(())
    }

    fn snapshot_page_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        if self.is_left_enough {
            self.items.push(Item::Left(page, left.clone()));
        }
        Ok(self.is_left_enough)
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        self.items.push(Item::SnapshotEnd);
        Ok(())
    }

    fn batch(&mut self, record: LogPosition, epoch: Epoch, time_ms: u64) {
        self.items.push(Item::Batch(record, epoch, time_ms));
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.items.push(Item::Event(record, event.to_vec()));
        Ok(())
    }
}

impl Rescue for Items {
    fn gap(&mut self, _: &Gap) {}
}

struct Choice(fn(PageNumber) -> bool);

impl PageChoice for Choice {
    fn begin(&mut self) {}

    fn note(&mut self, page: PageNumber, _: &PageContent) -> Result<(), BoxError> {
        assert!(!(self.0)(page), "a page that is passed over is not read");
        Ok(())
    }

    fn passes_over(&mut self, page: PageNumber) -> bool {
        (self.0)(page)
    }
}

/// What is left of a damaged page is enough.
struct Left;

impl PageChoice for Left {
    fn begin(&mut self) {}

    fn note(&mut self, _: PageNumber, _: &PageContent) -> Result<(), BoxError> {
        Ok(())
    }

    fn passes_over(&mut self, _: PageNumber) -> bool {
        false
    }

    fn note_left(&mut self, _: PageNumber, _: &PageLeft) -> Result<bool, BoxError> {
        Ok(true)
    }
}

fn source(disk: &FaultyStorage, options: LogOptions) -> SegmentSource {
    let entropy = AtomicU64::new(100);
    SegmentSource::new(Arc::new(disk.clone()), options, move || {
        entropy.fetch_add(1, Ordering::Relaxed)
    })
}

fn follow(disk: &FaultyStorage) -> Box<dyn FollowedLog> {
    source(disk, small()).follow(None, Box::new(AllPages))
}

/// Runs the next job on another thread. `None` if there is none.
fn step(
    log: &mut dyn FollowedLog,
    items: &mut Items,
) -> Option<(JobKind, Result<Progress, FollowError>)> {
    let job = log.next_job()?;
    assert!(log.next_job().is_none(), "one job is out at a time");
    let kind = job.kind();
    let mut outcome = thread::spawn(move || job.run()).join().unwrap();
    items.take(outcome.take_followed());
    assert_eq!(outcome.take_followed(), [], "each piece is taken once");
    Some((kind, log.complete(outcome)))
}

/// Follows to the end of what there is. Returns how many jobs it took.
fn read_all(log: &mut dyn FollowedLog, items: &mut Items) -> Result<usize, FollowError> {
    for jobs in 1.. {
        let (kind, result) = step(log, items).expect("a log that is behind has a job");
        assert_eq!(kind, JobKind::Follow);
        if result? == Progress::Current {
            assert!(log.next_job().is_none(), "nothing is left");
            return Ok(jobs);
        }
    }
    unreachable!("a log has an end")
}

fn contents(disk: &FaultyStorage) -> Vec<(String, Vec<u8>)> {
    let names = disk.files().into_iter().map(|(name, _)| name);
    names
        .map(|name| {
            let content = disk.content(&name).unwrap();
            (name, content)
        })
        .collect()
}

/// A log with two snapshots with pages, and then so many more messages.
fn with_snapshots(more: u64) -> (FaultyStorage, LogPosition) {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    snapshot(&mut node, &mut told, 7);
    let newest = snapshot(&mut node, &mut told, 3);
    node.send(more, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    (disk, newest)
}

#[test]
fn pieces_are_what_a_replay_gives_in_order_and_once() {
    let (whole, newest) = with_snapshots(6000);
    for passes_over in [none, odd] {
        // With one damaged copy, a page is at risk. Without both, the older snapshot is used.
        for damaged in 0..=2 {
            let disk = whole.kill();
            for copy in 0..damaged {
                let [_, (file, offset)] = places(&disk, newest, copy);
                disk.flip(&file, offset, 1);
            }
            let mut expected = Items::new(passes_over);
            let end = replay(&disk, &mut expected).unwrap();
            let source = source(&disk, small());
            let mut log = source.follow(None, Box::new(Choice(passes_over)));
            let mut items = Items::new(passes_over);
            let jobs = read_all(&mut *log, &mut items).unwrap();
            assert!(jobs > 2, "{jobs}");
            assert!(items.items == expected.items, "other pieces");
            assert_eq!(log.seen().end, end.position);
            let has = |is_it: fn(&Item) -> bool| items.items.iter().any(is_it);
            let is_any_passed_over = passes_over(PageNumber::new(1));
            assert_eq!(
                has(|it| matches!(it, Item::PassedOver(_))),
                is_any_passed_over
            );
            let is_any_at_risk = damaged == 1 && !is_any_passed_over;
            assert_eq!(has(|it| matches!(it, Item::Page(.., true))), is_any_at_risk);
        }
    }
}

/// Changes a bit of a page, in both copies.
fn damage(disk: &FaultyStorage, page: TablePage, at: u32) {
    for copy in 0..2 {
        let number = u64::from(2 * page.place.pair + copy);
        let at = page.place.offset + at;
        disk.flip(&format!("pages-{number:020}"), at.into(), 1);
    }
}

/// Whether a start with what is left of pages uses it, of all pages that are damaged.
fn is_left_used(disk: &FaultyStorage) -> bool {
    let mut expected = Items::new(none);
    expected.is_left_enough = true;
    replay(disk, &mut expected).unwrap();
    let mut log = source(disk, small()).follow(None, Box::new(Left));
    let mut items = Items::new(none);
    read_all(&mut *log, &mut items).unwrap();
    assert!(items.items == expected.items, "other pieces");
    let left = items.items.iter().filter_map(|item| match item {
        Item::Left(_, left) => Some(left),
        _ => None,
    });
    let left: Vec<_> = left.collect();
    assert!(
        left.iter()
            .all(|it| it.groups().any(|group| group.is_none()))
    );
    !left.is_empty()
}

/// Changes a bit of the first record, so that the log from its beginning takes no snapshot's place.
fn damage_beginning(disk: &FaultyStorage) {
    disk.flip(&first_segment(disk), 4096 + 40, 1);
}

fn first_segment(disk: &FaultyStorage) -> String {
    let names = disk.files().into_iter().map(|(name, _)| name);
    let first = names.filter(|name| name.starts_with("segment-")).min();
    first.unwrap()
}

/// Both snapshots name the page. If the log from its beginning is damaged, too, there is no other way to the same state, and
/// what is left is enough or the start is refused.
#[test]
fn what_is_left_of_a_page_is_passed_on_if_nothing_can_take_its_place() {
    let (whole, newest) = with_snapshots(6000);
    let pages = read_table(&whole, newest).unwrap().table.pages().to_vec();
    let older = whole.files().into_iter().map(|(name, _)| name);
    let older = older.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let older = older.map(LogPosition::new).min().unwrap();
    let older = read_table(&whole, older).unwrap().table.pages().to_vec();
    let (mut shared, mut own) = (0, 0);
    for page in pages {
        let disk = whole.kill();
        damage(&disk, page, page.place.size_bytes - 1);
        assert!(!is_left_used(&disk), "the log or a snapshot is used");
        damage_beginning(&disk);
        if !older.contains(&page) {
            own += 1;
            assert!(!is_left_used(&disk), "the older snapshot is used");
            continue;
        }
        shared += 1;
        let refused = replay(&disk, &mut Items::new(none)).unwrap_err();
        assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
        assert!(is_left_used(&disk));
        // A bad sector at the beginning is damage, too.
        let spoiled = whole.kill();
        damage(&spoiled, page, page.place.size_bytes - 1);
        spoiled.spoil(&first_segment(&spoiled), 4096..4608);
        assert!(is_left_used(&spoiled));
        let node = Items::new(none);
        let mut node = Items {
            is_left_enough: true,
            ..node
        };
        // So does a repair.
        let salvage = Salvage::look(Arc::new(disk.clone())).unwrap();
        let has_left = |base: &Base| {
            let mut items = Items::new(none);
            items.is_left_enough = true;
            salvage.read(base, &mut items).unwrap();
            let is_left =
                |item: &Item| matches!(item, Item::Left(number, _) if *number == page.number);
            items.items.iter().any(is_left)
        };
        assert!(salvage.bases().iter().any(has_left));
        let opened = SegmentLog::open(Arc::new(disk.clone()), small(), 3, &mut node);
        let (_, recovery) = opened.unwrap();
        assert_eq!(recovery.damaged_files.len(), 2);
        let warned = |it: &&String| it.starts_with("what is damaged in both copies is set aside: ");
        assert_eq!(recovery.warnings.iter().filter(warned).count(), 2);
        // A file that is missing may come back, and a bad sector may be read later.
        let disk = whole.kill();
        damage_beginning(&disk);
        damage(&disk, page, page.place.size_bytes - 1);
        disk.lose_file(&format!("pages-{:020}", 2 * u64::from(page.place.pair)));
        let mut items = Items {
            is_left_enough: true,
            ..Items::new(none)
        };
        assert!(replay(&disk, &mut items).is_err());
        // Of a page without a header, nothing is left.
        let disk = whole.kill();
        damage_beginning(&disk);
        damage(&disk, page, 8);
        let mut items = Items {
            is_left_enough: true,
            ..Items::new(none)
        };
        replay(&disk, &mut items).unwrap();
        let nothing = Item::Left(page.number, PageLeft::default());
        assert!(items.items.contains(&nothing));
    }
    assert!(shared > 0 && own > 0, "{shared} {own}");
}

#[test]
fn a_walk_stops_at_a_full_piece_and_goes_on_behind_it() {
    let disk = FaultyStorage::new();
    let options = LogOptions {
        segment_size_first_bytes: 8 << 20,
        segment_size_max_bytes: 16 << 20,
        batch_size_max_bytes: 4 << 20,
        ..LogOptions::default()
    };
    let mut messages = Messages::default();
    let open = SegmentLog::open(Arc::new(disk.clone()), options, 3, &mut messages);
    let mut log = open.unwrap().0;
    // Batches that fill a piece together, one that is larger than a piece, and one without entries.
    let sizes = [37, 37, 37, 37, 250, 37, 112, 0, 12, 4];
    let mut batches = Vec::new();
    for (time_ms, size) in (1..).zip(sizes) {
        let size_bytes = size << 10;
        let reservation = loop {
            match log.reserve(Need::grow(size_bytes + 100)) {
                Ok(reservation) => break reservation,
                Err(_) => {
                    let job = log.next_background_job().unwrap();
                    log.complete(job.run()).unwrap();
                }
            }
        };
        batches.push(reservation.position);
        if size == 0 {
            assert!(log.beat(0));
        } else {
            let mut batch = BatchBuilder::at(reservation.position);
            batch.set_time_ms(time_ms);
            batch.push_event(&vec![7; usize::try_from(size_bytes).unwrap()]);
            log.append(reservation, batch).unwrap();
        }
        log.run_commit().unwrap();
    }
    let end = log.end();
    drop(log);

    let mut log = source(&disk, options).follow(None, Box::new(AllPages));
    let mut ends = Vec::new();
    loop {
        let mut items = Items::new(none);
        items.has_begun = !ends.is_empty();
        let before = log.seen();
        let (_, result) = step(&mut *log, &mut items).unwrap();
        let records = items.items.iter().filter_map(|item| match item {
            Item::Batch(record, ..) => Some(*record),
            _ => None,
        });
        let records: Vec<LogPosition> = records.collect();
        let seen = log.seen();
        let expected = batches
            .iter()
            .filter(|at| (before.end..seen.end).contains(at));
        assert!(
            records.iter().eq(expected),
            "no batch is left out or repeated"
        );
        let size_bytes = seen.end.as_u64() - before.end.as_u64();
        assert!(
            size_bytes <= PIECE_SIZE_BYTES || records.len() == 1,
            "{records:?}"
        );
        assert!(seen.durable <= seen.end && seen.time_ms >= before.time_ms);
        ends.push(seen.end);
        if result.unwrap() == Progress::Current {
            break;
        }
    }
    let expected = [
        batches[3], batches[4], batches[5], batches[6], batches[9], end,
    ];
    assert_eq!(ends, expected);
    // Nothing says that the last record is durable.
    assert_eq!((log.seen().durable, log.seen().time_ms), (batches[9], 10));
}

/// A log with a tail that nothing proves to be durable, and a file that was not finished.
fn with_tail() -> FaultyStorage {
    let (disk, _) = with_snapshots(20);
    let mut node = Node::open(&disk).unwrap();
    node.send(3, &mut Told::default()).unwrap();
    // It is written, and not synced.
    disk.fail_after(1, Fault::Eio, Repeat::Once);
    node.log.run_commit().unwrap_err();
    disk.put("recycled-00000000000000000099", b"half");
    disk
}

#[test]
fn nothing_on_the_disk_changes_before_the_promotion() {
    let disk = with_tail();
    let before = contents(&disk);
    let mut log = follow(&disk);
    while let Some((_, result)) = step(&mut *log, &mut Items::new(none)) {
        result.unwrap();
        assert!(contents(&disk) == before, "a job that reads has written");
    }
    log.promote(log.seen().epoch.next());
    assert!(contents(&disk) == before, "what blocks is a job");
    let (kind, result) = step(&mut *log, &mut Items::new(none)).unwrap();
    assert_eq!((kind, result.unwrap()), (JobKind::Promote, Progress::Owned));
    assert!(contents(&disk) != before);
}

#[test]
fn an_owner_has_what_an_open_would_have() {
    for disk in [FaultyStorage::new(), with_tail(), with_snapshots(4000).0] {
        let other = disk.kill();
        let mut log = follow(&disk);
        let mut items = Items::new(none);
        // What is not read yet comes first.
        let (kind, result) = step(&mut *log, &mut items).unwrap();
        assert_eq!(kind, JobKind::Follow);
        result.unwrap();
        log.promote(log.seen().epoch.next());
        let mut kinds = Vec::new();
        while let Some((kind, result)) = step(&mut *log, &mut items) {
            kinds.push((kind, result.unwrap()));
        }
        let last = (JobKind::Promote, Progress::Owned);
        assert_eq!(kinds.last(), Some(&last));
        assert_eq!(kinds.iter().filter(|(kind, _)| *kind == last.0).count(), 1);
        let (mut owned, recovery) = log.own();

        let opened = Node::open(&other).unwrap();
        assert_eq!(recovery, opened.recovery);
        assert_eq!(
            (owned.end(), owned.durable()),
            (opened.log.end(), opened.log.durable())
        );
        for (id, at) in &opened.messages.live {
            assert_eq!(owned.body(*at).unwrap().read().unwrap(), body_of(*id));
        }
        append(&mut *owned);
        let mut items = Items::new(none);
        read_all(&mut *follow(&disk), &mut items).unwrap();
        let last = items.items.last().unwrap();
        assert_eq!(*last, Item::Event(recovery.end, b"more".to_vec()));
    }
}

/// Appends an event as the log's owner, and makes it durable.
fn append(log: &mut dyn OwnedLog) {
    let reservation = log.reserve(Need::grow(0)).unwrap();
    let mut batch = BatchBuilder::at(reservation.position);
    batch.push_event(b"more");
    let end = log.append(reservation, batch).unwrap();
    while log.durable() < end {
        let job = log.next_job().unwrap();
        log.complete(job.run()).unwrap();
    }
}

#[test]
fn a_promotion_that_is_not_to_a_higher_epoch_is_fenced() {
    let (disk, _) = with_snapshots(20);
    let before = contents(&disk);
    let source = source(&disk, small());
    let newest = Epoch::new(1);
    for epoch in [Epoch::default(), newest] {
        let mut log = source.follow(None, Box::new(AllPages));
        let mut items = Items::new(none);
        log.promote(epoch);
        let mut last = None;
        while let Some((kind, result)) = step(&mut *log, &mut items) {
            last = Some((kind, result.map_err(|error| error.to_string())));
        }
        assert_eq!(log.seen().epoch, newest);
        let fenced = FollowError::from(LogEnd::Fenced(newest)).to_string();
        assert_eq!(last, Some((JobKind::Promote, Err(fenced))));
        assert!(items.items.len() > 20, "everything was handed out");
        // Each later call returns the end, too.
        let outcome = kew_log::Job::load(|| ()).run();
        let told = log.complete(outcome);
        assert!(matches!(told, Err(FollowError::Ended(LogEnd::Fenced(by))) if by == newest));
        assert!(contents(&disk) == before, "nothing was changed");
    }
    // Epochs may be left out.
    let mut log = source.follow(Some(&LogEnd::Fenced(newest)), Box::new(AllPages));
    read_all(&mut *log, &mut Items::new(none)).unwrap();
    log.promote(Epoch::new(9));
    let (_, owned) = step(&mut *log, &mut Items::new(none)).unwrap();
    assert_eq!(owned.unwrap(), Progress::Owned);
    assert_eq!(log.own().1.epoch, Epoch::new(9));
    let mut log = source.follow(None, Box::new(AllPages));
    read_all(&mut *log, &mut Items::new(none)).unwrap();
    assert_eq!(log.seen().epoch, Epoch::new(9));
}

#[test]
fn damage_is_refused_as_an_open_refuses_it() {
    let (whole, _) = with_snapshots(6000);
    let files = whole.files().into_iter().map(|(name, _)| name);
    let segments: Vec<_> = files.filter(|name| name.starts_with("segment-")).collect();
    let middle = &segments[segments.len() / 2];
    let damages: [&dyn Fn(&FaultyStorage); 6] = [
        // A record, the header of a segment, and a segment that is missing.
        &|disk| disk.flip(middle, 5000, 1),
        &|disk| disk.flip(middle, 20, 1),
        &|disk| disk.lose_file(middle),
        // All snapshots: one is read after the other, and then the log from its beginning.
        &|disk| {
            damage_beginning(disk);
            let files = disk.files().into_iter().map(|(name, _)| name);
            let snapshots = files.filter(|name| name.starts_with("snapshot-"));
            snapshots.for_each(|name| disk.flip(&name, 30, 1));
        },
        // A bad sector, and a disk that fails later.
        &|disk| disk.spoil(middle, 5000..5600),
        &|disk| disk.fail_after(150, Fault::Eio, Repeat::Sticky),
    ];
    for (which, damage) in damages.iter().enumerate() {
        let disk = whole.kill();
        damage(&disk);
        let mut read = Items::new(none);
        let opened = SegmentLog::open(Arc::new(disk.clone()), small(), 5, &mut read);
        let expected = opened.err().unwrap_or_else(|| panic!("{which} is noticed"));
        let disk = whole.kill();
        damage(&disk);
        let before = disk.fingerprint();
        let mut log = follow(&disk);
        let mut items = Items::new(none);
        let error = read_all(&mut *log, &mut items).unwrap_err();
        let FollowError::Open(error) = error else {
            panic!("{error}");
        };
        assert_eq!(format!("{error:?}"), format!("{expected:?}"), "{which}");
        assert_eq!(disk.fingerprint(), before);
        assert!(log.next_job().is_none(), "it cannot be followed any more");
        assert!(
            items.items == read.items,
            "what lies before it is handed out"
        );
        let events = read.items.iter().filter(|it| matches!(it, Item::Event(..)));
        assert_eq!(events.count() > 1000, [0, 2, 4].contains(&which), "{which}");
    }
}
