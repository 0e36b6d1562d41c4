use proptest::prelude::*;

use super::*;
use crate::table::{ALL_SLOTS, Group};
use crate::vocabulary::Incarnation;

const WINDOW_MS: u64 = 2500;

fn empty() -> Duplicates {
    Duplicates::new(RunLength::TINY)
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(ms)
}

/// As a start finds it: each block is a page.
fn restored(from: &Duplicates) -> Duplicates {
    let mut duplicates = empty();
    if let Some(time) = from.dropped_before() {
        duplicates.keep_from(time);
    }
    for (number, block) in (0..).zip(from.share().blocks()) {
        let restored =
            duplicates.restore_page(ReadBlock::of((**block).clone()), PageNumber::new(number));
        assert!(restored.is_ok());
    }
    duplicates
}

/// As an older whole snapshot has it.
fn restored_one_by_one(from: &Duplicates) -> Duplicates {
    let mut duplicates = empty();
    duplicates.keep_from(from.kept_from);
    (from.iter()).for_each(|(id, at)| duplicates.restore(id, at));
    duplicates
}

/// What is remembered by the rules: ids with their times, and all times of the ids that were seen.
#[derive(Default)]
struct Model {
    seen_ms: BTreeMap<u128, u64>,
    all_ms: Vec<u64>,
    kept_from_ms: u64,
}

impl Model {
    fn note(&mut self, id: u128, ms: u64, window_ms: u64) {
        self.keep_from(ms + 1 - window_ms);
        self.seen_ms.insert(id, ms);
        self.all_ms.push(ms);
    }

    fn keep_from(&mut self, ms: u64) {
        self.kept_from_ms = self.kept_from_ms.max(ms);
    }

    fn has(&self, id: u128, window_ms: u64, now: u64) -> bool {
        let is_seen = |ms: &u64| *ms >= self.kept_from_ms && ms + window_ms > now;
        self.seen_ms.get(&id).is_some_and(is_seen)
    }

    fn count(&self, window_ms: u64, now: u64) -> u64 {
        let end = |ms: &u64| ms / 1000 * 1000 + 999;
        let counts = |ms: &&u64| end(ms) >= self.kept_from_ms && end(ms) + window_ms > now;
        self.all_ms.iter().filter(counts).count() as u64
    }
}

/// Ids that begin alike, and others.
fn hash_of(id: u8) -> u128 {
    match id % 3 {
        0 => id.into(),
        1 => u128::from(id) << 86,
        _ => u128::from(id) << 120 | u128::from(id),
    }
}

proptest! {
    /// The window changes, as updates of a queue change it.
    #[test]
    fn ids_are_known_within_the_window_and_count_to_the_end_of_its_second(
        steps in prop::collection::vec((0_u64..700, 0_u8..60, 1_u64..30, any::<bool>()), 1..200),
    ) {
        let (mut now, mut window_ms) = (10_000, WINDOW_MS);
        let (mut duplicates, mut model) = (empty(), Model::default());
        for (passed_ms, id, window, forgets) in steps {
            now += passed_ms;
            if window < 4 {
                let from_ms = now - window_ms + 1;
                duplicates.keep_from(at(from_ms));
                model.keep_from(from_ms);
                window_ms = window * WINDOW_MS;
            }
            if forgets {
                duplicates.forget(window_ms, at(now));
            }
            let known = duplicates.has(hash_of(id), window_ms, at(now));
            prop_assert_eq!(known, model.has(hash_of(id), window_ms, now));
            if !known {
                duplicates.note(hash_of(id), window_ms, at(now));
                model.note(hash_of(id), now, window_ms);
            }
            let restored = restored(&duplicates);
            prop_assert_eq!(&restored, &duplicates);
            prop_assert_eq!(&restored_one_by_one(&duplicates), &duplicates);
            for later in [0, 500, 2499, 2500, 6000] {
                let then = now + later;
                let count = model.count(window_ms, then);
                prop_assert_eq!(duplicates.count(window_ms, at(then)), count);
                prop_assert_eq!(restored.count(window_ms, at(then)), count);
            }
            for id in 0..60 {
                let known = model.has(hash_of(id), window_ms, now);
                prop_assert_eq!(duplicates.has(hash_of(id), window_ms, at(now)), known);
                prop_assert_eq!(restored.has(hash_of(id), window_ms, at(now)), known);
            }
            let mut absorbed = empty();
            absorbed.absorb(&duplicates);
            prop_assert_eq!(&absorbed, &duplicates);
        }
    }

    #[test]
    fn any_order_of_events_is_taken(
        steps in prop::collection::vec((0_u64..5000, 0_u8..12), 1..60),
    ) {
        let mut duplicates = empty();
        let mut last = 0;
        for (ms, id) in steps {
            duplicates.note(id.into(), WINDOW_MS, at(ms));
            last = last.max(ms);
            prop_assert!(duplicates.has(id.into(), WINDOW_MS, at(last)));
            prop_assert!(!duplicates.has(id.into(), WINDOW_MS, at(last + WINDOW_MS)));
            prop_assert!(duplicates.iter().is_sorted_by_key(|(_, at)| at));
        }
    }
}

#[test]
fn what_is_dropped_does_not_depend_on_a_restart() {
    let mut duplicates = empty();
    (0..200).for_each(|id| duplicates.note(id, WINDOW_MS, at(1000)));
    // Its first entry stands for nothing from now on.
    duplicates.note(150, WINDOW_MS, at(5000));
    let mut restarted = restored(&duplicates);
    for id in [1000, 1001] {
        duplicates.note(id, WINDOW_MS, at(5001));
        restarted.note(id, WINDOW_MS, at(5001));
    }
    assert_eq!(restarted, duplicates);
}

#[test]
fn a_longer_window_brings_no_dropped_id_of_a_block_back_after_a_restart() {
    let mut duplicates = empty();
    [(1, 1000), (2, 2000), (3, 3000)]
        .into_iter()
        .for_each(|(id, ms)| duplicates.note(id, WINDOW_MS, at(ms)));
    duplicates.keep_from(at(2000));
    assert_eq!(duplicates.dropped_before(), Some(at(2000)));
    for duplicates in [&duplicates, &restored(&duplicates)] {
        let has = |id| duplicates.has(id, 10 * WINDOW_MS, at(3000));
        assert_eq!([1, 2, 3].map(has), [false, true, true]);
        assert_eq!(duplicates.count(10 * WINDOW_MS, at(3000)), 2);
    }
    duplicates.keep_from(at(3000));
    (4..7).for_each(|id| duplicates.note(id, WINDOW_MS, at(3000)));
    duplicates.keep_from(at(4000));
    assert_eq!(
        (
            duplicates.dropped_before(),
            restored(&duplicates).kept_count()
        ),
        (None, 0)
    );
}

#[test]
fn few_blocks_are_dropped_at_once_and_in_the_end_all() {
    let mut duplicates = empty();
    (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1000)));
    assert_eq!(duplicates.count(WINDOW_MS, at(4498)), 1000);
    assert_eq!(duplicates.count(WINDOW_MS, at(4499)), 0);
    duplicates.note(1000, WINDOW_MS, at(5000));
    assert_eq!(duplicates.kept_count(), 1000 - 4 * 16 + 1);
    (1001..1020).for_each(|id| duplicates.note(id, WINDOW_MS, at(5000)));
    assert_eq!(duplicates.kept_count(), 20);
}

#[test]
fn ids_leave_memory_without_a_new_one() {
    let mut duplicates = empty();
    (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1000)));
    duplicates.note(1000, WINDOW_MS, at(1500));
    let replayed = restored(&duplicates);
    assert_eq!(duplicates.next_deadline(WINDOW_MS), Some(at(5000)));
    let mut steps = 0;
    while duplicates
        .next_deadline(WINDOW_MS)
        .is_some_and(|it| it.has_passed(at(5000)))
    {
        duplicates.forget(WINDOW_MS, at(5000));
        assert_eq!(duplicates, replayed);
        steps += 1;
    }
    assert_eq!(steps, 250_usize.div_ceil(FREED_AT_ONCE_MAX));
    assert_eq!(duplicates.kept_count(), 0);
    assert_eq!(duplicates.next_deadline(WINDOW_MS), None);
    // What is within the window stays, and counts.
    duplicates.note(1, WINDOW_MS, at(5000));
    duplicates.forget(WINDOW_MS, at(7499));
    assert!(duplicates.has(1, WINDOW_MS, at(7499)));
    assert_ne!(duplicates, replayed);
    assert!(!duplicates.has(1, WINDOW_MS, at(7500)));
    duplicates.forget(WINDOW_MS, at(8498));
    assert_eq!(duplicates.count(WINDOW_MS, at(8498)), 1);
    duplicates.forget(WINDOW_MS, at(8499));
    assert_eq!(duplicates.next_deadline(WINDOW_MS), None);
}

#[test]
fn an_event_drops_any_number_and_they_leave_memory_later() {
    let mut duplicates = empty();
    (0..1000).for_each(|id| duplicates.note(id, WINDOW_MS, at(1000)));
    duplicates.note(1000, WINDOW_MS, at(2500));
    duplicates.keep_from(at(2000));
    let longer_ms = 10 * WINDOW_MS;
    assert_eq!(duplicates.count(longer_ms, at(2501)), 1);
    let has = |id| duplicates.has(id, longer_ms, at(2501));
    assert!(!has(0) && has(1000));
    assert_eq!(restored(&duplicates), duplicates);
    // An id that was dropped can come again before it has left memory.
    duplicates.note(999, longer_ms, at(2502));
    assert!(duplicates.has(999, longer_ms, at(2502)));
    (0..20).for_each(|id| duplicates.note(2000 + id, longer_ms, at(2503)));
    assert_eq!(duplicates.kept_count(), 22);
    assert_eq!(duplicates.count(longer_ms, at(2503)), 22);
}

#[test]
fn the_first_block_from_a_time_on_is_that_of_a_walk() {
    let mut duplicates = empty();
    assert!(duplicates.first_from(at(0)).is_none());
    // The first half is freed while the second one comes.
    for (window_ms, ids) in [(100 * WINDOW_MS, 0..42_u32), (WINDOW_MS, 42..84)] {
        for id in ids {
            // Some at once, and some in the same block far apart.
            let ms = 1000 + 700 * u64::from(id / 3);
            duplicates.note(id.into(), window_ms, at(ms));
            for ms in (0..24_000).step_by(50) {
                let walked = duplicates.blocks().find(|it| it.last_at() >= at(ms));
                let found = duplicates.first_from(at(ms));
                assert_eq!(found.map(Arc::as_ptr), walked.map(Arc::as_ptr), "{ms}");
            }
        }
    }
    let oldest = duplicates.full.iter().next();
    assert!(
        oldest.is_some_and(|(number, _)| number > 0),
        "none was freed"
    );
}

#[test]
fn few_ids_of_a_queue_that_is_never_idle_are_in_memory() {
    let mut duplicates = Duplicates::new(RunLength::DEFAULT);
    for id in 0..2000_u32 {
        duplicates.note(id.into(), WINDOW_MS, at(10_000 + 250 * u64::from(id)));
        assert!(duplicates.kept_count() <= 30, "{id}");
    }
    assert_eq!(duplicates.count(WINDOW_MS, at(10_000 + 250 * 1999)), 12);
}

/// What blocks have pages keep them, whatever is added and dropped.
#[test]
fn a_full_block_keeps_its_page_until_all_of_it_is_dropped() {
    let mut duplicates = empty();
    let longer_ms = 10 * WINDOW_MS;
    (0..10_u32)
        .for_each(|id| duplicates.note(id.into(), longer_ms, at(1000 + 1000 * u64::from(id))));
    let marks = |of: &Duplicates| {
        let blocks = of.share().blocks().into_iter();
        let marks = blocks.map(|block| block.mark().get().map(PageNumber::as_u64));
        marks.collect::<Vec<_>>()
    };
    let mut restarted = restored(&duplicates);
    assert_eq!(marks(&restarted), [Some(0), Some(1), Some(2)]);
    restarted.note(10, longer_ms, at(11_000));
    assert_eq!(marks(&restarted), [Some(0), Some(1), None]);
    restarted.keep_from(at(4999));
    assert_eq!(marks(&restarted), [Some(0), Some(1), None]);
    restarted.keep_from(at(5000));
    assert_eq!(marks(&restarted), [Some(1), None]);
}

/// Pages by number.
#[derive(Default)]
struct Pages(Vec<Vec<(Timestamp, u128)>>);

impl Pages {
    /// Writes the blocks that have no page, as a snapshot does.
    fn write(&mut self, duplicates: &Duplicates) {
        for block in duplicates.share().blocks() {
            if block.mark().get().is_none() {
                block.mark().set(PageNumber::new(self.0.len() as u64));
                self.0.push(block.iter().collect());
            }
        }
    }

    fn read(&self, block: u64, page: PageNumber) -> GroupRead {
        let ids = &self.0[usize::try_from(page.as_u64()).unwrap()];
        let to_read = crate::table::GroupToRead {
            group: Group::of_block(Incarnation::default(), block),
            wanted: ALL_SLOTS,
            page,
        };
        to_read.with_ids(ids.clone())
    }

    /// Reads what a look-up needs. Returns how many blocks that were.
    fn load(&self, duplicates: &mut Duplicates, id: u128, window_ms: u64, now: u64) -> usize {
        let missing = duplicates.missing_for(id, window_ms, at(now));
        let missing: std::collections::BTreeSet<u64> = missing.collect();
        for block in &missing {
            let page = duplicates.page_to_read(*block).unwrap();
            let read = self.read(*block, page);
            assert_eq!(duplicates.take_read(*block, &read), Taken::InMemory);
        }
        missing.len()
    }

    /// As a start finds it that keeps only some blocks in memory.
    fn restored(&self, from: &Duplicates, is_kept: impl Fn(u64) -> bool) -> Duplicates {
        let mut duplicates = empty();
        if let Some(time) = from.dropped_before() {
            duplicates.keep_from(time);
        }
        for block in from.share().blocks() {
            let page = block.mark().get().unwrap();
            let ids = &self.0[usize::try_from(page.as_u64()).unwrap()];
            let restored = duplicates.restore_page(ReadBlock::of(Ids::of(ids).unwrap()), page);
            let block = restored.unwrap();
            if let Some(block) = block.filter(|_| !is_kept(page.as_u64())) {
                duplicates.evict(block);
            }
        }
        duplicates
    }
}

proptest! {
    /// What is in memory changes no answer, no count and no value.
    #[test]
    fn cold_equals_hot(
        steps in prop::collection::vec((0_u64..700, 0_u8..60, 0_u32.., 0_u8..40), 1..200),
    ) {
        let (mut now, mut window_ms) = (10_000, 2 * WINDOW_MS);
        let (mut hot, mut cold, mut pages) = (empty(), empty(), Pages::default());
        for (passed_ms, id, leaves, rare) in steps {
            now += passed_ms;
            if rare < 4 {
                let from = at(now - window_ms + 1);
                hot.keep_from(from);
                cold.keep_from(from);
                window_ms = (u64::from(rare) + 1) * WINDOW_MS;
            }
            pages.write(&cold);
            let evictable: Vec<(u64, _)> = cold.evictable(0).collect();
            for (block, page) in evictable {
                if page.is_some() && leaves >> (block % 32) & 1 == 1 {
                    cold.evict(block);
                }
            }
            prop_assert_eq!(&cold, &hot);
            if rare == 5 {
                cold = pages.restored(&cold, |page| leaves >> (page % 32) & 1 == 1);
                prop_assert_eq!(&cold, &hot);
            }
            if rare == 6 {
                // After a restart, that is not known any more.
                hot.forget(window_ms, at(now));
                cold.forget(window_ms, at(now));
            }
            pages.load(&mut cold, hash_of(id), window_ms, now);
            let known = hot.has(hash_of(id), window_ms, at(now));
            prop_assert_eq!(cold.has(hash_of(id), window_ms, at(now)), known);
            if !known {
                hot.note(hash_of(id), window_ms, at(now));
                cold.note(hash_of(id), window_ms, at(now));
            }
            prop_assert_eq!(&cold, &hot);
            for later in [0, 2499, 6000] {
                let count = hot.count(window_ms, at(now + later));
                prop_assert_eq!(cold.count(window_ms, at(now + later)), count);
            }
            let (resident, cold_blocks) = cold.resident();
            let of = |is_cold| cold.full.iter().filter(move |(_, it)| it.is_cold() == is_cold);
            prop_assert_eq!(of(true).count() as u64, cold_blocks);
            prop_assert_eq!(of(false).map(|(_, it)| it.len() as u64).sum::<u64>(), resident);
            prop_assert_eq!(cold.has_cold(), cold_blocks > 0);
        }
        // Another id is another value.
        pages.write(&cold);
        (0..cold.next).for_each(|block| cold.evict(block));
        hot.note(u128::MAX, window_ms, at(now));
        cold.note(u128::MAX - 1, window_ms, at(now));
        prop_assert_ne!(&cold, &hot);
    }
}

/// Two ids in a thousand million are found by chance in ten blocks.
#[test]
fn a_new_id_reads_nothing_and_an_old_one_reads_its_block() {
    let mut duplicates = Duplicates::new(RunLength::DEFAULT);
    let hash = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u128::from(mixed ^ mixed >> 29) << 64 | u128::from(number)
    };
    let mut pages = Pages::default();
    (0..10_240).for_each(|id| duplicates.note(hash(id), WINDOW_MS, at(1000)));
    pages.write(&duplicates);
    (0..9).for_each(|block| duplicates.evict(block));
    assert_eq!(duplicates.resident(), (0, 9));
    let new = (20_000..30_000).map(|id| {
        duplicates
            .missing_for(hash(id), WINDOW_MS, at(1001))
            .count()
    });
    assert_eq!(new.sum::<usize>(), 0);
    for id in (0..9216).step_by(1024) {
        assert_eq!(pages.load(&mut duplicates, hash(id), WINDOW_MS, 1001), 1);
        assert!(duplicates.has(hash(id), WINDOW_MS, at(1001)));
        assert_eq!(
            pages.load(&mut duplicates, hash(id + 1), WINDOW_MS, 1001),
            0
        );
    }
    // What is outside its window is not read.
    (0..9).for_each(|block| duplicates.evict(block));
    assert_eq!(
        pages.load(&mut duplicates, hash(5), WINDOW_MS, 1000 + WINDOW_MS),
        0
    );
    assert!(!duplicates.has(hash(5), WINDOW_MS, at(1000 + WINDOW_MS)));
}

/// The last block of a start may be one that has to stay: one copy of its page is damaged, and the next snapshot writes it.
#[test]
fn a_start_says_which_block_a_page_is() {
    let (mut duplicates, mut pages) = (empty(), Pages::default());
    (0..6).for_each(|id| duplicates.note(hash_of(id), WINDOW_MS, at(1000)));
    pages.write(&duplicates);
    let ids = |page: usize| ReadBlock::of(Ids::of(&pages.0[page]).unwrap());
    let mut restored = empty();
    let page = PageNumber::new;
    assert_eq!(restored.restore_page(ids(0), page(0)), Ok(Some(0)));
    assert_eq!(restored.restore_page(ids(1), page(1)), Ok(None));
    assert_eq!(restored.resident(), (4, 0));
    // A block that is not full is one of its own, too.
    assert_eq!(restored.restore_page(ids(0), page(2)), Ok(Some(2)));
    assert_eq!(restored.resident(), (10, 0));
    assert_eq!(restored, duplicates);
    let earlier = ReadBlock::of(Ids::of(&[(at(999), 7)]).unwrap());
    assert!(restored.restore_page(earlier, page(3)).is_err());
    assert_eq!(
        restored.restore_page(ReadBlock::of(Ids::default()), page(3)),
        Ok(None)
    );
}

/// The next snapshot does not name its page, and the one after that is free to use its place.
#[test]
fn a_block_of_dropped_ids_has_no_page_to_read() {
    let (mut duplicates, mut pages) = (empty(), Pages::default());
    (0..200).for_each(|id| duplicates.note(hash_of(id), WINDOW_MS, at(1000)));
    pages.write(&duplicates);
    (0..49).for_each(|block| duplicates.evict(block));
    assert!(duplicates.page_to_read(48).is_some());
    assert_eq!(duplicates.cold_pages().count(), 49);
    // More than leave memory at once.
    duplicates.note(hash_of(250), WINDOW_MS, at(5000));
    assert!(duplicates.has_cold());
    assert_eq!(duplicates.page_to_read(48), None);
    assert_eq!(duplicates.cold_pages().count(), 0);
}

#[test]
fn a_page_that_is_not_that_of_the_block_is_not_taken() {
    let (mut duplicates, mut pages) = (empty(), Pages::default());
    (0..12).for_each(|id| duplicates.note(hash_of(id), WINDOW_MS, at(1000 + u64::from(id))));
    pages.write(&duplicates);
    duplicates.evict(0);
    let page = duplicates.page_to_read(0).unwrap();
    let other = PageNumber::new(1);
    assert_eq!(
        duplicates.take_read(0, &pages.read(0, other)),
        Taken::Replaced
    );
    let mut wrong = pages.read(0, other);
    wrong.page = page;
    assert_eq!(duplicates.take_read(0, &wrong), Taken::Damaged);
    assert_eq!(
        duplicates.take_read(0, &pages.read(0, page)),
        Taken::InMemory
    );
    assert_eq!(
        duplicates.take_read(0, &pages.read(0, page)),
        Taken::Replaced
    );
    assert_eq!(
        duplicates.take_read(7, &pages.read(7, page)),
        Taken::Replaced
    );
}
