//! Rules by the values that they need, for each property.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::RuleId;
use super::places::Place;
use crate::message::{SystemProperty, folded};

/// Numbers of rules, in their order. Most buckets have one.
#[derive(Clone, Debug)]
enum Bucket {
    One(RuleId),
    Many(BTreeSet<RuleId>),
}

/// Rules by the hash of the value that they need. Different values may share a hash: all are candidates.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    by_value: HashMap<u64, Bucket>,
}

impl Buckets {
    fn add(&mut self, value: u64, id: RuleId) {
        match self.by_value.entry(value) {
            Entry::Vacant(entry) => {
                entry.insert(Bucket::One(id));
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Bucket::One(other) => {
                    let both = BTreeSet::from([*other, id]);
                    entry.insert(Bucket::Many(both));
                }
                Bucket::Many(all) => {
                    all.insert(id);
                }
            },
        }
    }

    fn take(&mut self, value: u64, id: RuleId) {
        if let Entry::Occupied(mut entry) = self.by_value.entry(value) {
            let is_empty = match entry.get_mut() {
                Bucket::One(only) => *only == id,
                Bucket::Many(all) => {
                    all.remove(&id);
                    all.is_empty()
                }
            };
            if is_empty {
                entry.remove();
            }
        }
    }

    fn count(&self, value: u64) -> usize {
        match self.by_value.get(&value) {
            None => 0,
            Some(Bucket::One(_)) => 1,
            Some(Bucket::Many(all)) => all.len(),
        }
    }

    /// Adds the rules that need this value.
    pub(super) fn find(&self, value: u64, into: &mut Vec<RuleId>) {
        match self.by_value.get(&value) {
            None => {}
            Some(Bucket::One(only)) => into.push(*only),
            Some(Bucket::Many(all)) => into.extend(all),
        }
    }
}

/// Rules that need an application property, however they spell its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    /// How many rules spell it in each way: a message may have several properties that differ in upper and lower case.
    pub(super) spellings: BTreeMap<Box<str>, usize>,
    pub(super) buckets: Buckets,
}

/// Rules by the property and the value that they need.
#[derive(Clone, Debug, Default)]
pub(super) struct Filing {
    /// By folded name.
    pub(super) user: BTreeMap<Box<str>, Named>,
    /// Of all names together.
    pub(super) spellings: usize,
    pub(super) system: BTreeMap<SystemProperty, Buckets>,
}

impl Filing {
    pub(super) fn count_at(&self, place: Place<'_>) -> usize {
        let (buckets, value) = match place {
            Place::User { spelled, value } => {
                let named = self.user.get(&*folded(spelled));
                (named.map(|it| &it.buckets), value)
            }
            Place::System { property, value } => (self.system.get(&property), value),
        };
        buckets.map_or(0, |it| it.count(value))
    }

    pub(super) fn add(&mut self, place: Place<'_>, id: RuleId) {
        match place {
            Place::User { spelled, value } => {
                let named = self.user.entry(folded(spelled).into()).or_default();
                match named.spellings.get_mut(spelled) {
                    Some(count) => *count += 1,
                    None => {
                        named.spellings.insert(spelled.into(), 1);
                        self.spellings += 1;
                    }
                }
                named.buckets.add(value, id);
            }
            Place::System { property, value } => {
                self.system.entry(property).or_default().add(value, id);
            }
        }
    }

    pub(super) fn take(&mut self, place: Place<'_>, id: RuleId) {
        match place {
            Place::User { spelled, value } => {
                let folded = folded(spelled);
                let Some(named) = self.user.get_mut(&*folded) else {
                    return;
                };
                named.buckets.take(value, id);
                if let Some(count) = named.spellings.get_mut(spelled) {
                    *count -= 1;
                    if *count == 0 {
                        named.spellings.remove(spelled);
                        self.spellings -= 1;
                    }
                }
                if named.spellings.is_empty() {
                    self.user.remove(&*folded);
                }
            }
            Place::System { property, value } => {
                if let Some(buckets) = self.system.get_mut(&property) {
                    buckets.take(value, id);
                    if buckets.by_value.is_empty() {
                        self.system.remove(&property);
                    }
                }
            }
        }
    }
}
