//! Accounts, and the properties of their services.

use std::sync::Arc;

use bytes::Bytes;

use super::{Decision, Turn, in_catalogue};
use crate::catalogue::AccountRecord;
use crate::event::Fact;
use crate::outcome::{Outcome, Refusal};
use crate::vocabulary::Service;

impl Turn<'_> {
    pub(super) fn put_account(&mut self, account: AccountRecord, is_new: bool) -> Decision {
        let name = Box::from(&*account.name);
        let result = match (
            self.state.catalogue.accounts.contains_key(&account.name),
            is_new,
        ) {
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
        let queues = self.state.usage_of(&account).queues;
        let name = Box::from(&*account);
        let result = if !self.state.catalogue.accounts.contains_key(&account) {
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
        let accounts = self.state.catalogue.accounts.values().cloned().collect();
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
        let properties = self
            .state
            .catalogue
            .service_properties
            .get(&(service, account));
        in_catalogue(Ok(Outcome::ServiceProperties(properties.cloned())))
    }
}
