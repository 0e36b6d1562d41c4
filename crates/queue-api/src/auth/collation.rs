//! The order in which the service sorts header names: the collation of a culture, not of bytes.
//!
//! Hyphens and apostrophes count only between names that are otherwise equal. Punctuation comes
//! before letters and digits, in an order of its own. For most headers this agrees with the order
//! of bytes; for `x-ms-meta-a_b` beside `x-ms-meta-ab` it does not.
//!
//! Source: the signing policies of the Azure SDKs for Python and JavaScript.

use std::cmp::Ordering;

/// Characters of header names from lightest to heaviest. Letters are lower-case here.
const WEIGHTS: &[u8] = b"!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz";

/// Compares two header names, both in lower case.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    let weights = |name: &'_ str| -> Vec<usize> { name.bytes().filter_map(weight).collect() };
    let marks = |name: &'_ str| -> Vec<u8> { name.bytes().map(mark).collect() };
    weights(left)
        .cmp(&weights(right))
        .then_with(|| marks(left).cmp(&marks(right)))
}

fn weight(byte: u8) -> Option<usize> {
    WEIGHTS.iter().position(|&other| other == byte)
}

/// The input of the second pass: the places of hyphens and apostrophes.
const fn mark(byte: u8) -> u8 {
    match byte {
        b'\'' => 1,
        b'-' => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sorted: &[&str]) {
        for pair in sorted.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
    }

    #[test]
    fn punctuation_then_digits_then_letters() {
        check(&[
            "x-!", "x-#", "x-.", "x-_", "x-~", "x-+", "x-0", "x-9", "x-a", "x-z",
        ]);
    }

    #[test]
    fn hyphens_count_last() {
        check(&["x-ms-meta-a_b", "x-ms-meta-ab", "x-ms-meta-a-b"]);
        check(&["x-ms-meta-a", "x-ms-meta-a-"]);
        check(&["x-ms-meta-a-b", "x-ms-meta-ac"]);
        check(&["xmsdate", "x-ms-date"]);
        check(&["a'b", "a-b"]);
        assert_eq!(compare("x-ms-date", "x-ms-date"), Ordering::Equal);
    }

    #[test]
    fn a_prefix_comes_first() {
        check(&["x-ms-date", "x-ms-date2", "x-ms-version"]);
    }
}
