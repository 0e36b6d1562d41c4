//! Compression and hashes.

use std::io::Read as _;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// The largest window of a compressed object, as a power of two: 8 MiB of memory to read it.
const WINDOW_LOG_MAX: u32 = 23;

/// How data lies in the store or in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// As it is.
    Identity,
    /// As one or more frames of Zstandard.
    Zstd,
}

/// The data in the smaller form.
pub(crate) fn encode(data: Bytes, level: i32) -> Result<(Encoding, Bytes), Error> {
    let compressed = zstd::bulk::compress(&data, level).map_err(Error::unavailable)?;
    Ok(match compressed.len() < data.len() {
        true => (Encoding::Zstd, compressed.into()),
        false => (Encoding::Identity, data),
    })
}

/// The data, which has exactly `size` bytes. Never holds more than that.
pub(crate) fn decode(encoding: Encoding, stored: Bytes, size: u64) -> Result<Bytes, String> {
    let data = match encoding {
        Encoding::Identity => stored,
        Encoding::Zstd => decompress(&stored, size)?,
    };
    let has = crate::group::to_u64(data.len());
    if has != size {
        let more = if has > size { " or more" } else { "" };
        return Err(format!("it has {has} bytes{more}, and {size} were sent"));
    }
    Ok(data)
}

fn decompress(stored: &[u8], size: u64) -> Result<Bytes, String> {
    let told = |error: std::io::Error| format!("it cannot be decompressed: {error}");
    let mut decoder = zstd::Decoder::with_buffer(stored).map_err(told)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(told)?;
    // It grows as data comes, so a false size reserves nothing. One byte more shows that there is too much.
    let mut data = Vec::new();
    let mut bounded = decoder.take(size.saturating_add(1));
    bounded.read_to_end(&mut data).map_err(told)?;
    Ok(data.into())
}

/// SHA-256, in hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('?');
    digest
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_form_is_taken() {
        let (encoding, stored) = encode(vec![7; 10_000].into(), 3).unwrap();
        assert_eq!(encoding, Encoding::Zstd);
        assert!(stored.len() < 100);
        assert_eq!(decode(encoding, stored, 10_000).unwrap(), vec![7; 10_000]);
        let (encoding, stored) = encode("abc".into(), 3).unwrap();
        assert_eq!((encoding, &stored[..]), (Encoding::Identity, &b"abc"[..]));
    }

    #[test]
    fn a_bomb_is_read_no_further_than_its_size() {
        let (_, stored) = encode(vec![0; 100 << 20].into(), 3).unwrap();
        assert!(stored.len() < 20_000);
        let why = decode(Encoding::Zstd, stored.clone(), 1_000).unwrap_err();
        assert_eq!(why, "it has 1001 bytes or more, and 1000 were sent");
        assert!(decode(Encoding::Zstd, stored.slice(..99), 100 << 20).is_err());
    }

    #[test]
    fn a_window_that_is_too_large_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(WINDOW_LOG_MAX + 1).unwrap();
        std::io::copy(&mut std::io::repeat(1).take(64 << 20), &mut encoder).unwrap();
        let stored = encoder.finish().unwrap();
        let why = decode(Encoding::Zstd, stored.into(), 64 << 20).unwrap_err();
        assert!(why.contains("cannot be decompressed"), "{why}");
    }

    #[test]
    fn the_highest_level_can_be_read() {
        // Larger than the window, and quick to compress.
        let data = Bytes::from(vec![0; 20 << 20]);
        let (encoding, stored) = encode(data.clone(), 19).unwrap();
        let size = crate::group::to_u64(data.len());
        assert_eq!(decode(encoding, stored, size).unwrap(), data);
    }

    #[test]
    fn hashes_are_those_of_everyone() {
        assert_eq!(
            hash(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
