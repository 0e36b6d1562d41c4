//! The accounts in the log, one of the two kinds of principals.

use kew_broker::Broker;
use kew_engine::{AccountQuota, AccountRecord, AccountSecret, Command, Outcome};
use kew_principals::{Key, Kind, PrincipalError, Principals, Step, WhichKey};

use crate::accounts::{Account, AccountKey, Accounts, ServedAccounts};

/// The accounts of the log, and the way to change them.
pub type AccountStore = Principals<StorageAccounts>;

/// Accounts of Queue Storage: how the log stores them, and the snapshot that requests are judged by.
#[derive(Debug)]
pub struct StorageAccounts {
    broker: Broker,
    served: ServedAccounts,
}

impl StorageAccounts {
    /// Reads the accounts of the log and serves them from now on. With `well_known`, also serves the
    /// account whose key is public, to connections that may use it.
    pub async fn open(
        broker: Broker,
        served: ServedAccounts,
        well_known: bool,
    ) -> Result<AccountStore, PrincipalError> {
        let kind = Self {
            broker,
            served: served.clone(),
        };
        let records = kind.read(&()).await?;
        let mut accounts = if well_known {
            Accounts::well_known()
        } else {
            Accounts::default()
        };
        for record in &records {
            accounts.insert(Account::of_record(record).map_err(PrincipalError::invalid)?);
        }
        served.replace(accounts);
        Ok(Principals::new(kind, served))
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

    async fn read(&self, (): &()) -> Result<Vec<AccountRecord>, PrincipalError> {
        let answer = self.broker.submit(Command::ListAccounts).await;
        match answer.map_err(PrincipalError::of_read)?.outcome {
            Outcome::Accounts(accounts) => Ok(accounts),
            _ => Err(PrincipalError::internal(
                "the broker did not list its accounts",
            )),
        }
    }

    async fn save(
        &self,
        (): &(),
        _: Vec<AccountRecord>,
        step: Step<'_, Self>,
    ) -> Result<Option<Accounts>, PrincipalError> {
        let before = self.served.snapshot();
        let mut next = Accounts::clone(&before);
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
                // An account is not served while it is being removed. Otherwise a request could create a queue
                // meanwhile, and that queue would stay.
                self.served.replace(next.clone());
                Command::RemoveAccount {
                    account: name.into(),
                    with_queues,
                }
            }
        };
        if let Err(rejection) = self.broker.submit(command).await {
            self.served.replace(before);
            return Err(PrincipalError::of_change(rejection));
        }
        Ok(Some(next))
    }
}

/// A key as the log stores it.
fn secret_of(key: &Key) -> AccountSecret {
    AccountSecret::new(key.as_bytes()).expect("a key has 16 to 64 bytes")
}
