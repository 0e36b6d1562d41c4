//! MD5, for `Content-MD5` alone: it tells a damaged body from a whole one and secures nothing.
//!
//! Source: RFC 1321; RFC 1864.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::Error;

/// Checks a body against the value of `Content-MD5`.
///
/// Refuses with `InvalidMd5` what is not 128 bits in Base64, and `Md5Mismatch`.
pub(crate) fn check(header: &[u8], body: &[u8]) -> Result<(), Error> {
    let stated = STANDARD.decode(header).map_err(|_| Error::InvalidMd5)?;
    let stated: [u8; 16] = stated.try_into().map_err(|_| Error::InvalidMd5)?;
    if stated == digest(body) {
        Ok(())
    } else {
        Err(Error::Md5Mismatch)
    }
}

/// How far each step of a round rotates; the four repeat four times.
const ROTATIONS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The integer part of 2^32 times the sine of each step's number.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

fn digest(body: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (blocks, rest) = body.as_chunks::<64>();
    for block in blocks {
        step(&mut state, block);
    }
    // The end: a one bit, zeros, and the length in bits, filling up a block or two.
    let bits = (body.len() as u64).wrapping_mul(8).to_le_bytes();
    let zeros = (64 + 56 - (rest.len() + 1)) % 64;
    let mut tail = Vec::with_capacity(128);
    tail.extend_from_slice(rest);
    tail.push(0x80);
    tail.resize(tail.len() + zeros, 0);
    tail.extend_from_slice(&bits);
    for block in tail.as_chunks::<64>().0 {
        step(&mut state, block);
    }
    let mut digest = [0; 16];
    for (place, byte) in digest
        .iter_mut()
        .zip(state.iter().flat_map(|word: &u32| word.to_le_bytes()))
    {
        *place = byte;
    }
    digest
}

fn step(state: &mut [u32; 4], block: &[u8; 64]) {
    let mut words = [0u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d] = *state;
    for (index, sine) in SINES.iter().enumerate() {
        let (mix, word) = match index / 16 {
            0 => ((b & c) | (!b & d), index),
            1 => ((d & b) | (!d & c), 5 * index + 1),
            2 => (b ^ c ^ d, 3 * index + 5),
            _ => (c ^ (b | !d), 7 * index),
        };
        let word = words.get(word % 16).copied().unwrap_or_default();
        let rotation = ROTATIONS
            .get(index / 16)
            .and_then(|round| round.get(index % 4))
            .copied()
            .unwrap_or_default();
        let sum = a.wrapping_add(mix).wrapping_add(*sine).wrapping_add(word);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(rotation));
    }
    for (word, mixed) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(mixed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_digest(body: &str, expected: &str) {
        let shown: String = digest(body.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(shown, expected, "{body}");
    }

    #[test]
    fn the_test_suite_of_rfc_1321() {
        check_digest("", "d41d8cd98f00b204e9800998ecf8427e");
        check_digest("a", "0cc175b9c0f1b6a831c399e269772661");
        check_digest("abc", "900150983cd24fb0d6963f7d28e17f72");
        check_digest("message digest", "f96b697d7cb7938d525a2f31aaf161d0");
        check_digest(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
            "d174ab98d277d9f5a5611c2c9f419d9f",
        );
        check_digest(&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn a_body_is_checked() {
        assert!(check(b"kAFQmDzST7DWlj99KOF/cg==", b"abc").is_ok());
        assert!(matches!(
            check(b"kAFQmDzST7DWlj99KOF/cg==", b"abd"),
            Err(Error::Md5Mismatch)
        ));
        for header in [&b""[..], b"abc", b"YWJj", b"\xff"] {
            assert!(matches!(check(header, b"abc"), Err(Error::InvalidMd5)));
        }
    }
}
