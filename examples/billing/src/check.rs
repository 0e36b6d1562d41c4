//! Compares the files with what was submitted, to the last transaction, and sums them up.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;

use crate::archive::{Archive, Format};
use crate::journal::{Entry, Order};
use crate::transaction::{Charge, package};

/// Faults that are described. Others are counted.
const FAULTS_SHOWN: usize = 20;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Packages that were submitted.
    pub packages: u64,
    /// Those of which all charges are in one file.
    pub complete: u64,
    /// Transactions that were submitted.
    pub transactions: u64,
    /// Those whose charge was found once, and is right.
    pub charged: u64,
    /// What all of them cost.
    pub cents: u64,
    /// What those of each tariff cost, with their count.
    pub tariffs: BTreeMap<u8, (u64, u64)>,
    /// Milliseconds from the submission of each complete package until its file, in ascending order.
    pub latencies_ms: Vec<u64>,
    /// What is wrong, at most twenty of it.
    pub faults: Vec<String>,
    /// How much is wrong.
    pub fault_count: u64,
}

impl Findings {
    /// Everything is there, once, and right.
    pub fn is_good(&self) -> bool {
        self.is_complete() && self.fault_count == 0 && self.charged == self.transactions
    }

    /// Nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.complete == self.packages
    }

    /// The latency of so many percent of the packages.
    pub fn latency_ms(&self, percent: usize) -> u64 {
        let last = self.latencies_ms.len().saturating_sub(1);
        let at = last * percent.min(100) / 100;
        self.latencies_ms.get(at).copied().unwrap_or_default()
    }

    fn fault(&mut self, text: String) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_SHOWN {
            self.faults.push(text);
        }
    }

    /// Compares the charges of a package with what was submitted.
    fn compare(&mut self, order: Order, found: &[Charge]) {
        let mut by_id: BTreeMap<u64, u32> = BTreeMap::new();
        for charge in found {
            *by_id.entry(charge.id).or_default() += 1;
        }
        let charges: BTreeMap<u64, &Charge> = found.iter().map(|it| (it.id, it)).collect();
        for transaction in package(order.seed, order.number, order.count) {
            let id = transaction.id;
            let expected = transaction.charge().ok();
            match (by_id.remove(&id), charges.get(&id)) {
                (Some(1), Some(charge)) if Some(**charge) == expected => {
                    self.charged += 1;
                    self.cents += charge.cents;
                    let (count, cents) = self.tariffs.entry(charge.tariff).or_default();
                    *count += 1;
                    *cents += charge.cents;
                }
                (Some(1), _) => self.fault(format!("transaction {id} has a wrong charge")),
                (Some(times), _) => {
                    self.fault(format!("transaction {id} is charged {times} times"))
                }
                (None, _) => self.fault(format!("transaction {id} is not charged")),
            }
        }
        for id in by_id.keys() {
            self.fault(format!("transaction {id} was never submitted"));
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            packages,
            complete,
            transactions,
            charged,
            cents,
            fault_count,
            ..
        } = self;
        write!(
            f,
            "packages={packages} complete={complete} transactions={transactions} charged_once={charged} \
             cents={cents} faults={fault_count}"
        )
    }
}

/// Reads all files. Packages that are not complete yet are no fault.
pub async fn check<F: Format>(
    archive: &Archive<F>,
    submitted: &BTreeMap<u32, Entry>,
) -> Result<Findings> {
    let mut findings = Findings::default();
    for number in archive.packages().await? {
        if !submitted.contains_key(&number) {
            findings.fault(format!("package {number} was never submitted"));
        }
    }
    for entry in submitted.values() {
        findings.packages += 1;
        findings.transactions += u64::from(entry.order.count);
        if let Some(found) = archive.package(entry.order.number).await? {
            findings.complete += 1;
            findings.compare(entry.order, &found);
        }
        if let Some(at_ms) = archive.complete_at_ms(entry.order.number).await? {
            let at_ms = u64::try_from(at_ms).unwrap_or_default();
            findings
                .latencies_ms
                .push(at_ms.saturating_sub(entry.begun_ms));
        }
    }
    findings.latencies_ms.sort_unstable();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order {
        number: 1,
        count: 10,
        part_size: 4,
        seed: 3,
    };

    fn after(change: impl FnOnce(&mut Vec<Charge>)) -> Findings {
        let transactions = package(ORDER.seed, ORDER.number, ORDER.count);
        let mut charges: Vec<_> = transactions.iter().map(|it| it.charge().unwrap()).collect();
        change(&mut charges);
        let mut findings = Findings {
            packages: 1,
            complete: 1,
            transactions: 10,
            ..Findings::default()
        };
        findings.compare(ORDER, &charges);
        findings
    }

    #[test]
    fn latencies_of_packages() {
        let findings = Findings {
            latencies_ms: (1..=101).collect(),
            ..Findings::default()
        };
        let found = [0, 50, 99, 100].map(|it| findings.latency_ms(it));
        assert_eq!(found, [1, 51, 100, 101]);
        assert_eq!(Findings::default().latency_ms(50), 0);
    }

    #[test]
    fn every_transaction_counts_once() {
        assert!(after(|_| {}).is_good());
        assert!(after(|it| it.reverse()).is_good());
        for (what, findings) in [
            ("is not charged", after(|it| it.truncate(9))),
            ("is charged 2 times", after(|it| it.push(it[0]))),
            ("has a wrong charge", after(|it| it[3].cents += 1)),
            ("has a wrong charge", after(|it| it[3].customer += 1)),
            (
                "was never submitted",
                after(|it| it.push(Charge { id: 1, ..it[0] })),
            ),
        ] {
            assert!(!findings.is_good(), "{what}");
            assert_eq!(findings.fault_count, 1, "{what}");
            assert!(findings.faults[0].ends_with(what), "{findings:?}");
        }
    }
}
