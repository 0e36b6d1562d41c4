//! Pages of runs that are worth writing again, and runs that get a page because memory is short.

use super::*;
use crate::state::{FoundToWarm, Hand};
use crate::table::{KnownPages, Pressure, Resident};

/// Five runs with pages, none of them in memory.
fn five_cold_runs() -> Queue {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..5000);
    queue.snapshot();
    queue.evict();
    assert_eq!(queue.resident(), (0, 5));
    queue
}

/// What a log says of pages.
struct Said {
    sizes: BTreeMap<PageNumber, u64>,
    /// If all pages are to be as large.
    size_bytes: Option<u64>,
    unreadable: Option<PageNumber>,
}

impl KnownPages for Said {
    fn size_bytes(&self, page: PageNumber) -> Option<u64> {
        self.size_bytes.or_else(|| self.sizes.get(&page).copied())
    }

    fn is_unreadable(&self, page: PageNumber) -> bool {
        self.unreadable == Some(page)
    }
}

impl Queue {
    /// The hand goes round once, in small pieces.
    fn find(&mut self, pressure: Pressure, size_bytes: Option<u64>) -> FoundToWarm {
        self.find_beside(pressure, size_bytes, None)
    }

    /// The same while a page cannot be read.
    fn find_beside(
        &mut self,
        pressure: Pressure,
        size_bytes: Option<u64>,
        unreadable: Option<PageNumber>,
    ) -> FoundToWarm {
        let pages = self.store.pages.iter();
        let size_of = |page: &PageBytes| page.groups.iter().map(|it| it.len() as u64).sum();
        let said = Said {
            sizes: pages.map(|(page, bytes)| (*page, size_of(bytes))).collect(),
            size_bytes,
            unreadable,
        };
        let (mut hand, mut all) = (Hand::default(), FoundToWarm::default());
        while !all.is_round {
            let found = self.state.find_to_warm(&mut hand, pressure, 1, &said);
            all.runs.extend(found.runs);
            all.changed += found.changed;
            all.has_left_unreadable |= found.has_left_unreadable;
            all.beside.add(found.beside);
            all.is_round = found.is_round;
        }
        all
    }

    /// Reads back what was found, and takes it off its pages. Returns the runs.
    fn warm(&mut self, found: FoundToWarm, pressure: Pressure) -> Vec<u64> {
        for (_, run) in &found.runs {
            assert_eq!(self.state.can_leave_page(*run), Some(false));
            for (group, wanted) in self.state.missing_of(*run).groups {
                let read = self.group(group, wanted);
                self.state.take_read(read);
            }
            assert_eq!(self.state.can_leave_page(*run), Some(true));
            self.state.leave_page(*run, pressure);
            assert_eq!(self.state.can_leave_page(*run), None);
        }
        let runs = found.runs.into_iter();
        runs.map(|(_, (_, run))| run).collect()
    }

    /// The bytes of all pages of runs.
    fn run_bytes(&self) -> usize {
        let pages = self.store.pages.iter();
        let pages = pages.filter(|(_, bytes)| bytes.kind == RUN);
        let sizes = pages.map(|(_, page)| page.groups.iter().map(Vec::len).sum::<usize>());
        sizes.sum()
    }
}

/// The state is the same, and nothing is left to do.
fn check_settled(mut queue: Queue, pressure: Pressure) {
    let found = queue.find(pressure, None);
    assert_eq!((found.runs, found.changed), (vec![], 0));
    queue.check_cold();
}

#[test]
fn a_page_of_which_little_is_left_is_written_again() {
    let mut queue = five_cold_runs();
    let found = queue.find(Pressure::Low, None);
    assert_eq!((found.runs.len(), found.changed), (0, 0));
    // Ten messages are left in each, and 200 in the last one.
    queue.delete((1..4800).filter(|number| number % 100 != 0));
    queue.snapshot();
    let before = queue.run_bytes();
    // These pages are small in any case, because the messages are all alike.
    let found = queue.find(Pressure::Low, Some(2500));
    assert_eq!(found.beside, Resident::default());
    assert_eq!(queue.warm(found, Pressure::Low), [0, 1, 2, 3]);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    assert!(queue.run_bytes() < before / 3, "the last run's is left");
    assert_eq!(queue.resident(), (40, 1));
    check_settled(queue, Pressure::Low);
}

#[test]
fn what_lies_beside_a_page_gets_another_one() {
    for (count, pressure, is_found) in [
        (64, Pressure::Low, false),
        (65, Pressure::Low, true),
        (8, Pressure::High, false),
        (9, Pressure::High, true),
    ] {
        let mut queue = five_cold_runs();
        let leased = 3000..3000 + count;
        queue.read(leased.clone());
        queue.lease(leased);
        queue.snapshot();
        let found = queue.find(pressure, None);
        assert_eq!(found.beside, Resident::of_records(count));
        let worth = found.runs.first().map(|(worth, _)| *worth);
        assert_eq!(worth, is_found.then_some(count));
        let warmed = queue.warm(found, pressure);
        assert_eq!(warmed, if is_found { vec![2] } else { vec![] });
        let written = queue.snapshot();
        assert_eq!(written.contains(&RUN), is_found);
        queue.evict();
        let left = if is_found { 0 } else { count };
        assert_eq!(queue.resident(), (left, 5));
        check_settled(queue, pressure);
    }
}

/// Nothing else makes the run worth it. With all of its records in memory, it leaves the page at once.
#[test]
fn a_page_that_cannot_be_read_comes_first() {
    let mut queue = five_cold_runs();
    let leased = 2900..3000;
    queue.read(leased.clone());
    queue.lease(leased);
    queue.snapshot();
    let all = queue.find(Pressure::Low, None).runs;
    let [(100, third)] = all[..] else {
        panic!("{all:?}");
    };
    let second = (third.0, 1);
    let page = queue.state.page_of(second);
    let found = queue.find_beside(Pressure::Low, None, page);
    assert!(!found.has_left_unreadable);
    let mut runs = found.runs;
    runs.sort_unstable();
    assert_eq!(runs, [(100, third), (u64::MAX, second)]);
    queue.read(1024..2048);
    let found = queue.find_beside(Pressure::Low, None, page);
    assert_eq!(found.runs, [(100, third)]);
    assert_eq!((found.changed, found.has_left_unreadable), (1, true));
    assert_eq!(queue.state.page_of(second), None);
}

/// A start has passed over all pages, and the replay has leased a hundred messages of the third run.
fn with_patches() -> Queue {
    let mut queue = five_cold_runs();
    let (state, _) = queue.store.restarted(0);
    queue.state = state;
    queue.lease(2900..3000);
    let expected = Resident {
        patches: 100,
        cold_runs: 5,
        ..Resident::default()
    };
    assert_eq!(queue.state.resident(), expected);
    assert_eq!(expected.size_bytes(), 8000);
    queue
}

/// Changes that a replay has made are patches, which take memory too.
#[test]
fn patches_lie_beside_a_page() {
    let mut queue = with_patches();
    queue.snapshot();
    let found = queue.find(Pressure::Low, None);
    assert_eq!((found.beside.records, found.beside.patches), (0, 100));
    assert_eq!(queue.warm(found, Pressure::Low), [2]);
    assert_eq!(queue.state.resident().patches, 0);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN]);
    queue.evict();
    assert_eq!(queue.resident(), (0, 5));
    check_settled(queue, Pressure::Low);
}

#[test]
fn patches_end_with_their_messages() {
    let mut queue = with_patches();
    queue.delete(2900..2910);
    assert_eq!(queue.state.resident().patches, 90);
    queue.delete(2048..3072);
    assert_eq!(queue.state.resident().patches, 0);
    queue.state.check_live_bytes();
}

#[test]
fn few_messages_get_a_page_under_pressure() {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..61);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    let found = queue.find(Pressure::Low, None);
    assert_eq!((found.changed, found.beside.records), (0, 60));
    assert_eq!(queue.find(Pressure::High, None).changed, 1);
    // A snapshot that fails changes nothing.
    assert_eq!(queue.fail_snapshot(), [HEADS, DIRECTORY, RUN]);
    queue.evict();
    assert_eq!(queue.resident(), (60, 0));
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN]);
    assert_eq!(queue.find(Pressure::High, None).changed, 0);
    queue.evict();
    assert_eq!(queue.resident(), (0, 1));
    queue.check_cold();
    assert_eq!(queue.resident(), (60, 0));
    // It keeps the page while messages leave it.
    queue.delete(1..20);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.evict();
    assert_eq!(queue.resident(), (0, 1));
    queue.check_cold();
    // Very few need none any more.
    queue.delete(20..52);
    assert_eq!(queue.find(Pressure::High, None).changed, 0);
    queue.delete(52..53);
    assert_eq!(queue.find(Pressure::High, None).changed, 1);
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.evict();
    assert_eq!(queue.resident(), (8, 0));
    check_settled(queue, Pressure::High);
}

/// Messages with much beside them make large pages. These are not written again and again.
#[test]
fn a_page_is_not_written_again_before_half_of_it_is_gone() {
    const LARGE: Option<u64> = Some(1 << 20);
    let mut queue = five_cold_runs();
    assert_eq!(queue.find(Pressure::Low, LARGE).runs, []);
    // How many messages the page had is known if it was written again, and not of the first page.
    queue.delete(4096..4600);
    queue.snapshot();
    let found = queue.find(Pressure::Low, LARGE);
    assert_eq!(queue.warm(found, Pressure::Low), [4]);
    queue.snapshot();
    queue.evict();
    assert_eq!(queue.resident(), (0, 5));
    assert_eq!(queue.find(Pressure::Low, LARGE).runs, []);
    // The second run has 512 messages less, and the third one 511.
    queue.delete((1024..1536).chain(2048..2559));
    queue.snapshot();
    let found = queue.find(Pressure::Low, LARGE);
    assert_eq!(queue.warm(found, Pressure::Low), [1]);
    queue.check_cold();
    // What came since counts, too.
    queue.put(5000..5060);
    queue.snapshot();
    queue.evict();
    queue.delete(4600..4800);
    assert_eq!(queue.find(Pressure::Low, LARGE).runs, []);
    queue.delete(4800..4840);
    let found = queue.find(Pressure::Low, LARGE);
    assert_eq!(found.runs.len(), 1);
    queue.warm(found, Pressure::Low);
    queue.snapshot();
    queue.evict();
    queue.read(5000..5060);
    queue.check_cold();
}

#[test]
fn a_run_leaves_its_page_only_when_all_of_it_is_in_memory() {
    let mut queue = five_cold_runs();
    let run = (Incarnation::new(ENTITY), 2);
    queue.read(2048..3000);
    assert_eq!(queue.state.can_leave_page(run), Some(false));
    queue.state.leave_page(run, Pressure::High);
    assert_eq!(queue.resident(), (952, 5), "nothing is lost");
    queue.read(3000..3072);
    assert_eq!(queue.state.can_leave_page(run), Some(true));
    assert_eq!(queue.snapshot(), [], "a read changes no page");
    queue.delete(2048..3072);
    assert_eq!(queue.state.can_leave_page(run), None);
    queue.state.leave_page(run, Pressure::High);
    queue.snapshot();
    queue.check_cold();
}
