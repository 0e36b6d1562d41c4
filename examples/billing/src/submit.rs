//! The customer: submits packages until the queue has them.

use std::time::Duration;

use anyhow::Result;
use kew_worker::{Announce as _, Announcement, ErrorKind, SendError, Target as _};
use tokio::time::sleep;

use crate::journal::{Journal, Order};
use crate::message::Package;
use crate::place::{PACKAGES, Place};
use crate::transaction;

/// The pause after a submission that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// What to submit.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Transactions in all.
    pub transactions: u64,
    /// Transactions of each package; the last one may have fewer.
    pub package_size: u32,
    /// Transactions of each work item.
    pub part_size: u32,
    /// What the transactions are made of.
    pub seed: u64,
}

/// Submits packages, first those that a run before began and did not finish. Returns how many.
///
/// A package is noted before it is sent, and sent again with the same number until the queue has it. So it may be in
/// the queue twice, and its charges count once.
pub async fn submit(place: &Place, plan: Plan) -> Result<u32> {
    let journal = Journal::of(&place.data);
    // No other customer may take the same numbers.
    let mut noted = journal.write()?;
    let known = journal.read()?;
    let open = known.values().filter(|it| it.submitted_ms.is_none());
    let mut orders: Vec<Order> = open.map(|it| it.order).collect();
    let finished = u32::try_from(orders.len())?;
    let first = known.keys().next_back().map_or(0, |last| last + 1);
    orders.extend(new_orders(first, plan));
    for (place_in_list, order) in (0..).zip(&orders) {
        if place_in_list >= finished {
            noted.begin(*order)?;
        }
        send(place, *order).await?;
        noted.submitted(order.number)?;
    }
    Ok(u32::try_from(orders.len())?)
}

fn new_orders(first: u32, plan: Plan) -> impl Iterator<Item = Order> {
    let size = u64::from(plan.package_size.max(1));
    let packages = plan.transactions.div_ceil(size);
    let order = move |(number, index): (u32, u64)| Order {
        number,
        // It is at most the size, which has 32 bits.
        count: u32::try_from(size.min(plan.transactions - index * size)).unwrap_or(u32::MAX),
        part_size: plan.part_size,
        seed: plan.seed,
    };
    (first..).zip(0..packages).map(order)
}

/// Sends a package, and announces it.
async fn send(place: &Place, order: Order) -> Result<()> {
    let sender = place.sender(PACKAGES, "customer")?;
    let package = Package {
        number: order.number,
        part_size: order.part_size,
        transactions: transaction::package(order.seed, order.number, order.count),
    };
    loop {
        match sender.send(&package).await {
            Ok(_) => break,
            Err(SendError::Target(error)) if error.kind() == ErrorKind::Refused => {
                return Err(error.into());
            }
            Err(error) => tracing::warn!(%error, number = order.number, "submitting it again"),
        }
        sleep(PAUSE).await;
    }
    let announcement = Announcement::new(sender.target().name(), "customer");
    if let Err(error) = place.announcer().announce(&announcement).await {
        tracing::warn!(%error, "a package was not announced: initiators find it later");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_all_transactions() {
        let plan = Plan {
            transactions: 25,
            package_size: 10,
            part_size: 3,
            seed: 1,
        };
        let orders: Vec<_> = new_orders(4, plan)
            .map(|it| (it.number, it.count))
            .collect();
        assert_eq!(orders, [(4, 10), (5, 10), (6, 5)]);
    }
}
