//! The effects of one event, as a list, and their bytes one after the other.

use std::ops::Deref;

use super::Effect;
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::place::Before;

/// The effects of one event, in order. Nearly always there is one, which takes no memory of its own.
#[derive(Clone, Debug)]
pub struct Effects<O>(Held<O>);

#[derive(Clone, Debug)]
enum Held<O> {
    One(Effect<O>),
    /// Any number.
    Many(Vec<Effect<O>>),
}

impl<O: PartialEq> PartialEq for Effects<O> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<O: Eq> Eq for Effects<O> {}

impl<O> Deref for Effects<O> {
    type Target = [Effect<O>];

    fn deref(&self) -> &[Effect<O>] {
        match &self.0 {
            Held::One(effect) => std::slice::from_ref(effect),
            Held::Many(effects) => effects,
        }
    }
}

impl<O> Default for Effects<O> {
    fn default() -> Self {
        Self(Held::Many(Vec::new()))
    }
}

impl<O> From<Effect<O>> for Effects<O> {
    fn from(effect: Effect<O>) -> Self {
        Self(Held::One(effect))
    }
}

impl<O> From<Vec<Effect<O>>> for Effects<O> {
    fn from(effects: Vec<Effect<O>>) -> Self {
        Self(Held::Many(effects))
    }
}

impl<O> FromIterator<Effect<O>> for Effects<O> {
    fn from_iter<I: IntoIterator<Item = Effect<O>>>(effects: I) -> Self {
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

impl<O> From<Effects<O>> for Vec<Effect<O>> {
    fn from(effects: Effects<O>) -> Self {
        match effects.0 {
            Held::One(effect) => vec![effect],
            Held::Many(effects) => effects,
        }
    }
}

impl<O> Effects<O> {
    /// Adds an effect behind the others.
    pub(crate) fn push(&mut self, effect: Effect<O>) {
        if let Held::Many(effects) = &mut self.0
            && !effects.is_empty()
        {
            effects.push(effect);
            return;
        }
        self.0 = match std::mem::replace(&mut self.0, Held::Many(Vec::new())) {
            Held::One(first) => Held::Many(vec![first, effect]),
            Held::Many(_) => Held::One(effect),
        };
    }

    /// Reads effects up to the end of an event. `read` takes one, knowing the one before it.
    pub(crate) fn read<'a>(
        r: &mut Reader<'a>,
        read: impl Fn(
            &mut Reader<'a>,
            Option<&Effect<O>>,
            &mut Before,
        ) -> Result<Effect<O>, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let mut before = None;
        let mut all = Vec::new();
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
