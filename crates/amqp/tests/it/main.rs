//! The crate through its public door.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod codec;
mod handshake;
mod limits;
mod links;
mod message;
mod messages;
mod pair;
mod random;
mod roundtrip;
mod rules;

use bytes::Bytes;

/// Bytes from hexadecimal digits; spaces are for the reader.
fn hex(digits: &str) -> Bytes {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
    let text = String::from_utf8(digits).unwrap();
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
