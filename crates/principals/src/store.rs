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
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
        ownership: Arc<Ownership>,
        durable: StdMutex<Vec<Principal>>,
        may_save: Semaphore,
        /// How the next steps end.
        outcome: StdMutex<Outcome>,
        /// How often it was read to be in force.
        reads: AtomicUsize,
        is_busy: AtomicBool,
    }

    #[derive(Clone, Copy, Debug)]
    enum Outcome {
        Saved,
        Busy,
        /// Unknown, and in truth saved.
        Made,
        /// Unknown, and in truth not saved.
        NotMade,
    }

    impl Kept {
        fn end(&self, outcome: Outcome) {
            *self.outcome.lock().unwrap() = outcome;
        }

        /// Another owner changes the principals. Then the log has this epoch.
        fn hand_over(&self, epoch: u64, change: impl FnOnce(&mut Vec<Principal>)) {
            self.ownership.set(None);
            change(&mut self.durable.lock().unwrap());
            self.ownership.set(Some(Epoch::new(epoch)));
        }

        fn check_epoch(&self, epoch: Epoch) -> Result<(), PrincipalError> {
            match self.ownership.epoch() == Some(epoch) {
                true => Ok(()),
                false => Err(PrincipalError::of_change(Rejection::NotOwner)),
            }
        }
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

        fn ownership(&self) -> &Arc<Ownership> {
            &self.ownership
        }

        async fn snapshot(&self, epoch: Epoch) -> Result<Vec<Principal>, PrincipalError> {
            if self.is_busy.load(Ordering::Relaxed) {
                return Err(PrincipalError::Busy);
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.read(epoch, &()).await
        }

        async fn read(&self, epoch: Epoch, (): &()) -> Result<Vec<Principal>, PrincipalError> {
            self.check_epoch(epoch)?;
            Ok(self.durable.lock().unwrap().clone())
        }

        async fn save(
            &self,
            epoch: Epoch,
            _: &Vec<Principal>,
            (): &(),
            all: Vec<Principal>,
            _: Step<'_, Self>,
        ) -> Result<Option<Vec<Principal>>, PrincipalError> {
            self.may_save.acquire().await.unwrap().forget();
            self.check_epoch(epoch)?;
            let outcome = *self.outcome.lock().unwrap();
            if let Outcome::Saved | Outcome::Made = outcome {
                self.durable.lock().unwrap().clone_from(&all);
            }
            match outcome {
                Outcome::Saved => Ok(Some(all)),
                Outcome::Busy => Err(PrincipalError::Busy),
                Outcome::Made | Outcome::NotMade => Err(PrincipalError::Unknown),
            }
        }
    }

    async fn store() -> (Arc<Kept>, Arc<Principals<Arc<Kept>>>) {
        let ownership = Ownership::default();
        ownership.set(Some(Epoch::new(1)));
        let kept = Arc::new(Kept {
            ownership: Arc::new(ownership),
            durable: StdMutex::default(),
            may_save: Semaphore::new(0),
            outcome: StdMutex::new(Outcome::Saved),
            reads: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
        });
        let store = Principals::open(Arc::clone(&kept), Served::default());
        (kept, Arc::new(store.await.unwrap()))
    }

    fn names(all: &[Principal]) -> Vec<&str> {
        all.iter().map(|it| &*it.name).collect()
    }

    #[tokio::test]
    async fn a_change_is_in_force_once_it_is_durable_and_before_the_next_one() {
        let (kept, store) = store().await;
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
        let (kept, store) = store().await;
        kept.may_save.add_permits(10);
        store.add(&(), principal("a")).await.unwrap();
        kept.end(Outcome::Busy);
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
        let (kept, store) = store().await;
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
        let (_, store) = store().await;
        for refused in [
            store.add(&(), principal("public")).await.unwrap_err(),
            store.find(&(), "public").await.unwrap_err(),
            store.change(&(), "public", |_| ()).await.unwrap_err(),
            store.remove(&(), "public", ()).await.unwrap_err(),
        ] {
            assert!(matches!(refused, PrincipalError::WellKnown(_)));
        }
    }

    #[tokio::test]
    async fn in_a_later_epoch_nothing_is_in_force_until_it_is_read_anew() {
        let (kept, store) = store().await;
        kept.may_save.add_permits(10);
        store.add(&(), principal("a")).await.unwrap();
        assert_eq!(names(&store.current().await.unwrap()), ["a"]);
        assert_eq!(kept.reads.load(Ordering::Relaxed), 1);
        let mut changes = store.watch();
        kept.ownership.set(None);
        assert!(store.in_force().is_none());
        let refused = store.current().await.unwrap_err();
        assert_eq!(refused, Rejection::NotOwner);
        let refused = store.add(&(), principal("b")).await;
        assert!(matches!(refused, Err(PrincipalError::Busy)));
        // Connections go on with what they have: nothing is carried out for them.
        assert!(!changes.has_changed().unwrap());

        kept.hand_over(2, |all| *all = vec![principal("c")]);
        assert!(store.in_force().is_none());
        let current = store.current().await.unwrap();
        assert_eq!(names(&current), ["c"]);
        assert_eq!(current.epoch(), Some(Epoch::new(2)));
        changes.changed().await.unwrap();
        // Once, and for all.
        assert!(store.in_force().unwrap().is(&current));
        assert_eq!(kept.reads.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_log_is_asked_again_and_nobody_is_judged_meanwhile() {
        let (kept, store) = store().await;
        kept.is_busy.store(true, Ordering::Relaxed);
        kept.hand_over(2, |all| all.push(principal("a")));
        assert_eq!(store.current().await.unwrap_err(), Rejection::Busy);
        let refused = store.remove(&(), "a", ()).await;
        assert!(matches!(refused, Err(PrincipalError::Busy)));
        kept.is_busy.store(false, Ordering::Relaxed);
        assert_eq!(names(&store.current().await.unwrap()), ["a"]);
    }

    #[tokio::test]
    async fn after_an_unknown_outcome_the_log_says_what_is_in_force() {
        for (outcome, expected) in [(Outcome::Made, &["b"][..]), (Outcome::NotMade, &["a", "b"])] {
            let (kept, store) = store().await;
            kept.may_save.add_permits(10);
            for name in ["a", "b"] {
                store.add(&(), principal(name)).await.unwrap();
            }
            let mut changes = store.watch();
            kept.end(outcome);
            let unknown = store.remove(&(), "a", ()).await;
            assert!(matches!(unknown, Err(PrincipalError::Unknown)));
            assert!(store.in_force().is_none());
            assert_eq!(names(&store.current().await.unwrap()), expected);
            changes.changed().await.unwrap();
            // The next change does not bring back what was removed.
            kept.end(Outcome::Saved);
            store.add(&(), principal("c")).await.unwrap();
            let all = [expected, &["c"]].concat();
            assert_eq!(names(&store.current().await.unwrap()), all);
            assert_eq!(names(&kept.durable.lock().unwrap()), all);
        }
    }

    /// A change that has read its principals and then waits while another owner removes one of them.
    #[tokio::test]
    async fn a_change_does_not_write_back_what_another_owner_has_removed() {
        let (kept, store) = store().await;
        kept.may_save.add_permits(2);
        for name in ["a", "b"] {
            store.add(&(), principal(name)).await.unwrap();
        }
        let adding = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.add(&(), principal("c")).await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        kept.hand_over(2, |all| all.retain(|it| it.name != "a"));
        kept.may_save.add_permits(10);
        let refused = adding.await.unwrap();
        assert!(matches!(refused, Err(PrincipalError::Busy)));
        store.add(&(), principal("c")).await.unwrap();
        assert_eq!(names(&kept.durable.lock().unwrap()), ["b", "c"]);
        assert_eq!(names(&store.current().await.unwrap()), ["b", "c"]);
    }

    #[tokio::test]
    async fn nothing_is_read_once_nobody_is_served() {
        let (kept, store) = store().await;
        let weakly = store.served.downgrade();
        drop(store);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(weakly.upgrade().is_none());
        assert_eq!(Arc::strong_count(&kept), 1, "its task has ended");
    }
}
