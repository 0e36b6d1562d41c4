//! The link between the members and the agreed log, with the requests that are under way.
//!
//! A job asks, and its answer can be lost: before or after the request took effect. A request that was lost may still arrive
//! much later, also a second time, and behind requests of a later owner. The seed decides, and nothing else: there is no
//! time but the engine's. The last try is always answered, so a job returns.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_log::BootTime;

use super::engine::{Engine, Opening};
use crate::Lost;
use crate::random::Random;

/// How often something is tried at most.
const TRIES: u32 = 4;

/// More requests are not under way: an older one arrives then.
const UNDER_WAY_MAX: usize = 16;

/// What a link does.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// One in so many requests loses its way, or its answer, or arrives twice. 0 for none.
    pub once_in: usize,
    /// How long an answer takes at most, in microseconds.
    pub delay_us_max: usize,
}

/// A request, which can be applied any number of times.
pub(super) trait Request<A>: Fn(&mut Engine) -> A + Send + Sync + 'static {}

impl<A, F: Fn(&mut Engine) -> A + Send + Sync + 'static> Request<A> for F {}

/// A request that was lost, or is to come a second time.
type UnderWay = Box<dyn Fn(&mut Engine) + Send + Sync>;

/// The engine, and what is on the way to it.
pub(super) struct Link(Mutex<Net>);

pub(super) struct Net {
    pub(super) engine: Engine,
    options: LinkOptions,
    random: Random,
    under_way: VecDeque<UnderWay>,
    openings: u64,
    /// What the next append loses, and whether another member begins an epoch then.
    pub(super) next_lost: Option<(Lost, bool)>,
    /// How long the next answer takes, in microseconds.
    pub(super) next_delay_us: u64,
}

/// How often something was tried.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    AnsweredAndRepeated,
    LostFor(Lost),
    /// It never arrives.
    Gone,
}

impl Link {
    pub(super) fn new(options: LinkOptions, seed: u64) -> Self {
        Self(Mutex::new(Net {
            engine: Engine::default(),
            options,
            random: Random::new(seed),
            under_way: VecDeque::new(),
            openings: 0,
            next_lost: None,
            next_delay_us: 0,
        }))
    }

    pub(super) fn net(&self) -> MutexGuard<'_, Net> {
        // Nothing is half done where a thread can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until there is an answer. Returns it, and when the request was sent that it answers.
    pub(super) fn ask<A: 'static>(&self, request: impl Request<A>) -> (A, BootTime) {
        let request = Arc::new(request);
        let mut tries = Tries::default();
        loop {
            let sent = self.net().engine.now;
            if let Some(answer) = self.try_once(&mut tries, &request) {
                return (answer, sent);
            }
        }
    }

    /// Asks once. `None` if there is no answer: whether the request took effect, or will, is not known then.
    pub(super) fn try_once<A: 'static>(
        &self,
        tries: &mut Tries,
        request: &Arc<impl Request<A>>,
    ) -> Option<A> {
        self.net().try_once(tries, request, None)
    }

    /// The same for an append, which tests let the link lose.
    pub(super) fn try_append<A: 'static>(
        &self,
        tries: &mut Tries,
        request: &Arc<impl Request<A>>,
    ) -> Option<A> {
        let mut net = self.net();
        let lost = net.next_lost.take();
        let answer = net.try_once(tries, request, lost.map(|(lost, _)| lost));
        if let Some((_, true)) = lost {
            net.begin_elsewhere();
        }
        answer
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
        request: &Arc<impl Request<A>>,
        lost: Option<Lost>,
    ) -> Option<A> {
        tries.0 += 1;
        self.let_some_arrive();
        let fate = match lost {
            Some(lost) => Fate::LostFor(lost),
            None if tries.0 >= TRIES => Fate::Answered,
            None => self.fate(),
        };
        let later = || -> UnderWay {
            let request = Arc::clone(request);
            Box::new(move |engine| drop(request(engine)))
        };
        match fate {
            Fate::LostFor(Lost::Request) => self.under_way.push_back(later()),
            Fate::AnsweredAndRepeated => self.under_way.push_back(later()),
            Fate::LostFor(Lost::Answer) | Fate::Answered | Fate::Gone => {}
        }
        self.delay();
        let answer = match fate {
            Fate::LostFor(Lost::Request) | Fate::Gone => None,
            Fate::Answered | Fate::AnsweredAndRepeated => Some(request(&mut self.engine)),
            Fate::LostFor(Lost::Answer) => {
                drop(request(&mut self.engine));
                None
            }
        };
        self.delay();
        let slow_us = std::mem::take(&mut self.next_delay_us);
        self.advance_us(slow_us);
        answer
    }

    fn fate(&mut self) -> Fate {
        let options = self.options;
        if options.once_in == 0 || !self.random.once_in(options.once_in) {
            return Fate::Answered;
        }
        match self.random.below(4) {
            0 => Fate::AnsweredAndRepeated,
            1 => Fate::LostFor(Lost::Request),
            2 => Fate::LostFor(Lost::Answer),
            _ => Fate::Gone,
        }
    }

    fn delay(&mut self) {
        let most = self.options.delay_us_max;
        if most > 0 {
            let delay_us = self.random.below(most) as u64;
            self.advance_us(delay_us);
        }
    }

    /// Some requests arrive that are under way, in any order.
    fn let_some_arrive(&mut self) {
        while self.under_way.len() > UNDER_WAY_MAX
            || !self.under_way.is_empty() && self.random.once_in(3)
        {
            let index = self.random.below(self.under_way.len());
            if let Some(late) = self.under_way.remove(index) {
                late(&mut self.engine);
            }
        }
    }

    /// All requests arrive that are under way.
    pub(super) fn let_all_arrive(&mut self) {
        for late in std::mem::take(&mut self.under_way) {
            late(&mut self.engine);
        }
    }

    pub(super) fn advance_us(&mut self, us: u64) {
        self.engine.now = BootTime::from_us(self.engine.now.as_us() + us);
    }

    /// The number of a new opening.
    pub(super) fn open(&mut self, member: usize) -> Opening {
        self.openings += 1;
        Opening {
            member,
            number: self.openings,
        }
    }

    /// A member that nobody drives begins the next epoch.
    fn begin_elsewhere(&mut self) {
        let opening = self.open(usize::MAX);
        begin_next(&mut self.engine, opening);
    }

    /// The same, when the request arrives.
    pub(super) fn begin_elsewhere_later(&mut self) {
        let opening = self.open(usize::MAX);
        let begin = move |engine: &mut Engine| begin_next(engine, opening);
        self.under_way.push_back(Box::new(begin));
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
