//! Checks that every confirmed transaction is booked exactly once.

use std::collections::BTreeMap;
use std::fmt;

use kew_idempotency::StoreError;
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Row};
use crate::money::Money;

/// Rows that are read at once.
const PAGE: u32 = 10_000;

/// A transaction that the web service confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// `user|account`.
    pub key: String,
    /// Its id.
    pub id: String,
    /// With its sign.
    pub amount: Money,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Confirmed transactions.
    pub confirmed: usize,
    /// Those that are booked.
    pub booked: usize,
    /// All transactions in the store, others included.
    pub stored: usize,
    /// Accounts whose balance was compared with the sum of their transactions.
    pub accounts: usize,
    /// Whatever is not as promised.
    pub faults: Vec<String>,
}

impl Findings {
    /// Whether all confirmed transactions are booked.
    pub fn is_complete(&self) -> bool {
        self.booked == self.confirmed
    }

    /// Whether nothing is wrong, and nothing is missing.
    pub fn is_good(&self) -> bool {
        self.is_complete() && self.faults.is_empty()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            confirmed,
            booked,
            stored,
            accounts,
            faults,
        } = self;
        write!(
            f,
            "confirmed={confirmed} booked={booked} stored={stored} accounts={accounts} faults={}",
            faults.len()
        )
    }
}

/// Compares the store with what was confirmed. Transactions that are booked meanwhile are waited for.
pub async fn audit(ledger: &Ledger, confirmed: &[Confirmed]) -> Result<Findings, StoreError> {
    let mut rows = Vec::new();
    loop {
        read_more(ledger, &mut rows).await?;
        let balances = ledger.balances(u32::MAX).await?;
        let count = rows.len();
        read_more(ledger, &mut rows).await?;
        if rows.len() == count {
            let balances = balances.into_iter().map(|it| (it.key, it.balance));
            return Ok(compare(&rows, &balances.collect(), confirmed));
        }
    }
}

async fn read_more(ledger: &Ledger, rows: &mut Vec<Row>) -> Result<(), StoreError> {
    loop {
        let after = rows.last().map_or(0, |row| row.sequence);
        let more = ledger.transactions(after, PAGE).await?;
        if more.is_empty() {
            return Ok(());
        }
        rows.extend(more);
    }
}

fn compare(rows: &[Row], balances: &BTreeMap<String, Money>, confirmed: &[Confirmed]) -> Findings {
    let mut findings = Findings {
        stored: rows.len(),
        accounts: balances.len(),
        ..Findings::default()
    };
    let mut stored: BTreeMap<(&str, &str), Money> = BTreeMap::new();
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for Row {
        key, id, amount, ..
    } in rows
    {
        if stored.insert((key, id), *amount).is_some() {
            let fault = format!("{key}: transaction {id} is booked twice");
            findings.faults.push(fault);
        }
        *sums.entry(key).or_default() += amount.cents();
    }
    let expected: BTreeMap<(&str, &str), Money> = confirmed
        .iter()
        .map(|it| ((it.key.as_str(), it.id.as_str()), it.amount))
        .collect();
    findings.confirmed = expected.len();
    for ((key, id), amount) in expected {
        match stored.get(&(key, id)) {
            Some(found) if *found == amount => findings.booked += 1,
            Some(found) => findings.faults.push(format!(
                "{key}: transaction {id} is booked with {found} and was confirmed with {amount}"
            )),
            None => {}
        }
    }
    for (key, balance) in balances {
        let sum = Money::from_cents(sums.remove(key.as_str()).unwrap_or_default());
        if sum != *balance {
            findings.faults.push(format!(
                "{key}: the balance is {balance}, and its transactions sum up to {sum}"
            ));
        }
    }
    let without = sums.into_keys();
    let without = without.map(|key| format!("{key}: there are transactions and no balance"));
    findings.faults.extend(without);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sequence: i64, id: &str, cents: i64) -> Row {
        Row {
            sequence,
            key: "a|b".to_owned(),
            id: id.to_owned(),
            amount: Money::from_cents(cents),
        }
    }

    fn check(rows: &[Row], balance: i64, confirmed: &[(&str, i64)]) -> Findings {
        let balances = BTreeMap::from([("a|b".to_owned(), Money::from_cents(balance))]);
        let confirmed: Vec<Confirmed> = confirmed
            .iter()
            .map(|(id, cents)| Confirmed {
                key: "a|b".to_owned(),
                id: (*id).to_owned(),
                amount: Money::from_cents(*cents),
            })
            .collect();
        compare(rows, &balances, &confirmed)
    }

    #[test]
    fn what_is_lost_or_doubled_is_found() {
        let rows = [row(1, "x", 500), row(2, "y", -200)];
        let good = check(&rows, 300, &[("x", 500), ("y", -200), ("x", 500)]);
        assert!(good.is_good(), "{good:?}");
        let missing = check(&rows, 300, &[("x", 500), ("z", 1)]);
        assert!(!missing.is_complete() && missing.faults.is_empty());
        let doubled = check(&rows, 800, &[("x", 500), ("y", -200)]);
        assert!(doubled.faults[0].contains("sum up to 3.00"), "{doubled:?}");
        let other = check(&rows, 300, &[("x", 501)]);
        assert!(other.faults[0].contains("confirmed with 5.01"), "{other:?}");
        let twice = [row(1, "x", 500), row(2, "x", 500)];
        let twice = check(&twice, 1000, &[("x", 500)]);
        assert!(twice.faults[0].contains("booked twice"), "{twice:?}");
    }
}
