//! Message texts that contain their message and version, and reveal a wrong byte.

use std::io::Write as _;

use super::random::Random;

/// The size of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Texts {
    /// Mostly short, some of up to 40,000 bytes.
    Mixed,
    /// Close to the 64 KiB limit of a message.
    Large,
}

/// Bytes of a text besides its filler, at most.
const FRAME_SIZE_MAX: u64 = 100;

impl Texts {
    /// The text of version `version` of message `number`: both numbers, filler of a length that
    /// differs between messages, and a hash of everything before it.
    pub(super) fn compose(self, number: u64, version: u64) -> String {
        let mut random = Random::new(number << 8 ^ version);
        let filler_length = match self {
            Self::Large => 65_536 - FRAME_SIZE_MAX - random.below(100),
            Self::Mixed => match random.below(20) {
                0 => random.below(40_000),
                1..=5 => random.below(4_000),
                _ => random.below(300),
            },
        };
        let mut text = format!("{number} {version} ").into_bytes();
        for _ in 0..filler_length / 8 {
            // Eight letters from a to p at once: tests are not optimized.
            let letters = (random.next() & 0x0f0f_0f0f_0f0f_0f0f) + 0x6161_6161_6161_6161;
            text.extend_from_slice(&letters.to_le_bytes());
        }
        text.extend_from_slice("<&>ü".as_bytes());
        let hash = hash(&text);
        write!(text, " {hash:016x}").expect("writing to memory cannot fail");
        String::from_utf8(text).expect("letters and numbers are UTF-8")
    }

    /// Number and version of a text, or `None` if a single byte is wrong.
    pub(super) fn recognize(self, text: &str) -> Option<(u64, u64)> {
        let mut parts = text.split(' ');
        let number = parts.next()?.parse().ok()?;
        let version = parts.next()?.parse().ok()?;
        (self.compose(number, version) == text).then_some((number, version))
    }
}

/// FNV-1a, of words of eight bytes instead of single bytes.
fn hash(text: &[u8]) -> u64 {
    text.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_changed_text_is_not_recognized() {
    for texts in [Texts::Mixed, Texts::Large] {
        let text = texts.compose(7, 3);
        assert!(text.len() <= 65_536);
        assert_eq!(texts.recognize(&text), Some((7, 3)));
        for at in [0, 2, 4, text.len() - 1] {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).expect("ASCII stays ASCII");
            assert_eq!(texts.recognize(&changed), None, "at {at}");
        }
        assert_eq!(texts.recognize(&text[..text.len() - 1]), None);
        assert_eq!(texts.recognize(""), None);
    }
}
