//! A model of a log that several machines agree on, with the copy that each of its members has.
//!
//! What is agreed is one value, the engine. Members reach it over a link that loses and repeats what they ask. What is
//! local to a member is that of a log in memory. All of it is a matter of the seed and of the order of jobs: nothing
//! waits, and time passes only when a test says so, or while a link is slow.
//!
//! A stale owner is a member whose jobs rest while another member is promoted. A slow follower gets a part of what
//! there is.

mod clock;
mod copy;
mod engine;
mod followed;
mod link;
mod owned;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_log::{BootTime, Epoch, FollowedLog, JobKind, LogEnd, LogSource, PageChoice};

pub use self::clock::MemberClock;
use self::engine::Opening;
use self::link::{Link, Purpose, Request};
pub use self::link::{LinkCounts, LinkOptions};
use self::owned::Lease;
use crate::Lost;
use crate::memory::{
    Agreed, Agreement, Kept, MemoryFollower, MemoryOptions, Mistake, Placed, Renewal, Renewed,
    Shared,
};

/// Sizes and times of a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Of each member's copy.
    pub copy: MemoryOptions,
    /// What the link does.
    pub link: LinkOptions,
    /// How long the engine lets no other member commit anything behind a renewal. 0 for no leases.
    pub lease_ms: u64,
    /// So much earlier an owner stops trusting its lease. It covers what its clock loses against the engine's
    /// meanwhile.
    pub margin_ms: u64,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            copy: MemoryOptions {
                heartbeat_ms: Some(1_000),
                ..MemoryOptions::default()
            },
            link: LinkOptions {
                once_in: 3,
                delay_us_max: 0,
            },
            lease_ms: 3_000,
            margin_ms: 500,
        }
    }
}

/// A log that several members agree on. Clones are the same log.
#[derive(Clone)]
pub struct Model(Arc<World>);

/// What all members share, and their copies.
struct World {
    link: Link,
    options: ModelOptions,
    mistake: Option<Mistake>,
    copies: Mutex<BTreeMap<usize, Arc<Shared>>>,
}

/// The log as a member opens it.
#[derive(Clone, Debug)]
pub struct ModelSource {
    model: Model,
    member: usize,
}

/// One opening of the log by a member.
struct Member {
    world: Arc<World>,
    opening: Opening,
    lease: Mutex<Lease>,
    /// Jobs are to come back soon.
    is_stopped: AtomicBool,
}

impl Model {
    /// An empty log, with a link of its own.
    pub fn new(options: ModelOptions, seed: u64) -> Self {
        Self::with(options, seed, None)
    }

    /// An empty log that makes a mistake.
    pub fn altered(options: ModelOptions, seed: u64, mistake: Mistake) -> Self {
        Self::with(options, seed, Some(mistake))
    }

    fn with(options: ModelOptions, seed: u64, mistake: Option<Mistake>) -> Self {
        Self(Arc::new(World {
            link: Link::new(options.link, seed),
            options,
            mistake,
            copies: Mutex::default(),
        }))
    }

    /// The log as one of its members opens it.
    pub fn member(&self, member: usize) -> ModelSource {
        ModelSource {
            model: self.clone(),
            member,
        }
    }

    /// Lets time pass. Returns what the engine's clock shows then.
    pub fn advance_ms(&self, ms: u64) -> BootTime {
        let mut net = self.0.link.net();
        net.advance_us(ms * 1000);
        net.engine.now
    }

    /// Lets time pass up to this moment, if it has not come yet.
    pub fn advance_to(&self, now: BootTime) {
        self.0.link.net().advance_to(now);
    }

    /// Lets time pass as this clock shows, from now on.
    pub fn keep_time(&self, clock: fn() -> BootTime) {
        self.0.link.net().keeps_time = Some(clock);
    }

    /// Gives a member a clock of its own. Its clock never goes back, so a test does this before the member is used.
    pub fn set_clock(&self, member: usize, clock: MemberClock) {
        self.0.link.net().clocks.insert(member, clock);
    }

    /// What the clock of a member shows.
    pub fn now_of(&self, member: usize) -> BootTime {
        let net = self.0.link.net();
        net.clock(member, net.engine.now)
    }

    /// The machine of a member fails behind so many requests from now on. Until it [restarts](ModelSource::restart) it
    /// sends no others, and its jobs come back without having known how they end.
    pub fn cut_after(&self, member: usize, requests: u64) {
        self.0.link.net().cuts.insert(member, requests);
    }

    /// What has happened on the link.
    pub fn counts(&self) -> LinkCounts {
        self.0.link.net().counts
    }

    /// The next answer takes so long.
    pub fn delay_next_ms(&self, ms: u64) {
        self.0.link.net().next_delay_us = ms * 1000;
    }

    /// The next append is lost, or its answer. `is_fenced` says that another member begins an epoch before the owner
    /// asks again.
    pub fn lose_next(&self, lost: Lost, is_fenced: bool) {
        self.0.link.net().next_lost = Some((lost, is_fenced));
    }

    /// A member that no test drives asks to begin the next epoch. Its request is under way.
    pub fn begin_elsewhere_later(&self) {
        self.0.link.net().begin_elsewhere_later();
    }

    /// All requests arrive that are under way.
    pub fn let_all_arrive(&self) {
        self.0.link.net().let_all_arrive();
    }
}

impl ModelSource {
    fn copies(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Shared>>> {
        let copies = self.model.0.copies.lock();
        // Nothing is half done where a thread can panic.
        copies.unwrap_or_else(PoisonError::into_inner)
    }

    /// This member's copy.
    fn copy(&self) -> Arc<Shared> {
        let world = &self.model.0;
        let mut copies = self.copies();
        let copy = copies.entry(self.member);
        let copy = copy.or_insert_with(|| Arc::new(Shared::new(world.options.copy, world.mistake)));
        Arc::clone(copy)
    }
}

impl LogSource for ModelSource {
    fn follow(&self, after: Option<&LogEnd>, pages: Box<dyn PageChoice>) -> Box<dyn FollowedLog> {
        if matches!(after, Some(LogEnd::Diverged(_))) {
            // It is set aside, with its readers, and all is copied anew.
            self.copies().remove(&self.member);
        }
        let world = Arc::clone(&self.model.0);
        let opening = world.link.net().open(self.member);
        let member = Member {
            world,
            opening,
            lease: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        };
        Box::new(MemoryFollower::new(self.copy(), Arc::new(member), pages))
    }

    fn unit_bytes(&self) -> u64 {
        1
    }
}

impl Agreement for Member {
    fn begin(&self, copy: &Shared, epoch: Epoch) -> Result<bool, LogEnd> {
        self.begin_epoch(copy, epoch)
    }

    fn pull(&self, copy: &Shared) -> Result<bool, LogEnd> {
        self.copy_next(copy)
    }

    /// A watch is always the newest here.
    fn is_ahead(&self, kept: &Kept) -> bool {
        self.world.link.net().engine.end() != copy::place(kept)
    }

    fn commit_kind(&self, _copy: &Shared) -> JobKind {
        JobKind::Agree
    }

    fn commit(&self, copy: &Shared, epoch: Epoch, batches: Vec<Placed>) -> Option<Agreed> {
        self.append_all(copy, epoch, batches)
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn holds_commits(&self) -> bool {
        self.lease().holds_commits(self.now())
    }

    fn next_renewal(self: Arc<Self>, epoch: Epoch) -> Option<Renewal> {
        let is_due = self.world.options.lease_ms > 0 && self.lease().begin_renewal(self.now());
        is_due.then(|| -> Renewal { Box::new(move || self.renew(epoch)) })
    }

    fn renewed(&self, renewed: Renewed) {
        self.lease().renewed(renewed);
    }

    fn owned_until(&self) -> BootTime {
        self.lease().until()
    }

    fn next_wake(&self) -> Option<BootTime> {
        match self.world.options.lease_ms {
            0 => None,
            _ => self.lease().next_wake(self.now()),
        }
    }
}

impl Member {
    /// What its clock shows.
    fn now(&self) -> BootTime {
        let net = self.world.link.net();
        net.clock(self.opening.member, net.engine.now)
    }

    /// Sends a request until there is an answer. Returns it, and what this member's clock showed when the request was
    /// sent. `None` if the machine has failed.
    fn ask<A: 'static>(&self, purpose: Purpose, request: impl Request<A>) -> Option<(A, BootTime)> {
        let link = &self.world.link;
        let (answer, sent) = link.ask(self.opening, purpose, request)?;
        Some((answer, link.net().clock(self.opening.member, sent)))
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.world.mistake == Some(mistake)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("net", &*self.0.link.net())
            .field("mistake", &self.0.mistake)
            .finish_non_exhaustive()
    }
}
