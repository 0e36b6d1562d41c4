//! Checks that every confirmed transaction is booked exactly once.

use std::collections::BTreeMap;
use std::fmt;

use kew_idempotency::StoreError;
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Row};
use crate::money::Money;
use crate::names::{AccountKey, TransactionId};
use crate::transaction::Decision;

/// Missing transactions that are looked up. While more are missing, most of them wait for a worker.
const LOOK_UPS_MAX: usize = 100;

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
    /// Those that could not be booked, because the balance would be a number that the bank cannot count.
    pub out_of_range: usize,
    /// Those that are not booked, and were not looked up because too many are missing.
    pub not_looked_up: usize,
    /// All transactions in the store, others included.
    pub stored: usize,
    /// Accounts whose balance was compared with the sum of their transactions.
    pub accounts: usize,
    /// Whatever is not as promised.
    pub faults: Vec<String>,
}

impl Findings {
    /// Whether all confirmed transactions have an outcome.
    pub fn is_complete(&self) -> bool {
        self.booked + self.out_of_range == self.confirmed
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
            out_of_range,
            not_looked_up,
            stored,
            accounts,
            faults,
        } = self;
        write!(
            f,
            "confirmed={confirmed} booked={booked} out_of_range={out_of_range} stored={stored} accounts={accounts} faults={}",
            faults.len()
        )?;
        match not_looked_up {
            0 => Ok(()),
            more => write!(f, " not_looked_up={more}"),
        }
    }
}

/// Compares the store with what was confirmed. Transactions that are booked meanwhile are waited for.
pub async fn audit(ledger: &Ledger, confirmed: &[Confirmed]) -> Result<Findings, StoreError> {
    let mut rows = read_rows(ledger).await?;
    loop {
        let balances = ledger.balances(u32::MAX).await?;
        let count = rows.len();
        // From the beginning: in PostgreSQL a row can be committed after rows with later places.
        rows = read_rows(ledger).await?;
        if rows.len() == count {
            let balances = balances.into_iter().map(|it| (it.key, it.balance));
            let (mut findings, missing) = compare(&rows, &balances.collect(), confirmed);
            explain(ledger, &mut findings, &missing).await?;
            return Ok(findings);
        }
    }
}

/// Finds out which of the first missing transactions will never be booked.
async fn explain(
    ledger: &Ledger,
    findings: &mut Findings,
    missing: &[&Confirmed],
) -> Result<(), StoreError> {
    findings.not_looked_up = missing.len().saturating_sub(LOOK_UPS_MAX);
    for Confirmed { key, id, .. } in missing.iter().take(LOOK_UPS_MAX) {
        let (user, account) = key.split_once('|').unwrap_or((key, ""));
        let key = AccountKey::new(user, account);
        let (Ok(key), Ok(id)) = (key, TransactionId::parse(id)) else {
            continue;
        };
        let details = ledger.look_up(&key, &id).await?;
        if details.is_some_and(|it| it.decision == Decision::OutOfRange) {
            findings.out_of_range += 1;
        }
    }
    Ok(())
}

async fn read_rows(ledger: &Ledger) -> Result<Vec<Row>, StoreError> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row| row.sequence);
        let more = ledger.transactions(after, PAGE).await?;
        if more.is_empty() {
            return Ok(rows);
        }
        rows.extend(more);
    }
}

/// What was found, and what was confirmed and is not booked.
fn compare<'a>(
    rows: &[Row],
    balances: &BTreeMap<String, Money>,
    confirmed: &'a [Confirmed],
) -> (Findings, Vec<&'a Confirmed>) {
    let mut findings = Findings {
        stored: rows.len(),
        accounts: balances.len(),
        ..Findings::default()
    };
    let mut stored: BTreeMap<(&str, &str), Money> = BTreeMap::new();
    let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
    for Row {
        key, id, amount, ..
    } in rows
    {
        if stored.insert((key, id), *amount).is_some() {
            let fault = format!("{key}: transaction {id} is booked twice");
            findings.faults.push(fault);
        }
        *sums.entry(key).or_default() += i128::from(amount.cents());
    }
    let expected: BTreeMap<(&str, &str), &Confirmed> = confirmed
        .iter()
        .map(|it| ((it.key.as_str(), it.id.as_str()), it))
        .collect();
    findings.confirmed = expected.len();
    let mut missing = Vec::new();
    for ((key, id), one) in expected {
        let amount = one.amount;
        match stored.get(&(key, id)) {
            Some(found) if *found == amount => findings.booked += 1,
            Some(found) => findings.faults.push(format!(
                "{key}: transaction {id} is booked with {found} and was confirmed with {amount}"
            )),
            None => missing.push(one),
        }
    }
    for (key, balance) in balances {
        let sum = sums.remove(key.as_str()).unwrap_or_default();
        if sum != i128::from(balance.cents()) {
            let sum = match i64::try_from(sum) {
                Ok(cents) => Money::from_cents(cents).to_string(),
                Err(_) => format!("{sum} cents"),
            };
            findings.faults.push(format!(
                "{key}: the balance is {balance}, and its transactions sum up to {sum}"
            ));
        }
    }
    let without = sums.into_keys();
    let without = without.map(|key| format!("{key}: there are transactions and no balance"));
    findings.faults.extend(without);
    (findings, missing)
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
        compare(rows, &balances, &confirmed).0
    }

    #[test]
    fn what_is_lost_or_doubled_is_found() {
        let rows = [row(1, "x", 500), row(2, "y", -200)];
        let good = check(&rows, 300, &[("x", 500), ("y", -200), ("x", 500)]);
        assert!(good.is_good(), "{good:?}");
        let missing = check(&rows, 300, &[("x", 500), ("z", 1)]);
        assert!(!missing.is_complete() && missing.faults.is_empty());
        let huge = [row(1, "x", i64::MAX), row(2, "y", i64::MAX)];
        let huge = check(&huge, 300, &[]);
        assert!(huge.faults[0].contains("18446744073709551614 cents"));
        let doubled = check(&rows, 800, &[("x", 500), ("y", -200)]);
        assert!(doubled.faults[0].contains("sum up to 3.00"), "{doubled:?}");
        let other = check(&rows, 300, &[("x", 501)]);
        assert!(other.faults[0].contains("confirmed with 5.01"), "{other:?}");
        let twice = [row(1, "x", 500), row(2, "x", 500)];
        let twice = check(&twice, 1000, &[("x", 500)]);
        assert!(twice.faults[0].contains("booked twice"), "{twice:?}");
    }
}
