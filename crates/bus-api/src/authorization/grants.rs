//! The rights of all credentials of one connection together.
//!
//! A link is judged by all credentials, and judged again when a credential expires or is replaced. So their
//! rights are added up by path. The cost of judging a link grows with the segments of its address, not with
//! the number of tokens. Links are judged again only if a right may be lost.

use std::collections::HashMap;

use kew_engine::EntityName;

use super::credential::{Credential, Refused, Shown};
use super::grant::{Grant, Owner, entity_of};
use super::rights::{Right, Rights};

/// The rights of the credentials of a connection.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    all: Vec<Shown>,
    reach: Reach,
}

impl Grants {
    /// Adds a grant, and drops the previous one for the same audience. Refuses the grant if there are too many.
    /// Returns whether a right may be lost.
    pub(crate) fn add(&mut self, shown: Shown, tokens_max: usize) -> Result<bool, Refused> {
        let replaced = self.remove(|own| own.audience == shown.audience);
        if self.all.len() >= tokens_max {
            let text = format!("a connection can have at most {tokens_max} tokens");
            return Err((403, text));
        }
        self.reach.add(&shown.grant);
        self.all.push(shown);
        Ok(self.reach.lacks_any_of(&replaced))
    }

    /// Applies the result for a credential that was judged again after a change of rules, unless the credential
    /// has been replaced since. Returns whether a right may be lost.
    pub(crate) fn judged_again(&mut self, credential: &Credential, grant: Option<Grant>) -> bool {
        let mut judged = self.remove(|own| own.credential == *credential);
        let before: Vec<Shown> = judged.clone();
        if let Some(grant) = grant {
            for own in &mut judged {
                own.grant = grant.clone();
                self.reach.add(&own.grant);
            }
            self.all.append(&mut judged);
        }
        self.reach.lacks_any_of(&before)
    }

    /// Drops grants that have expired. Returns whether a right may be lost.
    pub(crate) fn expire(&mut self, now_s: u64) -> bool {
        let expired = self.remove(|own| own.grant.expires_at_s <= now_s);
        self.reach.lacks_any_of(&expired)
    }

    fn remove(&mut self, is_meant: impl Fn(&Shown) -> bool) -> Vec<Shown> {
        let removed: Vec<Shown> = self.all.extract_if(.., |own| is_meant(own)).collect();
        for shown in &removed {
            self.reach.remove(&shown.grant);
        }
        removed
    }

    /// All grants.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shown> {
        self.all.iter()
    }

    /// The number of grants.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no grants.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a right applies to an entity.
    pub(crate) fn allow(&self, entity: &EntityName, right: Right) -> bool {
        self.reach.rights_at(&entity.name).has(right)
    }

    /// The rights for requests about an entity. Some SDKs put a token for requests only.
    pub(crate) fn rights_of_requests(&self, entity: &EntityName) -> Rights {
        self.reach
            .rights_at(&format!("{}/$management", entity.name))
    }

    /// When the next one expires, in seconds since 1970.
    pub(crate) fn next_expiry_s(&self) -> Option<u64> {
        let expiries = self.all.iter().map(|own| own.grant.expires_at_s);
        expiries.min().filter(|&at| at < u64::MAX)
    }
}

/// How many grants allow each right, by their paths: the sum of [`Grant::allows`] over all of them.
#[derive(Debug, Default)]
struct Reach(HashMap<String, Vec<Place>>);

/// The rights for one path that cover the same entities.
#[derive(Debug)]
struct Place {
    /// Whose entities alone they cover, or `None` for every entity.
    owner: Option<Owner>,
    counts: [u32; Right::ALL.len()],
}

impl Place {
    fn rights(&self) -> Rights {
        let counted = Right::ALL.into_iter().zip(self.counts);
        counted
            .filter_map(|(right, count)| (count > 0).then_some(right))
            .collect()
    }

    fn change(&mut self, rights: Rights, change: impl Fn(u32) -> u32) {
        for (right, count) in Right::ALL.into_iter().zip(&mut self.counts) {
            if rights.has(right) {
                *count = change(*count);
            }
        }
    }
}

impl Reach {
    fn add(&mut self, grant: &Grant) {
        let places = self.0.entry(grant.path.clone()).or_default();
        let index = places.iter().position(|it| it.owner == grant.owner);
        let index = index.unwrap_or_else(|| {
            places.push(Place {
                owner: grant.owner.clone(),
                counts: Default::default(),
            });
            places.len() - 1
        });
        if let Some(place) = places.get_mut(index) {
            place.change(grant.rights, |count| count + 1);
        }
    }

    /// Removes a grant that was added.
    fn remove(&mut self, grant: &Grant) {
        let Some(places) = self.0.get_mut(&grant.path) else {
            return;
        };
        if let Some(place) = places.iter_mut().find(|it| it.owner == grant.owner) {
            place.change(grant.rights, |count| count - 1);
        }
        places.retain(|place| !place.rights().is_empty());
        if places.is_empty() {
            self.0.remove(&grant.path);
        }
    }

    /// The rights at a node, whose path is in lower case and has no slashes around it.
    fn rights_at(&self, path: &str) -> Rights {
        let entity = entity_of(path);
        let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        let covering = [""].into_iter().chain(above).chain([path]);
        let places = covering.filter_map(|path| self.0.get(path)).flatten();
        places
            .filter(|place| place.owner.as_ref().is_none_or(|owner| owner.owns(entity)))
            .flat_map(|place| place.rights().iter())
            .collect()
    }

    /// Whether one of these removed grants had a right that no other grant has for the same path.
    fn lacks_any_of(&self, removed: &[Shown]) -> bool {
        removed.iter().any(|shown| {
            let places = self.0.get(&shown.grant.path).into_iter().flatten();
            let left: Rights = places
                .filter(|place| place.owner == shown.grant.owner)
                .flat_map(|place| place.rights().iter())
                .collect();
            shown.grant.rights.iter().any(|right| !left.has(right))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kew_engine::bus::EntityKind;

    use super::*;
    use crate::ground::address::entity_named;

    fn shown(audience: &str, path: &str, rights: &[Right], topic: Option<&str>) -> Shown {
        Shown {
            audience: Some(audience.into()),
            credential: Credential::Signature(Arc::from(audience)),
            grant: Grant {
                path: path.into(),
                rights: rights.iter().copied().collect(),
                expires_at_s: 100,
                owner: topic.map(|name| Owner {
                    name: name.into(),
                    kind: EntityKind::Topic,
                }),
                holder: "rule r".into(),
            },
        }
    }

    #[test]
    fn the_rights_of_all_grants_are_the_sum_of_the_rights_of_each() {
        const SETS: [&[Right]; 3] = [&[Right::Send], &[Right::Listen], &[Right::Manage]];
        const PATHS: [(&str, Option<&str>); 8] = [
            ("", None),
            ("a", None),
            ("a", Some("a")),
            ("a/b", None),
            ("a/b", Some("a")),
            ("a/$management", Some("a")),
            ("a/subscriptions/s", Some("a")),
            ("ab", None),
        ];
        let nodes = [
            "a",
            "a/b",
            "a/b/c",
            "ab",
            "b",
            "a/$deadletterqueue",
            "a/$management",
            "a/subscriptions/s/$deadletterqueue",
        ];
        for first in 0..PATHS.len() * SETS.len() {
            for second in 0..PATHS.len() * SETS.len() {
                let mut grants = Grants::default();
                for (audience, index) in [("one", first), ("two", second)] {
                    let (path, topic) = PATHS[index / SETS.len()];
                    let own = shown(audience, path, SETS[index % SETS.len()], topic);
                    assert!(!grants.add(own, 2).unwrap());
                }
                for node in nodes {
                    for right in Right::ALL {
                        let expected = grants.iter().any(|own| own.grant.allows(right, node));
                        let found = grants.reach.rights_at(node).has(right);
                        assert_eq!(found, expected, "{right} at {node}: {grants:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_lost_rights_are_reported() {
        let mut grants = Grants::default();
        let add = |grants: &mut Grants, shown| grants.add(shown, 3).unwrap();
        let may_send = |grants: &Grants| grants.allow(&entity_named("q").unwrap(), Right::Send);
        assert!(!add(&mut grants, shown("a", "q", &[Right::Send], None)));
        // The same again, and more.
        assert!(!add(&mut grants, shown("a", "q", &[Right::Send], None)));
        assert!(!add(&mut grants, shown("a", "q", &[Right::Manage], None)));
        assert!(may_send(&grants));
        // Fewer rights, but another grant has the lost one.
        assert!(!add(&mut grants, shown("b", "q", &[Right::Manage], None)));
        assert!(!add(&mut grants, shown("a", "q", &[Right::Listen], None)));
        assert!(may_send(&grants));
        let other = shown("b", "q", &[], None).credential;
        assert!(grants.judged_again(&other, None));
        assert!(!may_send(&grants));
        assert!(add(&mut grants, shown("a", "q", &[Right::Send], None)));
        assert!(!grants.expire(99));
        assert!(grants.expire(100));
        assert!(grants.is_empty() && grants.reach.0.is_empty());
    }

    #[test]
    fn one_grant_above_the_limit_is_refused() {
        let mut grants = Grants::default();
        grants
            .add(shown("a", "a", &[Right::Send], None), 1)
            .unwrap();
        grants
            .add(shown("a", "b", &[Right::Send], None), 1)
            .unwrap();
        let refused = grants.add(shown("b", "a", &[Right::Send], None), 1);
        assert_eq!(refused.unwrap_err().0, 403);
        assert!(grants.allow(&entity_named("b").unwrap(), Right::Send));
    }
}
