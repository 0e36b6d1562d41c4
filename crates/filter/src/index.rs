//! Many rules at once: which of them select a message, without evaluating each.
//!
//! A rule that needs an equality, such as `color = 'red'` in a chain of `AND`, cannot select a message without that value.
//! So it is found by the name and the value. Each rule is filed under one of its equalities: the one with the fewest
//! rules so far. What is found is only a candidate, and its whole filter is evaluated; so the index can never select a
//! message that the filter does not. Rules without such an equality are evaluated for each message.
//!
//! A rule that is not found would not have failed either: an equality counts only if what stands before it cannot fail,
//! and an evaluation ends at the first part of a chain that does not hold.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::compare::Comparison;
use crate::error::EvaluationError;
use crate::message::folded;
use crate::message::{Message, NewIds, SystemProperty};
use crate::number::Number;
use crate::rule::Filter;
use crate::syntax::tree::{Expression, Predicate, Property};
use crate::value::Value;

/// With more names than that, the message's properties are visited instead of asked for.
const NAMES_ASKED_FOR_MAX: usize = 8;

/// The number of a rule, given by the caller.
pub type RuleId = u64;

/// The rules of many subscriptions.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: BTreeMap<RuleId, Filed>,
    /// Application properties, by folded name. A message may have several that differ in upper and lower case only.
    user: BTreeMap<Box<str>, Vec<Named>>,
    system: BTreeMap<SystemProperty, Buckets>,
    /// Rules that are evaluated for each message.
    others: Bucket,
}

#[derive(Clone, Debug)]
struct Filed {
    filter: Filter,
    places: Vec<Place>,
}

/// Where a rule is filed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    User {
        spelled: Box<str>,
        value: u64,
    },
    System {
        property: SystemProperty,
        value: u64,
    },
    Others,
}

/// The rules under one name, as they spell it.
#[derive(Clone, Debug)]
struct Named {
    spelled: Box<str>,
    buckets: Buckets,
}

/// Rules by the hash of the value that they need. Different values may share a hash: all are candidates.
type Buckets = HashMap<u64, Bucket>;

type Bucket = Vec<RuleId>;

/// The rules that select a message, and those that failed. One value serves many messages.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    candidates: Vec<RuleId>,
    matching: Vec<RuleId>,
    failed: Vec<(RuleId, EvaluationError)>,
    evaluated: usize,
}

impl Matches {
    /// The rules that select the message, in the order of their numbers.
    pub fn matching(&self) -> &[RuleId] {
        &self.matching
    }

    /// The rules that failed, in the order of their numbers.
    pub fn failed(&self) -> &[(RuleId, EvaluationError)] {
        &self.failed
    }

    /// How many rules were evaluated.
    pub fn evaluated(&self) -> usize {
        self.evaluated
    }
}

impl RuleSet {
    /// Adds a rule. Replaces the one with the same number.
    pub fn insert(&mut self, id: RuleId, filter: Filter) {
        self.remove(id);
        let places = self.places_of(&filter);
        for place in &places {
            self.bucket_at(place).push(id);
        }
        self.rules.insert(id, Filed { filter, places });
    }

    /// Removes a rule, and returns whether it existed.
    pub fn remove(&mut self, id: RuleId) -> bool {
        let Some(filed) = self.rules.remove(&id) else {
            return false;
        };
        for place in &filed.places {
            self.take_out(place, id);
        }
        true
    }

    /// The filter of a rule.
    pub fn filter(&self, id: RuleId) -> Option<&Filter> {
        self.rules.get(&id).map(|filed| &filed.filter)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Finds the rules that select a message: the same as evaluating all.
    pub fn find<M: Message + ?Sized>(&self, message: &M, ids: &dyn NewIds, into: &mut Matches) {
        into.matching.clear();
        into.failed.clear();
        into.candidates.clear();
        into.candidates.extend_from_slice(&self.others);
        let candidates = &mut into.candidates;
        let mut add = |buckets: &Buckets, value: Value<'_>| {
            let found = hash_of(value).and_then(|hash| buckets.get(&hash));
            candidates.extend(found.into_iter().flatten());
        };
        for (property, buckets) in &self.system {
            add(buckets, message.system(*property));
        }
        if self.user.len() <= NAMES_ASKED_FOR_MAX {
            for named in self.user.values().flatten() {
                if let Some(value) = message.user(&named.spelled) {
                    add(&named.buckets, value);
                }
            }
        } else {
            message.visit_user(&mut |name, value| {
                // Most names are in lower case, and need no other text.
                let is_folded = name
                    .bytes()
                    .all(|it| it.is_ascii() && !it.is_ascii_uppercase());
                let spellings = match is_folded {
                    true => self.user.get(name),
                    false => self.user.get(&*folded(name)),
                };
                for named in spellings.into_iter().flatten() {
                    add(&named.buckets, value);
                }
            });
        }
        into.candidates.sort_unstable();
        into.candidates.dedup();
        into.evaluated = into.candidates.len();
        for &id in &into.candidates {
            let filter = self.rules.get(&id).map(|filed| &filed.filter);
            match filter.map(|filter| filter.matches(message, ids)) {
                Some(Ok(true)) => into.matching.push(id),
                Some(Ok(false)) | None => {}
                Some(Err(error)) => into.failed.push((id, error)),
            }
        }
    }

    fn places_of(&self, filter: &Filter) -> Vec<Place> {
        let alternatives = match filter {
            Filter::False => return Vec::new(),
            Filter::True => Vec::new(),
            Filter::Correlation(filter) => {
                let conditions = filter.conditions().iter();
                let places = conditions
                    .filter_map(|(property, value)| place_of(property, value.as_value()))
                    .map(|place| vec![place]);
                places.collect()
            }
            Filter::Sql(filter) => {
                let mut places = Vec::new();
                places_in(filter.predicate(), &mut places);
                places
            }
        };
        let crowd = |places: &Vec<Place>| places.iter().map(|it| self.count_at(it)).sum::<usize>();
        let best = alternatives.into_iter().min_by_key(crowd);
        best.unwrap_or_else(|| vec![Place::Others])
    }

    fn count_at(&self, place: &Place) -> usize {
        let bucket = match place {
            Place::User { spelled, value } => {
                let spellings = self.user.get(&*folded(spelled)).into_iter().flatten();
                let named = spellings.into_iter().find(|it| it.spelled == *spelled);
                named.and_then(|it| it.buckets.get(value))
            }
            Place::System { property, value } => {
                self.system.get(property).and_then(|it| it.get(value))
            }
            Place::Others => Some(&self.others),
        };
        bucket.map_or(0, Vec::len)
    }

    fn bucket_at(&mut self, place: &Place) -> &mut Bucket {
        match place {
            Place::User { spelled, value } => {
                let spellings = self.user.entry(folded(spelled).into()).or_default();
                let found = spellings.iter().position(|it| it.spelled == *spelled);
                let at = found.unwrap_or_else(|| {
                    spellings.push(Named {
                        spelled: spelled.clone(),
                        buckets: Buckets::new(),
                    });
                    spellings.len() - 1
                });
                let named = spellings.get_mut(at).expect("it was found or pushed");
                named.buckets.entry(*value).or_default()
            }
            Place::System { property, value } => {
                let buckets = self.system.entry(*property).or_default();
                buckets.entry(*value).or_default()
            }
            Place::Others => &mut self.others,
        }
    }

    fn take_out(&mut self, place: &Place, id: RuleId) {
        match place {
            Place::User { spelled, value } => {
                let folded = folded(spelled);
                let Some(spellings) = self.user.get_mut(&*folded) else {
                    return;
                };
                for named in &mut *spellings {
                    if named.spelled == *spelled {
                        take_from(&mut named.buckets, *value, id);
                    }
                }
                spellings.retain(|named| !named.buckets.is_empty());
                if spellings.is_empty() {
                    self.user.remove(&*folded);
                }
            }
            Place::System { property, value } => {
                if let Some(buckets) = self.system.get_mut(property) {
                    take_from(buckets, *value, id);
                    if buckets.is_empty() {
                        self.system.remove(property);
                    }
                }
            }
            Place::Others => self.others.retain(|it| *it != id),
        }
    }
}

fn take_from(buckets: &mut Buckets, value: u64, id: RuleId) {
    if let Entry::Occupied(mut bucket) = buckets.entry(value) {
        bucket.get_mut().retain(|it| *it != id);
        if bucket.get().is_empty() {
            bucket.remove();
        }
    }
}

/// The equalities of a predicate's chain of `AND`, each with its alternatives. Returns whether what it has read cannot
/// fail, so that it may go on behind it.
fn places_in(predicate: &Predicate, places: &mut Vec<Vec<Place>>) -> bool {
    match predicate {
        Predicate::And(all) => all.iter().all(|part| places_in(part, places)),
        Predicate::Compare(left, Comparison::Equal, right) => {
            places.extend(equality_of(left, right).map(|place| vec![place]));
            is_safe(left) && is_safe(right)
        }
        Predicate::In {
            of: of @ Expression::Property(_),
            list,
            is_negated: false,
        } => {
            let alternatives = list.iter().map(|listed| equality_of(of, listed));
            places.extend(alternatives.collect::<Option<Vec<_>>>());
            list.iter().all(is_safe)
        }
        other => cannot_fail(other),
    }
}

fn equality_of(left: &Expression, right: &Expression) -> Option<Place> {
    match (left, right) {
        (Expression::Property(property), Expression::Constant(value))
        | (Expression::Constant(value), Expression::Property(property)) => {
            place_of(property, value.as_value())
        }
        (_, _) => None,
    }
}

fn is_safe(expression: &Expression) -> bool {
    match expression {
        Expression::Constant(_) | Expression::Property(_) | Expression::NewId => true,
        Expression::Named(..)
        | Expression::Negated(..)
        | Expression::WithPlus(..)
        | Expression::Chain(..) => false,
    }
}

fn cannot_fail(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::And(all) | Predicate::Or(all) => all.iter().all(cannot_fail),
        Predicate::Not(inner) => cannot_fail(inner),
        Predicate::Compare(left, _, right) => is_safe(left) && is_safe(right),
        Predicate::In { of, list, .. } => is_safe(of) && list.iter().all(is_safe),
        Predicate::IsNull { .. } | Predicate::Exists(_) => true,
        // A long text may take too many steps.
        Predicate::Like(_) => false,
    }
}

fn place_of(property: &Property, value: Value<'_>) -> Option<Place> {
    let value = hash_of(value)?;
    Some(match property {
        Property::User(name) => Place::User {
            spelled: name.clone(),
            value,
        },
        Property::System(property) => Place::System {
            property: *property,
            value,
        },
    })
}

/// Values that are equal have the same hash. `None` for those that are equal to nothing, and for null, which is also the
/// value of a system property that is not set.
fn hash_of(value: Value<'_>) -> Option<u64> {
    // Its keys are fixed: the outcome never depends on them, because candidates are evaluated.
    let mut hasher = DefaultHasher::new();
    if let Some(number) = Number::of(value) {
        let double = number.to_double();
        // Zero is equal to zero with another sign.
        let double = if double == 0.0 { 0.0 } else { double };
        (0u8, double.to_bits()).hash(&mut hasher);
        return Some(hasher.finish());
    }
    match value {
        Value::Null | Value::Other => return None,
        Value::Text(text) | Value::Symbol(text) => (1u8, text).hash(&mut hasher),
        Value::Char(character) => {
            (1u8, &*character.encode_utf8(&mut [0; 4])).hash(&mut hasher);
        }
        Value::Boolean(it) => (2u8, it).hash(&mut hasher),
        Value::Timestamp(ms) => (3u8, ms).hash(&mut hasher),
        Value::Duration(ticks) => (4u8, ticks).hash(&mut hasher),
        Value::Uuid(id) => (5u8, id).hash(&mut hasher),
        Value::Binary(bytes) => (6u8, bytes).hash(&mut hasher),
        Value::Byte(_)
        | Value::Short(_)
        | Value::Int(_)
        | Value::Long(_)
        | Value::Ubyte(_)
        | Value::Ushort(_)
        | Value::Uint(_)
        | Value::Ulong(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Decimal(_) => return None,
    }
    Some(hasher.finish())
}
