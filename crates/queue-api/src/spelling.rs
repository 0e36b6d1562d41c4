//! How clients spell the names of metadata.
//!
//! The service keeps the case of a name as it was first stored; an HTTP library that lower-cases
//! header names loses it. So the front door shows this module the lines of a request's head as they
//! arrive, and the bytes of an answer before they are written.

use kew_http_front::Spelling;
use memchr::memmem;

use crate::metadata::PREFIX;

/// Names of metadata as a client or the store spells them, without their prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spellings(Vec<Box<str>>);

impl Spellings {
    pub(crate) fn push(&mut self, name: &str) {
        self.0.push(name.into());
    }

    /// The spelling of a name, if there is one.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .map(|spelling| &**spelling)
            .find(|spelling| spelling.eq_ignore_ascii_case(name))
    }
}

impl Spelling for Spellings {
    fn hear(&mut self, line: &[u8]) {
        if !matches!(line.first(), Some(b'x' | b'X')) {
            return;
        }
        let Some((prefix, rest)) = line.split_at_checked(PREFIX.len()) else {
            return;
        };
        if prefix.eq_ignore_ascii_case(PREFIX.as_bytes()) {
            let name = rest.split(|byte| *byte == b':').next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name) {
                self.push(name);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Puts these spellings into the heads in `bytes`, each once, in order.
    ///
    /// Bodies are safe: they are XML, and hold no bare carriage return.
    fn restore(&mut self, bytes: &mut [u8]) {
        let mut from = 0;
        while let Some(start) = find_header(bytes, from) {
            from = start;
            let Some(rest) = bytes.get_mut(start..) else {
                return;
            };
            let length = rest.iter().position(|byte| *byte == b':').unwrap_or(0);
            let name = rest.get_mut(..length).unwrap_or_default();
            let spelling = self
                .0
                .iter()
                .position(|spelling| spelling.as_bytes().eq_ignore_ascii_case(name));
            if let Some(index) = spelling {
                name.copy_from_slice(self.0.remove(index).as_bytes());
            }
        }
    }
}

/// Where the name of the next metadata header begins, after its prefix.
fn find_header(bytes: &[u8], from: usize) -> Option<usize> {
    const LINE: &[u8] = b"\r\nx-ms-meta-";
    let found = memmem::find(bytes.get(from..)?, LINE)?;
    Some(from + found + LINE.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spellings(names: &[&str]) -> Spellings {
        let mut spellings = Spellings::default();
        for name in names {
            spellings.push(name);
        }
        spellings
    }

    #[test]
    fn a_name_finds_its_spelling() {
        let spellings = spellings(&["OwnerName", "lower"]);
        assert_eq!(spellings.of("ownername"), Some("OwnerName"));
        assert_eq!(spellings.of("other"), None);
    }

    #[test]
    fn names_of_metadata_are_noted() {
        let mut heard = Spellings::default();
        for line in [
            "PUT /x-ms-meta-a HTTP/1.1",
            "X-Ms-Meta-OwnerName: x-ms-meta-No: 1",
            "x-ms-date: y",
            "x-ms-m",
            "x-ms-meta-lower:2",
        ] {
            heard.hear(line.as_bytes());
        }
        assert_eq!(heard, spellings(&["OwnerName", "lower"]));
    }

    fn check_restored(names: &[&str], answer: &str, expected: &str, left: &[&str]) {
        let mut spellings_left = spellings(names);
        let mut bytes = answer.as_bytes().to_vec();
        spellings_left.restore(&mut bytes);
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), expected);
        assert_eq!(spellings_left, spellings(left));
    }

    #[test]
    fn spellings_are_put_back_once() {
        check_restored(
            &["OwnerName", "Tier", "Other"],
            "HTTP/1.1 200 OK\r\nx-ms-meta-tier: tier\r\nx-ms-meta-ownername: a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx-ms-meta-Tier: tier\r\nx-ms-meta-OwnerName: a\r\n\r\n",
            &["Other"],
        );
        // Two answers at once, which spell one name in two ways.
        check_restored(
            &["Tier", "TIER"],
            "HTTP/1.1 200 OK\r\nx-ms-meta-tier: 1\r\n\r\nHTTP/1.1 200 OK\r\nx-ms-meta-tier: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx-ms-meta-Tier: 1\r\n\r\nHTTP/1.1 200 OK\r\nx-ms-meta-TIER: 1\r\n\r\n",
            &[],
        );
        check_restored(&["A"], "\r\nx-ms-meta-", "\r\nx-ms-meta-", &["A"]);
    }

    proptest! {
        #[test]
        fn restoring_changes_case_only(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("\r\n"), Just("x-ms-meta-"), Just("abc"), Just(":"), Just("ab"), Just("c")
                ],
                0..30,
            )
        ) {
            let before = parts.concat();
            let mut after = before.clone().into_bytes();
            spellings(&["ABC", "Ab", "aBc"]).restore(&mut after);
            prop_assert!(after.eq_ignore_ascii_case(before.as_bytes()));
        }
    }
}
