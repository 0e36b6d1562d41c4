//! The accounts in the log, as one of the two kinds of principals.

use kew_broker::Broker;
use kew_engine::{AccountQuota, AccountRecord, AccountSecret, Command, Outcome};
use kew_principals::{Key, Kind, PrincipalError, Principals, Step, WhichKey};

use crate::accounts::{Account, AccountKey, Accounts, ServedAccounts};

/// The accounts of the log, and the way to change them.
pub type AccountStore = Principals<StorageAccounts>;

/// Accounts of Queue Storage: how the log keeps them, and what is served of them.
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
        let (records, ()) = kind.read(&()).await?;
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

    async fn submit(&self, command: Command) -> Result<(), PrincipalError> {
        let done = self.broker.submit(command).await;
        done.map(|_| ()).map_err(PrincipalError::of_change)
    }

    /// Removes an account that is served no more while it is being removed: otherwise a request could make a
    /// queue in between, and that queue would stay.
    async fn remove(&self, name: &str, with_queues: bool) -> Result<(), PrincipalError> {
        let before = self.served.snapshot();
        let mut without = Accounts::clone(&before);
        without.remove(name);
        self.served.replace(without);
        let command = Command::RemoveAccount {
            account: name.into(),
            with_queues,
        };
        let removed = self.submit(command).await;
        if removed.is_err() {
            self.served.replace(before);
        }
        removed
    }
}

impl Kind for StorageAccounts {
    type Principal = AccountRecord;
    /// All accounts have one scope.
    type Scope = ();
    type Snapshot = Accounts;
    type Rest = ();
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

    fn note_modified(&self, _: &mut AccountRecord) {}

    fn check_name(name: &str) -> Result<(), PrincipalError> {
        if name == Accounts::WELL_KNOWN_NAME {
            return Err(PrincipalError::WellKnown { name: name.into() });
        }
        Ok(())
    }

    async fn read(&self, (): &()) -> Result<(Vec<AccountRecord>, ()), PrincipalError> {
        let answer = self.broker.submit(Command::ListAccounts).await;
        match answer.map_err(PrincipalError::of_read)?.outcome {
            Outcome::Accounts(accounts) => Ok((accounts, ())),
            _ => Err(PrincipalError::internal(
                "the broker did not list its accounts",
            )),
        }
    }

    fn next(
        &self,
        (): &(),
        _: &[AccountRecord],
        step: &Step<'_, Self>,
    ) -> Result<Option<Accounts>, PrincipalError> {
        let mut accounts = Accounts::clone(&self.served.snapshot());
        match step {
            Step::Add(record) | Step::Replace(record) => {
                accounts.insert(Account::of_record(record).map_err(PrincipalError::invalid)?);
            }
            Step::Remove(name, _) => accounts.remove(name),
        }
        Ok(Some(accounts))
    }

    async fn save(
        &self,
        (): (),
        _: &[AccountRecord],
        step: &Step<'_, Self>,
    ) -> Result<(), PrincipalError> {
        let put = |account: &AccountRecord, is_new| Command::PutAccount {
            account: account.clone(),
            is_new,
        };
        match step {
            Step::Add(account) => self.submit(put(account, true)).await,
            Step::Replace(account) => self.submit(put(account, false)).await,
            Step::Remove(name, with_queues) => self.remove(name, *with_queues).await,
        }
    }
}

/// A key as the log keeps it.
fn secret_of(key: &Key) -> AccountSecret {
    AccountSecret::new(key.as_bytes()).expect("a key has 16 to 64 bytes")
}
