//! What descriptions consist of: elements, each with a value that is read and written.
//!
//! A kind of description lists its elements once ([`Settings::each`]), in the order that the service requires: it ignores
//! what is out of order. Answers are read and requests are written by that list.

use std::time::Duration;

use super::description::{EntityStatus, UnknownElements};
use super::duration;
use super::read::Source;
use crate::http::xml::{Element, put_element};

/// The settings of an entity, or of a rule.
pub(super) trait Settings: Clone + Default {
    /// The name of the description's element.
    const ELEMENT: &'static str;
    /// What it describes, for errors.
    const WHAT: &'static str;

    /// Shows each element, in the order of the service.
    fn each(&mut self, elements: &mut impl Elements);

    /// What else the service said.
    fn unknown(&mut self) -> &mut UnknownElements;
}

/// What reads or writes elements.
pub(super) trait Elements {
    /// An element that may be absent.
    fn value<T: Part>(&mut self, name: &'static str, value: &mut Option<T>);

    /// An element that must be there.
    fn required<T: Part>(&mut self, name: &'static str, value: &mut T);

    /// An entity that messages are forwarded to: a name here, an absolute address at the service.
    fn target(&mut self, name: &'static str, target: &mut Option<String>);
}

/// Why an element has no value.
pub(super) enum Odd {
    /// It is of a kind that this crate does not know. An update sends it back as it is.
    Unknown,
    /// The text is not one of a value.
    Bad(String),
}

/// The value of an element.
pub(super) trait Part: Sized {
    /// Reads it. An element that is empty is none.
    fn read(source: &Source<'_>, element: &Element<'_>) -> Result<Option<Self>, Odd>;

    /// Writes the whole element.
    fn write(&self, name: &str, out: &mut String);
}

/// Values that are texts.
macro_rules! texts {
    ($($value:ty: $read:expr, $write:expr;)+) => {
        $(impl Part for $value {
            fn read(_: &Source<'_>, element: &Element<'_>) -> Result<Option<Self>, Odd> {
                let text = element.text.trim();
                if text.is_empty() {
                    return Ok(None);
                }
                let read: fn(&str) -> Option<Self> = $read;
                let value = read(text).ok_or_else(|| Odd::Bad(text.to_owned()))?;
                Ok(Some(value))
            }

            fn write(&self, name: &str, out: &mut String) {
                let write: fn(&Self) -> String = $write;
                put_element(out, name, &write(self));
            }
        })+
    };
}

texts! {
    u32: |text| text.parse().ok(), Self::to_string;
    u64: |text| text.parse().ok(), Self::to_string;
    bool: boolean, Self::to_string;
    Duration: duration::parse, |it| duration::format(*it);
    EntityStatus: |text| Some(Self::of(text)), |it| it.as_str().to_owned();
}

/// Spaces belong to it.
impl Part for String {
    fn read(_: &Source<'_>, element: &Element<'_>) -> Result<Option<Self>, Odd> {
        Ok(Some(element.text.to_string()))
    }

    fn write(&self, name: &str, out: &mut String) {
        put_element(out, name, self);
    }
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "1" => Some(true),
        "false" | "False" | "0" => Some(false),
        _ => None,
    }
}
