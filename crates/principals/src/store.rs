//! The one place that changes principals.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, watch};

use crate::error::PrincipalError;
use crate::key::{Key, WhichKey};
use crate::served::Served;

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

    /// Reads the principals of a scope.
    fn read(
        &self,
        scope: &Self::Scope,
    ) -> impl Future<Output = Result<Vec<Self::Principal>, PrincipalError>> + Send;

    /// Checks the principals of a scope after a step, and makes the step durable. Returns the new snapshot, or
    /// `None` if the snapshot does not change.
    fn save(
        &self,
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
    kind: K,
    served: Served<K::Snapshot>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl<K: Kind> Principals<K> {
    /// `served` is the current content of the log.
    pub fn new(kind: K, served: Served<K::Snapshot>) -> Self {
        Self {
            kind,
            served,
            changing: Mutex::default(),
        }
    }

    /// The current snapshot.
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
        self.changing.lock().await
    }

    /// The principals of a scope.
    pub async fn list(&self, scope: &K::Scope) -> Result<Vec<K::Principal>, PrincipalError> {
        self.kind.read(scope).await
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
        let mut all = self.kind.read(scope).await?;
        if all.iter().any(|it| K::is_named(it, name)) {
            return Err(PrincipalError::Exists(K::NOUN, name.into()));
        }
        all.push(principal.clone());
        self.save(scope, all, Step::Add(&principal)).await?;
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
        let mut all = self.kind.read(scope).await?;
        let found = all.iter_mut().find(|it| K::is_named(it, name));
        let found = found.ok_or_else(|| not_found::<K>(name))?;
        change(found);
        self.kind.note_modified(found);
        let changed = found.clone();
        self.save(scope, all, Step::Replace(&changed)).await?;
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
        let mut all = self.kind.read(scope).await?;
        let at = all.iter().position(|it| K::is_named(it, name));
        let removed = all.remove(at.ok_or_else(|| not_found::<K>(name))?);
        let step = Step::Remove(K::name(&removed), removal);
        self.save(scope, all, step).await
    }

    async fn save(
        &self,
        scope: &K::Scope,
        all: Vec<K::Principal>,
        step: Step<'_, K>,
    ) -> Result<(), PrincipalError> {
        if let Some(next) = self.kind.save(scope, all, step).await? {
            self.served.replace(next);
        }
        self.served.note_change();
        Ok(())
    }
}

fn not_found<K: Kind>(name: &str) -> PrincipalError {
    PrincipalError::NotFound(K::NOUN, name.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Principal {
        name: String,
        keys: [Box<str>; 2],
        is_modified: bool,
    }

    fn principal(name: &str) -> Principal {
        Principal {
            name: name.into(),
            keys: ["one".into(), "two".into()],
            is_modified: false,
        }
    }

    /// A log that saves a step when the test allows it.
    #[derive(Debug)]
    struct Kept {
        durable: StdMutex<Vec<Principal>>,
        may_save: Semaphore,
        fails: AtomicBool,
    }

    impl Kind for Arc<Kept> {
        type Principal = Principal;
        type Scope = ();
        type Snapshot = Vec<Principal>;
        type Removal = ();

        const NOUN: &'static str = "principal";

        fn name(principal: &Principal) -> &str {
            &principal.name
        }

        fn is_named(principal: &Principal, name: &str) -> bool {
            principal.name == name
        }

        fn key(principal: &Principal, which: WhichKey) -> Box<str> {
            which.of(principal.keys.each_ref()).clone()
        }

        fn set_key(principal: &mut Principal, which: WhichKey, key: &Key) {
            *which.of(principal.keys.each_mut()) = key.to_base64();
        }

        fn note_modified(&self, principal: &mut Principal) {
            principal.is_modified = true;
        }

        fn check_name(name: &str) -> Result<(), PrincipalError> {
            match name {
                "public" => Err(PrincipalError::WellKnown(name.into())),
                _ => Ok(()),
            }
        }

        async fn read(&self, (): &()) -> Result<Vec<Principal>, PrincipalError> {
            Ok(self.durable.lock().unwrap().clone())
        }

        async fn save(
            &self,
            (): &(),
            all: Vec<Principal>,
            _: Step<'_, Self>,
        ) -> Result<Option<Vec<Principal>>, PrincipalError> {
            self.may_save.acquire().await.unwrap().forget();
            if self.fails.load(Ordering::Relaxed) {
                return Err(PrincipalError::Busy);
            }
            self.durable.lock().unwrap().clone_from(&all);
            Ok(Some(all))
        }
    }

    fn store() -> (Arc<Kept>, Arc<Principals<Arc<Kept>>>) {
        let kept = Arc::new(Kept {
            durable: StdMutex::default(),
            may_save: Semaphore::new(0),
            fails: AtomicBool::new(false),
        });
        let store = Principals::new(Arc::clone(&kept), Served::default());
        (kept, Arc::new(store))
    }

    fn names(all: &[Principal]) -> Vec<&str> {
        all.iter().map(|it| &*it.name).collect()
    }

    #[tokio::test]
    async fn a_change_is_in_force_once_it_is_durable_and_before_the_next_one() {
        let (kept, store) = store();
        let mut changes = store.watch();
        let adds = ["a", "b"].map(|name| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.add(&(), principal(name)).await })
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(store.served().is_empty());
        assert!(!changes.has_changed().unwrap());
        for count in [1, 2] {
            kept.may_save.add_permits(1);
            changes.changed().await.unwrap();
            assert_eq!(store.served().len(), count);
            assert_eq!(*store.served(), *kept.durable.lock().unwrap());
        }
        for add in adds {
            add.await.unwrap().unwrap();
        }
        assert_eq!(names(&store.served()), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_change_that_is_not_durable_is_not_in_force() {
        let (kept, store) = store();
        kept.may_save.add_permits(10);
        store.add(&(), principal("a")).await.unwrap();
        kept.fails.store(true, Ordering::Relaxed);
        let changes = store.watch();
        let refused = store.add(&(), principal("b")).await;
        assert!(matches!(refused, Err(PrincipalError::Busy)));
        let refused = store.rotate(&(), "a", WhichKey::Primary).await;
        assert!(matches!(refused, Err(PrincipalError::Busy)));
        let refused = store.remove(&(), "a", ()).await;
        assert!(matches!(refused, Err(PrincipalError::Busy)));
        assert_eq!(*store.served(), [principal("a")]);
        assert!(!changes.has_changed().unwrap());
    }

    #[tokio::test]
    async fn changes_reach_the_principal_of_that_name_only() {
        let (kept, store) = store();
        kept.may_save.add_permits(10);
        for name in ["a", "b"] {
            store.add(&(), principal(name)).await.unwrap();
        }
        let rotated = store.rotate(&(), "b", WhichKey::Secondary).await.unwrap();
        assert_eq!(*rotated.keys[0], *"one");
        assert_eq!(rotated.keys[1].len(), 44);
        assert!(rotated.is_modified);
        assert_eq!(store.find(&(), "b").await.unwrap(), rotated);
        assert_eq!(store.find(&(), "a").await.unwrap(), principal("a"));
        let twice = store.add(&(), principal("a")).await.unwrap_err();
        assert_eq!(twice.to_string(), "principal \"a\" exists already");
        store.remove(&(), "a", ()).await.unwrap();
        assert_eq!(names(&store.list(&()).await.unwrap()), ["b"]);
        for missing in [
            store.remove(&(), "a", ()).await.unwrap_err(),
            store.find(&(), "a").await.unwrap_err(),
            store.change(&(), "a", |_| ()).await.unwrap_err(),
        ] {
            assert_eq!(missing.to_string(), "there is no principal \"a\"");
        }
    }

    #[tokio::test]
    async fn the_principal_with_the_public_key_is_not_administered() {
        let (_, store) = store();
        for refused in [
            store.add(&(), principal("public")).await.unwrap_err(),
            store.find(&(), "public").await.unwrap_err(),
            store.change(&(), "public", |_| ()).await.unwrap_err(),
            store.remove(&(), "public", ()).await.unwrap_err(),
        ] {
            assert!(matches!(refused, PrincipalError::WellKnown(_)));
        }
    }
}
