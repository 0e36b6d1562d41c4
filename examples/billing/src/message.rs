//! What the queues carry. Each travels by a claim check: what is large lies in the object store.

use serde::{Deserialize, Serialize};

use crate::transaction::{Charge, NoTariff, Transaction};

/// Which part of which package. It is the same in every delivery and in every repetition, so it tells repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// The number of the package.
    pub package: u32,
    /// From 0.
    pub index: u32,
    /// How many parts the package has.
    pub count: u32,
}

/// Transactions that a customer submits together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its number: a package that comes twice has the same.
    pub number: u32,
    /// How many transactions each part has, at most. The customer decides it once, so that a repetition is split in the
    /// same way.
    pub part_size: u32,
    /// All of them, at least one.
    pub transactions: Vec<Transaction>,
}

/// A work item: transactions to be charged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Which one.
    pub part: Part,
    /// Its transactions.
    pub transactions: Vec<Transaction>,
}

/// The result of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// Which one.
    pub part: Part,
    /// One for each transaction, in the same order.
    pub charges: Vec<Charge>,
}

impl Package {
    /// Splits it into work items.
    pub fn split(&self) -> Vec<Item> {
        let size = usize::try_from(self.part_size.max(1)).unwrap_or(usize::MAX);
        let chunks = self.transactions.chunks(size);
        // Packages are far below 4 billion transactions: the claim check has bounds.
        let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        let part = |index| Part {
            package: self.number,
            index,
            count,
        };
        let item = |(index, transactions): (u32, &[Transaction])| Item {
            part: part(index),
            transactions: transactions.to_vec(),
        };
        (0..).zip(chunks).map(item).collect()
    }
}

impl Item {
    /// Charges its transactions.
    pub fn charge(&self) -> Result<Charged, NoTariff> {
        let charges = self.transactions.iter().map(Transaction::charge);
        Ok(Charged {
            part: self.part,
            charges: charges.collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::package;

    #[test]
    fn items_have_every_transaction_once() {
        let package = Package {
            number: 3,
            part_size: 10,
            transactions: package(1, 3, 25),
        };
        let items = package.split();
        let sizes: Vec<usize> = items.iter().map(|it| it.transactions.len()).collect();
        assert_eq!(sizes, [10, 10, 5]);
        let all: Vec<_> = items.iter().flat_map(|it| &it.transactions).collect();
        assert!(all.into_iter().eq(&package.transactions));
        for (index, item) in (0..).zip(items) {
            let (package, count) = (3, 3);
            let part = Part {
                package,
                index,
                count,
            };
            assert_eq!(item.part, part);
            assert_eq!(item.charge().unwrap().part, part);
        }
    }

    #[test]
    fn an_unknown_tariff_is_an_error() {
        let mut item = Package {
            number: 0,
            part_size: 10,
            transactions: package(1, 0, 2),
        }
        .split()
        .remove(0);
        item.transactions[1].tariff = 9;
        assert!(item.charge().is_err());
    }
}
