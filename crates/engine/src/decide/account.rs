//! Accounts, their quotas, and the properties of their services.

use std::sync::Arc;

use bytes::Bytes;

use super::{Decision, Scope, Turn};
use crate::account::{AccountRecord, MESSAGE_OVERHEAD_BYTES, QuotaLimit};
use crate::{Fact, Outcome, Refusal, Service};

impl Turn<'_> {
    pub(super) fn put_account(&mut self, account: AccountRecord, is_new: bool) -> Decision {
        let name = Box::from(&*account.name);
        let result = match (self.state().accounts.contains_key(&account.name), is_new) {
            (true, true) => Err(Refusal::AccountAlreadyExists { account: name }),
            (false, false) => Err(Refusal::AccountNotFound { account: name }),
            (true, false) | (false, true) => {
                self.emit(Fact::AccountPut { account });
                Ok(Outcome::AccountPut)
            }
        };
        in_catalogue(result)
    }

    /// One event removes the account, its queues and its properties, so that no crash leaves a part.
    pub(super) fn remove_account(&mut self, account: Arc<str>, with_queues: bool) -> Decision {
        let queues = self.state().usage_of(&account).queues;
        let name = Box::from(&*account);
        let result = if !self.state().accounts.contains_key(&account) {
            Err(Refusal::AccountNotFound { account: name })
        } else if queues > 0 && !with_queues {
            Err(Refusal::AccountNotEmpty {
                account: name,
                queues,
            })
        } else {
            self.emit(Fact::AccountRemoved { account });
            Ok(Outcome::AccountRemoved)
        };
        in_catalogue(result)
    }

    pub(super) fn list_accounts(&self) -> Decision {
        let accounts = self.state().accounts.values().cloned().collect();
        in_catalogue(Ok(Outcome::Accounts(accounts)))
    }

    pub(super) fn set_service_properties(
        &mut self,
        service: Service,
        account: Arc<str>,
        properties: Bytes,
    ) -> Decision {
        self.emit(Fact::ServicePropertiesSet {
            service,
            account,
            properties,
        });
        in_catalogue(Ok(Outcome::ServicePropertiesSet))
    }

    pub(super) fn read_service_properties(&self, service: Service, account: Arc<str>) -> Decision {
        let properties = self.state().service_properties.get(&(service, account));
        in_catalogue(Ok(Outcome::ServiceProperties(properties.cloned())))
    }

    /// Refuses another queue if the account has as many as it may.
    pub(super) fn check_queues(&self, account: &Arc<str>) -> Result<(), Refusal> {
        let record = self.state().accounts.get(account);
        let queues = self.state().usage_of(account).queues + 1;
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
    pub(super) fn check_size_quota(
        &self,
        account: &Arc<str>,
        body: &[u8],
        replaced: Option<u32>,
    ) -> Result<(), Refusal> {
        let Some(record) = self.state().accounts.get(account) else {
            return Ok(());
        };
        let added = body.len() as u64;
        let more = match replaced {
            Some(replaced) => added.saturating_sub(u64::from(replaced)),
            None => added + MESSAGE_OVERHEAD_BYTES,
        };
        let size_bytes = self.state().usage_of(account).size_bytes + more;
        match record.quota.size_bytes_max {
            Some(limit) if more > 0 && size_bytes > limit => {
                Err(exceeded(account, QuotaLimit::SizeBytes, size_bytes, limit))
            }
            _ => Ok(()),
        }
    }
}

fn exceeded(account: &str, limit: QuotaLimit, needed: u64, allowed: u64) -> Refusal {
    Refusal::AccountQuotaExceeded {
        account: account.into(),
        limit,
        needed,
        allowed,
    }
}

fn in_catalogue(result: Result<Outcome, Refusal>) -> Decision {
    Decision {
        result,
        scope: Scope::Catalogue,
    }
}
