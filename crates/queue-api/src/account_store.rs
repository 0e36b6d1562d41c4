//! The accounts in the log, and the one place that changes them.
//!
//! What is served follows what is durable: an answer to a change means that every request from then
//! on is judged by it, on every connection, and that a restart finds it.

use kew_broker::{Broker, Rejection};
use kew_engine::{AccountQuota, AccountRecord, AccountSecret, Command, Outcome, Refusal};
use thiserror::Error;
use tokio::sync::Mutex;

use crate::accounts::{Account, Accounts, InvalidAccount, ServedAccounts};

/// The size of a key that is made here: 256 bits.
const KEY_SIZE_BYTES: usize = 32;

/// One of an account's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyName {
    /// The first.
    Primary,
    /// The second.
    Secondary,
}

/// What is to be different about an account. What is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    /// The most queues, or no limit.
    pub queues_max: Option<Option<u64>>,
    /// The most bytes in messages, or no limit.
    pub size_bytes_max: Option<Option<u64>>,
    /// Whether requests to it are refused.
    pub is_disabled: Option<bool>,
}

/// Why an account was not changed.
#[derive(Debug, Error)]
pub enum AccountError {
    /// No account can be like that.
    #[error(transparent)]
    Invalid(#[from] InvalidAccount),
    /// The name is that of the account whose key is public.
    #[error(
        "account {} has a public key and is not one to add or change",
        Accounts::WELL_KNOWN_NAME
    )]
    WellKnown,
    /// There is one already, or none, or it has queues.
    #[error(transparent)]
    Refused(Refusal),
    /// Nothing has changed; another time it may.
    #[error("too many requests are under way: try again")]
    Busy,
    /// Nothing has changed; it may when there is space.
    #[error("the disk of the server is full: make space, then try again")]
    Full,
    /// Whether anything has changed is unknown.
    #[error("the server is stopping: whether the account was changed is unknown")]
    Stopped,
    /// The system gives no random numbers.
    #[error("cannot make a key: {0}")]
    Random(getrandom::Error),
}

impl From<Rejection> for AccountError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Self::Refused(refusal),
            Rejection::Busy => Self::Busy,
            Rejection::Full => Self::Full,
            // To change an account reads no message.
            Rejection::Stopped | Rejection::Unreadable => Self::Stopped,
        }
    }
}

/// The accounts in the log, and those that are served.
///
/// A change must run to its end: whoever may be interrupted runs it in a task of its own.
#[derive(Debug)]
pub struct AccountStore {
    broker: Broker,
    served: ServedAccounts,
    /// One change at a time.
    changing: Mutex<()>,
}

impl AccountStore {
    /// Reads the accounts of the log, and serves them from now on; with `well_known`, the account
    /// whose key is public too, to connections that may use it.
    pub async fn open(
        broker: Broker,
        served: ServedAccounts,
        well_known: bool,
    ) -> Result<Self, AccountError> {
        let store = Self {
            broker,
            served,
            changing: Mutex::new(()),
        };
        let records = store.list().await?;
        let mut accounts = if well_known {
            Accounts::well_known()
        } else {
            Accounts::default()
        };
        for record in &records {
            accounts.insert(Account::of_record(record)?);
        }
        store.served.replace(accounts);
        Ok(store)
    }

    /// Every account of the log, in the order of their names.
    pub async fn list(&self) -> Result<Vec<AccountRecord>, AccountError> {
        match self.broker.submit(Command::ListAccounts).await?.outcome {
            Outcome::Accounts(accounts) => Ok(accounts),
            _ => Err(AccountError::Stopped),
        }
    }

    /// Adds an account with these keys, or with two new ones.
    pub async fn add(
        &self,
        name: &str,
        quota: AccountQuota,
        keys: Option<[AccountSecret; 2]>,
    ) -> Result<AccountRecord, AccountError> {
        let _changing = self.changing.lock().await;
        let keys = match keys {
            Some(keys) => keys,
            None => [new_key()?, new_key()?],
        };
        let account = AccountRecord {
            name: name.into(),
            keys,
            quota,
            is_disabled: false,
        };
        self.put(account, true).await
    }

    /// Replaces a key by a new one. The old one has stopped working when this returns.
    pub async fn rotate(&self, name: &str, key: KeyName) -> Result<AccountRecord, AccountError> {
        let _changing = self.changing.lock().await;
        let mut account = self.find(name).await?;
        let [primary, secondary] = &mut account.keys;
        match key {
            KeyName::Primary => *primary = new_key()?,
            KeyName::Secondary => *secondary = new_key()?,
        }
        self.put(account, false).await
    }

    /// Changes an account's quota, or whether it is served.
    pub async fn change(
        &self,
        name: &str,
        change: AccountChange,
    ) -> Result<AccountRecord, AccountError> {
        let _changing = self.changing.lock().await;
        let mut account = self.find(name).await?;
        let quota = &mut account.quota;
        quota.queues_max = change.queues_max.unwrap_or(quota.queues_max);
        quota.size_bytes_max = change.size_bytes_max.unwrap_or(quota.size_bytes_max);
        account.is_disabled = change.is_disabled.unwrap_or(account.is_disabled);
        self.put(account, false).await
    }

    /// Removes an account, and with `with_queues` its queues with all in them.
    pub async fn remove(&self, name: &str, with_queues: bool) -> Result<(), AccountError> {
        let _changing = self.changing.lock().await;
        check_name(name)?;
        // Nobody uses it any more before it is gone: a queue that were made in between would stay.
        let before = self.served.take(name);
        let command = Command::RemoveAccount {
            account: name.into(),
            with_queues,
        };
        match self.broker.submit(command).await {
            Ok(_) => Ok(()),
            Err(rejection) => {
                if let Some(account) = before {
                    self.served.put(account);
                }
                Err(rejection.into())
            }
        }
    }

    async fn find(&self, name: &str) -> Result<AccountRecord, AccountError> {
        check_name(name)?;
        let mut accounts = self.list().await?.into_iter();
        let found = accounts.find(|account| *account.name == *name);
        found.ok_or_else(|| {
            AccountError::Refused(Refusal::AccountNotFound {
                account: name.into(),
            })
        })
    }

    async fn put(
        &self,
        account: AccountRecord,
        is_new: bool,
    ) -> Result<AccountRecord, AccountError> {
        check_name(&account.name)?;
        let served = Account::of_record(&account)?;
        let command = Command::PutAccount {
            account: account.clone(),
            is_new,
        };
        self.broker.submit(command).await?;
        self.served.put(served);
        Ok(account)
    }
}

fn check_name(name: &str) -> Result<(), AccountError> {
    if name == Accounts::WELL_KNOWN_NAME {
        return Err(AccountError::WellKnown);
    }
    Ok(())
}

fn new_key() -> Result<AccountSecret, AccountError> {
    let mut bytes = [0; KEY_SIZE_BYTES];
    getrandom::fill(&mut bytes).map_err(AccountError::Random)?;
    Ok(AccountSecret::new(&bytes).expect("32 bytes are a key"))
}
