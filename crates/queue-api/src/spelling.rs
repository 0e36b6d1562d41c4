//! How clients spell the names of metadata.
//!
//! The service keeps the case of a name as it was first stored; an HTTP library that lower-cases
//! header names loses it. So the bytes of the connection are watched on their way: in, for the
//! spelling in the head of a request; out, to put the stored spelling back, letter for letter.
//!
//! A request that is sent before the last one was answered is read together with what comes before
//! it, and is not looked at: its names stay lower-case. No SDK does that.

use memchr::memmem;

use crate::metadata::PREFIX;

/// The longest line of a head that is looked at. A longer one has a value, and its name came first.
const LINE_SIZE_BYTES_MAX: usize = 8 * 1024;

/// Names of metadata in somebody's spelling, without their prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spellings(Vec<Box<str>>);

impl Spellings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, name: &str) {
        self.0.push(name.into());
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The spelling of a name, if there is one.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .map(|spelling| &**spelling)
            .find(|spelling| spelling.eq_ignore_ascii_case(name))
    }

    /// Puts these spellings into the heads in `bytes`, each once, in order.
    ///
    /// Bodies are safe: they are XML, and hold no bare carriage return.
    pub(crate) fn restore(&mut self, bytes: &mut [u8]) {
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

/// Watches the bytes that come in for the names of metadata in heads.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    /// Whether the bytes that come belong to a head.
    in_head: bool,
    /// Whether the head has begun: empty lines before it do not end it.
    has_line: bool,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
}

impl Listener {
    /// A new head begins with the next bytes.
    pub(crate) fn begin_head(&mut self) {
        self.in_head = true;
        self.has_line = false;
        self.partial.clear();
    }

    /// Looks at bytes that came in, and adds what names they spell.
    pub(crate) fn listen(&mut self, bytes: &[u8], heard: &mut Spellings) {
        if !self.in_head {
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = piece.ends_with(b"\n");
            if !is_whole || !self.partial.is_empty() {
                let room = LINE_SIZE_BYTES_MAX.saturating_sub(self.partial.len());
                let kept = piece.get(..room).unwrap_or(piece);
                self.partial.extend_from_slice(kept);
            }
            if !is_whole {
                return;
            }
            let is_end = if self.partial.is_empty() {
                self.take_line(piece, heard)
            } else {
                let line = std::mem::take(&mut self.partial);
                self.take_line(&line, heard)
            };
            if is_end {
                self.in_head = false;
                return;
            }
        }
    }

    /// Whether the line ends the head.
    fn take_line(&mut self, line: &[u8], heard: &mut Spellings) -> bool {
        if line.trim_ascii_end().is_empty() {
            return self.has_line;
        }
        self.has_line = true;
        let Some((prefix, rest)) = line.split_at_checked(PREFIX.len()) else {
            return false;
        };
        if prefix.eq_ignore_ascii_case(PREFIX.as_bytes()) {
            let name = rest.split(|byte| *byte == b':').next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name) {
                heard.push(name);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &[u8] = b"PUT /a/q HTTP/1.1\r\nHost: h\r\nX-Ms-Meta-OwnerName: x-ms-meta-No: 1\r\n\
        x-ms-date: y\r\nx-ms-meta-lower:2\r\n\r\nx-ms-meta-Body: 3\r\n";

    fn spellings(names: &[&str]) -> Spellings {
        let mut spellings = Spellings::default();
        for name in names {
            spellings.push(name);
        }
        spellings
    }

    fn heard(pieces: &[&[u8]]) -> Spellings {
        let mut listener = Listener::default();
        let mut heard = Spellings::default();
        listener.begin_head();
        for piece in pieces {
            listener.listen(piece, &mut heard);
        }
        heard
    }

    #[test]
    fn a_head_is_heard_and_its_body_is_not() {
        let expected = spellings(&["OwnerName", "lower"]);
        assert_eq!(heard(&[HEAD]), expected);
        assert_eq!(heard(&[b"\r\n", HEAD]), expected);
        assert_eq!(expected.of("ownername"), Some("OwnerName"));
        assert_eq!(expected.of("other"), None);
    }

    #[test]
    fn every_split_is_heard_alike() {
        for index in 0..HEAD.len() {
            let (first, second) = HEAD.split_at(index);
            assert_eq!(heard(&[first, second]), spellings(&["OwnerName", "lower"]));
        }
        let bytes: Vec<&[u8]> = HEAD.chunks(1).collect();
        assert_eq!(heard(&bytes), spellings(&["OwnerName", "lower"]));
    }

    #[test]
    fn nothing_is_heard_outside_a_head() {
        let mut listener = Listener::default();
        let mut heard = Spellings::default();
        listener.listen(HEAD, &mut heard);
        assert!(heard.is_empty());
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
        fn listening_never_panics(pieces: Vec<Vec<u8>>) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            heard(&pieces);
        }

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
