//! Two members of a replicated log, which own it in turn.
//!
//! The world goes on with the one that owns the log. The one before may not know of that yet: it acts from time to time,
//! gets commands of clients that do not know of it either, and must answer none of them with what is not so any more. All
//! of its operations come before those of the next owner, because nothing that it asks for is agreed from then on. Once an
//! answer of the next owner has left, no answer of the former one may show less.

use std::collections::BTreeMap;

use kew_broker::{Partition, Rejection, Reply};
use kew_engine::bus::BusOutcome;
use kew_engine::storage::StorageOutcome;
use kew_engine::{Outcome, Timestamp};
use kew_log::{BootTime, LogEnd};
use kew_log_contract::{Mistake, Model};
use kew_planted::Seam;

use super::life::Life;
use super::{Asked, World, secret};
use crate::checker::{Seen, Violation, promise, violated};
use crate::random::Stream;
use crate::seam::{self, altered};
use crate::swarm::{ModelSwarm, Swarm};

/// How many members there are.
const COUNT: usize = 2;

/// A former owner learns within so many turns of 10 ms that it is one.
const TURNS_MAX: u32 = 2_000;

/// What there is beside the process that owns the log.
pub(super) struct Members {
    swarm: ModelSwarm,
    model: Model,
    random: Stream,
    /// Which member owns the log.
    owner: usize,
    /// The process that owned it before, while it lives. While that one acts: the owner's.
    other: Option<Box<Life>>,
    /// The newest life of which a client has an answer.
    answered: u64,
    /// When the newest change was decided of which a client knows.
    changed_at: Timestamp,
    pub(super) occurred: BTreeMap<&'static str, u64>,
}

/// What must occur over enough seeds, or the worlds prove less than they seem to.
pub const MUST_OCCUR_WITH_MEMBERS: [&str; 8] = [
    ACKNOWLEDGED,
    "a former owner did not know what became of a change",
    "a former owner died before it knew that it was one",
    "a former owner learned that it was one",
    "a former owner refused a command",
    SHOWN,
    "a member lost the end of its copy",
    "another member was promoted",
];

const ACKNOWLEDGED: &str = "a former owner acknowledged a change";
const SHOWN: &str = "a former owner showed what was still so";

impl Members {
    pub(super) fn new(seed: u64, swarm: ModelSwarm) -> Self {
        let mistake = altered::<Option<Mistake>>(Seam::Model, None);
        let model = match mistake {
            Some(mistake) => Model::altered(swarm.options, seed, mistake),
            None => Model::new(swarm.options, seed),
        };
        Self {
            swarm,
            model,
            random: Stream::new(seed, "members"),
            owner: 0,
            other: None,
            answered: 0,
            changed_at: Timestamp::default(),
            occurred: BTreeMap::new(),
        }
    }

    /// Opens the log as the owner.
    pub(super) fn open(&self, swarm: &Swarm, seed: u64, wall: Timestamp) -> seam::OpenedPartition {
        let source = self.model.member(self.owner);
        Partition::open_from(&source, swarm.partition_options(), secret(seed), wall)
    }

    fn note(&mut self, what: &'static str) {
        *self.occurred.entry(what).or_default() += 1;
    }
}

impl World {
    /// Lets the former owner act, sometimes.
    pub(super) fn former_acts(&mut self) -> bool {
        let members = self.members.as_mut();
        members.is_some_and(|it| it.other.is_some() && it.random.happens(it.swarm.former_per_mille))
    }

    /// Lets the former owner do something. It is gone if it has learned that it is one.
    pub(super) fn as_former(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        self.change_places();
        self.read_clock()?;
        act(self)?;
        self.change_places();
        self.read_clock()?;
        if let Some(members) = &mut self.members {
            members.other.take_if(|it| it.partition.is_stopped());
        }
        self.check()
    }

    fn change_places(&mut self) {
        let members = self.members.as_mut();
        if let Some(other) = members.and_then(|it| it.other.as_mut()) {
            std::mem::swap(&mut self.life, other);
        }
    }

    /// Whether a former owner may still decide something that comes before all of this one's operations.
    pub(super) fn has_former(&self) -> bool {
        let members = self.members.as_ref();
        let other = members.and_then(|it| it.other.as_ref());
        other.is_some_and(|other| other.number < self.life.number)
    }

    /// Another member is promoted. The former owner does not know of that.
    pub(super) fn fence(&mut self) -> Result<(), Violation> {
        self.end_former()?;
        self.run_ahead()?;
        let Some(members) = &mut self.members else {
            return Ok(());
        };
        members.owner = (members.owner + 1) % COUNT;
        members.note("another member was promoted");
        let former = self.open_as_member()?;
        if let Some(members) = &mut self.members {
            members.other = Some(Box::new(former));
        }
        Ok(())
    }

    /// Some jobs of the owner are done when another member is promoted, and their outcomes are taken later.
    fn run_ahead(&mut self) -> Result<(), Violation> {
        while let Some(members) = &mut self.members
            && members.random.happens(600)
            && let Some(job) = self.life.jobs.pop_front()
        {
            if members.random.happens(300) {
                let ms = members.random.below(1_000);
                members.model.delay_next_ms(ms);
            }
            let kind = job.kind();
            self.life.done.push_back((kind, seam::carry_out(job)));
            self.follow_time()?;
        }
        Ok(())
    }

    /// The owner's process dies. It starts again, or another member is promoted.
    pub(super) fn owner_dies(&mut self) -> Result<(), Violation> {
        self.end_former()?;
        self.report.kills += 1;
        self.abandon();
        self.check()?;
        let Some(members) = &mut self.members else {
            return Ok(());
        };
        let copy = members.model.member(members.owner);
        if members.random.happens(500) {
            copy.restart(members.random.next());
            members.note("a member lost the end of its copy");
        }
        if members.random.happens(500) {
            members.owner = (members.owner + 1) % COUNT;
        }
        self.open_as_member()?;
        Ok(())
    }

    /// The former owner's process dies, if there is one.
    fn end_former(&mut self) -> Result<(), Violation> {
        let Some(members) = &mut self.members else {
            return Ok(());
        };
        let Some(other) = members.other.take() else {
            return Ok(());
        };
        members.note("a former owner died before it knew that it was one");
        let owner = std::mem::replace(&mut self.life, *other);
        let late = std::mem::take(&mut self.life.done);
        self.abandon();
        self.check()?;
        self.life = owner;
        if altered(Seam::LateOutcomes, false) {
            self.life.done.extend(late);
        }
        self.check()
    }

    /// Opens the log as the member that is to own it, and goes on with that one. Returns the life before.
    fn open_as_member(&mut self) -> Result<Life, Violation> {
        let wall = Timestamp::from_ms(self.reading.wall_us / 1000);
        let Some(members) = &mut self.members else {
            unreachable!("only members are promoted");
        };
        let (owner, seed) = (members.owner, members.random.next());
        let opened = members.open(&self.swarm, seed, wall);
        self.follow_time()?;
        match opened {
            Ok((partition, recovery)) => {
                self.trace.add("promoted", &[owner as u64], &owner);
                let former = self.begin_life(partition, &recovery, None)?;
                self.check_changed_at()?;
                Ok(former)
            }
            Err(error) => violated!(promise::RECOVERY, "{error} ({error:?})"),
        }
    }

    /// The log says that this process does not own it any more.
    pub(super) fn log_fenced(&mut self, end: &LogEnd) -> Result<(), Violation> {
        let is_former = self.members.as_ref().is_some_and(|it| it.other.is_some());
        if !is_former || self.has_former() || !matches!(end, LogEnd::Fenced(_)) {
            return violated!(
                promise::LIVENESS,
                "the log ended without another owner: {end}"
            );
        }
        self.check_stopped(&Rejection::NotOwner)?;
        // Other threads may finish their work before the process forgets what it had.
        if self.schedule.happens(500) {
            for job in std::mem::take(&mut self.life.jobs) {
                let _ = seam::carry_out(job);
            }
        }
        let number = self.life.number;
        let waits = |(_, asked): &(&u64, &Asked)| asked.life == number && !asked.done;
        if let Some((id, _)) = self.history.iter().find(waits) {
            return violated!(
                promise::LIVENESS,
                "a fenced owner has not answered operation {id}"
            );
        }
        if let Some(members) = &mut self.members {
            members.note("a former owner learned that it was one");
        }
        Ok(())
    }

    /// Hands out answers that only read, if nobody else owns the log at this moment.
    pub(super) fn confirm(&mut self, replies: &mut Vec<(u64, Reply)>) {
        if self.life.partition.is_any_to_confirm() {
            let now: BootTime = altered(Seam::Confirmed, self.life.boot);
            self.life.partition.confirm(now, replies);
        }
    }

    /// An answer shows all that was acknowledged before its command came, also by another owner.
    pub(super) fn check_owner(&mut self, id: u64, seen: &Seen) -> Result<(), Violation> {
        let (Some(members), Some(asked)) = (&mut self.members, self.history.get(&id)) else {
            return Ok(());
        };
        let is_former = members
            .other
            .as_ref()
            .is_some_and(|it| it.number > asked.life);
        match seen {
            Seen::Answered(Ok((outcome, _))) => {
                let decided_at = asked.operation.until.min(self.life.now);
                if is_change(outcome) {
                    members.changed_at = members.changed_at.max(decided_at);
                }
                if is_former {
                    members.note(match is_change(outcome) {
                        true => ACKNOWLEDGED,
                        false => SHOWN,
                    });
                }
            }
            Seen::Answered(Err(Rejection::Refused(_))) => {}
            Seen::Answered(Err(Rejection::Unknown)) => {
                members.note("a former owner did not know what became of a change");
                return Ok(());
            }
            Seen::Answered(Err(Rejection::NotOwner)) => {
                members.note("a former owner refused a command");
                return Ok(());
            }
            Seen::Answered(Err(_)) | Seen::Unknown => return Ok(()),
        }
        if asked.after > asked.life {
            return violated!(
                promise::OWNERS,
                "owner {} answered operation {id}, which came after an answer of owner {}",
                asked.life,
                asked.after
            );
        }
        members.answered = members.answered.max(asked.life);
        Ok(())
    }

    /// The newest life of which a client has an answer.
    pub(super) fn answered_life(&self) -> u64 {
        self.members.as_ref().map_or(0, |it| it.answered)
    }

    fn check_changed_at(&self) -> Result<(), Violation> {
        match &self.members {
            Some(members) if self.life.now < members.changed_at => violated!(
                promise::TIME,
                "an owner begins at {}, and one before acknowledged a change at {}",
                self.life.now,
                members.changed_at
            ),
            _ => Ok(()),
        }
    }

    /// The members' clocks show what the world's show.
    pub(super) fn tell_time(&self) {
        if let Some(members) = &self.members {
            members
                .model
                .advance_to(BootTime::from_us(self.reading.boot_us));
        }
    }

    /// Time has passed while a job waited for other members.
    pub(super) fn follow_time(&mut self) -> Result<(), Violation> {
        let Some(members) = &self.members else {
            return Ok(());
        };
        let waited_us = members.model.advance_ms(0).as_us() - self.reading.boot_us;
        self.pass_time(|_| waited_us)
    }

    /// No more changes of the owner. One that is not the owner any more learns it soon.
    pub(super) fn settle_members(&mut self) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            if !self.has_former() {
                return Ok(());
            }
            self.pass_time(|_| 10_000)?;
            self.as_former(Self::turn_or_job)?;
            self.end_step();
        }
        violated!(
            promise::LIVENESS,
            "a former owner never learns that it is one"
        )
    }

    /// A job of the process that acts, or else a turn.
    fn turn_or_job(&mut self) -> Result<(), Violation> {
        match self.life.has_job() {
            true => self.carry_out_job(),
            false => self.turn(),
        }
    }
}

/// Whether an answer says that something was changed. Others may show a change, too.
fn is_change(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Storage(
            StorageOutcome::Sent(_) | StorageOutcome::Deleted | StorageOutcome::Updated { .. }
        ) | Outcome::Bus(
            BusOutcome::QueueCreated(_) | BusOutcome::QueueDeleted | BusOutcome::Cancelled
        )
    )
}
