//! Pages by number, in place of files.

use std::collections::BTreeMap;

use crate::bus::pages::put_ids;
use crate::snapshot::tests::restore_passing_over;
use crate::snapshot::{PageBytes, RestoringPages};
use crate::state::State;
use crate::table::{
    Group, GroupRead, GroupToRead, Missing, PageHead, RecordsAt, Run, Slots, Table, Taken, run_page,
};
use crate::vocabulary::codec::put_varint;
use crate::vocabulary::{Incarnation, PageNumber};

/// The kind of a run's page. Golden pages have it.
const RUN: u8 = 5;

/// The kind of a page of ids.
const IDS: u8 = 3;

#[derive(Default)]
pub(crate) struct PageMap {
    pages: BTreeMap<PageNumber, PageBytes>,
}

fn tables(state: &State) -> impl Iterator<Item = (Incarnation, &Table)> {
    let stored = state.storage.iter();
    let stored = stored.map(|(entity, queue)| (*entity, queue.backlog.table()));
    let bus = state.bus.iter();
    stored.chain(bus.map(|(entity, queue)| (*entity, queue.backlog.table())))
}

/// Where a snapshot has the records of each run.
pub(crate) fn records_at(state: &State) -> Vec<RecordsAt> {
    let runs = tables(state).flat_map(|(_, table)| table.runs());
    runs.map(Run::records_at).collect()
}

fn run(state: &State, group: Group) -> &Run {
    let stored = state.storage.get(&group.entity);
    let stored = stored.map(|queue| queue.backlog.table());
    let bus = || Some(state.bus.get(&group.entity)?.backlog.table());
    let table = stored.or_else(bus).unwrap();
    table.run(group.run).unwrap()
}

impl PageMap {
    /// Writes the runs that need a new page, as a snapshot does.
    pub(crate) fn write(&mut self, state: &State) {
        for (entity, table) in tables(state) {
            let head = PageHead {
                entity,
                length: table.length(),
                unit: state.count_unit(),
            };
            self.write_table(head, table);
        }
        self.write_ids(state);
    }

    fn write_ids(&mut self, state: &State) {
        for (entity, queue) in state.bus.iter() {
            let blocks = queue.duplicates.share().blocks().into_iter();
            for block in blocks.filter(|block| block.mark().get().is_none()) {
                let mut group = vec![1];
                put_varint(&mut group, entity.as_u64());
                put_ids(&mut group, &block);
                let groups = vec![group];
                let page = self.add(PageBytes { kind: IDS, groups });
                block.mark().set(page);
            }
        }
    }

    pub(crate) fn write_table(&mut self, head: PageHead, table: &Table) {
        let new = table
            .runs()
            .filter(|run| run.records_at() == RecordsAt::NewPage);
        for run in new {
            let mut groups = run_page(head, run);
            groups[0].insert(0, 1);
            let page = self.add(PageBytes { kind: RUN, groups });
            run.keep_page(page);
        }
    }

    fn add(&mut self, bytes: PageBytes) -> PageNumber {
        let page = PageNumber::new(self.pages.len() as u64);
        self.pages.insert(page, bytes);
        page
    }

    /// The state as a start finds it after a snapshot: it passes over the pages that it need not read, and of the others
    /// keeps what there is room for.
    pub(crate) fn restarted(&mut self, state: &mut State, room_bytes: u64) -> State {
        state.begin_snapshot();
        let planned = state.gather(u64::MAX).unwrap().plan_pages();
        let mut named = Vec::new();
        for index in 0..planned.page_count() {
            let page = planned.page(index);
            let page = page.unwrap_or_else(|| self.add(planned.encode(index).unwrap()));
            planned.keep(index, page);
            named.push(page);
        }
        let mut restored = State::counting_in(state.count_unit());
        for part in planned.parts() {
            restored.restore(part).unwrap();
        }
        let pages = named.iter().map(|page| (*page, &self.pages[page]));
        restore_passing_over(&mut restored, RestoringPages::within(room_bytes), pages);
        assert_eq!(restored.healed_runs(), 0);
        restored.check_live_bytes();
        restored
    }

    pub(crate) fn read(&self, to_read: &GroupToRead) -> GroupRead {
        let page = &self.pages[&to_read.page()];
        let groups: Vec<_> = to_read.groups().map(|group| &page.groups[group]).collect();
        to_read.decode(&groups).unwrap()
    }

    /// Reads what is missing. What a snapshot has of the state stays the same.
    pub(crate) fn read_missing(&self, state: &mut State, missing: &Missing) {
        for (group, wanted) in &missing.groups {
            let to_read = state.to_read(*group, *wanted);
            let to_read = to_read.expect("what is missing is on a page");
            let is_run = group.block().is_none();
            let before = is_run.then(|| run(state, *group).records_at());
            assert_eq!(state.take_read(self.read(&to_read)), Taken::InMemory);
            let after = is_run.then(|| run(state, *group).records_at());
            assert_eq!(after, before);
        }
    }

    /// The run with all of its records.
    pub(crate) fn warmed(&self, entity: Incarnation, run: &Run) -> Run {
        let mut warmed = run.clone();
        let Some(page) = run.cold_page() else {
            return warmed;
        };
        let numbers = run.seen_from(run.start());
        let groups: std::collections::BTreeSet<usize> =
            numbers.map(|(number, _)| run.group_of(number)).collect();
        for index in groups {
            let group = Group {
                entity,
                run: run.index(),
                index,
            };
            let wanted = Slots::MAX;
            let read = self.read(&GroupToRead {
                group,
                wanted,
                page,
            });
            let taken = warmed.add_copies(read, &mut Vec::new());
            // After the last one it may not be cold any more.
            assert_ne!(taken, Taken::Damaged);
        }
        warmed
    }

    /// Asserts that a state of which records may not be in memory has the messages of another one.
    pub(crate) fn assert_equal(&self, state: &State, hot: &State) {
        assert_eq!(state, hot);
        for ((entity, table), (_, hot)) in tables(state).zip(tables(hot)) {
            for (run, hot) in table.runs().zip(hot.runs()) {
                let warmed = self.warmed(entity, run);
                assert!(
                    warmed.entries().eq(hot.entries()),
                    "{warmed:?} is not {hot:?}"
                );
                warmed.count_again(&mut crate::table::Live::new(state.count_unit()));
            }
        }
    }
}
