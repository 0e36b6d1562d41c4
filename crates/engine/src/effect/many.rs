//! The effects of one event, as a list, and their bytes one after the other.

use std::ops::Deref;

use super::Effect;
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::place::Before;

/// The effects of one event, in order. Nearly always there is one, which takes no memory of its own.
#[derive(Clone, Debug)]
pub struct Effects(Held);

#[derive(Clone, Debug)]
enum Held {
    One(Effect),
    /// Any number.
    Many(Vec<Effect>),
}

impl PartialEq for Effects {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Effects {}

impl Deref for Effects {
    type Target = [Effect];

    fn deref(&self) -> &[Effect] {
        match &self.0 {
            Held::One(effect) => std::slice::from_ref(effect),
            Held::Many(effects) => effects,
        }
    }
}

impl Default for Effects {
    fn default() -> Self {
        Self(Held::Many(Vec::new()))
    }
}

impl From<Effect> for Effects {
    fn from(effect: Effect) -> Self {
        Self(Held::One(effect))
    }
}

impl From<Vec<Effect>> for Effects {
    fn from(effects: Vec<Effect>) -> Self {
        Self(Held::Many(effects))
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Self {
        let mut effects = effects.into_iter().fuse();
        let (first, second) = (effects.next(), effects.next());
        match (first, second) {
            (Some(first), None) => Self::from(first),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(effects);
                Self(Held::Many(all.collect()))
            }
        }
    }
}

impl From<Effects> for Vec<Effect> {
    fn from(effects: Effects) -> Self {
        match effects.0 {
            Held::One(effect) => vec![effect],
            Held::Many(effects) => effects,
        }
    }
}

impl Effects {
    /// Reads effects up to the end of an event. `read` takes one, knowing the one before it.
    pub(crate) fn read<'a>(
        r: &mut Reader<'a>,
        read: impl Fn(&mut Reader<'a>, Option<&Effect>, &mut Before) -> Result<Effect, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let mut before = None;
        let mut all: Vec<Effect> = Vec::new();
        while !r.is_empty() {
            let effect = read(r, all.last(), &mut before)?;
            if all.is_empty() && r.is_empty() {
                return Ok(Self::from(effect));
            }
            all.push(effect);
        }
        Ok(Self::from(all))
    }
}
