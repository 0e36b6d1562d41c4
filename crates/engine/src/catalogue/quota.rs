//! What accounts use, and whether they may use more.

use std::sync::Arc;

use super::{AccountUsage, Catalogue, QuotaLimit};
use crate::table::MESSAGE_OVERHEAD_BYTES;

/// An account would use more than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaExceeded {
    pub(crate) account: Box<str>,
    pub(crate) limit: QuotaLimit,
    /// The usage it would have.
    pub(crate) needed: u64,
    /// The limit.
    pub(crate) allowed: u64,
}

impl Catalogue {
    /// The usage of an account, even if the account was never put.
    pub(crate) fn usage_of(&self, account: &str) -> AccountUsage {
        self.usage.get(account).copied().unwrap_or_default()
    }

    /// Counts a new queue, without messages.
    pub(crate) fn count_queue(&mut self, account: &Arc<str>) {
        self.usage.entry(account.clone()).or_default().queues += 1;
    }

    /// Removes a deleted queue that counted for so many bytes.
    pub(crate) fn uncount_queue(&mut self, account: &Arc<str>, size_bytes: u64) {
        let Some(usage) = self.usage.get_mut(account) else {
            return;
        };
        usage.queues -= 1;
        usage.size_bytes -= size_bytes;
        if usage.queues == 0 {
            self.usage.remove(account);
        }
    }

    /// Counts other bytes for a queue's messages.
    pub(crate) fn count_bytes(&mut self, account: &Arc<str>, before: u64, now: u64) {
        if before != now {
            let usage = self.usage.entry(account.clone()).or_default();
            usage.size_bytes = usage.size_bytes - before + now;
        }
    }

    /// Refuses another queue if the account has as many as it may.
    pub(crate) fn check_queues(&self, account: &Arc<str>) -> Result<(), QuotaExceeded> {
        let record = self.accounts.get(account);
        let queues = self.usage_of(account).queues + 1;
        match record.and_then(|record| record.quota.queues_max) {
            Some(limit) if queues > limit => {
                Err(exceeded(account, QuotaLimit::Queues, queues, limit))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a body that would take an account above its bytes. `replaced` is the length of the body that
    /// it replaces. Without it, a whole message is added. A body that takes no more room than before is
    /// always accepted.
    pub(crate) fn check_size_quota(
        &self,
        account: &Arc<str>,
        body: &[u8],
        replaced: Option<u32>,
    ) -> Result<(), QuotaExceeded> {
        let Some(record) = self.accounts.get(account) else {
            return Ok(());
        };
        let added = body.len() as u64;
        let more = match replaced {
            Some(replaced) => added.saturating_sub(u64::from(replaced)),
            None => added + MESSAGE_OVERHEAD_BYTES,
        };
        let size_bytes = self.usage_of(account).size_bytes + more;
        match record.quota.size_bytes_max {
            Some(limit) if more > 0 && size_bytes > limit => {
                Err(exceeded(account, QuotaLimit::SizeBytes, size_bytes, limit))
            }
            _ => Ok(()),
        }
    }
}

fn exceeded(account: &str, limit: QuotaLimit, needed: u64, allowed: u64) -> QuotaExceeded {
    QuotaExceeded {
        account: account.into(),
        limit,
        needed,
        allowed,
    }
}
