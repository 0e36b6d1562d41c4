//! Damaged places, each once, and not more of a file than anybody reads.

use std::collections::{BTreeMap, BTreeSet};

/// So many places of a file are listed. Behind that, they are counted: one that is cut may have 50,000 damaged pages.
pub(crate) const LISTED_MAX: usize = 100;

/// Which places are listed.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<String, InFile>);

#[derive(Debug, Default)]
struct InFile {
    listed: BTreeSet<u64>,
    /// Those that are not listed.
    more: Option<More>,
}

/// The places of a file that are not listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct More {
    /// The first one that was found.
    pub(crate) offset: u64,
    count: u64,
}

impl More {
    /// What there is to say of them.
    pub(crate) fn what(self) -> String {
        format!("{} more damaged places were found in this file", self.count)
    }
}

impl Places {
    /// Notes a damaged place. Returns whether to list it: it is new, and there are not too many.
    pub(crate) fn add(&mut self, file: &str, offset: u64) -> bool {
        let known = match self.0.get_mut(file) {
            Some(known) => known,
            None => self.0.entry(file.to_owned()).or_default(),
        };
        if known.listed.contains(&offset) {
            return false;
        }
        if known.listed.len() < LISTED_MAX {
            return known.listed.insert(offset);
        }
        let more = known.more.get_or_insert(More { offset, count: 0 });
        more.count += 1;
        false
    }

    /// The files of which some are not listed.
    pub(crate) fn more(self) -> impl Iterator<Item = (String, More)> {
        let files = self.0.into_iter();
        files.filter_map(|(file, known)| Some((file, known.more?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_listed_once_and_too_many_are_counted() {
        let mut places = Places::default();
        assert!(places.add("other", 3));
        for offset in 0..LISTED_MAX as u64 {
            assert!(places.add("file", offset));
            assert!(!places.add("file", offset));
        }
        assert!(!places.add("file", 5000));
        assert!(!places.add("file", 6000));
        assert!(!places.add("file", 7));
        let more: Vec<_> = places.more().collect();
        assert_eq!(more.len(), 1);
        let (file, more) = &more[0];
        assert_eq!((file.as_str(), more.offset, more.count), ("file", 5000, 2));
    }
}
