//! Amounts of money.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The largest amount of one transaction: 10 billion. A balance can be larger.
const AMOUNT_CENTS_MAX: u64 = 1_000_000_000_000;

/// An amount in cents, which is text like `12.34` or `-0.05` on every wire. Never a floating-point number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Money(i64);

/// Why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMoney {
    /// It is not a number of cents.
    #[error("the amount {0:?} is not a number such as 12.34, with two decimals at most")]
    Text(String),
    /// No transaction moves so much, or nothing.
    #[error("the amount {0} is not between 0.01 and 10000000000.00")]
    OutOfRange(Money),
}

impl Money {
    /// An amount in cents: any, because it can be a balance.
    pub fn from_cents(cents: i64) -> Self {
        Self(cents)
    }

    /// In cents.
    pub fn cents(self) -> i64 {
        self.0
    }

    /// The same amount with the other sign. The largest negative one has none, and becomes the largest positive one.
    #[must_use]
    pub fn negated(self) -> Self {
        Self(self.0.saturating_neg())
    }

    /// Checks that one transaction can move it, in either direction: 10 billion at most, and not nothing.
    pub fn as_amount(self) -> Result<Self, InvalidMoney> {
        match (1..=AMOUNT_CENTS_MAX).contains(&self.0.unsigned_abs()) {
            true => Ok(self),
            false => Err(InvalidMoney::OutOfRange(self)),
        }
    }

    /// Whether it is more than nothing.
    pub fn is_positive(self) -> bool {
        self.0 > 0
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
            .ok_or_else(|| InvalidMoney::Text(text.chars().take(40).collect()))
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
    let part = part.parse::<i128>().ok()? * tens;
    // In 128 bits, because the smallest number of 64 bits has no positive counterpart.
    let cents = whole.parse::<i128>().ok()?.checked_mul(100)? + part;
    i64::try_from(if is_negative { -cents } else { cents }).ok()
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
            ("10000000000", 1_000_000_000_000, "10000000000.00"),
            ("92233720368547758.07", i64::MAX, "92233720368547758.07"),
            ("-92233720368547758.08", i64::MIN, "-92233720368547758.08"),
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
            "92233720368547758.08",
            "-92233720368547758.09",
            "99999999999999999999",
            "9999999999999999999999999999999999999999999999",
        ] {
            assert!(bad.parse::<Money>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_transaction_moves_something_up_to_10_billion() {
        for good in ["0.01", "-0.01", "10000000000.00", "-10000000000.00"] {
            let money: Money = good.parse().unwrap();
            assert_eq!(money.as_amount(), Ok(money));
        }
        for cents in [0, 1_000_000_000_001, -1_000_000_000_001, i64::MAX, i64::MIN] {
            let money = Money::from_cents(cents);
            let refused = money.as_amount().unwrap_err();
            assert_eq!(refused, InvalidMoney::OutOfRange(money));
        }
    }
}
