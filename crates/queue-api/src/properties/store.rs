//! Reads and writes properties, and caches the CORS rules.
//!
//! Every request of a page needs the rules, so they are read once, and replaced when they are set.
//! One lock for each account orders its changes, and the first read among them, so that the cached
//! rules are the stored ones. Reading the cache does not wait for that lock. Rules are cached for
//! the epoch of the log in which they were read, because another owner may set others. If an
//! account is changed, or removed and added again, its rules are read again: a new account must not
//! get the rules of an old one with the same name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kew_broker::{Broker, Epoch, Rejection};
use kew_engine::{Command, Outcome, Service};
use tokio::sync::Mutex as AsyncMutex;

use super::{Change, Properties};
use crate::cors::CorsRule;
use crate::error::Error;
use crate::version::Version;

/// The current rules of an account.
type Rules = Arc<[CorsRule]>;

/// Rules, the account that they were read for (the same name and the same object in memory), and
/// the epoch of the log in which they were read.
struct Remembered {
    account: Arc<str>,
    epoch: Epoch,
    rules: Rules,
}

/// The cache, and the way to the broker.
#[derive(Default)]
pub(crate) struct PropertyStore {
    accounts: Mutex<HashMap<Arc<str>, Arc<Entry>>>,
}

#[derive(Default)]
struct Entry {
    /// `None` until the first read, and after a change with an unknown outcome.
    remembered: Mutex<Option<Remembered>>,
    /// Held while properties are changed, or read for the cache.
    turn: Arc<AsyncMutex<()>>,
}

impl PropertyStore {
    /// The account's properties. `within` an epoch, if there is one.
    pub(crate) async fn read(
        broker: &Broker,
        within: Option<Epoch>,
        account: &Arc<str>,
    ) -> Result<Properties, Error> {
        let command = Command::ReadServiceProperties {
            service: Service::QueueStorage,
            account: account.clone(),
        };
        match broker.submit_within(within, command).await {
            Ok(answer) => match answer.outcome {
                Outcome::ServiceProperties(None) => Ok(Properties::default()),
                Outcome::ServiceProperties(Some(stored)) => Properties::from_stored(&stored)
                    .map_err(|error| {
                        tracing::error!(?error, "the stored properties cannot be read");
                        Error::InternalError
                    }),
                _ => Err(Error::InternalError),
            },
            Err(rejection) => Err(refused(rejection)),
        }
    }

    /// The account's rules for browsers.
    pub(crate) async fn rules(&self, broker: &Broker, account: &Arc<str>) -> Result<Rules, Error> {
        let entry = self.entry(account);
        if let Some(rules) = entry.known(account, present(broker)?) {
            return Ok(rules);
        }
        let _turn = entry.turn.lock().await;
        let epoch = present(broker)?;
        if let Some(rules) = entry.known(account, epoch) {
            return Ok(rules);
        }
        let properties = Self::read(broker, Some(epoch), account).await?;
        Ok(entry.remember(account, epoch, properties))
    }

    /// Changes the account's properties, `within` an epoch, if there is one. They are read and set in
    /// the same epoch, so that nothing is set again that another owner has removed.
    ///
    /// Once it has begun it runs to its end, even if its caller was dropped: the cache must follow the
    /// stored properties.
    pub(crate) async fn change(
        &self,
        broker: &Broker,
        within: Option<Epoch>,
        account: &Arc<str>,
        change: Change,
    ) -> Result<(), Error> {
        let epoch = within.map_or_else(|| present(broker), Ok)?;
        let entry = self.entry(account);
        let turn = Arc::clone(&entry.turn).lock_owned().await;
        let (broker, account) = (broker.clone(), account.clone());
        let task = tokio::spawn(async move {
            let _turn = turn;
            let mut properties = Self::read(&broker, Some(epoch), &account).await?;
            properties.apply(change);
            let command = Command::SetServiceProperties {
                service: Service::QueueStorage,
                account: account.clone(),
                properties: stored(&properties),
            };
            match broker.submit_within(Some(epoch), command).await {
                Ok(answer) => match answer.outcome {
                    Outcome::ServicePropertiesSet => {
                        entry.remember(&account, epoch, properties);
                        Ok(())
                    }
                    _ => Err(Error::InternalError),
                },
                Err(rejection) => {
                    if matches!(rejection, Rejection::Stopped | Rejection::Unknown) {
                        entry.forget();
                    }
                    Err(refused(rejection))
                }
            }
        });
        task.await.unwrap_or(Err(Error::InternalError))
    }

    fn entry(&self, account: &Arc<str>) -> Arc<Entry> {
        Arc::clone(lock(&self.accounts).entry(account.clone()).or_default())
    }
}

impl Entry {
    fn known(&self, account: &Arc<str>, epoch: Epoch) -> Option<Rules> {
        let remembered = lock(&self.remembered);
        let remembered = remembered.as_ref()?;
        let is_known = Arc::ptr_eq(&remembered.account, account) && remembered.epoch == epoch;
        is_known.then(|| remembered.rules.clone())
    }

    fn remember(&self, account: &Arc<str>, epoch: Epoch, properties: Properties) -> Rules {
        let rules = Rules::from(properties.cors);
        *lock(&self.remembered) = Some(Remembered {
            account: account.clone(),
            epoch,
            rules: rules.clone(),
        });
        rules
    }

    fn forget(&self) {
        *lock(&self.remembered) = None;
    }
}

/// The epoch with which the log is owned. Without an owner nothing is known.
fn present(broker: &Broker) -> Result<Epoch, Error> {
    let epoch = broker.ownership().epoch();
    epoch.ok_or_else(|| refused(Rejection::NotOwner))
}

fn stored(properties: &Properties) -> Bytes {
    properties.document(Version::NEWEST).freeze()
}

fn refused(rejection: Rejection) -> Error {
    Error::of_rejection(rejection, Version::NEWEST)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
