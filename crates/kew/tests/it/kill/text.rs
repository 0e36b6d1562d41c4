//! Message texts that tell which message and version they are, and whether a byte is wrong.

use std::fmt::Write as _;

use super::random::Random;

/// The text of version `version` of message `number`: both, filler of a length that differs from
/// message to message, and a hash of all before it.
pub(super) fn compose(number: u64, version: u64) -> String {
    let mut random = Random::new(number << 8 ^ version);
    let filler_length = match random.below(20) {
        0 => random.below(40_000),
        1..=5 => random.below(4_000),
        _ => random.below(300),
    };
    let mut text = format!("{number} {version} ");
    for _ in 0..filler_length / 8 {
        write!(text, "{:08x}", random.next() >> 32).expect("writing to memory cannot fail");
    }
    text.push_str("<&>ü");
    let hash = hash(&text);
    write!(text, " {hash:016x}").expect("writing to memory cannot fail");
    text
}

/// Number and version of a text, or `None` if it is not one of ours, to the last byte.
pub(super) fn recognize(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.split(' ');
    let number = parts.next()?.parse().ok()?;
    let version = parts.next()?.parse().ok()?;
    (compose(number, version) == text).then_some((number, version))
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_changed_text_is_not_recognized() {
    let text = compose(7, 3);
    assert_eq!(recognize(&text), Some((7, 3)));
    for at in [0, 2, 4, text.len() - 1] {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        let changed = String::from_utf8(changed).expect("ASCII stays ASCII");
        assert_eq!(recognize(&changed), None, "at {at}");
    }
    assert_eq!(recognize(&text[..text.len() - 1]), None);
    assert_eq!(recognize(""), None);
}
