//! Stored access policies of a queue, as its owner set them.

use thiserror::Error;

use crate::vocabulary::codec::{DecodeError, Reader, optional, put_optional, put_str, put_varint};

/// A moment as access policies write it: ticks of 100 ns since 1970-01-01 00:00:00 UTC, because the
/// service gives times back with seven digits after the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyTime(pub u64);

/// A named part of a shared access signature that stays with the queue, so that signatures which
/// name it can be changed and revoked.
///
/// Source: Queue Storage REST, *Set Queue ACL*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPolicy {
    /// Its id, which signatures name: 1 to 64 characters.
    pub id: Box<str>,
    /// The start of its validity.
    pub start: Option<PolicyTime>,
    /// The end of its validity.
    pub expiry: Option<PolicyTime>,
    /// Its permissions, as letters. The front end has checked them; the engine only keeps them.
    pub permissions: Option<Box<str>>,
}

/// The access policies of a queue, in the order given. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessPolicies(Box<[AccessPolicy]>);

/// Access policies that no queue can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidAccessPolicies {
    /// There are too many.
    #[error(
        "{count} access policies are above the maximum of {}",
        AccessPolicies::COUNT_MAX
    )]
    TooMany {
        /// How many were given.
        count: usize,
    },
    /// An id is empty or too long.
    #[error(
        "access policy id of {length} characters is not 1 to {} characters long",
        AccessPolicies::ID_LENGTH_MAX
    )]
    IdLength {
        /// Its length in characters.
        length: usize,
    },
}

impl AccessPolicies {
    /// The most policies that a queue can have.
    pub const COUNT_MAX: usize = 5;

    /// The longest id, in characters.
    pub const ID_LENGTH_MAX: usize = 64;

    /// The policies, if a queue may have them. The front end checks whether two may share an id.
    pub fn new(policies: Vec<AccessPolicy>) -> Result<Self, InvalidAccessPolicies> {
        let count = policies.len();
        if count > Self::COUNT_MAX {
            return Err(InvalidAccessPolicies::TooMany { count });
        }
        for policy in &policies {
            let length = policy.id.chars().count();
            if !(1..=Self::ID_LENGTH_MAX).contains(&length) {
                return Err(InvalidAccessPolicies::IdLength { length });
            }
        }
        Ok(Self(policies.into()))
    }

    /// The policies in the order given.
    pub fn iter(&self) -> std::slice::Iter<'_, AccessPolicy> {
        self.0.iter()
    }

    /// The policy of that id.
    pub fn find(&self, id: &str) -> Option<&AccessPolicy> {
        self.iter().find(|policy| &*policy.id == id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a AccessPolicies {
    type Item = &'a AccessPolicy;
    type IntoIter = std::slice::Iter<'a, AccessPolicy>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

pub(crate) fn put_policies(out: &mut Vec<u8>, policies: &AccessPolicies) {
    put_varint(out, policies.len() as u64);
    for policy in policies {
        put_str(out, &policy.id);
        put_optional(out, policy.start, |out, time| put_varint(out, time.0));
        put_optional(out, policy.expiry, |out, time| put_varint(out, time.0));
        put_optional(out, policy.permissions.as_deref(), put_str);
    }
}

pub(crate) fn policies(r: &mut Reader<'_>) -> Result<AccessPolicies, DecodeError> {
    let count = r.varint()?;
    // Collecting through a `Result` takes no capacity from `count`, which is not checked yet.
    let policies: Vec<AccessPolicy> = (0..count)
        .map(|_| {
            Ok(AccessPolicy {
                id: r.str()?.into(),
                start: optional(r, |r| r.varint().map(PolicyTime))?,
                expiry: optional(r, |r| r.varint().map(PolicyTime))?,
                permissions: optional(r, |r| r.str().map(Into::into))?,
            })
        })
        .collect::<Result<_, DecodeError>>()?;
    AccessPolicies::new(policies).map_err(|_| r.error("access policies that no queue can have"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(id: &str) -> AccessPolicy {
        AccessPolicy {
            id: id.into(),
            start: None,
            expiry: None,
            permissions: None,
        }
    }

    #[test]
    fn a_queue_has_up_to_five_policies_with_ids_of_1_to_64_characters() {
        let of = |ids: &[&str]| AccessPolicies::new(ids.iter().map(|id| policy(id)).collect());
        assert_eq!(of(&["b", "a"]).unwrap().iter().count(), 2);
        assert_eq!(&*of(&["b", "a"]).unwrap().iter().next().unwrap().id, "b");
        assert!(of(&["1", "2", "3", "4", "5"]).is_ok());
        let count = 6;
        assert_eq!(
            of(&["1", "2", "3", "4", "5", "6"]),
            Err(InvalidAccessPolicies::TooMany { count })
        );
        assert!(of(&[&"ü".repeat(64)]).is_ok());
        for (id, length) in [("", 0), (&*"x".repeat(65), 65)] {
            assert_eq!(of(&[id]), Err(InvalidAccessPolicies::IdLength { length }));
        }
    }
}
