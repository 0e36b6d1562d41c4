//! Transactions, what they cost, and packages of them for demonstrations.

use serde::{Deserialize, Serialize};

/// Cents for a unit, by tariff.
const TARIFFS: [u64; 4] = [3, 7, 19, 40];

/// From so many units on, each further one costs half.
const DISCOUNT_FROM: u64 = 500;

/// One use of a service by a customer. As JSON: `[id, customer, tariff, units]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u32, u8, u32)", into = "(u64, u32, u8, u32)")]
pub struct Transaction {
    /// Unique in all packages.
    pub id: u64,
    /// Who pays.
    pub customer: u32,
    /// 0 to 3.
    pub tariff: u8,
    /// How much was used.
    pub units: u32,
}

impl From<(u64, u32, u8, u32)> for Transaction {
    fn from((id, customer, tariff, units): (u64, u32, u8, u32)) -> Self {
        Self {
            id,
            customer,
            tariff,
            units,
        }
    }
}

impl From<Transaction> for (u64, u32, u8, u32) {
    fn from(it: Transaction) -> Self {
        (it.id, it.customer, it.tariff, it.units)
    }
}

/// What a transaction costs. As JSON: `[id, customer, tariff, cents]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u32, u8, u64)", into = "(u64, u32, u8, u64)")]
pub struct Charge {
    /// That of the transaction.
    pub id: u64,
    /// Who pays.
    pub customer: u32,
    /// By which tariff.
    pub tariff: u8,
    /// How much.
    pub cents: u64,
}

impl From<(u64, u32, u8, u64)> for Charge {
    fn from((id, customer, tariff, cents): (u64, u32, u8, u64)) -> Self {
        Self {
            id,
            customer,
            tariff,
            cents,
        }
    }
}

impl From<Charge> for (u64, u32, u8, u64) {
    fn from(it: Charge) -> Self {
        (it.id, it.customer, it.tariff, it.cents)
    }
}

/// There is no such tariff.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("transaction {id} has tariff {tariff}; expected 0 to 3")]
pub struct NoTariff {
    id: u64,
    tariff: u8,
}

impl Transaction {
    /// What it costs.
    pub fn charge(&self) -> Result<Charge, NoTariff> {
        let (id, tariff) = (self.id, self.tariff);
        let price = TARIFFS.get(usize::from(tariff));
        let price = *price.ok_or(NoTariff { id, tariff })?;
        let units = u64::from(self.units);
        let full = units.min(DISCOUNT_FROM);
        // 32 bits of units times two digits: far below 64 bits.
        let cents = full * price + (units - full) * price / 2;
        Ok(Charge {
            id,
            customer: self.customer,
            tariff,
            cents,
        })
    }
}

/// The transactions of a package, always the same for one seed, number and count.
pub fn package(seed: u64, number: u32, count: u32) -> Vec<Transaction> {
    let mut state = seed ^ (u64::from(number) << 32 | 0x9E37_79B9);
    let mut next = |below: u64| {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    };
    let first = u64::from(number) << 32;
    let one = |place: u32| Transaction {
        id: first + u64::from(place),
        // The results fit: they are below the bounds.
        customer: u32::try_from(next(100_000)).unwrap_or_default(),
        tariff: u8::try_from(next(4)).unwrap_or_default(),
        units: u32::try_from(next(1_000)).unwrap_or_default(),
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cents(tariff: u8, units: u32) -> Result<u64, NoTariff> {
        let transaction = Transaction {
            id: 7,
            customer: 1,
            tariff,
            units,
        };
        transaction.charge().map(|it| it.cents)
    }

    #[test]
    fn charges() {
        for (tariff, units, expected) in [
            (0, 0, 0),
            (0, 500, 1_500),
            (0, 501, 1_501),
            (0, 503, 1_504),
            (3, 1_000, 30_000),
            (3, u32::MAX, 20_000 + (u64::from(u32::MAX) - 500) * 20),
        ] {
            assert_eq!(cents(tariff, units), Ok(expected), "{tariff} {units}");
        }
        let refused = cents(4, 1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "transaction 7 has tariff 4; expected 0 to 3"
        );
    }

    #[test]
    fn packages_are_the_same_again_and_have_ids_of_their_own() {
        let one = package(5, 2, 100);
        assert_eq!(one, package(5, 2, 100));
        assert_ne!(one[0].units, package(6, 2, 100)[0].units);
        assert_eq!(one[99].id, (2 << 32) + 99);
        assert_eq!(package(5, 3, 1)[0].id, 3 << 32);
    }

    #[test]
    fn json_is_short() {
        let text = serde_json::to_string(&package(1, 0, 1)[0]).unwrap();
        assert!(text.starts_with("[0,") && text.len() < 24, "{text}");
        let read: Transaction = serde_json::from_str("[1,2,3,4]").unwrap();
        assert_eq!((read.id, read.units), (1, 4));
    }
}
