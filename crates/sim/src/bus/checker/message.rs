//! A message that somebody tried to send: all that may have become of it, and what each possibility rests
//! on.
//!
//! Work that is done as a whole or not at all, and whose outcome nobody knows, splits a message's
//! possibilities: those of one side rest on that it was done, those of the other on that it was not. So
//! what somebody sees of one message decides about all others that the same work was about.

use kew_engine::Timestamp;

use super::life::{Fate, Life, Surroundings};

/// Of work whose outcome nobody knows, in the order of its numbers, whether it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given(Vec<(u64, bool)>);

impl Given {
    fn of(&self, work: u64) -> Option<bool> {
        let found = self.0.iter().find(|(own, _)| *own == work);
        found.map(|(_, is_done)| *is_done)
    }

    fn with(&self, work: u64, is_done: bool) -> Self {
        let mut all = self.0.clone();
        all.push((work, is_done));
        Self(all)
    }

    fn without(mut self, work: u64) -> Self {
        self.0.retain(|(own, _)| *own != work);
        self
    }

    /// Whether it is so wherever the other is.
    fn is_implied_by(&self, other: &Self) -> bool {
        self.0.iter().all(|one| other.0.contains(one))
    }
}

/// What may have become of a message, if what it rests on is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Possibility {
    given: Given,
    fate: Fate,
}

/// A message that somebody tried to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    possible: Vec<Possibility>,
}

impl Message {
    /// One that some work has sent, if it was done. Perhaps it was dropped even so.
    pub(super) fn sent_by(self, work: u64, is_perhaps_dropped: bool) -> Self {
        let done = Given::default().with(work, true);
        let mut sent = Self::default();
        for possibility in self.possible {
            sent.add(&done, possibility.fate);
        }
        if is_perhaps_dropped {
            sent.add(&done, Fate::NeverSent);
        }
        let not_done = Given::default().with(work, false);
        sent.add(&not_done, Fate::NeverSent);
        sent
    }

    /// Adds a possibility that rests on nothing.
    pub(crate) fn may_be(&mut self, fate: Fate) {
        self.add(&Given::default(), fate);
    }

    /// Adds a possibility, if it is a new one; whether it was. Possibilities that differ in moments alone
    /// are one.
    fn add(&mut self, given: &Given, fate: Fate) -> bool {
        for known in &mut self.possible {
            if known.fate == fate && known.given.is_implied_by(given) {
                return false;
            }
            if let (Fate::Here(own), Fate::Here(life)) = (&mut known.fate, &fate)
                && known.given == *given
                && own.differs_in_moments_alone(life)
            {
                return own.widen(life);
            }
        }
        let given = given.clone();
        self.possible.push(Possibility { given, fate });
        true
    }

    /// Adds what may have come of it, as `then` says.
    pub(crate) fn perhaps(&mut self, then: impl Fn(&Life) -> Vec<Fate>) {
        for index in 0..self.possible.len() {
            let Possibility { given, fate } = &self.possible[index];
            let fates = fate.life().map_or_else(Vec::new, &then);
            let given = given.clone();
            fates.into_iter().for_each(|fate| {
                self.add(&given, fate);
            });
        }
    }

    /// Each possibility becomes what follows from it; what it was before.
    pub(crate) fn follow(&mut self, then: impl Fn(&Fate) -> Vec<Fate>) -> Vec<Possibility> {
        let before = std::mem::take(&mut self.possible);
        for Possibility { given, fate } in &before {
            then(fate).into_iter().for_each(|fate| {
                self.add(given, fate);
            });
        }
        before
    }

    /// Only these are possible.
    pub(crate) fn keep(&mut self, is: impl Fn(&Fate) -> bool) {
        self.possible.retain(|possibility| is(&possibility.fate));
    }

    /// Some work was done, and this came of the message in it, or it was not done. Where nothing can have
    /// come of it, it was not.
    pub(super) fn branch(&mut self, work: u64, then: impl Fn(&Life) -> Vec<Fate>) {
        for Possibility { given, fate } in std::mem::take(&mut self.possible) {
            let known = given.of(work);
            if known != Some(false) {
                let done = match known {
                    Some(_) => given.clone(),
                    None => given.with(work, true),
                };
                let fates = fate.life().map_or_else(Vec::new, &then);
                fates.into_iter().for_each(|fate| {
                    self.add(&done, fate);
                });
            }
            match known {
                Some(true) => {}
                Some(false) => {
                    self.add(&given, fate);
                }
                None => {
                    self.add(&given.with(work, false), fate);
                }
            }
        }
    }

    /// Whether some work was done, if what is possible says so.
    pub(super) fn tells_of(&self, work: u64) -> Option<bool> {
        let mut all = self.possible.iter().map(|it| it.given.of(work));
        let first = all.next().flatten()?;
        all.all(|one| one == Some(first)).then_some(first)
    }

    /// Whether the outcome of some work may ever be told by what is seen of it.
    pub(super) fn may_tell(&self) -> bool {
        !self.fates().all(Fate::is_over)
    }

    /// It is known now whether some work was done.
    pub(super) fn decide(&mut self, work: u64, is_done: bool) {
        for Possibility { given, fate } in std::mem::take(&mut self.possible) {
            if given.of(work).is_none_or(|own| own == is_done) {
                self.add(&given.without(work), fate);
            }
        }
    }

    /// Nobody will ever know whether some work was done.
    pub(super) fn forget(&mut self, work: u64) {
        for Possibility { given, fate } in std::mem::take(&mut self.possible) {
            self.add(&given.without(work), fate);
        }
    }

    /// Adds what may have happened by itself until now.
    pub(crate) fn pass_time(&mut self, now: Timestamp, around: &impl Surroundings) {
        let mut is_new = true;
        while is_new {
            is_new = false;
            for index in 0..self.possible.len() {
                let Possibility { given, fate } = &self.possible[index];
                let next = fate.life().map(|life| life.successors(now, around));
                let next = next.unwrap_or_default();
                if next.is_empty() {
                    continue;
                }
                let given = given.clone();
                for fate in next {
                    is_new |= self.add(&given, fate);
                }
            }
            assert!(
                self.possible.len() < 1000,
                "possibilities without end: {self:?}"
            );
        }
    }

    pub(crate) fn fates(&self) -> impl Iterator<Item = &Fate> {
        self.possible.iter().map(|possibility| &possibility.fate)
    }

    pub(crate) fn lives(&self) -> impl Iterator<Item = &Life> {
        self.fates().filter_map(Fate::life)
    }

    /// Whether nothing is left that it may be.
    pub(crate) fn is_impossible(&self) -> bool {
        self.possible.is_empty()
    }

    /// Whether nothing can ever be seen of it again, and nothing rests on it.
    pub(crate) fn is_over(&self) -> bool {
        let is_over = |it: &Possibility| it.fate.is_over() && it.given == Given::default();
        self.possible.iter().all(is_over)
    }

    /// Whether it must be as `is` says.
    pub(crate) fn must(&self, is: impl Fn(&Life) -> bool) -> bool {
        let must = |fate: &Fate| fate.life().is_some_and(&is);
        self.fates().all(must)
    }

    /// Whether it may be as `is` says.
    pub(crate) fn may(&self, is: impl Fn(&Life) -> bool) -> bool {
        self.lives().any(is)
    }
}

impl Possibility {
    pub(super) fn fate(&self) -> &Fate {
        &self.fate
    }
}
