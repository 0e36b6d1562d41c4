//! A small world on the model: members that follow, are promoted, rest while others are promoted, and start again, in
//! an order that a seed gives. It is checked only through the seam.
//!
//! What must hold: all members follow a batch that was acknowledged, once, at its place. No member follows a batch of
//! which a commit says that it is not agreed. If no commit says it, they follow it once or not at all. Nothing of a
//! former owner is followed behind the place where the next one began. No owner trusts that it is the only one once the
//! commit of another one was agreed. And a copy that differs is reported, and is not handed out.

mod checks;
mod happened;

use std::collections::BTreeMap;
use std::mem;

use kew_log::{Epoch, FollowError, LogEnd, LogPosition, LogState, Need, ReserveError};

pub use self::happened::Happened;

use crate::broken::{Broken, Checked, hold};
use crate::followed::{Content, Follower};
use crate::model::{LinkOptions, Model, ModelOptions, ModelSource};
use crate::owner::{Live, Owner, Sent};
use crate::random::{Hash, Random};
use crate::subject::any_clock;
use crate::{Difference, MemoryOptions, Mistake};

/// Lets a world run, and returns what did not hold.
pub fn run_world(seed: u64, mistake: Option<Mistake>) -> Result<Happened, Broken> {
    let mut world = World::new(seed, mistake);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.finish()?;
    Ok(world.happened)
}

/// How much happens in a world.
const STEPS: usize = 2_000;

struct World {
    random: Random,
    model: Model,
    members: Vec<Member>,
    /// Of each batch that was sent, what is known.
    batches: BTreeMap<Vec<u8>, Known>,
    /// Where each epoch began whose owner has read all before.
    began: BTreeMap<Epoch, LogPosition>,
    /// The highest epoch of a batch that was acknowledged.
    newest: Epoch,
    happened: Happened,
    trace: Hash,
}

struct Member {
    number: usize,
    source: ModelSource,
    /// From where on its copy differs, until that is reported.
    differs_from: Option<LogPosition>,
    role: Role,
    /// So many times it does nothing.
    rests_for: usize,
}

enum Role {
    Following(Box<Follower>),
    Owning(Box<Owning>),
}

struct Owning {
    owner: Owner,
    /// How many of its batches were acknowledged.
    acknowledged: usize,
}

/// What is known about a batch.
struct Known {
    fate: Fate,
    epoch: Epoch,
    /// The time that it was sent with.
    time_ms: u64,
}

/// What has become of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is agreed, at this place.
    Acknowledged(LogPosition),
    /// A commit of its owner has ended, and says that it is not agreed.
    Refused,
    /// No commit of its owner says how it ends.
    Unknown(LogPosition),
}

impl Known {
    fn of(sent: &Sent, epoch: Epoch, fate: Fate) -> Self {
        Self {
            fate,
            epoch,
            time_ms: sent.time_ms,
        }
    }
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = Random::named(seed, "world");
        let options = ModelOptions {
            copy: MemoryOptions {
                piece_size_bytes: 300,
                prepared_bytes: 4 << 10,
                room_bytes_min: 256,
                looks_when_reserving: false,
                heartbeat_ms: Some(1_000),
            },
            link: LinkOptions {
                once_in: 2 + random.below(4),
                delay_us_max: 20_000,
            },
            lease_ms: 3_000,
            margin_ms: 200,
        };
        let model = match mistake {
            Some(mistake) => Model::altered(options, seed, mistake),
            None => Model::new(options, seed),
        };
        let count = 2 + random.below(2);
        let mut clocks = Random::named(seed, "clocks");
        let members = (0..count).map(|number| {
            model.set_clock(number, any_clock(&mut clocks));
            Member::after(number, model.member(number), None)
        });
        Self {
            members: members.collect(),
            random,
            model,
            batches: BTreeMap::new(),
            began: BTreeMap::new(),
            newest: Epoch::default(),
            happened: Happened::default(),
            trace: Hash::default(),
        }
    }

    /// One member does something, or time passes.
    fn step(&mut self) -> Checked {
        self.change_link();
        let index = self.random.below(self.members.len());
        self.trace_step(index);
        let member = &mut self.members[index];
        if member.rests_for > 0 {
            // So it becomes a stale owner, or a slow follower.
            member.rests_for -= 1;
            return self.check_leases();
        }
        if self.random.once_in(15) {
            member.rests_for = self.random.below(50);
        }
        if self.random.once_in(60) {
            return self.start_again(index);
        }
        match &self.members[index].role {
            Role::Following(_) => {
                let promotes = self.random.once_in(30);
                self.follow(index, promotes)?;
            }
            Role::Owning(_) => self.own(index)?,
        }
        self.check_leases()
    }

    fn trace_step(&mut self, index: usize) {
        let end = match &self.members[index].role {
            Role::Following(follower) => follower.log.seen().end,
            Role::Owning(owning) => owning.owner.log.end(),
        };
        self.trace.add(index as u64);
        self.trace.add(end.as_u64());
        self.trace.add(self.model.advance_ms(0).as_us());
    }

    /// Time passes, an answer is slow, or a member that does nothing else begins an epoch at some time.
    fn change_link(&mut self) {
        let ms = self.random.below(1_000) as u64;
        match self.random.below(64) {
            0..=7 => drop(self.model.advance_ms(ms)),
            8..=11 => self.model.delay_next_ms(ms),
            12 if self.random.once_in(4) => self.model.begin_elsewhere_later(),
            _ => {}
        }
    }

    /// A follower reads on, or is promoted.
    pub(super) fn follow(&mut self, index: usize, promotes: bool) -> Checked {
        let member = &mut self.members[index];
        let Role::Following(follower) = &mut member.role else {
            return Ok(());
        };
        let outcome = match promotes {
            true => follower.catch_up_or_end()?,
            false => follower.step_or_end()?.map(drop),
        };
        let differs_from = member.differs_from;
        match outcome {
            Ok(()) => {
                hold!(
                    differs_from.is_none(),
                    "a copy differs from {differs_from:?} on, and its follower continues"
                );
                match promotes {
                    true => self.promote(index),
                    false => Ok(()),
                }
            }
            Err(FollowError::Ended(LogEnd::Diverged(from))) if differs_from == Some(from) => {
                hold!(
                    follower.content == Content::default(),
                    "a copy that differs is handed out"
                );
                self.happened.diverged += 1;
                let after = Some(LogEnd::Diverged(from));
                *member = Member::after(member.number, member.source.clone(), after.as_ref());
                Ok(())
            }
            Err(end) => Err(Broken::new(format!("a follower ends: {end}"))),
        }
    }

    /// A follower that is current is promoted.
    fn promote(&mut self, index: usize) -> Checked {
        let member = &mut self.members[index];
        let Role::Following(follower) = &mut member.role else {
            return Ok(());
        };
        let epoch = follower.log.seen().epoch.next();
        if follower.promote(epoch)?.is_err() {
            self.happened.fenced += 1;
            member.follow_anew();
            return Ok(());
        }
        self.happened.promoted += 1;
        if let Role::Following(follower) = member.follow_anew() {
            let owner = Owner::of(*follower);
            self.began.insert(epoch, owner.recovery.end);
            member.role = Role::Owning(Box::new(Owning {
                owner,
                acknowledged: 0,
            }));
        }
        Ok(())
    }

    /// An owner sends something, or runs a job. Or it rests.
    fn own(&mut self, index: usize) -> Checked {
        let choice = self.random.below(10);
        let pick = self.random.below(16);
        let count = 1 + self.random.below(3);
        let now_ms = self.model.now_of(self.members[index].number).as_us() / 1000;
        let Role::Owning(owning) = &mut self.members[index].role else {
            return Ok(());
        };
        let owner = &mut owning.owner;
        // As the clocks of the members differ, it also goes back from one owner to the next.
        owner.time_ms = now_ms;
        match choice {
            0..=3 => send(owner, count)?,
            4 => drop(owner.begin_snapshot(&Live::default())),
            5 => drop(owner.log.beat(now_ms)),
            6 => drop(owner.log.mark()),
            _ => {}
        }
        if choice < 3 {
            return self.note(index, false);
        }
        owner.take_jobs();
        if owner.held.is_empty() {
            return self.note(index, false);
        }
        let job = owner.held.remove(pick % owner.held.len());
        let is_commit = job.kind().is_commit();
        // `health` says too how it ends.
        drop(owner.log.complete(job.run()));
        self.note(index, is_commit)
    }

    /// Notes what has become of an owner's batches. Only a commit that ends the log knows of the batches that are not
    /// durable: a lease that is not renewed says nothing about requests from before.
    fn note(&mut self, index: usize, is_by_commit: bool) -> Checked {
        let Role::Owning(owning) = &mut self.members[index].role else {
            return Ok(());
        };
        let durable = owning.owner.log.durable();
        let epoch = owning.owner.recovery.epoch;
        while let Some(sent) = owning.owner.sent.get(owning.acknowledged)
            && sent.end <= durable
        {
            owning.acknowledged += 1;
            self.happened.acknowledged += 1;
            self.newest = self.newest.max(epoch);
            let known = Known::of(sent, epoch, Fate::Acknowledged(sent.record));
            self.batches.insert(sent.events[0].clone(), known);
        }
        let state = owning.owner.log.health().state;
        match state {
            LogState::Ended(LogEnd::Fenced(by)) => {
                hold!(by > epoch, "an owner of {epoch} is fenced by {by}");
                self.leave(index, !is_by_commit);
                Ok(())
            }
            LogState::Ended(end) => Err(Broken::new(format!("an owner ends: {end}"))),
            LogState::Ready | LogState::Full | LogState::NoQuorum { .. } => Ok(()),
        }
    }

    /// The member starts again, perhaps within a commit. Some of its copy is lost, or all of it, or it differs.
    fn start_again(&mut self, index: usize) -> Checked {
        if self.members[index].differs_from.is_some() {
            // First its difference is to be reported.
            return Ok(());
        }
        self.note(index, false)?;
        self.break_off(index)?;
        self.forget(index, true);
        let seed = self.random.below(1 << 20) as u64;
        let choice = self.random.below(8);
        let member = &mut self.members[index];
        let has_batches = member.source.batches() > 1;
        let mut differs_from = None;
        match choice {
            0 if has_batches => {
                member.source.lose_copy();
                self.happened.lost_copies += 1;
            }
            1 | 2 if has_batches => {
                let how = [Difference::Changed, Difference::Longer][choice - 1];
                member.source.start();
                differs_from = Some(member.source.differ(how));
            }
            _ => member.source.restart(seed),
        }
        member.follow_anew();
        member.differs_from = differs_from;
        Ok(())
    }

    /// If an owner has a commit that was not run, it is stopped first, or its machine fails within it.
    fn break_off(&mut self, index: usize) -> Checked {
        let is_stopped = self.random.once_in(2);
        let requests = self.random.below(8) as u64;
        let member = &mut self.members[index];
        let Role::Owning(owning) = &mut member.role else {
            return Ok(());
        };
        let owner = &mut owning.owner;
        // So that it has parts.
        for _ in 0..3 {
            send(owner, 1)?;
        }
        owner.take_jobs();
        let Some(at) = owner.held.iter().position(|job| job.kind().is_commit()) else {
            return Ok(());
        };
        let commit = owner.held.remove(at);
        if is_stopped {
            owner.log.stop();
            drop(owner.log.complete(commit.run()));
            return self.note(index, true);
        }
        self.model.cut_after(member.number, requests);
        // Its outcome is lost with the machine.
        drop(commit.run());
        Ok(())
    }

    /// The member follows. What its owner does not know of is refused, or unknown.
    pub(super) fn leave(&mut self, index: usize, is_unknown: bool) {
        self.forget(index, is_unknown);
        let member = &mut self.members[index];
        if matches!(member.role, Role::Owning(_)) {
            member.follow_anew();
        }
    }

    /// Notes the batches that an owner does not know to be agreed.
    fn forget(&mut self, index: usize, is_unknown: bool) {
        let Role::Owning(owning) = &self.members[index].role else {
            return;
        };
        let epoch = owning.owner.recovery.epoch;
        for sent in &owning.owner.sent[owning.acknowledged..] {
            let (count, fate) = match is_unknown {
                true => (&mut self.happened.unknown, Fate::Unknown(sent.record)),
                false => (&mut self.happened.refused, Fate::Refused),
            };
            *count += 1;
            let known = Known::of(sent, epoch, fate);
            self.batches.insert(sent.events[0].clone(), known);
        }
    }

    /// No owner trusts that it is the only one once another one's batch was agreed.
    fn check_leases(&mut self) -> Checked {
        for member in &self.members {
            let now = self.model.now_of(member.number);
            if let Role::Owning(owning) = &member.role
                && now < owning.owner.log.owned_until()
            {
                self.happened.leased += 1;
                let epoch = owning.owner.recovery.epoch;
                let newest = self.newest;
                hold!(
                    newest <= epoch,
                    "an owner of {epoch} trusts its lease at {now:?}, and one of {newest} commits"
                );
            }
        }
        Ok(())
    }
}

impl Member {
    /// It follows a log that has ended like this.
    fn after(number: usize, source: ModelSource, end: Option<&LogEnd>) -> Self {
        let follower = Follower::after(&source, end);
        Self {
            number,
            source,
            differs_from: None,
            role: Role::Following(Box::new(follower)),
            rests_for: 0,
        }
    }

    /// It follows again. Returns its former role.
    fn follow_anew(&mut self) -> Role {
        self.rests_for = 0;
        let follower = Follower::new(&self.source);
        mem::replace(&mut self.role, Role::Following(Box::new(follower)))
    }
}

/// Appends a batch, if there is room.
fn send(owner: &mut Owner, count: usize) -> Checked {
    let need = Need::grow(64 * count as u64);
    match owner.log.reserve(need) {
        Ok(_) => {}
        Err(ReserveError::NotPrepared | ReserveError::Ended(_)) => return Ok(()),
        Err(error @ ReserveError::NoSpace) => return Err(error.into()),
    }
    owner.send(count)
}
