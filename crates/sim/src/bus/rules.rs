//! The rules of subscriptions in a world, and its messages as rules see them.
//!
//! A subscription has one rule, in place of the one that it is created with. So a message has one copy there at most, as
//! bodies name messages. Each message has the property `kind`, which follows from its number. An action's changes are a
//! number, as those of settlements.

use bytes::Bytes;
use kew_engine::bus::{Format, Known, Made, NewRule, Unfit};
use kew_filter::{
    Change, Definition, Equality, FilterDefinition, Message, OwnedValue, SqlDefinition,
    SystemProperty, Value,
};

use super::checker::number_of;

/// How many kinds of messages there are.
const KINDS: u64 = 3;

/// The number of an action's changes. Settlements have lower ones.
const OF_ACTION: u64 = 1 << 62;

/// The number of a failure's description. No rule of a world fails.
pub(crate) const OF_FAILURE: u64 = OF_ACTION + 1;

/// The name of the rule that a subscription is created with, and of all that take its place.
pub(crate) const NAME: &str = "$Default";

/// A rule of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It selects all messages, as the one of the creation.
    All,
    /// It selects none.
    None,
    /// It selects messages of a kind, by their properties.
    Kind(u64),
    /// It selects those that have another kind, by an expression, and its action changes them.
    Changed(u64),
}

impl Rule {
    pub(crate) const ALL: [Self; 8] = [
        Self::All,
        Self::None,
        Self::Kind(0),
        Self::Kind(1),
        Self::Kind(2),
        Self::Changed(0),
        Self::Changed(1),
        Self::Changed(KINDS),
    ];

    fn definition(self) -> Definition {
        let sql = |text: String| SqlDefinition {
            text: text.into(),
            ..SqlDefinition::default()
        };
        let (filter, action) = match self {
            Self::All => (FilterDefinition::True, None),
            Self::None => (FilterDefinition::False, None),
            Self::Kind(kind) => {
                let name = "kind".into();
                let value = OwnedValue::Plain(Value::Long(i64::try_from(kind).unwrap_or_default()));
                let equality = Equality::User { name, value };
                (FilterDefinition::Correlation(vec![equality]), None)
            }
            Self::Changed(kind) => {
                let filter = FilterDefinition::Sql(sql(format!("kind <> {kind}")));
                (filter, Some(sql("SET changed = kind + 1".to_owned())))
            }
        };
        Definition::new(filter, action).expect("its texts are short, and have no parameters")
    }

    pub(crate) fn as_new(self) -> NewRule {
        NewRule {
            name: NAME.into(),
            definition: self.definition(),
        }
    }

    /// The rule with these bytes, if any has them.
    pub(crate) fn with(definition: &[u8]) -> Option<Self> {
        let is_it = |rule: &Self| rule.definition().bytes() == definition;
        Self::ALL.into_iter().find(is_it)
    }

    /// The changes in the copy of a message, if it gets one.
    pub(crate) fn copy(self, number: u64) -> Option<Vec<u64>> {
        match self {
            Self::All => Some(Vec::new()),
            Self::None => None,
            Self::Kind(kind) => (kind_of(number) == kind).then(Vec::new),
            Self::Changed(kind) => (kind_of(number) != kind).then(|| vec![OF_ACTION]),
        }
    }
}

fn kind_of(number: u64) -> u64 {
    number % KINDS
}

/// The messages of a world.
#[derive(Debug)]
pub(crate) struct Numbered;

/// The kind of a message.
struct View(i64);

impl Format for Numbered {
    fn view<'a>(
        &self,
        message: &'a Bytes,
        _overlays: &'a [Bytes],
        _known: Known<'a>,
    ) -> Option<Box<dyn Message + 'a>> {
        let kind = kind_of(number_of(message));
        Some(Box::new(View(i64::try_from(kind).ok()?)))
    }

    fn made_by(&self, _changes: &[Change]) -> Result<Made, Unfit> {
        let overlay = Bytes::copy_from_slice(&OF_ACTION.to_be_bytes());
        Ok(Made {
            overlay,
            ..Made::default()
        })
    }

    fn description(&self, _text: &str) -> Bytes {
        Bytes::copy_from_slice(&OF_FAILURE.to_be_bytes())
    }
}

impl Message for View {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        (name == "kind").then_some(Value::Long(self.0))
    }

    fn system(&self, _property: SystemProperty) -> Value<'_> {
        Value::Null
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        visit("kind", Value::Long(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_its_bytes() {
        for rule in Rule::ALL {
            assert_eq!(Rule::with(rule.definition().bytes()), Some(rule));
        }
        assert_eq!(Rule::with(&[]), None);
    }
}
