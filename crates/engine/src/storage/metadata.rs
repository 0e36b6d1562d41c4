//! The name-value pairs that a user attaches to a queue.

use crate::vocabulary::DecodeError;
use crate::vocabulary::codec::{Reader, put_bytes, put_varint};

/// User-defined name-value pairs of a queue, in the order given.
///
/// Names keep their case and are compared without it; values are compared exactly. The front end
/// has checked names and sizes.
///
/// Source: Queue Storage REST, *Setting and reading properties and metadata*.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Vec<(Box<str>, Box<str>)>);

impl Metadata {
    /// The pairs in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Names and values together, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both hold the same names, compared without case, with the same values.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().all(|(name, value)| {
                other
                    .iter()
                    .any(|(n, v)| n.eq_ignore_ascii_case(name) && v == value)
            })
    }
}

impl<N: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(N, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

pub(crate) fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    put_varint(out, metadata.len() as u64);
    for (name, value) in metadata.iter() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

pub(crate) fn metadata(r: &mut Reader<'_>) -> Result<Metadata, DecodeError> {
    let count = r.varint()?;
    // Collecting through a `Result` takes no capacity from `count`, which is not checked yet.
    (0..count).map(|_| Ok((r.str()?, r.str()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Metadata {
        pairs.iter().copied().collect()
    }

    #[test]
    fn names_compare_without_case_values_with_it() {
        let stored = of(&[("Owner", "Billing"), ("tier", "1")]);
        assert!(stored.is_same_as(&of(&[("TIER", "1"), ("owner", "Billing")])));
        assert!(!stored.is_same_as(&of(&[("owner", "billing"), ("tier", "1")])));
        assert!(!stored.is_same_as(&of(&[("owner", "Billing")])));
        assert!(Metadata::default().is_same_as(&of(&[])));
    }
}
