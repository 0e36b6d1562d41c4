//! A message that a client tried to send: all its possible fates, and the assumptions of each.
//!
//! Work that is atomic and has an unknown outcome splits a message's possibilities: some assume
//! that it was done, the others that it was not. So an observation of one message decides about all
//! others of the same work.

use kew_engine::Timestamp;

use super::life::{Fate, Life, Surroundings};

/// Assumptions about work with an unknown outcome, in the order of its numbers: whether it was
/// done.
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
        all.sort_unstable();
        Self(all)
    }

    fn without(mut self, work: u64) -> Self {
        self.0.retain(|(own, _)| *own != work);
        self
    }

    /// Whether it follows from the other.
    fn is_implied_by(&self, other: &Self) -> bool {
        self.0.iter().all(|one| other.0.contains(one))
    }
}

/// A possible fate of a message, with its assumptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Possibility {
    given: Given,
    fate: Fate,
}

/// A message that a client tried to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    possible: Vec<Possibility>,
}

impl Message {
    /// A message that some work has sent, if it was done. It may have been dropped as a duplicate.
    pub(super) fn sent_by(self, work: u64, is_perhaps_dropped: bool) -> Self {
        self.sent_by_or(work, is_perhaps_dropped, Fate::NeverSent)
    }

    /// The same, given its fate if the work was not done.
    pub(super) fn sent_by_or(self, work: u64, is_perhaps_dropped: bool, otherwise: Fate) -> Self {
        let done = Given::default().with(work, true);
        let mut sent = Self::default();
        for Possibility { given, fate } in self.possible {
            sent.add(&given.with(work, true), fate);
        }
        if is_perhaps_dropped {
            sent.add(&done, Fate::NeverSent);
        }
        let not_done = Given::default().with(work, false);
        sent.add(&not_done, otherwise);
        sent
    }

    /// Adds a possibility without assumptions.
    pub(crate) fn may_be(&mut self, fate: Fate) {
        self.add(&Given::default(), fate);
    }

    /// Adds a possibility; returns whether it is new. Possibilities that differ only in moments
    /// count as one.
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

    /// Adds the possible results of `then`.
    pub(crate) fn perhaps(&mut self, then: impl Fn(&Life) -> Vec<Fate>) {
        for index in 0..self.possible.len() {
            let Possibility { given, fate } = &self.possible[index];
            let before = fate.life().cloned();
            let fates = before.as_ref().map_or_else(Vec::new, &then);
            let given = given.clone();
            fates.into_iter().for_each(|fate| {
                self.add(&given, fate.after(before.as_ref()));
            });
        }
    }

    /// Replaces each possibility by its results; returns the former ones.
    pub(crate) fn follow(&mut self, then: impl Fn(&Fate) -> Vec<Fate>) -> Vec<Possibility> {
        let before = std::mem::take(&mut self.possible);
        for Possibility { given, fate } in &before {
            then(fate).into_iter().for_each(|after| {
                self.add(given, after.after(fate.life()));
            });
        }
        before
    }

    /// Only these are possible.
    pub(crate) fn keep(&mut self, is: impl Fn(&Fate) -> bool) {
        self.possible.retain(|possibility| is(&possibility.fate));
    }

    /// Some work was done, with these results for the message, or it was not done. If there is no
    /// possible result, it was not done.
    pub(super) fn branch(&mut self, work: u64, then: impl Fn(&Life) -> Vec<Fate>) {
        for Possibility { given, fate } in std::mem::take(&mut self.possible) {
            let known = given.of(work);
            if known != Some(false) {
                let done = match known {
                    Some(_) => given.clone(),
                    None => given.with(work, true),
                };
                let fates = fate.life().map_or_else(Vec::new, &then);
                fates.into_iter().for_each(|after| {
                    self.add(&done, after.after(fate.life()));
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

    /// Whether some work was done, if the possibilities decide that.
    pub(super) fn tells_of(&self, work: u64) -> Option<bool> {
        let mut all = self.possible.iter().map(|it| it.given.of(work));
        let first = all.next().flatten()?;
        all.all(|one| one == Some(first)).then_some(first)
    }

    /// Whether observing it may ever decide the outcome of some work.
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

    /// The outcome of some work will never be known.
    pub(super) fn forget(&mut self, work: u64) {
        for Possibility { given, fate } in std::mem::take(&mut self.possible) {
            self.add(&given.without(work), fate);
        }
    }

    /// Adds the states that it may have reached by itself until now.
    pub(crate) fn pass_time(&mut self, now: Timestamp, around: &impl Surroundings) {
        let mut is_new = true;
        while is_new {
            is_new = false;
            for index in 0..self.possible.len() {
                let Possibility { given, fate } = &self.possible[index];
                let before = fate.life().cloned();
                let next = before.as_ref().map(|life| life.successors(now, around));
                let next = next.unwrap_or_default();
                if next.is_empty() {
                    continue;
                }
                let given = given.clone();
                for fate in next {
                    is_new |= self.add(&given, fate.after(before.as_ref()));
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

    /// Whether no possibility is left.
    pub(crate) fn is_impossible(&self) -> bool {
        self.possible.is_empty()
    }

    /// Whether it can never be seen again, and no assumption depends on it.
    pub(crate) fn is_over(&self) -> bool {
        let is_over = |it: &Possibility| it.fate.is_over() && it.given == Given::default();
        self.possible.iter().all(is_over)
    }

    /// Whether `is` holds for every possibility.
    pub(crate) fn must(&self, is: impl Fn(&Life) -> bool) -> bool {
        let must = |fate: &Fate| fate.life().is_some_and(&is);
        self.fates().all(must)
    }

    /// Whether `is` holds for some possibility.
    pub(crate) fn may(&self, is: impl Fn(&Life) -> bool) -> bool {
        self.lives().any(is)
    }
}

impl Possibility {
    pub(super) fn fate(&self) -> &Fate {
        &self.fate
    }
}
