//! The one place that changes principals.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kew_broker::{Epoch, Ownership, Rejection};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::sleep;

use crate::error::PrincipalError;
use crate::key::{Key, WhichKey};
use crate::served::{InForce, Served, Weakly};

/// A kind of principals: how they are stored, and the snapshot that requests are judged by.
pub trait Kind: Send + Sync + Sized + 'static {
    /// A principal as it is stored.
    type Principal: Clone + Send + Sync;
    /// Where a name is looked up.
    type Scope: Debug + Send + Sync;
    /// The data that requests are judged by.
    type Snapshot: Send + Sync;
    /// How a principal is removed, such as with its queues.
    type Removal: Copy + Debug + Send + Sync;

    /// The noun for one in messages.
    const NOUN: &'static str;

    /// Its name.
    fn name(principal: &Self::Principal) -> &str;

    /// Whether it has this name.
    fn is_named(principal: &Self::Principal, name: &str) -> bool;

    /// One of its keys, as clients write it.
    fn key(principal: &Self::Principal, which: WhichKey) -> Box<str>;

    /// Replaces one of its keys.
    fn set_key(principal: &mut Self::Principal, which: WhichKey, key: &Key);

    /// Refuses names that are not administered.
    fn check_name(_name: &str) -> Result<(), PrincipalError> {
        Ok(())
    }

    /// Notes that a principal is changed now.
    fn note_modified(&self, _principal: &mut Self::Principal) {}

    /// With which epoch the log is owned that has the principals.
    fn ownership(&self) -> &Arc<Ownership>;

    /// Reads the data that requests are judged by, as they are in this epoch.
    fn snapshot(
        &self,
        epoch: Epoch,
    ) -> impl Future<Output = Result<Self::Snapshot, PrincipalError>> + Send;

    /// Reads the principals of a scope, as they are in this epoch.
    fn read(
        &self,
        epoch: Epoch,
        scope: &Self::Scope,
    ) -> impl Future<Output = Result<Vec<Self::Principal>, PrincipalError>> + Send;

    /// What is in force while a step becomes durable. `None` if it is what was in force `before`.
    fn meanwhile(_before: &Self::Snapshot, _step: &Step<'_, Self>) -> Option<Self::Snapshot> {
        None
    }

    /// Checks the principals of a scope after a step, and makes the step durable within this epoch. Returns the snapshot
    /// that follows on the one `before`, or `None` if it stays the same.
    fn save(
        &self,
        epoch: Epoch,
        before: &Self::Snapshot,
        scope: &Self::Scope,
        all: Vec<Self::Principal>,
        step: Step<'_, Self>,
    ) -> impl Future<Output = Result<Option<Self::Snapshot>, PrincipalError>> + Send;
}

/// One change.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a, K: Kind> {
    /// This one is new.
    Add(&'a K::Principal),
    /// This one takes the place of the one with its name.
    Replace(&'a K::Principal),
    /// The one with this name is removed.
    Remove(&'a str, K::Removal),
}

/// The principals of a kind, and the way to change them.
///
/// A change must run to its end. A cancelled change may be durable and not in force. A caller that may be
/// cancelled runs it in a task of its own.
#[derive(Debug)]
pub struct Principals<K: Kind> {
    store: Arc<Store<K>>,
    served: Served<K::Snapshot>,
}

#[derive(Debug)]
struct Store<K> {
    kind: K,
    /// Held while principals are changed, or read to put them in force.
    changing: Mutex<()>,
}

impl<K: Kind> Principals<K> {
    /// Reads the principals of the log and puts them in force, and does so again in each later epoch and after a change whose
    /// outcome is unknown, as long as anybody is `served`. To be called within a runtime of Tokio.
    pub async fn open(kind: K, served: Served<K::Snapshot>) -> Result<Self, PrincipalError> {
        served.begin(Arc::clone(kind.ownership()));
        let store = Arc::new(Store {
            kind,
            changing: Mutex::default(),
        });
        let epoch = {
            let _changing = store.changing.lock().await;
            store.current(&served).await?.0
        };
        let (kept, weakly, news) = (Arc::clone(&store), served.downgrade(), served.news());
        tokio::spawn(keep_current(kept, weakly, news, epoch));
        Ok(Self { store, served })
    }

    /// The snapshot that is in force, once it is read: see [`Served::current`].
    pub async fn current(&self) -> Result<InForce<K::Snapshot>, Rejection> {
        self.served.current().await
    }

    /// The same, if it is read.
    pub fn in_force(&self) -> Option<InForce<K::Snapshot>> {
        self.served.in_force()
    }

    /// The last snapshot. It is perhaps not in force, so no request is judged by it.
    pub fn served(&self) -> Arc<K::Snapshot> {
        self.served.snapshot()
    }

    /// Reports every change from now on.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.served.watch()
    }

    /// Reports a change that another part has made, under [`Self::lock`].
    pub fn note_change(&self) {
        self.served.note_change();
    }

    /// Waits for the changes in progress, and blocks others. For other parts that change data stored together with
    /// principals.
    pub async fn lock(&self) -> MutexGuard<'_, ()> {
        self.store.changing.lock().await
    }

    /// The principals of a scope.
    pub async fn list(&self, scope: &K::Scope) -> Result<Vec<K::Principal>, PrincipalError> {
        self.store.kind.read(self.store.epoch()?, scope).await
    }

    /// The principal of that name.
    pub async fn find(&self, scope: &K::Scope, name: &str) -> Result<K::Principal, PrincipalError> {
        K::check_name(name)?;
        let mut all = self.list(scope).await?.into_iter();
        let found = all.find(|it| K::is_named(it, name));
        found.ok_or_else(|| not_found::<K>(name))
    }

    /// Adds a principal. It is durable and in force when this returns, as after every change.
    pub async fn add(
        &self,
        scope: &K::Scope,
        principal: K::Principal,
    ) -> Result<K::Principal, PrincipalError> {
        let name = K::name(&principal);
        K::check_name(name)?;
        let _changing = self.lock().await;
        let (epoch, before) = self.store.current(&self.served).await?;
        let mut all = self.store.kind.read(epoch, scope).await?;
        if all.iter().any(|it| K::is_named(it, name)) {
            return Err(PrincipalError::Exists(K::NOUN, name.into()));
        }
        all.push(principal.clone());
        self.save(epoch, before, scope, all, Step::Add(&principal))
            .await?;
        Ok(principal)
    }

    /// Replaces a key by a new one. The old key has stopped working when this returns.
    pub async fn rotate(
        &self,
        scope: &K::Scope,
        name: &str,
        which: WhichKey,
    ) -> Result<K::Principal, PrincipalError> {
        let key = Key::generate()?;
        self.change(scope, name, |principal| {
            K::set_key(principal, which, &key);
        })
        .await
    }

    /// Changes the settings of a principal, which are all but its name and its keys.
    pub async fn change(
        &self,
        scope: &K::Scope,
        name: &str,
        change: impl FnOnce(&mut K::Principal) + Send,
    ) -> Result<K::Principal, PrincipalError> {
        K::check_name(name)?;
        let _changing = self.lock().await;
        let (epoch, before) = self.store.current(&self.served).await?;
        let mut all = self.store.kind.read(epoch, scope).await?;
        let found = all.iter_mut().find(|it| K::is_named(it, name));
        let found = found.ok_or_else(|| not_found::<K>(name))?;
        change(found);
        self.store.kind.note_modified(found);
        let changed = found.clone();
        let step = Step::Replace(&changed);
        self.save(epoch, before, scope, all, step).await?;
        Ok(changed)
    }

    /// Removes a principal. Its keys have stopped working when this returns.
    pub async fn remove(
        &self,
        scope: &K::Scope,
        name: &str,
        removal: K::Removal,
    ) -> Result<(), PrincipalError> {
        K::check_name(name)?;
        let _changing = self.lock().await;
        let (epoch, before) = self.store.current(&self.served).await?;
        let mut all = self.store.kind.read(epoch, scope).await?;
        let at = all.iter().position(|it| K::is_named(it, name));
        let removed = all.remove(at.ok_or_else(|| not_found::<K>(name))?);
        let step = Step::Remove(K::name(&removed), removal);
        self.save(epoch, before, scope, all, step).await
    }

    async fn save(
        &self,
        epoch: Epoch,
        before: InForce<K::Snapshot>,
        scope: &K::Scope,
        all: Vec<K::Principal>,
        step: Step<'_, K>,
    ) -> Result<(), PrincipalError> {
        let meanwhile = K::meanwhile(&before, &step);
        let differs = meanwhile.is_some();
        if let Some(meanwhile) = meanwhile {
            self.served.put(meanwhile, epoch);
        }
        let saved = self.store.kind.save(epoch, &before, scope, all, step).await;
        match saved {
            Ok(Some(next)) => self.served.put(next, epoch),
            Ok(None) => {}
            Err(PrincipalError::Unknown) => {
                // Nothing is judged by principals that are perhaps not there.
                self.served.forget();
                self.served.note_change();
                return Err(PrincipalError::Unknown);
            }
            Err(error) => {
                if differs {
                    self.served.put(before.into_snapshot(), epoch);
                }
                return Err(error);
            }
        }
        self.served.note_change();
        Ok(())
    }
}

impl<K: Kind> Store<K> {
    fn epoch(&self) -> Result<Epoch, PrincipalError> {
        let epoch = self.kind.ownership().epoch();
        epoch.ok_or_else(|| PrincipalError::of_read(Rejection::NotOwner))
    }

    /// What is in force, and in which epoch. It is read anew before, if it has to be. To be called while changes are blocked.
    async fn current(
        &self,
        served: &Served<K::Snapshot>,
    ) -> Result<(Epoch, InForce<K::Snapshot>), PrincipalError> {
        let epoch = self.epoch()?;
        if served.in_force().is_none() {
            served.put(self.kind.snapshot(epoch).await?, epoch);
        }
        let in_force = served.in_force().filter(|it| it.epoch() == Some(epoch));
        // Otherwise another epoch has begun meanwhile.
        let in_force = in_force.ok_or_else(|| PrincipalError::of_read(Rejection::NotOwner))?;
        Ok((epoch, in_force))
    }
}

/// How long a busy partition is left alone before the principals are read again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// The same, after another error.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Longer than any wait that ends by itself.
const DAY: Duration = Duration::from_secs(86_400);

/// Reads principals anew whenever those that are served are not in force, as long as they are served.
async fn keep_current<K: Kind>(
    store: Arc<Store<K>>,
    served: Weakly<K::Snapshot>,
    mut news: watch::Receiver<()>,
    mut begun: Epoch,
) {
    let mut owners = store.kind.ownership().watch();
    loop {
        news.borrow_and_update();
        let epoch = *owners.borrow_and_update();
        let Some(served_now) = served.upgrade() else {
            return;
        };
        if let Some(epoch) = epoch.filter(|epoch| *epoch != begun) {
            // Other owners may have changed what a connection was judged by. It is judged again by what is read now.
            begun = epoch;
            served_now.note_change();
        }
        let pause = store.read_if_old(&served_now).await;
        drop(served_now);
        tokio::select! {
            told = news.changed() => if told.is_err() {
                return;
            },
            _ = owners.changed() => {}
            () = sleep(pause) => {}
        }
    }
}

impl<K: Kind> Store<K> {
    /// Returns when to look again.
    async fn read_if_old(&self, served: &Served<K::Snapshot>) -> Duration {
        if served.in_force().is_some() || self.epoch().is_err() {
            return DAY;
        }
        let _changing = self.changing.lock().await;
        match self.current(served).await {
            Ok(_) => DAY,
            Err(PrincipalError::Busy) => BUSY_PAUSE,
            // It does not run again.
            Err(PrincipalError::Stopped) => DAY,
            Err(error) => {
                tracing::error!(
                    %error,
                    "the {}s cannot be read anew: requests are refused as busy until they are",
                    K::NOUN
                );
                ERROR_PAUSE
            }
        }
    }
}

fn not_found<K: Kind>(name: &str) -> PrincipalError {
    PrincipalError::NotFound(K::NOUN, name.into())
}

#[cfg(test)]
mod tests;
