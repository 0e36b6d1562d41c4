//! Identifiers as text: GUIDs, pop receipts, request ids.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use kew_engine::Token;

/// Base64 whose padding may be missing: some clients lose the `=` of a receipt in a URL.
const LENIENT_PADDING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes as a GUID: `00112233-4455-6677-8899-aabbccddeeff`.
pub(crate) fn guid(bytes: &[u8; 16]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut places = text.iter_mut();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            places.next();
        }
        for nibble in [byte >> 4, byte & 15] {
            if let Some(place) = places.next() {
                *place = if nibble < 10 {
                    b'0' + nibble
                } else {
                    b'a' + nibble - 10
                };
            }
        }
    }
    text
}

/// Reads a message id: a GUID with hyphens, in either case.
pub(crate) fn parse_message_id(text: &str) -> Option<Token> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 16];
    let mut places = text.iter();
    for (index, byte) in bytes.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) && *places.next()? != b'-' {
            return None;
        }
        for _ in 0..2 {
            *byte = *byte << 4 | nibble(*places.next()?)?;
        }
    }
    Some(Token::from_bytes(bytes))
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The token as a pop receipt: Base64 of its bytes.
pub(crate) fn pop_receipt(token: &Token) -> [u8; 24] {
    let mut text = [0; 24];
    general_purpose::STANDARD
        .encode_slice(token.as_bytes(), &mut text)
        .expect("16 bytes are 24 characters of Base64");
    text
}

/// The result of parsing a pop receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PopReceipt {
    /// In Kew's form.
    Own(Token),
    /// Base64 of another size: from another server, and valid for no message.
    Foreign,
    /// Not a receipt.
    Malformed,
}

/// Reads a pop receipt. Some clients do not escape a `+` in a URL, so that it arrives as a space:
/// it becomes a `+` again.
pub(crate) fn parse_pop_receipt(text: &str) -> PopReceipt {
    let text: Vec<u8> = text
        .bytes()
        .map(|byte| if byte == b' ' { b'+' } else { byte })
        .collect();
    let own = LENIENT_PADDING.decode(&text).ok();
    if let Some(bytes) = own.and_then(|bytes| bytes.try_into().ok()) {
        return PopReceipt::Own(Token::from_bytes(bytes));
    }
    // If the size is not Kew's, only the padding distinguishes Base64 from a plain word.
    match general_purpose::STANDARD.decode(&text) {
        Ok(bytes) if !bytes.is_empty() => PopReceipt::Foreign,
        Ok(_) | Err(_) => PopReceipt::Malformed,
    }
}

/// Makes request ids: unique, cheap, and no secret.
#[derive(Debug)]
pub(crate) struct RequestIds {
    process: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        let mut prefix = [0; 8];
        // It only has to be unique, so the start does not wait for seeding the cryptography
        // library's entropy, which takes tens of milliseconds.
        getrandom::fill(&mut prefix).expect("the operating system gives random bytes");
        Self {
            process: u64::from_le_bytes(prefix),
            count: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> [u8; 36] {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        guid(&(u128::from(self.process) << 64 | u128::from(count)).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_ids_differ() {
        let ids = RequestIds::new();
        assert_ne!(ids.next(), ids.next());
        assert_ne!(RequestIds::new().next(), RequestIds::new().next());
    }

    #[test]
    fn a_message_id_is_a_guid() {
        let token = Token::from_bytes([
            0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
            0xee, 0xff,
        ]);
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(&guid(token.as_bytes()), text.as_bytes());
        assert_eq!(parse_message_id(text), Some(token));
        assert_eq!(parse_message_id(&text.to_uppercase()), Some(token));
        for wrong in [
            "",
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeefg",
            "00112233-4455-6677-88990-abbccddeeff",
            "{0112233-4455-6677-8899-aabbccddeef}",
        ] {
            assert_eq!(parse_message_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_receipt_survives_careless_urls() {
        let token = Token::from_bytes([0xfb; 16]);
        let text = String::from_utf8(pop_receipt(&token).to_vec()).unwrap();
        assert!(text.contains('+') && text.ends_with("=="));
        for form in [&text, &text.replace('+', " "), &text.replace('=', "")] {
            assert_eq!(parse_pop_receipt(form), PopReceipt::Own(token), "{form}");
        }
        for foreign in ["AgAAAAMAAAAAAAAA", "AgAAAAMAAAAAAAAAzpYJ2yQg1QE=", "YQ=="] {
            assert_eq!(parse_pop_receipt(foreign), PopReceipt::Foreign, "{foreign}");
        }
        for wrong in ["", "invalid", "!!!!", "AgAAAAMAAAAAAAAAzpYJ2yQg1QE"] {
            assert_eq!(parse_pop_receipt(wrong), PopReceipt::Malformed, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(bytes: [u8; 16]) {
            let token = Token::from_bytes(bytes);
            let id = guid(&bytes);
            let receipt = pop_receipt(&token);
            prop_assert_eq!(parse_message_id(std::str::from_utf8(&id).unwrap()), Some(token));
            prop_assert_eq!(
                parse_pop_receipt(std::str::from_utf8(&receipt).unwrap()),
                PopReceipt::Own(token)
            );
        }

        #[test]
        fn reading_never_panics(text in ".{0,64}") {
            let _ = parse_message_id(&text);
            let _ = parse_pop_receipt(&text);
        }
    }
}
