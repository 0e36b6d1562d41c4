//! Reads what decisions miss, on another thread.
//!
//! What several commands miss is read once. Two jobs read at a time, and entities take turns. How much may be in memory
//! for what waits is bounded ([`wants`]). What could not be read is not asked for again for a while: who needs it meanwhile
//! is rejected, or rests. If only a file descriptor was missing, it is read a little later. What nobody waits for comes
//! last: messages ahead of receivers, and runs whose pages are to be written again.

mod ahead;
mod due;
mod failing;
mod reading;
mod wants;
mod warming;

use std::collections::BTreeSet;

use kew_engine::bus::{Behind, Unread};
use kew_engine::{
    BodyLocation, Command, EntityName, Group, GroupRead, GroupToRead, Incarnation, Missing,
    PageNumber, RunId, Slots, Taken, Tries, Turn,
};
use kew_log::{BootTime, Job, PagesRead};
use kew_planted::Keeper;

use self::ahead::Ahead;
use self::due::{DueBodies, DueWork};
use self::failing::FailingGroups;
pub(super) use self::reading::Loaded;
use self::reading::{Read, as_read, read_groups};
pub(super) use self::wants::Asker;
use self::wants::Wants;
use self::warming::Warming;
use super::bodies::{self, Bodies, Ended};
use super::evacuation::Evacuation;
use super::eviction::{keeps, may_leave};
use super::known_pages::page_to_log;
use super::lanes::{Candidate, Lanes};
use super::rests::Rests;
use super::scrub::Scrubbing;
use super::space::Space;
use super::{Partition, Rejection, Reply, to_log};
use crate::{Source, Target};

/// The most groups that one job reads: 8,192 messages.
const GROUPS_AT_ONCE: usize = 64;

/// How many such jobs there are at most: one for each thread.
const JOBS_MAX: usize = 2;

/// How long nothing is asked for again that could not be read.
pub(in crate::partition) const RETRY_INTERVAL_MS: u64 = 1000;

/// What is to be read, and what is being read.
#[derive(Default)]
pub(super) struct Loads {
    wants: Wants,
    /// How many jobs read groups.
    jobs: usize,
    /// How many groups were read since the open.
    read_count: u64,
    /// How many commands were decided without due work that could not be read.
    without_due_count: u64,
    /// The entities that such commands of this turn name.
    without_due: BTreeSet<EntityName>,
    /// The entities whose due work such commands of this turn have left alone.
    left_alone: BTreeSet<Incarnation>,
    failing: FailingGroups,
    ahead: Ahead,
    pub(super) warming: Warming,
    now: BootTime,
    /// The runs of what was read since the last turn: it stays in memory until the next one has used it.
    read: BTreeSet<RunId>,
    due: DueWork,
    pub(super) bodies: Bodies,
    /// The topics whose rules look at bodies, and what forwards to a topic that looks ids up, by the numbers under which
    /// bodies were asked for.
    due_bodies: DueBodies,
    pub(super) rests: Rests,
}

/// The entities that a command names, if it is going to be decided without due work that comes before it, because that work
/// cannot be read. None for nearly all commands.
pub(super) fn left_alone(command: &Command, tries: &Tries) -> Vec<EntityName> {
    if tries.left_due_alone().is_empty() {
        return Vec::new();
    }
    let description = command.describe();
    let entities = description.touches.due_before().iter().copied();
    entities.cloned().collect()
}

impl Loads {
    /// Begins a turn, and the pauses of what failed since the last one. Returns the entities whose due work rests for
    /// that.
    pub(super) fn begin_turn(&mut self, now: BootTime) -> BTreeSet<Incarnation> {
        self.now = now;
        self.without_due.clear();
        self.left_alone.clear();
        self.bodies.begin_turn(now);
        self.ahead.begin_turn(now);
        let until = now.plus_ms(RETRY_INTERVAL_MS);
        self.failing.begin_turn(now, until);
        let put_off = self.due.take_failed();
        for entity in &put_off {
            self.rests.put_off(*entity, until);
        }
        put_off
    }

    /// Whether a pause begins with the next turn.
    pub(super) fn awaits_turn(&self) -> bool {
        self.begins_pauses() || self.bodies.awaits_turn()
    }

    /// Whether a pause of records begins with it.
    pub(super) fn begins_pauses(&self) -> bool {
        self.failing.begins_pauses()
    }

    /// Notes that a group is lost: it is not read again for a while.
    pub(super) fn note_lost(&mut self, group: Group) {
        self.failing.note(group, Unread::Lost);
    }

    /// Why a group is not asked for now.
    pub(super) fn why_failing(&self, group: Group) -> Option<Unread> {
        Some(self.failing.put_off(group, self.now)?.why())
    }

    /// Whether something of this could not be read a moment ago.
    fn is_failing(&self, missing: &Missing) -> bool {
        self.bodies.is_failing(&missing.bodies) || self.failing_entity(missing).is_some()
    }

    /// An entity of which some of these records could not be read a moment ago. Those that can be read later come first.
    fn failing_entity(&self, missing: &Missing) -> Option<(Incarnation, Unread)> {
        if self.failing.is_empty() {
            return None;
        }
        let failing = missing.groups.keys().filter_map(|group| {
            let failing = self.failing.put_off(*group, self.now)?;
            Some((group.entity, failing.why()))
        });
        failing.min_by_key(|(_, why)| *why == Unread::Lost)
    }

    /// Says what a command misses. Due work that could not be read a moment ago does not hold it back.
    pub(super) fn prepare(
        &self,
        turn: &mut Turn<'_>,
        command: &Command,
        tries: &mut Tries,
    ) -> Missing {
        loop {
            let mut missing = turn.prepare(command, tries);
            let Some((entity, why)) = self.failing_entity(&missing) else {
                return missing;
            };
            if why == Unread::Lost && tries.comes_behind_due() {
                // What may lie before the lost messages is done first.
                let is_lost = |group: &Group| self.failing.put_off(*group, self.now).is_some();
                if missing.groups.keys().any(|group| !is_lost(group)) {
                    missing.groups.retain(|group, _| !is_lost(group));
                    return missing;
                }
            }
            // Each time it is another entity.
            if !tries.leave_due_alone(entity, why) {
                return missing;
            }
        }
    }

    /// Notes a command that was decided without due work: the entities that it names, and those whose work it left alone.
    pub(super) fn note_left_alone(&mut self, named: Vec<EntityName>, tries: &Tries) {
        if tries.left_due_alone().is_empty() {
            return;
        }
        self.without_due_count += u64::from(!named.is_empty());
        self.without_due.extend(named);
        self.left_alone.extend(tries.left_due_alone());
    }

    /// Looks for bodies behind those that a command misses, if there is room to read them ahead.
    pub(super) fn look_behind(
        &self,
        turn: &mut Turn<'_>,
        command: &Command,
        missing: &Missing,
    ) -> Behind {
        if missing.bodies.is_empty() || self.is_failing(missing) {
            return Behind::default();
        }
        let target = Target::of(command);
        match self.bodies.room_ahead(target, &missing.bodies) {
            0 => Behind::default(),
            room_bytes => turn.bodies_behind(command, room_bytes),
        }
    }

    /// Asks for records, as far as they are not read yet. Returns until when some of them are not asked for, because they
    /// could not be read.
    pub(super) fn ask(&mut self, asker: Asker, missing: &Missing) -> Option<BootTime> {
        let (failing, now) = (&self.failing, self.now);
        let put_off = self.put_off_until(missing);
        let is_asked = |group: &Group| put_off.is_none() || failing.put_off(*group, now).is_none();
        let groups = missing.groups.iter();
        let groups = groups.filter(|(group, _)| is_asked(group));
        let groups = groups.map(|(group, slots)| (*group, *slots));
        self.wants.ask(asker, groups);
        put_off
    }

    /// Until when some of these records are not asked for, because they could not be read.
    fn put_off_until(&self, missing: &Missing) -> Option<BootTime> {
        let until = |group: &Group| Some(self.failing.put_off(*group, self.now)?.until());
        missing.groups.keys().filter_map(until).max()
    }

    /// Drops what a search for bodies has asked for.
    pub(super) fn release_walk(&mut self, asker: Asker) {
        self.wants.release(asker);
    }

    /// Whether everything was read that an asker wants, or cannot be read.
    pub(super) fn has_served(&self, asker: Asker) -> bool {
        self.wants.is_done(asker)
    }

    /// Whether records of a run stay in memory, because they were read for a decision or will be.
    fn is_pinned(&self, run: RunId) -> bool {
        self.read.contains(&run)
            || self.due.has(run)
            || self.wants.has_run(run)
            || self.warming.has_run(run)
    }

    /// Whether a receiver is going to come to messages of a run that were read ahead for it.
    pub(super) fn is_ahead(&self, run: RunId) -> bool {
        self.ahead.has_run(run)
    }

    /// Ends a turn, which has used what was read.
    pub(super) fn end_turn(&mut self) {
        self.read.clear();
    }
}

impl<T> Partition<T> {
    /// Lets a command wait until what is missing was read. It is rejected if that could not be read a moment ago.
    ///
    /// `behind` are bodies that the next commands on its queue are likely to need.
    pub(super) fn wait_for(
        &mut self,
        mut candidate: Candidate<T>,
        source: Source,
        missing: Missing,
        behind: Vec<BodyLocation>,
        replies: &mut Vec<(T, Reply)>,
    ) {
        if self.loads.is_failing(&missing) {
            self.leave(&mut candidate, replies);
            replies.push((candidate.ticket, Err(Rejection::ReadFailed)));
            return;
        }
        let target = Target::of(&candidate.command);
        let id = self.lanes.wait(candidate, source, &missing);
        self.loads.ask(Asker::Command(id), &missing);
        if !missing.bodies.is_empty() {
            self.loads.bodies.pass_by(target, &missing.bodies);
            let ended = self.loads.bodies.ask(id, &missing);
            self.loads.bodies.ask_ahead(id, target, behind);
            self.note_bodies(ended, replies);
        }
    }

    /// Lets a command wait behind others. What it is likely to need is read meanwhile.
    pub(super) fn wait_behind(
        &mut self,
        candidate: Candidate<T>,
        source: Source,
        mut missing: Missing,
    ) {
        let (failing, now) = (&self.loads.failing, self.now.boot);
        // It may wait long, with what it has got. If there is no place, it asks when it is its turn.
        let is_full = self.loads.wants.is_full();
        (missing.groups).retain(|group, _| !is_full && failing.put_off(*group, now).is_none());
        let id = self.lanes.wait(candidate, source, &missing);
        self.loads.ask(Asker::Command(id), &missing);
    }

    /// Ends the wait of a command, if it has waited.
    pub(super) fn leave(&mut self, candidate: &mut Candidate<T>, replies: &mut Vec<(T, Reply)>) {
        if let Some(id) = self.lanes.leave(candidate) {
            self.release(id, replies);
        }
    }

    /// Drops what a command, or due work, has waited for.
    pub(super) fn release(&mut self, id: u64, replies: &mut Vec<(T, Reply)>) {
        self.loads.wants.release(Asker::Command(id));
        let ended = self.loads.bodies.release(id);
        self.note_bodies(ended, replies);
    }

    /// Lets commands go on whose bodies are in memory, and rejects those whose bodies cannot be read now.
    fn note_bodies(&mut self, ended: Ended, replies: &mut Vec<(T, Reply)>) {
        for id in ended.ready {
            match self.loads.due_bodies.entity(id) {
                Some(topic) => self.loads.rests.end_read(topic, &mut self.state),
                None => self.lanes.note_bodies(id),
            }
        }
        for id in ended.failed {
            match self.loads.due_bodies.remove(id) {
                Some(topic) => {
                    let until = self.now.boot.plus_ms(RETRY_INTERVAL_MS);
                    self.loads.rests.put_off(topic, until);
                    self.loads.end_due(topic);
                    self.release(id, replies);
                }
                None => self.reject_unread(id, replies),
            }
        }
    }

    /// Rejects a command for which something cannot be read now: nothing was done for it.
    fn reject_unread(&mut self, id: u64, replies: &mut Vec<(T, Reply)>) {
        if let Some(mut candidate) = self.lanes.take(id) {
            self.leave(&mut candidate, replies);
            replies.push((candidate.ticket, Err(Rejection::ReadFailed)));
        }
    }

    /// The next job that reads, if something is to be read.
    pub(super) fn next_load(&mut self) -> Option<Job> {
        let mut to_read: Vec<(Slots, GroupToRead)> = Vec::new();
        // Without a file descriptor, nothing is opened for a while.
        let may_read = self.reading_retry_at.is_none() && self.loads.jobs < JOBS_MAX;
        while may_read
            && to_read.len() < GROUPS_AT_ONCE
            && let Some((group, slots)) = self.loads.wants.take()
        {
            match self.state.to_read(group, slots) {
                Some(group) => to_read.push((slots, group)),
                // All of these messages are gone, or in memory by now. Nobody fails for that.
                None => self.end_read(group, slots),
            }
        }
        if to_read.is_empty() {
            let next = self.next_body_load();
            let next = next.or_else(|| self.next_load_ahead());
            return next.or_else(|| self.next_load_to_warm());
        }
        self.loads.jobs += 1;
        // Groups of a page are read together.
        to_read.sort_by_key(|(_, it)| (it.page(), it.group()));
        let mut pages = to_read.iter().map(|(_, it)| page_to_log(it.page()));
        let pages = self.log.read_pages(&mut pages);
        Some(Job::load(move || {
            let (read, pages) = read_groups(pages, to_read);
            Loaded::Groups(read, pages)
        }))
    }

    /// Ends the read of messages, which are in memory or gone, or on another page by now.
    fn end_read(&mut self, group: Group, slots: Slots) {
        for asker in self.loads.wants.end_read(group, slots) {
            match asker {
                Asker::Command(id) => self.lanes.note_records(id),
                Asker::DueWork(entity) => self.loads.rests.end_read(entity, &mut self.state),
                Asker::Evacuation | Asker::Scrub => {}
            }
        }
    }

    fn next_body_load(&mut self) -> Option<Job> {
        let is_reading = self.loads.wants.is_reading();
        let find = |body| self.log.body(to_log(body));
        let to_read = self.loads.bodies.next(find, is_reading);
        let is_empty = to_read.is_empty();
        let read = move || Loaded::Bodies(as_read(bodies::read(to_read)));
        (!is_empty).then(|| Job::load(read))
    }

    /// Takes what a job has read.
    pub(super) fn take_read(&mut self, loaded: Loaded, replies: &mut Vec<(T, Reply)>) {
        match loaded {
            Loaded::Bodies(read) => {
                let ended = self.loads.bodies.take(read);
                self.note_bodies(ended, replies);
            }
            Loaded::Groups(read, pages) => {
                self.end_job(pages);
                self.loads.jobs = self.loads.jobs.saturating_sub(1);
                for (group, slots, read) in read {
                    self.take_one((group, slots), read, replies);
                }
            }
            Loaded::Ahead(read, pages) => {
                self.end_job(pages);
                self.loads.ahead.end_read();
                for (group, slots, read) in read {
                    self.take_ahead((group, slots), read, replies);
                }
            }
            Loaded::ToWarm(read, pages) => {
                self.end_job(pages);
                self.loads.warming.end_read();
                for (group, slots, read) in read {
                    self.take_to_warm((group, slots), read, replies);
                }
            }
        }
    }

    fn end_job(&mut self, pages: PagesRead) {
        self.avoid_pages(&pages);
        self.log.end_read(pages);
    }

    fn take_one(&mut self, of: (Group, Slots), read: Read, replies: &mut Vec<(T, Reply)>) {
        let (group, slots) = of;
        match read {
            Read::Group(read) => self.take_group(of, read, replies),
            Read::NotNow => {
                self.loads.wants.put_back(group, slots);
                self.retry_reading();
            }
            Read::BadSectors => {
                let why = self.loads.failing.note_bad_sectors(group, self.now.boot);
                self.fail(of, why, replies);
            }
            Read::Damaged(page) => self.take_damaged(of, page, replies),
            Read::Failed(why) => {
                self.loads.failing.note(group, why);
                self.fail(of, why, replies);
            }
        }
    }

    /// Messages of which nothing can be read are set aside with the next turn. Who needs no others goes on then. If they are
    /// not, they are asked for again, and count as lost for a while.
    fn take_damaged(
        &mut self,
        (group, slots): (Group, Slots),
        page: PageNumber,
        replies: &mut Vec<(T, Reply)>,
    ) {
        // Its run has another page by now: the command that needs it asks again.
        if self.state.page_of(group.run()) != Some(page) {
            self.end_read(group, slots);
            return;
        }
        let can_be_set_aside = group.is_of_messages();
        if can_be_set_aside {
            self.damaged.note(group, page);
        }
        match can_be_set_aside && self.state.can_quarantine(group, page, slots) {
            true => {
                self.loads.ahead.forget_all_of(group.entity);
                self.end_read(group, slots);
            }
            false => {
                self.loads.failing.note(group, Unread::Lost);
                self.fail((group, slots), Unread::Lost, replies);
            }
        }
    }

    fn take_group(
        &mut self,
        (group, slots): (Group, Slots),
        read: GroupRead,
        replies: &mut Vec<(T, Reply)>,
    ) {
        match self.state.take_read(read) {
            // If its run is on another page by now, the command that needs it asks again.
            Taken::InMemory | Taken::Replaced => {
                self.loads.read_count += 1;
                self.loads.failing.end(group, self.now.boot);
                self.loads.read.insert(group.run());
                self.end_read(group, slots);
            }
            Taken::Damaged => {
                tracing::error!(?group, "a page lacks messages or ids that it should have");
                self.loads.failing.note(group, Unread::Lost);
                self.fail((group, slots), Unread::Lost, replies);
            }
        }
    }

    /// Lets those go on without a group that do not need it, and rejects the others.
    fn fail(&mut self, (group, slots): (Group, Slots), why: Unread, replies: &mut Vec<(T, Reply)>) {
        self.loads.ahead.forget_all_of(group.entity);
        for asker in self.loads.wants.fail(group, slots) {
            match asker {
                Asker::Command(id) if self.lanes.goes_on_without(id, group.entity, why) => {
                    if self.loads.wants.do_without(asker, group) {
                        self.lanes.note_records(id);
                    }
                }
                Asker::Command(id) => self.reject_unread(id, replies),
                // They ask again.
                Asker::DueWork(entity) => self.loads.fail_due(entity, group),
                Asker::Evacuation | Asker::Scrub => self.loads.wants.release(asker),
            }
        }
    }

    /// Lets entities rest of which nothing may change, or needs a read, and others no longer.
    pub(super) fn let_rest(&mut self, space: Space, replies: &mut Vec<(T, Reply)>) {
        let late = self.lanes.late_queues().into_iter();
        let late = late.flat_map(|queue| self.state.incarnations_of(queue));
        let late: BTreeSet<Incarnation> = late.collect();
        for entity in &late {
            // The late command may wait for this room.
            if self.release_due_bodies(*entity, replies) {
                self.loads.rests.end_read(*entity, &mut self.state);
            }
        }
        self.loads
            .rests
            .begin_turn(self.now.boot, late, &mut self.state);
        if matches!(space, Space::Plenty { .. }) {
            self.loads.rests.end_full(&mut self.state);
        }
    }

    /// How many groups of messages were read from pages since the open.
    pub fn loaded_count(&self) -> u64 {
        self.loads.read_count
    }

    /// How many commands were decided since the open although due work that comes before them could not be read.
    pub fn decided_without_due_count(&self) -> u64 {
        self.loads.without_due_count
    }

    /// Whether a command of the last turn that touches this entity was one of them.
    pub fn was_without_due(&self, entity: &EntityName) -> bool {
        self.loads.without_due.contains(entity)
    }

    /// The entities whose due work commands of the last turn have left alone.
    pub fn left_alone(&self) -> &BTreeSet<Incarnation> {
        &self.loads.left_alone
    }

    /// The messages that jobs are reading, by group.
    pub fn loading(&self) -> &BTreeSet<(Group, Slots)> {
        self.loads.wants.under_way()
    }

    /// Rejects the commands that wait for a read: nothing was done for them.
    pub fn reject_waiting(&mut self, replies: &mut Vec<(T, Reply)>) {
        self.loads.bodies.release_all();
        // Their entities ask again.
        self.loads.due_bodies = DueBodies::default();
        self.loads.due = DueWork::default();
        self.loads.rests.end_reads(&mut self.state);
        self.loads.wants = Wants::default();
        self.loads.ahead = Ahead::default();
        self.loads.warming = Warming::default();
        let waiting = self.lanes.drain();
        let rejection = self.rejection();
        replies.extend(waiting.map(|ticket| (ticket, Err(rejection.clone()))));
    }

    /// The tickets of the commands that wait for a read, in the order of arrival.
    pub fn waiting(&self) -> impl Iterator<Item = &T> {
        self.lanes.tickets()
    }

    /// The tickets of those that wait for records.
    pub fn waiting_for_records(&self) -> impl Iterator<Item = &T> {
        self.lanes.waiting_for_records()
    }

    /// Whether a command waits for bodies.
    pub fn is_body_awaited(&self) -> bool {
        self.loads.bodies.is_any_wanted()
    }

    /// Whether due work of an entity waits for a read.
    pub fn is_due_work_waiting(&self) -> bool {
        self.loads.rests.is_any_reading()
    }

    /// How often each of them was tried.
    pub fn tries(&self) -> impl Iterator<Item = (&T, u32)> {
        self.lanes.tries()
    }

    /// Asserts that the newest snapshot names the page of each cold run: nothing else has its records. Walks over all
    /// runs: for tests.
    pub fn check_cold_pages(&self) {
        let is_named = |page| self.log.names_page(page_to_log(page));
        let mut pages = self.state.cold_pages();
        assert!(pages.all(is_named), "a cold run's page is named");
    }

    /// Takes records out of memory, of each run that has a page and that is chosen: for tests. What decisions wait for
    /// stays. `is_chosen` gets the entity, and whether the run may leave memory by the rules of the product.
    pub fn evict_if(&mut self, mut is_chosen: impl FnMut(Incarnation, bool) -> bool) {
        let far_from = self.far_from();
        let Self {
            state,
            log,
            lanes,
            loads,
            evacuation,
            scrub,
            ..
        } = self;
        let pins = Pins {
            lanes,
            loads,
            evacuation,
            scrub,
        };
        state.evict_if(far_from, |run, page, leaving| {
            !pins.has(run) && is_chosen(run.0, may_leave(&**log, page, leaving))
        });
    }
}

/// What keeps records of runs in memory.
pub(super) struct Pins<'a, T> {
    pub(super) lanes: &'a Lanes<T>,
    pub(super) loads: &'a Loads,
    pub(super) evacuation: &'a Evacuation,
    pub(super) scrub: &'a Scrubbing,
}

impl<T> Pins<'_, T> {
    /// Whether something that is not done yet has asked for a run.
    pub(super) fn has(&self, run: RunId) -> bool {
        let is_pinned = self.lanes.is_pinned(run)
            || self.loads.is_pinned(run)
            || self.evacuation.is_pinned(run)
            || self.scrub.is_pinned(run);
        keeps(Keeper::Pins, is_pinned)
    }
}
