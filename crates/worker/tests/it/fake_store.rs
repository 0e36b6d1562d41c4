//! A database in memory for the guard: it loses answers, commits late, is busy, and stands still at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_idempotency::{Begun, Key, OutboxMessage, Record, Scope, Store, StoreError, Transaction};
use tokio::time::sleep;

use crate::fake::{LOCK, Service};

/// Outcomes and effects, by business id.
#[derive(Debug, Default)]
struct Tables {
    outcomes: BTreeMap<String, Record>,
    effects: BTreeMap<String, u32>,
    /// Keys of transactions that are open, or whose commit is under way.
    open: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct FakeStore {
    service: Arc<Service>,
    tables: Arc<Mutex<Tables>>,
}

/// An open transaction. What it did is seen after its commit.
#[derive(Debug)]
pub(crate) struct FakeTransaction {
    store: FakeStore,
    key: String,
    has_effect: bool,
    /// Its commit is under way: to drop it changes nothing any more.
    is_committing: bool,
}

impl FakeStore {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: service.clone(),
            tables: Arc::default(),
        }
    }

    /// How often the effect of a message happened.
    pub(crate) fn effects(&self, id: u64) -> u32 {
        let tables = self.tables.lock().unwrap();
        tables.effects.get(&id.to_string()).copied().unwrap_or(0)
    }

    /// An effect as it is without a guard.
    pub(crate) async fn affect(&self, key: &str) {
        self.service.point().await;
        self.happens(key, None);
        self.service.point().await;
    }

    /// It is committed now: all of it, and at once.
    fn happens(&self, key: &str, outcome: Option<Record>) {
        let mut tables = self.tables.lock().unwrap();
        let count = tables.effects.entry(key.to_owned()).or_default();
        *count += 1;
        if *count > 1 {
            let text = format!("the effect of {key} happened {count} times");
            self.service.violates(text);
        }
        self.service.did(key.parse().unwrap());
        if let Some(outcome) = outcome {
            tables.outcomes.insert(key.to_owned(), outcome);
        }
    }

    fn ends(&self, key: &str) {
        self.tables.lock().unwrap().open.remove(key);
    }
}

impl Store for FakeStore {
    type Transaction = FakeTransaction;

    async fn begin(&self, key: &Key) -> Result<Begun<FakeTransaction>, StoreError> {
        self.service.point().await;
        if self.service.strikes(|it| it.busy) {
            return Err(StoreError::later("too many connections"));
        }
        let key = key.id.to_string();
        let begun = {
            let mut tables = self.tables.lock().unwrap();
            if !tables.open.insert(key.clone()) {
                return Err(StoreError::later("another transaction does this work"));
            }
            match tables.outcomes.get(&key).cloned() {
                Some(outcome) => {
                    tables.open.remove(&key);
                    Begun::Recorded(outcome)
                }
                None => Begun::New(FakeTransaction {
                    store: self.clone(),
                    key,
                    has_effect: false,
                    is_committing: false,
                }),
            }
        };
        self.service.point().await;
        match self.service.strikes(|it| it.lost_answer) {
            true => Err(StoreError::later("the connection was lost")),
            false => Ok(begun),
        }
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let tables = self.tables.lock().unwrap();
        Ok(tables.outcomes.get(key.id.as_str()).cloned())
    }

    async fn remove_older_than(&self, _: &Scope, _: Duration, _: u32) -> Result<u64, StoreError> {
        Ok(0)
    }
}

impl FakeTransaction {
    /// The effect that is to happen once.
    pub(crate) async fn affect(&mut self) {
        self.store.service.point().await;
        self.has_effect = true;
        self.store.service.point().await;
    }
}

impl Transaction for FakeTransaction {
    async fn enqueue(&mut self, _: &OutboxMessage) -> Result<(), StoreError> {
        Err(StoreError::refused("it has no outbox"))
    }

    async fn commit(mut self, outcome: Record) -> Result<(), StoreError> {
        let (store, service) = (self.store.clone(), self.store.service.clone());
        service.point().await;
        self.is_committing = true;
        let (key, has_effect) = (self.key.clone(), self.has_effect);
        let late = match service.strikes(|it| it.slow) {
            true => service.random(u64::try_from(LOCK.as_millis()).unwrap()),
            false => 0,
        };
        // The database goes on, also if nobody waits for it any more.
        let committed = tokio::spawn(async move {
            sleep(Duration::from_millis(late)).await;
            assert!(has_effect, "only work that is done is committed");
            store.happens(&key, Some(outcome));
            store.ends(&key);
        });
        committed.await.unwrap();
        service.point().await;
        match service.strikes(|it| it.lost_answer) {
            true => Err(StoreError::unknown("no answer came")),
            false => Ok(()),
        }
    }

    async fn roll_back(self) -> Result<(), StoreError> {
        self.store.service.point().await;
        Ok(())
    }
}

impl Drop for FakeTransaction {
    fn drop(&mut self) {
        if !self.is_committing {
            self.store.ends(&self.key);
        }
    }
}
