//! How much space page files take: a state of many times the size of a file, of which some parts change often and others
//! hardly ever.

use std::sync::{Arc, Mutex};

use kew_log::{
    FaultyStorage, LogId, LogPosition, PageContent, PageNumber, PageOptions, PageStore,
    PlannedSnapshot, SnapshotContent, SnapshotForm, Storage, remove_pairs,
};

use crate::random::Random;

/// The sizes of the product, divided by 256.
const OPTIONS: PageOptions = PageOptions {
    file_size_bytes: 256 * 1024,
    copied_bytes_max: 64 * 1024,
    pairs_max: 16,
};

const PAGE_BYTES: usize = 600;

type Marks = Arc<Mutex<Vec<Option<PageNumber>>>>;

/// Pages that differ in nothing but their marks.
struct Content(Marks);

impl SnapshotContent for Content {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: 0,
            pages: self.0.lock().unwrap().len(),
        }
    }

    fn put_part(&self, _: usize, _: &mut Vec<u8>) {}

    fn page(&self, index: usize) -> Option<PageNumber> {
        self.0.lock().unwrap()[index]
    }

    fn put_page(&self, _: usize, page: &mut PageContent) {
        page.begin(1);
        page.add_group(|out| out.resize(PAGE_BYTES, 7));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.0.lock().unwrap()[index] = Some(page);
    }
}

/// A writer of snapshots that keeps two.
struct Writer {
    storage: FaultyStorage,
    store: PageStore,
    marks: Marks,
    kept: Vec<LogPosition>,
    position: u64,
    /// The most that the page files took while a third snapshot was there.
    largest_bytes: u64,
    /// The most that they took between two snapshots.
    kept_bytes: u64,
}

impl Writer {
    fn new(options: PageOptions, pages: usize) -> Self {
        let storage = FaultyStorage::new();
        let identity = LogId {
            cluster: 7,
            partition: 0,
        };
        let store = PageStore::open(&storage, identity, options, 1, Vec::new()).unwrap();
        Self {
            storage,
            store,
            marks: Arc::new(Mutex::new(vec![None; pages])),
            kept: Vec::new(),
            position: 0,
            largest_bytes: 0,
            kept_bytes: 0,
        }
    }

    fn change(&self, is_changed: impl Fn(usize) -> bool) {
        let mut marks = self.marks.lock().unwrap();
        let marks = marks.iter_mut().enumerate();
        let changed = marks.filter(|(index, _)| is_changed(*index));
        changed.for_each(|(_, mark)| *mark = None);
    }

    /// Writes a snapshot. Returns how much that was.
    fn write(&mut self) -> u64 {
        self.position += 1;
        let position = LogPosition::new(self.position);
        let job = self.store.begin(position, 0, 0, SnapshotForm::Pages);
        let mut content = Content(Arc::clone(&self.marks));
        let written = job.unwrap().run(&self.storage, &mut content, |_| Ok(false));
        let (_, written_bytes) = self.store.complete(written).unwrap();
        self.largest_bytes = self.store.size_bytes().max(self.largest_bytes);
        self.kept.push(position);
        if self.kept.len() > 2 {
            let oldest = self.kept.remove(0);
            let name = format!("snapshot-{:020}", oldest.as_u64());
            self.storage.remove(&name).unwrap();
            self.store.forget(oldest);
        }
        let unneeded = self.store.unneeded();
        remove_pairs(&self.storage, &unneeded).unwrap();
        self.store.forget_pairs(&unneeded);
        self.kept_bytes = self.store.size_bytes().max(self.kept_bytes);
        written_bytes
    }

    fn live_bytes(&self) -> u64 {
        self.store.newest().bytes_by_pair().values().sum()
    }

    fn pairs(&self) -> usize {
        self.store.newest().bytes_by_pair().len()
    }
}

/// Changes so many of a thousand of the even pages before each snapshot, and so many of the odd ones. Returns the most that
/// the files took for each byte of live pages: between two snapshots, and while one was written.
fn most_for_each_live_byte(pages: usize, (even, odd): (u64, u64)) -> (f64, f64) {
    let mut writer = Writer::new(OPTIONS, pages);
    let random = Mutex::new(Random::new(3));
    writer.write();
    for _ in 0..100 {
        writer.change(|index| {
            let share = if index % 2 == 0 { even } else { odd };
            random.lock().unwrap().below(1000) < share
        });
        writer.write();
    }
    #[expect(clippy::cast_precision_loss, reason = "a ratio to be shown")]
    let of_live = |size_bytes: u64| size_bytes as f64 / writer.live_bytes() as f64;
    (of_live(writer.kept_bytes), of_live(writer.largest_bytes))
}

/// 6500 pages are 16 full pairs: 1 GiB in the product.
#[test]
fn page_files_take_at_most_eight_times_the_live_pages() {
    for (pages, changed) in [
        (1600, (500, 50)),
        (6500, (500, 50)),
        (3250, (600, 20)),
        (3250, (300, 300)),
        (10_000, (100, 100)),
        (3250, (1000, 1000)),
        (3250, (900, 100)),
    ] {
        let (kept, largest) = most_for_each_live_byte(pages, changed);
        let what = format!("{pages} pages, {changed:?} of 1000: {kept:.2}, {largest:.2}");
        assert!(kept < 6.5 && largest < 8.0, "{what}");
    }
}

#[test]
fn the_files_of_a_small_state_are_small() {
    let mut writer = Writer::new(PageOptions::default(), 60);
    let random = Mutex::new(Random::new(4));
    for _ in 0..600 {
        writer.change(|_| random.lock().unwrap().below(2) == 0);
        writer.write();
    }
    // 38 KB are alive, and 11 MB were written.
    assert!(writer.largest_bytes < 8 << 20, "{}", writer.largest_bytes);
}

#[test]
fn what_did_not_change_is_not_moved_out_of_full_pairs() {
    let mut writer = Writer::new(OPTIONS, 13_000);
    writer.write();
    assert!(writer.pairs() > 2 * OPTIONS.pairs_max, "{}", writer.pairs());
    for _ in 0..3 {
        writer.change(|index| index == 5);
        let written_bytes = writer.write();
        assert!(written_bytes < 100_000, "{written_bytes}");
    }
}
