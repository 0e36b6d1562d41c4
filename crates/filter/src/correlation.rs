//! Correlation filters.

use crate::compare::{Comparison, Truth, compare, steps_to_compare};
use crate::message::{Message, SystemProperty};
use crate::syntax::tree::Property;
use crate::value::OwnedValue;

/// Equalities that must all hold.
///
/// It matches as the SQL filter with these equalities joined by `AND`. Without any, it matches every message.
///
/// Source: Service Bus, *Topic filters and actions*, and *Set subscription filters*, which names the SQL filter that a
/// correlation filter is equivalent to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CorrelationFilter {
    conditions: Vec<(Property, OwnedValue)>,
}

impl CorrelationFilter {
    /// The system properties that a correlation filter can name.
    pub const SYSTEM: [SystemProperty; 8] = [
        SystemProperty::CorrelationId,
        SystemProperty::MessageId,
        SystemProperty::To,
        SystemProperty::ReplyTo,
        SystemProperty::Label,
        SystemProperty::SessionId,
        SystemProperty::ReplyToSessionId,
        SystemProperty::ContentType,
    ];

    /// Adds the condition that an application property has this value.
    #[must_use]
    pub fn user(mut self, name: &str, value: OwnedValue) -> Self {
        self.conditions.push((Property::User(name.into()), value));
        self
    }

    /// Adds the condition that a system property, one of [`SYSTEM`](Self::SYSTEM), is this text.
    ///
    /// # Panics
    ///
    /// If correlation filters have no such property.
    #[must_use]
    pub fn system(mut self, property: SystemProperty, text: &str) -> Self {
        assert!(
            Self::SYSTEM.contains(&property),
            "a correlation filter cannot name sys.{}",
            property.name()
        );
        let value = OwnedValue::Text(text.into());
        self.conditions.push((Property::System(property), value));
        self
    }

    /// Whether all conditions hold. It cannot fail.
    pub fn matches<M: Message + ?Sized>(&self, message: &M) -> bool {
        self.matches_counting(message).0
    }

    /// The same, with the number of conditions that it looked at.
    pub(crate) fn matches_counting<M: Message + ?Sized>(&self, message: &M) -> (bool, u32) {
        let mut steps = 0u32;
        let matches = self.conditions.iter().all(|(property, wanted)| {
            steps = steps.saturating_add(1);
            let found = match property {
                Property::User(name) => message.user(name),
                Property::System(system) => Some(message.system(*system)),
            };
            found.is_some_and(|found| {
                steps = steps.saturating_add(steps_to_compare(found, wanted.as_value()));
                compare(found, Comparison::Equal, wanted.as_value()) == Truth::True
            })
        });
        (matches, steps)
    }

    pub(crate) fn conditions(&self) -> &[(Property, OwnedValue)] {
        &self.conditions
    }
}
