//! When messages come back that nobody announces: after their back-off, or when a lease ends by itself.

use std::collections::BTreeSet;

use tokio::time::Instant;

/// The most times that are remembered. More are covered by the latest of them.
const TIMES_MAX: usize = 10_000;

/// Times at which a listener with push looks into its queue without an announcement.
#[derive(Debug, Default)]
pub(crate) struct Returns(BTreeSet<Instant>);

impl Returns {
    /// Remembers a time. Whether it is the earliest one now.
    pub(crate) fn add(&mut self, at: Instant) -> bool {
        if self.0.len() >= TIMES_MAX {
            match self.0.last() {
                Some(last) if *last >= at => return false,
                // The look at the later time finds what came earlier too.
                _ => drop(self.0.pop_last()),
            }
        }
        self.0.insert(at);
        self.0.first() == Some(&at)
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.0.first().copied()
    }

    /// Forgets the times that are over.
    pub(crate) fn forget_until(&mut self, now: Instant) {
        while self.0.first().is_some_and(|at| *at <= now) {
            self.0.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_is_first_and_the_latest_covers_what_is_too_much() {
        let (mut returns, begin) = (Returns::default(), Instant::now());
        let at = |second: u64| begin + Duration::from_secs(second);
        assert!(returns.add(at(5)) && returns.add(at(3)) && !returns.add(at(4)));
        assert_eq!(returns.first(), Some(at(3)));
        returns.forget_until(at(4));
        assert_eq!(returns.first(), Some(at(5)));
        for second in 0..20_000 {
            returns.add(at(second));
        }
        assert_eq!(returns.0.len(), TIMES_MAX);
        assert_eq!(
            (returns.first(), returns.0.last()),
            (Some(at(0)), Some(&at(19_999)))
        );
    }
}
