//! Amounts of money.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The largest amount of one transaction: 10 billion.
const CENTS_MAX: i64 = 1_000_000_000_000;

/// An amount in cents, which is text like `12.34` or `-0.05` on every wire. Never a floating-point number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Money(i64);

/// Why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the amount {0:?} is not a number with at most two decimals and at most 10000000000.00")]
pub struct InvalidMoney(String);

impl Money {
    /// An amount in cents. A balance can be larger than the amount of any transaction.
    pub fn from_cents(cents: i64) -> Self {
        Self(cents)
    }

    /// In cents.
    pub fn cents(self) -> i64 {
        self.0
    }

    /// The same amount with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        Self(self.0.saturating_neg())
    }

    /// Whether it is more than nothing.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:02}", cents / 100, cents % 100)
    }
}

impl FromStr for Money {
    type Err = InvalidMoney;

    fn from_str(text: &str) -> Result<Self, InvalidMoney> {
        cents_of(text)
            .map(Self)
            .ok_or_else(|| InvalidMoney(text.chars().take(40).collect()))
    }
}

fn cents_of(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "00"));
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 2 {
        return None;
    }
    let tens = if part.len() == 1 { 10 } else { 1 };
    let part = part.parse::<i64>().ok()? * tens;
    let cents = whole.parse::<i64>().ok()?.checked_mul(100)? + part;
    match cents <= CENTS_MAX {
        true if is_negative => Some(-cents),
        true => Some(cents),
        false => None,
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_two_decimals_at_most() {
        for (text, cents, written) in [
            ("12.34", 1234, "12.34"),
            ("-12.3", -1230, "-12.30"),
            ("0.05", 5, "0.05"),
            ("-0.05", -5, "-0.05"),
            ("7", 700, "7.00"),
            ("10000000000", CENTS_MAX, "10000000000.00"),
        ] {
            let money: Money = text.parse().unwrap();
            assert_eq!(
                (money.cents(), money.to_string()),
                (cents, written.to_owned())
            );
        }
        for bad in [
            "",
            "-",
            ".5",
            "1.",
            "1.234",
            "1,5",
            "+1",
            "--1",
            "1e3",
            " 1",
            "10000000000.01",
            "99999999999999999999",
        ] {
            assert!(bad.parse::<Money>().is_err(), "{bad}");
        }
    }
}
