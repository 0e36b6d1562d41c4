//! Records of messages that are not in memory: which of them, and in which order commands wait for them.

use std::collections::{BTreeSet, VecDeque};

use kew_broker::{Rejection, Reply, Source};
use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions, Receives};
use kew_engine::{Class, Command, EntityName, Group, RunLength, SequenceNumber, Slots, Touches};
use kew_log::JobKind;

use super::World;
use crate::bus::checker::life::Part;
use crate::bus::named;
use crate::checker::{Violation, promise, violated};
use crate::rare::Rare;
use crate::seam;

/// How many messages become due one after the other, a millisecond each, while a command waits for four of them at a
/// time to be read.
const DUE_MESSAGES: u64 = 200;

/// How many turns the command may take: eight tries in which a tick is faster, and some of its own.
const TURNS_OF_ONE: u32 = 20;

/// How often a command is tried at most. Each try waits for a read: of what is due before the command, or of its own.
const TRIES_MAX: u32 = 200;

/// The commands that wait for a read, or behind others.
pub(super) struct Waits {
    /// In the order in which they came.
    all: Vec<u64>,
    for_records: BTreeSet<u64>,
}

/// What jobs were loading, how many calls of the disk had failed, and whether the next one does.
pub(super) struct BeforeLoad {
    loading: BTreeSet<(Group, Slots)>,
    failed_calls: u64,
    fails: bool,
}

impl World {
    /// Takes records out of memory, from time to time: of each run, or of none.
    pub(super) fn take_out_of_memory(&mut self) {
        let per_mille = self.swarm.cold_per_mille;
        let resident = self.life.partition.state().resident();
        let is_cold = resident.cold_runs > 0;
        // Nothing but a limit takes them out, or a start with one, and there are no storage queues.
        if per_mille == 0
            && self.swarm.queues == 0
            && is_cold
            && let Some(bus) = &mut self.bus
        {
            bus.checker.note("records were on pages alone");
            if resident.far > 0 {
                bus.checker.note("times were on pages alone");
            }
        }
        if per_mille == 0 || !self.cold.happens(per_mille) {
            return;
        }
        let cold = &mut self.cold;
        self.life.partition.evict_if(|_, may| {
            let is_chosen = cold.below(16) < 14;
            may && is_chosen
        });
    }

    /// Damages one copy of a page, from time to time, before pages are read: the other one has the records.
    pub(super) fn rot_before_load(&mut self, kind: JobKind) {
        if kind == JobKind::Load && self.reads_fail && self.cold_rot.happens(40) {
            let which = self.cold_rot.next();
            self.damage_copy(which);
        }
    }

    fn may_be_cold(&self) -> bool {
        self.swarm.cold_per_mille > 0 || self.swarm.resident_records_max.is_some()
    }

    /// Whether the disk fails to read what a job is about to load.
    pub(super) fn fails_to_load(&mut self, kind: JobKind) -> bool {
        kind == JobKind::Load && self.may_be_cold() && self.reads_fail && self.cold.happens(60)
    }

    /// What jobs are loading before one of them is carried out that loads something.
    pub(super) fn before_load(&mut self, kind: JobKind, fails: bool) -> Option<BeforeLoad> {
        self.note_ids();
        (kind == JobKind::Load).then(|| BeforeLoad {
            loading: self.life.partition.loading().clone(),
            failed_calls: self.storage.failed_calls(),
            fails,
        })
    }

    /// Notes that jobs read ids of a topic.
    fn note_ids(&mut self) {
        let (partition, Some(bus)) = (&self.life.partition, &mut self.bus) else {
            return;
        };
        let state = partition.state();
        let is_of_topic = |group: &Group| !group.is_of_messages() && state.is_topic(group.entity);
        if partition
            .loading()
            .iter()
            .any(|(group, _)| is_of_topic(group))
        {
            bus.checker.note("ids of a topic were read");
        }
    }

    /// Notes the entities of what a job could not load: those of the groups that no job is loading any more.
    pub(super) fn note_load(&mut self, before: Option<BeforeLoad>) {
        let failed = before.filter(|it| it.fails || it.failed_calls < self.storage.failed_calls());
        let Some(BeforeLoad { loading, .. }) = failed else {
            return;
        };
        let ended = loading.difference(self.life.partition.loading());
        self.life
            .unread
            .extend(ended.map(|(group, _)| group.entity));
    }

    /// Whether all due work that comes before a command of the last turn could be read.
    pub(super) fn could_read_due(&self, command: &Command) -> bool {
        let description = command.describe();
        let mut before = description.touches.due_before().iter();
        !before.any(|entity| self.life.partition.was_without_due(entity))
    }

    /// Commands are decided without due work that comes before them only where the disk has failed to read it:
    /// something of the same entity. Due work before a command needs records of its own entity alone, also if it
    /// forwards messages to another one: none to a topic that looks ids up.
    pub(super) fn check_left_alone(&self) -> Result<(), Violation> {
        let mut left_alone = self
            .life
            .partition
            .left_alone()
            .difference(&self.life.unread);
        match left_alone.next() {
            Some(entity) => violated!(
                promise::LIVENESS,
                "due work of {entity:?} was left alone, and no read of it has failed"
            ),
            None => Ok(()),
        }
    }

    /// The commands that wait.
    pub(super) fn waiting(&self) -> Waits {
        Waits {
            all: self.life.partition.waiting().copied().collect(),
            for_records: self.life.partition.waiting_for_records().copied().collect(),
        }
    }

    /// Due work holds no command back for long: a command is tried a bounded number of times, also if work becomes due
    /// faster than it is read.
    pub(super) fn check_tries(&self) -> Result<(), Violation> {
        for (id, tries) in self.life.partition.tries() {
            if tries > TRIES_MAX {
                return violated!(promise::LIVENESS, "operation {id} was tried {tries} times");
            }
        }
        Ok(())
    }

    /// The commands that a turn has decided, in order: those that had waited come first. None of those that wait for
    /// records was passed by a later one that may write to the same queue. Others were not passed by those of their own
    /// source, nor one that takes messages by a later one that takes messages too.
    pub(super) fn decided(
        &mut self,
        waited: &Waits,
        taken: &[u64],
        replies: &[(u64, Reply)],
    ) -> Result<Vec<u64>, Violation> {
        let waiting = self.waiting();
        if waiting.all.is_empty() && waited.all.is_empty() {
            return Ok(taken.to_vec());
        }
        self.report.rare.note(Rare::WaitedForRead);
        if self.life.partition.is_body_awaited()
            && let Some(bus) = &mut self.bus
        {
            bus.checker.note("a command waited for bodies");
        }
        let waits: BTreeSet<u64> = waiting.all.iter().copied().collect();
        let awaits_records = |id: &u64| {
            let did = waited.for_records.contains(id) || !waited.all.contains(id);
            did && waiting.for_records.contains(id)
        };
        let came = waited.all.iter().chain(taken);
        let mut before: Vec<u64> = Vec::new();
        let mut decided = Vec::new();
        for id in came {
            if waits.contains(id) {
                before.push(*id);
                continue;
            }
            decided.push(*id);
            self.report
                .rare
                .note_if(!before.is_empty(), Rare::PassedWhileWaiting);
            // Such a rejection changes nothing.
            let is_rejected = |(of, reply): &(u64, Reply)| {
                of == id && matches!(reply, Err(Rejection::Full | Rejection::ReadFailed))
            };
            let own = match replies.iter().any(is_rejected) {
                true => BTreeSet::new(),
                false => self.writes_to(*id),
            };
            let takes = self.takes(*id);
            let meets = |it: &&u64| {
                let may_not_be_passed = awaits_records(it)
                    || takes && self.takes(**it)
                    || self.have_one_source(**it, *id);
                may_not_be_passed && !self.writes_to(**it).is_disjoint(&own)
            };
            if let Some(passed) = before.iter().find(meets) {
                return violated!(
                    promise::ORDER,
                    "operation {id} was decided before {passed}, which came first"
                );
            }
        }
        Ok(decided)
    }

    fn have_one_source(&self, one: u64, other: u64) -> bool {
        let source = |id| self.history.get(&id).map_or(Source::ALONE, |it| it.source);
        source(one) != Source::ALONE && source(one) == source(other)
    }

    /// Whether an operation takes messages from the head of a queue, or hands out and removes others.
    fn takes(&self, id: u64) -> bool {
        let Some(asked) = self.history.get(&id) else {
            return false;
        };
        let description = asked.operation.command.describe();
        let receives = matches!(description.receives, Some(Receives::Messages { .. }));
        description.class != Class::Read && (description.needs_bodies || receives)
    }

    /// The queues that an operation may write to, those of all parts of a transaction.
    fn writes_to(&self, id: u64) -> BTreeSet<EntityName> {
        let Some(asked) = self.history.get(&id) else {
            return BTreeSet::new();
        };
        let description = asked.operation.command.describe();
        if description.class == Class::Read {
            return BTreeSet::new();
        }
        let queue_of = |name: &EntityName| {
            let queue = name.name.split("/$").next().unwrap_or_default();
            EntityName {
                name: queue.into(),
                ..name.clone()
            }
        };
        match description.touches {
            Touches::Queue(name) => BTreeSet::from([queue_of(name)]),
            Touches::Transfer { from, to } => {
                let to = to.map(|to| EntityName {
                    name: to.into(),
                    ..from.clone()
                });
                [queue_of(from)].into_iter().chain(to).collect()
            }
            Touches::Queues(names) => names.into_iter().map(queue_of).collect(),
            Touches::Catalogue | Touches::Account(_) | Touches::Bodies => BTreeSet::new(),
        }
    }

    /// Messages of a queue become due faster than they are read, and a command on it is decided all the same: what is
    /// due before it has a budget, which counts over all of its tries. No checker follows these commands.
    pub(super) fn check_nothing_held_back(&mut self) -> Result<(), Violation> {
        if self.bus.is_none()
            || self.swarm.run_length != RunLength::TINY
            || self.swarm.carries_out_all_due()
        {
            return Ok(());
        }
        let queue = EntityName {
            name: "held-back".into(),
            ..named(0, Part::Queue)
        };
        let options = BusQueueOptions::default();
        let first_due = self.life.now.plus_ms(10_000);
        let message = |nth| BusMessage {
            body: "due".into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: Some(first_due.plus_ms(nth)),
        };
        let create = BusCommand::CreateQueue {
            queue: queue.clone(),
            options,
        };
        let send = BusCommand::Send {
            queue: queue.clone(),
            messages: (0..DUE_MESSAGES).map(message).collect(),
        };
        for command in [create, send] {
            self.turn_alone(Some(command))?;
        }
        self.life.partition.snapshot();
        self.turn_alone(None)?;
        self.life.partition.evict_if(|_, may| may);
        self.pass_time(|_| 10_000_000)?;
        let peek = BusCommand::Peek {
            queue,
            from: SequenceNumber::default(),
            count: 1,
            session: None,
        };
        let mut is_answered = self.turn_alone(Some(peek))?;
        for _ in 0..TURNS_OF_ONE {
            if is_answered {
                return Ok(());
            }
            // The next run is due, and not in memory.
            self.pass_time(|_| 4_000)?;
            is_answered = self.turn_alone(None)?;
        }
        violated!(promise::LIVENESS, "due work holds a command back")
    }

    /// A turn with a command that no client has asked, and all jobs. Returns whether something was answered.
    fn turn_alone(&mut self, command: Option<BusCommand>) -> Result<bool, Violation> {
        let commands = command.map(|command| (u64::MAX, Command::Bus(command)));
        let mut commands: VecDeque<(u64, Command)> = commands.into_iter().collect();
        let mut replies = Vec::new();
        loop {
            let moment = self.moment();
            self.life
                .partition
                .turn(moment, &mut commands, &mut replies);
            while let Some(job) = self.life.partition.next_job() {
                let outcome = seam::carry_out(job);
                let completed = self.life.partition.complete(outcome, &mut replies);
                if let Err(error) = completed {
                    return violated!(promise::LIVENESS, "the log failed without a fault: {error}");
                }
            }
            if commands.is_empty() {
                return Ok(!replies.is_empty());
            }
        }
    }
}
