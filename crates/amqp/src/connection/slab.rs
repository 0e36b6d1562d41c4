//! A table with small numbers that are reused, and keys that are not.

/// Names one entry of a slab. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    pub(crate) const FIRST: Self = Self::of(0);
    pub(crate) const LAST: Self = Self::of(u32::MAX);

    const fn of(number: u32) -> Self {
        Self {
            index: number,
            generation: number,
        }
    }
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop()
            && let Some(place) = self.places.get_mut(index as usize)
        {
            place.value = Some(value);
            let generation = place.generation;
            return Key { index, generation };
        }
        let index = u32::try_from(self.places.len()).expect("limits are far below 2^32");
        let generation = 0;
        let value = Some(value);
        self.places.push(Place { generation, value });
        Key { index, generation }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.value.as_ref())
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        let value = place.value.as_ref();
        value.filter(|_| place.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        let value = place.value.as_mut();
        value.filter(|_| place.generation == key.generation)
    }

    /// The key of the entry that has this number now.
    pub(crate) fn key_of(&self, index: u32) -> Option<Key> {
        let place = self.places.get(index as usize)?;
        let generation = place.generation;
        place.value.as_ref().map(|_| Key { index, generation })
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let place = self.places.get_mut(key.index as usize)?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        place.value.take()
    }
}
