//! The subscriptions that take every message of their topic, by the rule `$Default` of their creation or by another rule
//! that selects all messages and has no action.
//!
//! They are found where such rules are noted: no other subscription is looked at.

use super::queues::Queues;
use crate::catalogue::Catalogue;
use crate::vocabulary::{Incarnation, SequenceNumber};

impl Queues {
    /// Those that get a plain copy of the message with this number, whatever it is: the oldest first, from one on.
    pub(crate) fn takers_from(
        &self,
        catalogue: &Catalogue,
        topic: Incarnation,
        from: Incarnation,
        number: SequenceNumber,
    ) -> impl Iterator<Item = Incarnation> {
        let families = &catalogue.families;
        let by_default = families.by_default_from(topic, from, number);
        let rules = self.get(&topic).and_then(|it| it.topic.as_ref());
        let by_rules = rules.map(|it| it.taking_all_from(from, number));
        merged(by_default, by_rules.into_iter().flatten())
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
