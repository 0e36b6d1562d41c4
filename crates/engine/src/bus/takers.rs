//! The subscriptions that take every message of their topic, by the rule `$Default` of their creation or by another rule
//! that selects all messages and has no action.
//!
//! They are found where such rules are noted: no other subscription is looked at. A rule that is noted may not hold for the
//! message at hand, because it came later or was retired. To find that out takes time, and the answer says how much.

use super::queues::Queues;
use crate::catalogue::Catalogue;
use crate::vocabulary::{Incarnation, SequenceNumber};

/// What looking at a subscription showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedAt {
    /// Whether it gets a plain copy of the message, whatever that is.
    pub(crate) takes_all: bool,
    /// How many rules were looked at.
    pub(crate) rules: u64,
}

impl Queues {
    /// The subscriptions that may take every message: the oldest first, from one on. None of their rules was looked at.
    pub(crate) fn may_take_all_from(
        &self,
        catalogue: &Catalogue,
        topic: Incarnation,
        from: Incarnation,
    ) -> impl Iterator<Item = Incarnation> {
        let by_default = catalogue.families.with_default_from(topic, from);
        let rules = self.get(&topic).and_then(|it| it.topic.as_ref());
        let by_rules = rules.map(|it| it.with_plain_rules_from(from));
        merged(by_default, by_rules.into_iter().flatten())
    }

    /// Looks whether a subscription takes the message with this number, whatever it is.
    pub(crate) fn look_at(
        &self,
        catalogue: &Catalogue,
        (topic, subscription): (Incarnation, Incarnation),
        number: SequenceNumber,
    ) -> LookedAt {
        if catalogue.families.has_default(topic, subscription, number) {
            return LookedAt {
                takes_all: true,
                rules: 1,
            };
        }
        let rules = self.get(&topic).and_then(|it| it.topic.as_ref());
        let (takes_all, rules) =
            rules.map_or((false, 0), |it| it.selects_all(subscription, number));
        LookedAt {
            takes_all,
            rules: 1 + rules,
        }
    }
}

/// What at least one of them has, in order, given that both are in order.
fn merged(
    one: impl Iterator<Item = Incarnation>,
    other: impl Iterator<Item = Incarnation>,
) -> impl Iterator<Item = Incarnation> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || {
        let firsts = [one.peek(), other.peek()];
        let first = firsts.into_iter().flatten().min().copied()?;
        one.next_if_eq(&first);
        other.next_if_eq(&first);
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_have_comes_once() {
        let numbered = |all: &[u64]| {
            all.iter()
                .copied()
                .map(Incarnation::new)
                .collect::<Vec<_>>()
        };
        let check = |one: &[u64], other: &[u64], both: &[u64]| {
            let all = merged(numbered(one).into_iter(), numbered(other).into_iter());
            assert_eq!(all.collect::<Vec<_>>(), numbered(both));
        };
        check(&[], &[], &[]);
        check(&[1, 4], &[], &[1, 4]);
        check(&[], &[2], &[2]);
        check(&[1, 4, 7], &[2, 4, 8, 9], &[1, 2, 4, 7, 8, 9]);
    }
}
