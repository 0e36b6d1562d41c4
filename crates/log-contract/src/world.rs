//! A small world on the model: members that follow, are promoted, rest while others are promoted, and start again, in an
//! order that a seed gives. It is checked through the seam alone.
//!
//! What must hold: a batch that was acknowledged is followed by everybody, once, at its place. One that was not, by an
//! owner that has heard of its end, is followed by nobody. Nothing of a former owner is followed behind the place where the
//! next one began. And no owner trusts that it is alone once another one's commit was agreed.

use std::collections::BTreeMap;

use kew_log::{BootTime, Epoch, LogEnd, LogPosition, LogState, Need, ReserveError};

use crate::broken::{Broken, Checked, hold};
use crate::followed::{Content, Follower};
use crate::model::{LinkOptions, Model, ModelOptions, ModelSource};
use crate::owner::{Live, Owner};
use crate::random::Random;
use crate::{MemoryOptions, Mistake};

/// What a seed did: a world in which little happens shows little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Batches that were acknowledged.
    pub acknowledged: usize,
    /// Batches of owners that ended, which were not.
    pub refused: usize,
    /// Batches of owners that were not asked any more.
    pub unknown: usize,
    /// Promotions that succeeded.
    pub promoted: usize,
    /// Promotions to an epoch that another member had begun.
    pub fenced: usize,
    /// Moments at which an owner trusted its lease.
    pub leased: usize,
}

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
    batches: BTreeMap<Vec<u8>, Fate>,
    /// Where each epoch began whose owner has read all before.
    began: BTreeMap<Epoch, LogPosition>,
    /// The highest epoch of a batch that was acknowledged.
    newest: Epoch,
    happened: Happened,
}

struct Member {
    source: ModelSource,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is agreed, at this place.
    Acknowledged(LogPosition),
    /// Its owner has heard of its end, and that it is not agreed.
    Refused,
    /// Its owner was not asked any more.
    Unknown(LogPosition),
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
        let members = (0..count).map(|number| Member::new(model.member(number)));
        Self {
            members: members.collect(),
            random,
            model,
            batches: BTreeMap::new(),
            began: BTreeMap::new(),
            newest: Epoch::default(),
            happened: Happened::default(),
        }
    }

    /// One member does something, or time passes.
    fn step(&mut self) -> Checked {
        self.change_link();
        let index = self.random.below(self.members.len());
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
            Role::Following(_) => self.follow(index)?,
            Role::Owning(_) => self.own(index)?,
        }
        self.check_leases()
    }

    /// Time passes, an answer is slow, or somebody begins an epoch at some time.
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
    fn follow(&mut self, index: usize) -> Checked {
        let promotes = self.random.once_in(30);
        let Role::Following(follower) = &mut self.members[index].role else {
            return Ok(());
        };
        if !promotes {
            return match follower.step_or_end()? {
                Ok(_) => Ok(()),
                Err(end) => Err(Broken::new(format!("a follower ends: {end}"))),
            };
        }
        follower.catch_up()?;
        let epoch = follower.log.seen().epoch.next();
        if follower.promote(epoch)?.is_err() {
            self.happened.fenced += 1;
            self.members[index] = Member::new(self.members[index].source.clone());
            return Ok(());
        }
        self.happened.promoted += 1;
        let source = self.members[index].source.clone();
        let former = std::mem::replace(&mut self.members[index], Member::new(source));
        if let Role::Following(follower) = former.role {
            let owner = Owner::of(*follower);
            self.began.insert(epoch, owner.recovery.end);
            self.members[index].role = Role::Owning(Box::new(Owning {
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
        let Role::Owning(owning) = &mut self.members[index].role else {
            return Ok(());
        };
        let owner = &mut owning.owner;
        match choice {
            0..=3 => send(owner, count)?,
            4 => drop(owner.begin_snapshot(&Live::default())),
            5 => drop(owner.log.beat(0)),
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
        // How it ends is told by `health`, too.
        drop(owner.log.complete(job.run()));
        self.note(index, is_commit)
    }

    /// Notes what has become of an owner's batches. Only a commit that tells of the end knows of those that are not durable:
    /// a lease that is not renewed says nothing about what was asked for before.
    fn note(&mut self, index: usize, told_by_commit: bool) -> Checked {
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
            let fate = Fate::Acknowledged(sent.record);
            self.batches.insert(sent.events[0].clone(), fate);
        }
        let state = owning.owner.log.health().state;
        match state {
            LogState::Ended(LogEnd::Fenced(by)) => {
                hold!(by > epoch, "an owner of {epoch} is fenced by {by}");
                self.leave(index, !told_by_commit);
                Ok(())
            }
            LogState::Ended(end) => Err(Broken::new(format!("an owner ends: {end}"))),
            LogState::Ready | LogState::Full | LogState::NoQuorum { .. } => Ok(()),
        }
    }

    /// The member starts again: nobody asks its owner any more, and some of its copy is lost.
    fn start_again(&mut self, index: usize) -> Checked {
        self.note(index, false)?;
        self.leave(index, true);
        let seed = self.random.below(1 << 20) as u64;
        self.members[index].source.restart(seed);
        Ok(())
    }

    /// The member follows. What its owner has not heard of is refused, or unknown.
    fn leave(&mut self, index: usize, is_unknown: bool) {
        if let Role::Owning(owning) = &self.members[index].role {
            for sent in &owning.owner.sent[owning.acknowledged..] {
                let (count, fate) = match is_unknown {
                    true => (&mut self.happened.unknown, Fate::Unknown(sent.record)),
                    false => (&mut self.happened.refused, Fate::Refused),
                };
                *count += 1;
                self.batches.insert(sent.events[0].clone(), fate);
            }
        }
        self.members[index] = Member::new(self.members[index].source.clone());
    }

    /// No owner trusts that it is alone once another one's batch was agreed.
    fn check_leases(&mut self) -> Checked {
        let now: BootTime = self.model.advance_ms(0);
        for member in &self.members {
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

    /// All that is under way arrives. Then everybody follows the same, and it is what is known.
    fn finish(&mut self) -> Checked {
        for index in 0..self.members.len() {
            self.note(index, false)?;
            self.leave(index, true);
        }
        self.model.let_all_arrive();
        let mut all = self.members.iter().map(|member| followed(&member.source));
        // A member that was never there: it has no snapshot, so all batches come one by one.
        let whole = followed(&self.model.member(99))?;
        let differs = all.try_fold(false, |differs, content| -> Checked<bool> {
            Ok(differs || content?.history() != whole.history())
        })?;
        hold!(!differs, "members follow different logs");
        self.check_batches(&whole)?;
        self.check_epochs(&whole)
    }

    /// Each batch is followed as often as it must be, and where.
    fn check_batches(&self, whole: &Content) -> Checked {
        let mut places: BTreeMap<&[u8], Vec<LogPosition>> = BTreeMap::new();
        for batch in whole.batches.iter().filter(|it| !it.events.is_empty()) {
            let places = places.entry(&batch.events[0]).or_default();
            places.push(batch.record);
        }
        for (event, fate) in &self.batches {
            let found = places.remove(event.as_slice()).unwrap_or_default();
            let is_right = match fate {
                Fate::Acknowledged(at) => found == [*at],
                Fate::Refused => found.is_empty(),
                Fate::Unknown(at) => found.is_empty() || found == [*at],
            };
            let event = String::from_utf8_lossy(event);
            hold!(
                is_right,
                "the batch of {event} is {fate:?}, and followed at {found:?}"
            );
        }
        hold!(places.is_empty(), "nobody has sent {places:?}");
        Ok(())
    }

    /// Behind the place where an epoch began there is nothing of a lower one.
    fn check_epochs(&self, whole: &Content) -> Checked {
        for batch in &whole.batches {
            let (at, of) = (batch.record, batch.epoch);
            let mut later = self.began.range(of.next()..);
            let void = later.find(|(_, began)| **began <= at);
            hold!(
                void.is_none(),
                "a batch of {of} at {at} is followed behind {void:?}"
            );
        }
        Ok(())
    }
}

impl Member {
    fn new(source: ModelSource) -> Self {
        let follower = Follower::new(&source);
        Self {
            source,
            role: Role::Following(Box::new(follower)),
            rests_for: 0,
        }
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

/// All of a log.
fn followed(source: &ModelSource) -> Checked<Content> {
    let mut follower = Follower::new(source);
    follower.catch_up()?;
    Ok(follower.content)
}
