//! A turn: due work and commands are decided, and their events become one batch of the log.

use std::ops::ControlFlow;

use kew_engine::{Checked, Class, Missing, Timestamp, Turn};
use kew_log::Reservation;

use super::Partition;
use super::batch::{Batch, Writing};
use super::lanes::Candidate;
use super::loads::left_alone;
use super::reply::{Decided, Rejection, Reply};
use super::reservation::NoRoom;
use super::space::{SETTLEMENT_TICK_BUDGET, Space};
use super::stirred::Taking;
use crate::{Cost, Moment, Source, Waiting};

/// How many messages, sessions or queues the commands of one turn look at, at most, unless the first one looks
/// at more: about a millisecond. What a turn copies because a snapshot has it counts too.
const TURN_STEPS_MAX: u64 = 50_000;

/// How many of these are for commands, whatever the tick of the turn took.
const COMMAND_STEPS_MIN: u64 = TURN_STEPS_MAX / 2;

/// How many commands a turn decides at most. New commands wait for the turns before them.
const TURN_COMMANDS_MAX: usize = 4096;

/// For how many commands a turn leaves memory to the next one.
const KEPT_COMMANDS_MAX: usize = 1024;

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// Every command was decided.
    Done,
    /// The turn is full. Commands are left.
    MoreToDecide,
    /// Every command was decided, but those that wait for copies of a topic. More is due already.
    MoreIsDue,
    /// Nothing can be decided before a job is done: the next segment is being prepared.
    WaitForJob,
    /// The same: a snapshot is being written, and records take too much memory.
    WaitForMemory,
}

/// What a turn has room for, and what it has decided.
struct Deciding<T> {
    now: Timestamp,
    space: Space,
    batch: Batch,
    room_bytes: u64,
    count_left: usize,
    steps_left: u64,
    /// Whether those who send to a topic wait until it has made the copies that it owes.
    may_hold: bool,
    decided: Vec<Decided<T>>,
}

/// A command that can be decided if nothing is missing.
struct Admitted<T> {
    candidate: Candidate<T>,
    source: Source,
    taking: Option<Taking>,
    is_read: bool,
    has_bodies: bool,
    checked: Checked,
}

impl<T> Deciding<T> {
    fn room_left(&self) -> u64 {
        let used_bytes = self.batch.builder.len_bytes() as u64;
        self.room_bytes.saturating_sub(used_bytes)
    }

    /// Whether another command may come. The first one does in any case.
    fn takes_more(&self) -> bool {
        self.count_left > 0 && (self.steps_left > 0 || self.is_first())
    }

    fn is_first(&self) -> bool {
        self.count_left == TURN_COMMANDS_MAX
    }

    fn spend_steps(&mut self, steps: u64) {
        self.steps_left = self.steps_left.saturating_sub(steps);
    }
}

impl<T> Partition<T> {
    /// Decides commands in the order of `commands` until there are no more or the turn is full: by its batch, by
    /// the number of commands, or by what they look at.
    ///
    /// Answers that do not depend on unwritten records go to `replies` at once. The others follow from
    /// [`Partition::complete`]. Commands that are left need another turn, after the jobs that this turn
    /// created.
    pub fn turn(
        &mut self,
        moment: Moment,
        commands: &mut impl Waiting<T>,
        replies: &mut Vec<(T, Reply)>,
    ) -> TurnEnd {
        if self.stopped {
            return self.reject_all(commands, replies);
        }
        let (now, boot) = (moment.time.max(self.recorded_at()), moment.boot);
        self.now = Moment { time: now, boot };
        self.reads.begin_turn();
        for entity in self.loads.begin_turn(boot) {
            self.release_due_bodies(entity, replies);
        }
        self.keep_up(boot, commands.is_empty() && !self.lanes.has_ready());
        self.gather(self.options.gather_steps);
        self.warm();
        self.evict();
        if self.waits_for_memory() {
            return TurnEnd::WaitForMemory;
        }
        self.keep_for_draining();
        let (reservation, space) = match self.reserve(commands) {
            Ok(reserved) => reserved,
            Err(NoRoom::WaitForJob) => return TurnEnd::WaitForJob,
            Err(NoRoom::Ended(end)) => {
                self.end(&end, replies);
                return self.reject_all(commands, replies);
            }
        };
        let position = reservation.map_or_else(|| self.log.end(), |it| it.position);
        let room_bytes = reservation.map_or(0, |it| it.room_bytes);
        let mut batch = Batch::at(position, now, self.last_batch_bytes);
        self.quarantine(now, &mut batch, space);
        let is_more_due = self.carry_out_due(now, space, &mut batch, replies);
        let room_left = room_bytes.saturating_sub(batch.builder.len_bytes() as u64);
        self.move_bodies(now, &mut batch, space, room_left);
        let due_steps = self.state.take_copied();
        let mut deciding = Deciding {
            now,
            space,
            batch,
            room_bytes,
            count_left: TURN_COMMANDS_MAX,
            steps_left: TURN_STEPS_MAX
                .saturating_sub(due_steps)
                .max(COMMAND_STEPS_MIN),
            may_hold: self.may_hold(space),
            decided: std::mem::take(&mut self.decided),
        };
        while deciding.takes_more() {
            match self.admit_next(&mut deciding, commands, replies) {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(None) => {}
                ControlFlow::Continue(Some(admitted)) => {
                    self.try_next(&mut deciding, admitted, replies);
                }
            }
        }
        let is_any_held = commands.is_any_held();
        let is_anything_left = !commands.is_empty() || self.lanes.has_ready();
        commands.end_turn();
        self.loads.end_turn();
        let is_any_written = self.write(reservation, deciding, replies);
        // If a turn writes nothing, the next one would do the same.
        let goes_on = is_any_written && (is_more_due || is_any_held);
        match (is_anything_left, goes_on) {
            (true, _) => TurnEnd::MoreToDecide,
            (false, true) => TurnEnd::MoreIsDue,
            (false, false) => TurnEnd::Done,
        }
    }

    /// Rejects every command: nothing is decided any more.
    fn reject_all(
        &mut self,
        commands: &mut impl Waiting<T>,
        replies: &mut Vec<(T, Reply)>,
    ) -> TurnEnd {
        while let Some((ticket, _)) = commands.take(Cost::default()) {
            replies.push((ticket, Err(self.rejection())));
        }
        self.reject_waiting(replies);
        TurnEnd::Done
    }

    /// Carries out what is due, as far as the budget of a tick goes. Returns whether more is.
    fn carry_out_due(
        &mut self,
        now: Timestamp,
        space: Space,
        batch: &mut Batch,
        replies: &mut Vec<(T, Reply)>,
    ) -> bool {
        self.let_rest(space, replies);
        let mut journal = Writing {
            batch,
            log: &*self.log,
            bodies: Some(&self.loads.bodies),
        };
        let mut turn =
            Turn::new(&mut self.state, now, &mut journal).with_format(&*self.options.format);
        if !matches!(space, Space::Plenty { .. }) {
            turn = turn.draining();
        }
        let tick_budget = match space {
            Space::Plenty { .. } => self.options.tick_budget,
            // Expired messages are removed on a full disk too: nothing else would make room for them.
            Space::SettlementOnly { .. } => self.options.tick_budget.min(SETTLEMENT_TICK_BUDGET),
            Space::None => 0,
        };
        let ticked = turn.tick(tick_budget);
        let is_more_due = ticked.more_is_due;
        // What rules looked at is not part of an answer.
        batch.pinned.clear();
        self.note_ticked(ticked, replies);
        is_more_due
    }

    /// Takes the next command. Ends the turn if there is none, or no room for it. `None` says that it is held back, or
    /// rejected.
    fn admit_next(
        &mut self,
        deciding: &mut Deciding<T>,
        commands: &mut impl Waiting<T>,
        replies: &mut Vec<(T, Reply)>,
    ) -> ControlFlow<(), Option<Admitted<T>>> {
        let space = deciding.space;
        let has_waited = self.lanes.has_ready();
        let next = self.lanes.front_mut().or_else(|| commands.front_mut());
        let Some(command) = next else {
            return ControlFlow::Break(());
        };
        space.trim(command, &self.state);
        let description = command.describe();
        if deciding.may_hold
            && !has_waited
            && description.owed_copies(&self.state) > self.options.copies_owed_max
        {
            let size_bytes = description.body_size_bytes;
            if !commands.hold(size_bytes)
                && let Some((ticket, _)) = commands.take(Cost::default())
            {
                deciding.count_left -= 1;
                replies.push((ticket, Err(Rejection::Busy)));
            }
            return ControlFlow::Continue(None);
        }
        // A tick of expensive rules would hold all commands up for as long as it has work.
        if description.looks_at > deciding.steps_left && !deciding.is_first() {
            return ControlFlow::Break(());
        }
        let needed = space.needed_bytes(&description, &self.state);
        let cost = Cost {
            size_bytes: description.writes.size_bytes_max(&self.state),
            steps: description.looks_at,
        };
        let mut is_admitted = cost.size_bytes == 0 || space.admits(&description, needed);
        if is_admitted && deciding.room_left() < needed {
            if needed <= space.turn_bytes() {
                return ControlFlow::Break(());
            }
            // No turn has this much room while the disk is full.
            is_admitted = false;
        }
        deciding.count_left -= 1;
        deciding.spend_steps(cost.steps);
        let taking = Taking::of(&description);
        let is_read = description.class == Class::Read;
        let has_bodies = description.needs_bodies;
        let checked = description.checked();
        let Some((mut candidate, source)) = self.take_next(commands, cost) else {
            return ControlFlow::Break(());
        };
        let rejection = match is_admitted {
            false => Rejection::Full,
            // Messages would be removed that nobody gets. Nor does anybody get this answer.
            true if has_bodies && self.is_abandoned(&candidate) => Rejection::Busy,
            true => {
                return ControlFlow::Continue(Some(Admitted {
                    candidate,
                    source,
                    taking,
                    is_read,
                    has_bodies,
                    checked,
                }));
            }
        };
        self.leave(&mut candidate, replies);
        replies.push((candidate.ticket, Err(rejection)));
        ControlFlow::Continue(None)
    }

    /// Decides a command, or lets it wait for what it needs.
    fn try_next(
        &mut self,
        deciding: &mut Deciding<T>,
        admitted: Admitted<T>,
        replies: &mut Vec<(T, Reply)>,
    ) {
        let Admitted {
            mut candidate,
            source,
            taking,
            is_read,
            has_bodies,
            checked,
        } = admitted;
        let may_miss = self.state.may_miss(has_bodies);
        let mut journal = Writing {
            batch: &mut deciding.batch,
            log: &*self.log,
            bodies: Some(&self.loads.bodies),
        };
        let mut turn = Turn::new(&mut self.state, deciding.now, &mut journal)
            .with_due_budget(deciding.space.due_budget())
            .with_copies_at_once(self.options.copies_at_once)
            .with_format(&*self.options.format);
        if !self.lanes.is_empty() && self.lanes.hold_back(source, &candidate) {
            let missing = turn.look_ahead(&candidate.command);
            self.wait_behind(candidate, source, missing);
            return;
        }
        let Candidate { command, tries, .. } = &mut candidate;
        // Most partitions have all of their records in memory.
        let missing = may_miss.then(|| self.loads.prepare(&mut turn, command, tries));
        if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
            let behind = self
                .loads
                .look_behind(&mut turn, &candidate.command, &missing);
            let receiving = turn.receiving(&candidate.command);
            deciding.spend_steps(behind.looks);
            if let Some(receiving) = receiving {
                self.look_ahead_of(&receiving, &missing);
            }
            self.wait_for(candidate, source, missing, behind.bodies, replies);
            return;
        }
        let left = self.lanes.leave(&mut candidate);
        let Candidate {
            ticket,
            command,
            tries,
            ..
        } = candidate;
        let left_alone = left_alone(&command, &tries);
        let receiving = turn.receiving(&command);
        let decision = turn.decide_checked(command, checked);
        self.loads.note_left_alone(left_alone, &tries);
        if let Some(id) = left {
            self.release(id, replies);
        }
        deciding.spend_steps(self.state.take_copied());
        if let Some(receiving) = receiving {
            self.look_ahead_of(&receiving, &Missing::default());
        }
        if let Some(taking) = taking {
            let (left, passed_over) = taking.look_back(&decision.result, &self.state);
            deciding.batch.stirred.extend(left);
            if let Some((entity, awaited)) = passed_over {
                self.passed_over.add(entity, awaited);
                deciding.batch.looked.push(entity);
            }
        }
        deciding.decided.push(Decided {
            ticket,
            is_read,
            has_bodies,
            decision,
        });
    }

    /// Appends what was decided, and hands out the answers or lets them wait. Returns whether anything was written.
    fn write(
        &mut self,
        reservation: Option<Reservation>,
        deciding: Deciding<T>,
        replies: &mut Vec<(T, Reply)>,
    ) -> bool {
        let Deciding {
            now,
            mut batch,
            mut decided,
            ..
        } = deciding;
        let pinned = std::mem::take(&mut batch.pinned);
        self.note(&mut batch);
        self.uncover(&batch, now);
        let is_any_written = !batch.builder.is_empty();
        let record = batch.position;
        self.append(reservation, batch);
        let durable = self.log.durable();
        for decided in decided.drain(..) {
            self.answer(decided, &pinned, (record, durable), replies);
        }
        decided.shrink_to(KEPT_COMMANDS_MAX);
        self.decided = decided;
        self.prove_reads();
        is_any_written
    }

    /// Whether those who send to a topic wait until it has made the copies that it owes, if these are many: its backlog would
    /// grow without end if it took more than it passes on. A topic that cannot make copies now takes what comes.
    fn may_hold(&self, space: Space) -> bool {
        let is_topic = |entity| self.state.is_topic(entity);
        matches!(space, Space::Plenty { .. }) && !self.loads.rests.is_any_put_off(is_topic)
    }

    /// Takes the next command: one that has waited before new ones.
    fn take_next(
        &mut self,
        commands: &mut impl Waiting<T>,
        cost: Cost,
    ) -> Option<(Candidate<T>, Source)> {
        if let Some(candidate) = self.lanes.take_front() {
            // It has its lanes.
            return Some((candidate, Source::ALONE));
        }
        let source = commands.front_source();
        let (ticket, command) = commands.take(cost)?;
        Some((Candidate::new(ticket, command), source))
    }

    /// Whether nobody waits any more for a command that has waited.
    fn is_abandoned(&self, candidate: &Candidate<T>) -> bool {
        candidate.has_waited() && !(self.is_awaited)(&candidate.ticket)
    }

    /// Notes which entities the batch's events touched, for the answers that rest on them.
    fn note(&mut self, batch: &mut Batch) {
        self.last_records.note(batch.position, batch);
        self.stirred.append(&mut batch.stirred);
        self.measured.grew(&self.state, batch.growth_bytes);
        if batch.sets_forwards {
            self.measured.forget();
        }
        self.effects.all += batch.effect_count;
    }

    fn append(&mut self, reservation: Option<Reservation>, batch: Batch) {
        let Some(reservation) = reservation else {
            assert!(
                batch.builder.is_empty(),
                "a turn without room writes nothing"
            );
            return;
        };
        if !batch.builder.is_empty() {
            self.note_appended(&batch.builder);
            self.last_batch_bytes = batch.builder.len_bytes();
        }
        if let Err(error) = self.log.append(reservation, batch.builder) {
            // The state has moved on without the log. This is a bug, and no answer may leave the partition.
            panic!("a batch was refused that was built for its reservation: {error}");
        }
    }
}
