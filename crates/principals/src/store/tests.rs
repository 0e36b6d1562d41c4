//! The store on a door of its own: what is in force after a change, and in which epoch.

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
