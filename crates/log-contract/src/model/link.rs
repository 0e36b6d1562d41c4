//! The link between the members and the agreed log, with the requests that are under way.
//!
//! A job sends a request, and its answer can be lost: before or after the request took effect. A request that was lost
//! may still arrive hundreds of requests later, also a second time, and behind requests of a later owner. The seed
//! decides, and nothing else: there is no time but the engine's. The last try is always answered, so a job returns.
//! Only the requests of a machine that has failed have no answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_log::{BootTime, Epoch};

use super::clock::MemberClock;
use super::engine::{Engine, Opening};
use crate::Lost;
use crate::random::Random;

/// How often something is tried at most.
const TRIES: u32 = 4;

/// A late request arrives up to 2^10 tries of the link later.
const LATE_TRIES_BITS: usize = 10;

/// What a link does.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// One in so many requests is lost, or its answer, or it arrives twice. 0 for none.
    pub once_in: usize,
    /// How long an answer takes at most, in microseconds.
    pub delay_us_max: usize,
}

/// What has happened on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Late commits that arrived in a later epoch than their own.
    pub late_commits: usize,
    /// Late renewals that arrived in a later epoch than their own.
    pub late_renewals: usize,
    /// Commits that ended early because their owner was stopped.
    pub stopped: usize,
    /// Commits within which the machine failed.
    pub cut: usize,
    /// Of these, the commits of which a part was agreed before.
    pub cut_in_part: usize,
}

/// A request, which can be applied any number of times.
pub(super) trait Request<A>: Fn(&mut Engine) -> A + Send + Sync + 'static {}

impl<A, F: Fn(&mut Engine) -> A + Send + Sync + 'static> Request<A> for F {}

/// What a request is for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Commit(Epoch),
    Renew(Epoch),
    /// To begin an epoch, or to read.
    Other,
}

/// A request that was lost, or is to come a second time.
struct UnderWay {
    purpose: Purpose,
    apply: Box<dyn Fn(&mut Engine) + Send + Sync>,
}

/// The engine, and what is on the way to it.
pub(super) struct Link(Mutex<Net>);

pub(super) struct Net {
    pub(super) engine: Engine,
    options: LinkOptions,
    random: Random,
    /// How many tries there were.
    tries: u64,
    /// By the try at which it arrives, and a number.
    under_way: BTreeMap<(u64, u64), UnderWay>,
    late: u64,
    openings: u64,
    /// Of each member, the newest opening that has asked to begin an epoch.
    owners: BTreeMap<usize, u64>,
    pub(super) clocks: BTreeMap<usize, MemberClock>,
    /// What shows how much time has passed, if tests do not.
    pub(super) keeps_time: Option<fn() -> BootTime>,
    /// After so many tries of a member its machine fails.
    pub(super) cuts: BTreeMap<usize, u64>,
    pub(super) counts: LinkCounts,
    /// What the next append loses, and whether another member begins an epoch then.
    pub(super) next_lost: Option<(Lost, bool)>,
    /// How long the next answer takes, in microseconds.
    pub(super) next_delay_us: u64,
}

/// How often something was tried.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

/// What happens to a request on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Answered,
    AnsweredAndRepeated,
    Loses(Lost),
}

impl Link {
    pub(super) fn new(options: LinkOptions, seed: u64) -> Self {
        Self(Mutex::new(Net {
            engine: Engine::default(),
            options,
            random: Random::named(seed, "link"),
            tries: 0,
            under_way: BTreeMap::new(),
            late: 0,
            openings: 0,
            owners: BTreeMap::new(),
            clocks: BTreeMap::new(),
            keeps_time: None,
            cuts: BTreeMap::new(),
            counts: LinkCounts::default(),
            next_lost: None,
            next_delay_us: 0,
        }))
    }

    pub(super) fn net(&self) -> MutexGuard<'_, Net> {
        // Nothing is half done where a thread can panic.
        let mut net = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clock) = net.keeps_time {
            net.advance_to(clock());
        }
        net
    }

    /// Sends a request until there is an answer. Returns it, and when the request was sent that it answers. `None` if
    /// the machine has failed.
    pub(super) fn ask<A: 'static>(
        &self,
        opening: Opening,
        purpose: Purpose,
        request: impl Request<A>,
    ) -> Option<(A, BootTime)> {
        let request = Arc::new(request);
        let mut tries = Tries::default();
        while !self.has_failed(opening) {
            let mut net = self.net();
            let sent = net.engine.now;
            if let Some(answer) = net.try_once(&mut tries, opening, purpose, &request, None) {
                return Some((answer, sent));
            }
        }
        None
    }

    /// Sends a request to append once, which tests let the link lose. `None` if there is no answer: whether the request
    /// took effect, or will, is not known then.
    pub(super) fn try_append<A: 'static>(
        &self,
        tries: &mut Tries,
        opening: Opening,
        epoch: Epoch,
        request: &Arc<impl Request<A>>,
    ) -> Option<A> {
        let mut net = self.net();
        let lost = net.next_lost.take();
        let purpose = Purpose::Commit(epoch);
        let answer = net.try_once(tries, opening, purpose, request, lost.map(|(lost, _)| lost));
        if let Some((_, true)) = lost {
            net.begin_elsewhere();
        }
        answer
    }

    /// Whether the machine of a member has failed, so that none of its requests is sent.
    pub(super) fn has_failed(&self, opening: Opening) -> bool {
        self.net().cuts.get(&opening.member) == Some(&0)
    }

    /// A number of things between one and all of them.
    pub(super) fn some_of(&self, count: usize) -> usize {
        match count {
            0 => 0,
            _ => 1 + self.net().random.below(count),
        }
    }
}

impl Net {
    fn try_once<A: 'static>(
        &mut self,
        tries: &mut Tries,
        opening: Opening,
        purpose: Purpose,
        request: &Arc<impl Request<A>>,
        lost: Option<Lost>,
    ) -> Option<A> {
        if self.is_cut(opening.member) {
            return None;
        }
        self.check_opening(opening, purpose);
        tries.0 += 1;
        self.tries += 1;
        self.let_due_arrive();
        let delivery = match lost {
            Some(lost) => Delivery::Loses(lost),
            None if tries.0 >= TRIES => Delivery::Answered,
            None => self.delivery(),
        };
        let is_late = matches!(
            delivery,
            Delivery::Loses(Lost::Request) | Delivery::AnsweredAndRepeated
        );
        if is_late {
            let request = Arc::clone(request);
            let apply = Box::new(move |engine: &mut Engine| drop(request(engine)));
            // What a test loses stays away for as long as it can.
            let tries = match lost {
                Some(_) => 1 << LATE_TRIES_BITS,
                None => self.random.spread(LATE_TRIES_BITS),
            };
            self.send_later(tries, UnderWay { purpose, apply });
        }
        self.delay();
        let answer = match delivery {
            Delivery::Loses(Lost::Request | Lost::RequestForGood) => None,
            Delivery::Answered | Delivery::AnsweredAndRepeated => Some(request(&mut self.engine)),
            Delivery::Loses(Lost::Answer) => {
                drop(request(&mut self.engine));
                None
            }
        };
        self.delay();
        let slow_us = std::mem::take(&mut self.next_delay_us);
        self.advance_us(slow_us);
        answer
    }

    /// Whether the machine of a member has failed. It fails after some tries.
    fn is_cut(&mut self, member: usize) -> bool {
        match self.cuts.get_mut(&member) {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// A member is one process at a time: once an opening asks to own the log, no former one commits or renews.
    fn check_opening(&self, opening: Opening, purpose: Purpose) {
        let newest = self.owners.get(&opening.member);
        let is_newest = newest.is_none_or(|newest| opening.number >= *newest);
        let is_right = match purpose {
            Purpose::Commit(_) | Purpose::Renew(_) => is_newest,
            Purpose::Other => true,
        };
        assert!(is_right, "member {} is two processes", opening.member);
    }

    fn delivery(&mut self) -> Delivery {
        let options = self.options;
        if options.once_in == 0 || !self.random.once_in(options.once_in) {
            return Delivery::Answered;
        }
        match self.random.below(4) {
            0 => Delivery::AnsweredAndRepeated,
            1 => Delivery::Loses(Lost::Request),
            2 => Delivery::Loses(Lost::Answer),
            _ => Delivery::Loses(Lost::RequestForGood),
        }
    }

    fn delay(&mut self) {
        let most = self.options.delay_us_max;
        if most > 0 {
            let delay_us = self.random.below(most) as u64;
            self.advance_us(delay_us);
        }
    }

    /// A request arrives after so many tries of the link.
    fn send_later(&mut self, tries: u64, late: UnderWay) {
        self.late += 1;
        self.under_way.insert((self.tries + tries, self.late), late);
    }

    /// The requests arrive that are due.
    fn let_due_arrive(&mut self) {
        while let Some(first) = self.under_way.first_entry()
            && first.key().0 <= self.tries
        {
            let late = first.remove();
            self.arrive(&late);
        }
    }

    /// All requests arrive that are under way.
    pub(super) fn let_all_arrive(&mut self) {
        for late in std::mem::take(&mut self.under_way).into_values() {
            self.arrive(&late);
        }
    }

    fn arrive(&mut self, late: &UnderWay) {
        let now = self.engine.epoch();
        match late.purpose {
            Purpose::Commit(epoch) => self.counts.late_commits += usize::from(epoch < now),
            Purpose::Renew(epoch) => self.counts.late_renewals += usize::from(epoch < now),
            Purpose::Other => {}
        }
        (late.apply)(&mut self.engine);
    }

    pub(super) fn advance_us(&mut self, us: u64) {
        self.engine.now = BootTime::from_us(self.engine.now.as_us() + us);
    }

    /// Lets time pass up to this moment, if it has not come yet.
    pub(super) fn advance_to(&mut self, now: BootTime) {
        self.engine.now = self.engine.now.max(now);
    }

    /// What the clock of a member shows at a moment.
    pub(super) fn clock(&self, member: usize, at: BootTime) -> BootTime {
        let clock = self.clocks.get(&member).copied().unwrap_or_default();
        clock.at(at)
    }

    /// The number of a new opening.
    pub(super) fn open(&mut self, member: usize) -> Opening {
        self.openings += 1;
        Opening {
            member,
            number: self.openings,
        }
    }

    /// From now on this opening is the one that the member owns the log with.
    pub(super) fn asks_to_own(&mut self, opening: Opening) {
        self.owners.insert(opening.member, opening.number);
    }

    /// A member that no test drives begins the next epoch.
    fn begin_elsewhere(&mut self) {
        let opening = self.open(usize::MAX);
        begin_next(&mut self.engine, opening);
    }

    /// The same, when the request arrives.
    pub(super) fn begin_elsewhere_later(&mut self) {
        let opening = self.open(usize::MAX);
        let tries = self.random.spread(LATE_TRIES_BITS);
        let begin = UnderWay {
            purpose: Purpose::Other,
            apply: Box::new(move |engine| begin_next(engine, opening)),
        };
        self.send_later(tries, begin);
    }
}

fn begin_next(engine: &mut Engine, opening: Opening) {
    let begun = engine.begin(opening, engine.epoch().next());
    assert!(begun.is_ok(), "it is above all others");
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net")
            .field("engine", &self.engine)
            .field("under_way", &self.under_way.len())
            .finish_non_exhaustive()
    }
}
