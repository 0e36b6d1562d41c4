//! Bytes as hexadecimal digits: ids and tokens that people read.

use super::Uuid;

/// Bytes as hexadecimal digits in lower case, in one allocation.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(digits(*byte));
    }
    text
}

fn digits(byte: u8) -> impl Iterator<Item = char> {
    let halves = [byte >> 4, byte & 0xf].into_iter();
    halves.filter_map(|half| char::from_digit(half.into(), 16))
}

impl Uuid {
    /// Its text: five groups of digits.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(36);
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.extend(digits(*byte));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_two_digits() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0, 0x0f, 0xa0, 0xff]), "000fa0ff");
        let uuid = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(uuid.text(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
