//! The accounts in the log, one of the two kinds of principals.

use std::sync::Arc;

use kew_broker::{Broker, Epoch, Ownership};
use kew_engine::{AccountQuota, AccountRecord, AccountSecret, Command, Outcome};
use kew_principals::{Key, Kind, PrincipalError, Principals, Step, WhichKey};

use crate::accounts::{Account, AccountKey, Accounts, ServedAccounts};

/// The accounts of the log, and the way to change them.
pub type AccountStore = Principals<StorageAccounts>;

/// Accounts of Queue Storage: how the log stores them, and the snapshot that requests are judged by.
#[derive(Debug)]
pub struct StorageAccounts {
    broker: Broker,
    /// Whether the account whose key is public is served, too.
    well_known: bool,
}

impl StorageAccounts {
    /// Reads the accounts of the log and serves them from now on, anew in each later epoch of the log. With `well_known`,
    /// also serves the account whose key is public, to connections that may use it.
    pub async fn open(
        broker: Broker,
        served: ServedAccounts,
        well_known: bool,
    ) -> Result<AccountStore, PrincipalError> {
        Principals::open(Self { broker, well_known }, served).await
    }

    /// A new account with these keys.
    pub fn record(name: &str, quota: AccountQuota, keys: &[Key; 2]) -> AccountRecord {
        AccountRecord {
            name: name.into(),
            keys: keys.each_ref().map(secret_of),
            quota,
            is_disabled: false,
        }
    }
}

impl Kind for StorageAccounts {
    type Principal = AccountRecord;
    /// All accounts have one scope.
    type Scope = ();
    type Snapshot = Accounts;
    /// Whether the queues of a removed account are deleted with all their messages.
    type Removal = bool;

    const NOUN: &'static str = "account";

    fn name(account: &AccountRecord) -> &str {
        &account.name
    }

    fn is_named(account: &AccountRecord, name: &str) -> bool {
        *account.name == *name
    }

    fn key(account: &AccountRecord, which: WhichKey) -> Box<str> {
        AccountKey::text_of(which.of(account.keys.each_ref()))
    }

    fn set_key(account: &mut AccountRecord, which: WhichKey, key: &Key) {
        *which.of(account.keys.each_mut()) = secret_of(key);
    }

    fn check_name(name: &str) -> Result<(), PrincipalError> {
        if name == Accounts::WELL_KNOWN_NAME {
            return Err(PrincipalError::WellKnown(name.into()));
        }
        Ok(())
    }

    fn ownership(&self) -> &Arc<Ownership> {
        self.broker.ownership()
    }

    async fn snapshot(&self, epoch: Epoch) -> Result<Accounts, PrincipalError> {
        let mut accounts = match self.well_known {
            true => Accounts::well_known(),
            false => Accounts::default(),
        };
        for record in &self.read(epoch, &()).await? {
            accounts.insert(Account::of_record(record).map_err(PrincipalError::invalid)?);
        }
        Ok(accounts)
    }

    async fn read(&self, epoch: Epoch, (): &()) -> Result<Vec<AccountRecord>, PrincipalError> {
        let list = Command::ListAccounts;
        let answer = self.broker.submit_within(Some(epoch), list).await;
        match answer.map_err(PrincipalError::of_read)?.outcome {
            Outcome::Accounts(accounts) => Ok(accounts),
            _ => Err(PrincipalError::internal(
                "the broker did not list its accounts",
            )),
        }
    }

    fn meanwhile(before: &Accounts, step: &Step<'_, Self>) -> Option<Accounts> {
        match step {
            Step::Add(_) | Step::Replace(_) => None,
            // An account is not served while it is being removed. Otherwise a request could create a queue
            // meanwhile, and that queue would stay.
            Step::Remove(name, _) => {
                let mut without = before.clone();
                without.remove(name);
                Some(without)
            }
        }
    }

    async fn save(
        &self,
        epoch: Epoch,
        before: &Accounts,
        (): &(),
        _: Vec<AccountRecord>,
        step: Step<'_, Self>,
    ) -> Result<Option<Accounts>, PrincipalError> {
        let mut next = before.clone();
        let command = match step {
            Step::Add(record) | Step::Replace(record) => {
                next.insert(Account::of_record(record).map_err(PrincipalError::invalid)?);
                Command::PutAccount {
                    account: record.clone(),
                    is_new: matches!(step, Step::Add(_)),
                }
            }
            Step::Remove(name, with_queues) => {
                next.remove(name);
                Command::RemoveAccount {
                    account: name.into(),
                    with_queues,
                }
            }
        };
        let answer = self.broker.submit_within(Some(epoch), command).await;
        answer.map_err(PrincipalError::of_change)?;
        Ok(Some(next))
    }
}

/// A key as the log stores it.
fn secret_of(key: &Key) -> AccountSecret {
    AccountSecret::new(key.as_bytes()).expect("a key has 16 to 64 bytes")
}
