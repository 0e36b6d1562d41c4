//! Decimal numbers of AMQP, as .NET's `decimal` arrives.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

/// Decimal digits of the longest coefficient.
const DIGITS_MAX: u32 = 34;

/// A decimal number: a coefficient with a power of ten. It compares exactly with integers and decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    // Two halves, so that a value needs no alignment of 16 bytes.
    high: u64,
    low: u64,
    exponent: i16,
    is_negative: bool,
}

impl Decimal {
    /// The number `coefficient` × 10^`exponent`. `None` if it has more than 34 digits.
    pub fn new(is_negative: bool, coefficient: u128, exponent: i16) -> Option<Self> {
        if coefficient >= 10u128.pow(DIGITS_MAX) {
            return None;
        }
        Some(Self::of(is_negative, coefficient, exponent))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of the coefficient"
    )]
    fn of(is_negative: bool, coefficient: u128, exponent: i16) -> Self {
        Self {
            high: (coefficient >> 64) as u64,
            low: coefficient as u64,
            exponent,
            is_negative,
        }
    }

    /// The number of an AMQP `decimal32`. `None` for infinities and what is not a number.
    ///
    /// Source: IEEE 754-2008, 3.5.2, with a binary coefficient.
    pub fn from_decimal32(bytes: [u8; 4]) -> Option<Self> {
        Self::from_binary(u128::from(u32::from_be_bytes(bytes)), 32, 8, 101)
    }

    /// The number of an AMQP `decimal64`, as [`from_decimal32`](Self::from_decimal32).
    pub fn from_decimal64(bytes: [u8; 8]) -> Option<Self> {
        Self::from_binary(u128::from(u64::from_be_bytes(bytes)), 64, 10, 398)
    }

    /// The number of an AMQP `decimal128`, as [`from_decimal32`](Self::from_decimal32).
    pub fn from_decimal128(bytes: [u8; 16]) -> Option<Self> {
        Self::from_binary(u128::from_be_bytes(bytes), 128, 14, 6176)
    }

    /// The bytes of an AMQP `decimal128`, as [`from_decimal128`](Self::from_decimal128) reads them. `None` if the exponent
    /// is out of its range, which no number from a message has.
    pub fn to_decimal128(self) -> Option<[u8; 16]> {
        // A coefficient of 34 digits has at most 113 bits, so it needs no prefix.
        let exponent = i32::from(self.exponent) + 6176;
        let exponent = u128::try_from(exponent)
            .ok()
            .filter(|it| *it < 0b11 << 12)?;
        let sign = u128::from(self.is_negative) << 127;
        Some((sign | exponent << 113 | self.coefficient()).to_be_bytes())
    }

    /// The number with a sign, an exponent of so many bits, and a coefficient in the other bits.
    fn from_binary(bits: u128, size: u32, exponent_bits: u32, bias: i16) -> Option<Self> {
        let is_negative = bits >> (size - 1) == 1;
        let field = |shift: u32, count: u32| (bits >> shift) & ((1 << count) - 1);
        if field(size - 5, 4) == 0b1111 {
            return None;
        }
        // A large coefficient has a prefix of its own, and its exponent is two bits further down.
        let is_large = field(size - 3, 2) == 0b11;
        let coefficient_bits = size - 1 - exponent_bits - if is_large { 2 } else { 0 };
        let coefficient = match is_large {
            true => (0b100 << coefficient_bits) | field(0, coefficient_bits),
            false => field(0, coefficient_bits),
        };
        let exponent = i16::try_from(field(coefficient_bits, exponent_bits)).ok()? - bias;
        Self::new(is_negative, coefficient, exponent)
    }

    pub(crate) fn of_integer(value: i128) -> Self {
        Self::of(value < 0, value.unsigned_abs(), 0)
    }

    pub(crate) fn negated(self) -> Self {
        Self {
            is_negative: !self.is_negative,
            ..self
        }
    }

    /// Its sign, its coefficient and its exponent, as they were given.
    pub(crate) fn parts(self) -> (bool, u128, i16) {
        (self.is_negative, self.coefficient(), self.exponent)
    }

    fn coefficient(self) -> u128 {
        (u128::from(self.high) << 64) | u128::from(self.low)
    }

    /// The nearest double. Equal numbers have the same one.
    pub(crate) fn to_double(self) -> f64 {
        let mut text = Short {
            bytes: [0; 64],
            len: 0,
        };
        let written = write!(text, "{self}");
        let read = written.ok().and_then(|()| text.as_str().parse().ok());
        read.unwrap_or(f64::NAN)
    }

    pub(crate) fn order(self, other: Self) -> Ordering {
        let signed = |it: Self| match (it.coefficient(), it.is_negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        };
        match (signed(self), signed(other)) {
            (1, 1) => self.order_of_size(other),
            (-1, -1) => other.order_of_size(self),
            (one, another) => one.cmp(&another),
        }
    }

    /// The order of two numbers that are not zero, without their signs.
    fn order_of_size(self, other: Self) -> Ordering {
        let magnitude = |it: Self| {
            i32::from(it.exponent) + i32::try_from(it.coefficient().ilog10()).unwrap_or(0)
        };
        let least = self.exponent.min(other.exponent);
        let aligned = |it: Self| {
            let power = u32::from(it.exponent.abs_diff(least));
            let factor = 10u128.checked_pow(power);
            factor.and_then(|factor| it.coefficient().checked_mul(factor))
        };
        // Numbers of the same magnitude have at most 34 digits with the smaller exponent too.
        let by_magnitude = magnitude(self).cmp(&magnitude(other));
        by_magnitude.then_with(|| aligned(self).cmp(&aligned(other)))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negative { "-" } else { "" };
        write!(f, "{sign}{}E{}", self.coefficient(), self.exponent)
    }
}

/// A text on the stack, long enough for any decimal.
struct Short {
    bytes: [u8; 64],
    len: usize,
}

impl Short {
    fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(coefficient: i128, exponent: i16) -> Decimal {
        Decimal::new(coefficient < 0, coefficient.unsigned_abs(), exponent).unwrap()
    }

    #[test]
    fn the_same_number_has_many_forms() {
        assert_eq!(decimal(10, -1).order(decimal(1, 0)), Ordering::Equal);
        assert_eq!(decimal(10, -1).to_double(), 1.0);
        assert_eq!(decimal(0, 3).order(decimal(0, -3000)), Ordering::Equal);
        assert_eq!(decimal(1, 6000).order(decimal(1, 5000)), Ordering::Greater);
        assert_eq!(decimal(-1, 40).order(decimal(1, 0)), Ordering::Less);
        assert_eq!(decimal(-2, 0).order(decimal(-1, 0)), Ordering::Less);
        let near = decimal(1_000_000_000_000_000_000_000_000_000_000_001, 0);
        assert_eq!(near.order(decimal(1, 33)), Ordering::Greater);
        assert_eq!(near.order(decimal(1, 34)), Ordering::Less);
        assert!(Decimal::new(false, 10u128.pow(34), 0).is_none());
    }

    #[test]
    fn the_wire_is_read() {
        // 7.5 as 75 × 10^-1, whose exponent is stored as 100, 397 and 6175.
        let small = ((100u32 << 23) | 75).to_be_bytes();
        let middle = ((397u64 << 53) | 75).to_be_bytes();
        let large = ((6175u128 << 113) | 75).to_be_bytes();
        let expected = Some(decimal(75, -1));
        assert_eq!(Decimal::from_decimal32(small), expected);
        assert_eq!(Decimal::from_decimal64(middle), expected);
        assert_eq!(Decimal::from_decimal128(large), expected);
        let prefixed = ((0b11u32 << 29) | (101 << 21) | 5).to_be_bytes();
        assert_eq!(
            Decimal::from_decimal32(prefixed),
            Some(decimal(8_388_608 + 5, 0))
        );
        assert_eq!(Decimal::from_decimal32([0x78, 0, 0, 0]), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let longest = i128::try_from(10u128.pow(34) - 1).unwrap();
        for coefficient in [0, 1, -75, longest, -longest] {
            for exponent in [0, -1, -6176, 6111] {
                let number = decimal(coefficient, exponent);
                let bytes = number.to_decimal128().unwrap();
                assert_eq!(Decimal::from_decimal128(bytes), Some(number));
            }
        }
        for exponent in [-6177, 6112, i16::MIN, i16::MAX] {
            assert_eq!(decimal(1, exponent).to_decimal128(), None);
        }
    }
}
