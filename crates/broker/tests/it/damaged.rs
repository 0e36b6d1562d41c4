//! Partitions to damage and to repair, shared by the tests of repair.

use std::collections::VecDeque;
use std::sync::Arc;

use kew_broker::{Partition, PartitionOptions, Reply, ResidentLimit};
use kew_engine::{Command, RunLength, Timestamp};
use kew_log::{FaultyStorage, LogOptions, LogPosition, PagePlace, read_table};

use crate::support::{moment, next_wake};

/// The options of a partition: segments of one size, and others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) segment_kib: u64,
    pub(crate) batch_kib: u64,
    pub(crate) turn_kib: u64,
    pub(crate) settlement_kib: u64,
}

impl Sizes {
    pub(crate) fn options(self) -> PartitionOptions {
        PartitionOptions {
            log: LogOptions {
                segment_size_first_bytes: self.segment_kib << 10,
                segment_size_max_bytes: self.segment_kib << 10,
                batch_size_max_bytes: self.batch_kib << 10,
                turn_space_min_bytes: self.turn_kib << 10,
                settlement_reserve_bytes: self.settlement_kib << 10,
                ballast_size_bytes: 4 << 10,
                recent_bytes_max: 1 << 10,
                ..LogOptions::default()
            },
            // Only when the test asks for one.
            snapshot_after_bytes: u64::MAX / 8,
            snapshot_after_effects: u64::MAX,
            tick_budget: 4,
            due_budget: 64,
            run_length: RunLength::TINY,
            gather_steps: 1,
            replays_beside: true,
            resident_limit: ResidentLimit::None,
            scrub_bytes_per_second: 1,
            ..PartitionOptions::default()
        }
    }
}

/// A partition, driven by hand.
pub(crate) struct Bench {
    pub(crate) storage: FaultyStorage,
    pub(crate) partition: Partition<u32>,
    pub(crate) now: Timestamp,
}

impl Bench {
    pub(crate) fn on(storage: FaultyStorage, options: PartitionOptions) -> Self {
        let now = Timestamp::from_ms(1_000_000);
        let (partition, _) =
            Partition::open(Arc::new(storage.clone()), options, 1, [1; 16], now).unwrap();
        Self {
            storage,
            partition,
            now,
        }
    }

    pub(crate) fn ask(&mut self, command: Command) -> Reply {
        self.ask_all([command]).remove(0)
    }

    /// Asks for all of it at once, so that batches hold as much as they can.
    pub(crate) fn ask_all(&mut self, commands: impl IntoIterator<Item = Command>) -> Vec<Reply> {
        let mut commands: VecDeque<_> = (0..).zip(commands).collect();
        let count = commands.len();
        let mut replies = Vec::new();
        while replies.len() < count {
            self.partition
                .turn(moment(self.now), &mut commands, &mut replies);
            self.jobs(&mut replies);
        }
        replies.sort_by_key(|(ticket, _)| *ticket);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    /// Lets the partition do what it wants to do while nothing is asked, within a minute.
    pub(crate) fn rest(&mut self) {
        let until = self.now.plus_seconds(60);
        while let Some(at) = next_wake(&self.partition).filter(|at| *at <= until) {
            self.now = at.max(self.now.plus_ms(1));
            let mut replies = Vec::new();
            self.partition
                .turn(moment(self.now), &mut VecDeque::new(), &mut replies);
            self.jobs(&mut replies);
        }
    }

    fn jobs(&mut self, replies: &mut Vec<(u32, Reply)>) {
        while let Some(job) = self.partition.next_job() {
            let outcome = job.run();
            self.partition.complete(outcome, replies).unwrap();
        }
    }

    pub(crate) fn mark(&mut self) {
        self.partition.mark();
        self.jobs(&mut Vec::new());
    }

    pub(crate) fn snapshot(&mut self) {
        self.partition.snapshot();
        self.jobs(&mut Vec::new());
    }
}

/// Numbers determined by a seed (a short SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`, which is above zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % bound
    }
}

/// Damages files one to three times: flipped bits, sectors and pages with other content, files that
/// are cut or deleted.
pub(crate) fn damage(disk: &FaultyStorage, dice: &mut Dice) {
    for _ in 0..=dice.below(3) {
        let files = disk.files();
        let (file, size) = &files[usize::try_from(dice.below(files.len() as u64)).unwrap()];
        let at = dice.below((*size).max(1)).min(size.saturating_sub(1));
        let overwrite = |unit: u64, with: u8| {
            let from = at / unit * unit;
            let count = usize::try_from((size - from).min(unit)).unwrap();
            disk.corrupt(file, from, &vec![with; count]);
        };
        match dice.below(6) {
            _ if *size == 0 => {}
            0 | 1 => disk.flip(file, at, 1 << dice.below(8)),
            2 => overwrite(512, 0),
            3 => overwrite(4096, 0xa5),
            4 => disk.truncate(file, at),
            _ => disk.lose_file(file),
        }
    }
}

/// Kinds of pages.
pub(crate) const HEADS: u8 = 1;
pub(crate) const SESSIONS: u8 = 2;
pub(crate) const IDS: u8 = 3;
pub(crate) const DIRECTORY: u8 = 4;
pub(crate) const RUN: u8 = 5;
pub(crate) const RULES: u8 = 6;

/// Damages both copies of all pages of a kind that snapshots name. Returns how many there are.
pub(crate) fn lose_pages(disk: &FaultyStorage, kind: u8) -> usize {
    lose_some_pages(disk, |_, of| of == kind)
}

/// Damages both copies of those pages that snapshots name, for whose place and kind it is true. Returns how many there
/// are.
pub(crate) fn lose_some_pages(disk: &FaultyStorage, is_lost: impl Fn(usize, u8) -> bool) -> usize {
    let names = disk.files().into_iter().map(|(name, _)| name);
    let positions = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let places = positions.flat_map(|position| {
        let table = read_table(disk, LogPosition::new(position)).unwrap().table;
        let places = table.pages().iter().map(|page| page.place);
        places.collect::<Vec<_>>()
    });
    let mut all: Vec<PagePlace> = Vec::new();
    for place in places {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    let mut lost = 0;
    for (number, place) in all.into_iter().enumerate() {
        let [file, copy] = [0, 1].map(|copy| format!("pages-{:020}", copy + 2 * place.pair));
        let offset = usize::try_from(place.offset).unwrap();
        if is_lost(number, disk.content(&file).unwrap()[offset + 28]) {
            lost += 1;
            for file in [file, copy] {
                disk.flip(&file, u64::from(place.offset) + 33, 1);
            }
        }
    }
    lost
}

/// Flips a bit of these bytes, which occur in one place of all files.
pub(crate) fn damage_bytes(disk: &FaultyStorage, bytes: &[u8]) {
    let mut damaged = 0;
    for (file, _) in disk.files() {
        let content = disk.content(&file).unwrap_or_default();
        let place = content.windows(bytes.len()).position(|it| it == bytes);
        if let Some(at) = place {
            disk.flip(&file, at as u64 + 1, 1);
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "they are in one place");
}
