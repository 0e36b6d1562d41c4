//! Orphans are removed, and nothing else.

use std::fs::File;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use kew_claim_check::{
    ClaimCheck, ClaimCheckOptions, ClaimStore, Content, ErrorKind, Outgoing, Swept,
};

use crate::store::TestStore;

const DAY: Duration = Duration::from_hours(24);

pub(crate) fn large() -> Content {
    let text: String = (0..400).map(|n| format!("{n} ")).collect();
    Content::one("text/plain", text)
}

#[tokio::test]
async fn a_sweep_stops_at_its_limit() {
    let store = TestStore::new();
    let claims = store.claim_check();
    for _ in 0..5 {
        claims.check_in(large()).await.unwrap();
    }
    store.pass(29 * DAY);
    let young = claims.check_in(large()).await.unwrap();
    assert_eq!(claims.sweep(9).await.unwrap().removed, 0);
    store.pass(DAY + Duration::from_secs(1));
    let swept = claims.sweep(2).await.unwrap();
    assert_eq!((swept.removed, swept.has_more), (2, true));
    let swept = claims.sweep(3).await.unwrap();
    assert_eq!((swept.removed, swept.has_more), (3, false));
    assert_eq!(
        claims.sweep(0).await.unwrap(),
        Swept {
            looked_at: 1,
            ..Swept::default()
        }
    );
    assert_eq!(
        claims.check_out(&young.body).await.unwrap().content,
        large()
    );
    // Only the young object is left, and nothing of the sweeps.
    assert_eq!(
        store.only().await.0.filename(),
        young.claim.object().unwrap().split('/').nth(1)
    );
}

#[tokio::test]
async fn a_sweep_leaves_other_objects_alone() {
    let store = TestStore::new();
    let claims = store.claim_check();
    claims.check_in(large()).await.unwrap();
    let (orphan, _) = store.only().await;
    let mut others = vec![
        "claims/readme".into(),
        "claims/2026-01-01/readme".into(),
        format!("claims/old/{}", "0".repeat(32)).into(),
        format!("other/{}", orphan.filename().unwrap()).into(),
    ];
    for other in &others {
        store.replace(other, b"x".to_vec()).await;
    }
    store.pass(400 * DAY);
    assert_eq!(claims.sweep(99).await.unwrap().removed, 1);
    let mut names = store.names().await;
    names.sort();
    others.sort();
    assert_eq!(names, others);
}

#[tokio::test]
async fn a_marker_that_a_sweep_left_is_removed() {
    let store = TestStore::new();
    let claims = store.claim_check();
    store
        .replace(
            &format!("claims/sweep-{}", "0".repeat(32)).into(),
            Vec::new(),
        )
        .await;
    claims.sweep(9).await.unwrap();
    assert_eq!(store.names().await.len(), 1);
    store.pass(31 * DAY);
    claims.sweep(9).await.unwrap();
    assert_eq!(store.names().await, []);
}

/// A day whose folder is young is not even listed, however many objects it has.
#[tokio::test]
async fn young_days_cost_nothing() {
    let store = TestStore::new();
    let claims = store.claim_check();
    for _ in 0..20 {
        claims.check_in(large()).await.unwrap();
    }
    store.pass(28 * DAY);
    assert_eq!(claims.sweep(9).await.unwrap(), Swept::default());
}

#[tokio::test]
async fn a_folder_is_swept_with_its_unfinished_writes() {
    let root = tempfile::tempdir().unwrap();
    let store = ClaimStore::folder(root.path()).unwrap();
    let claims = ClaimCheck::new(store, TestStore::options()).unwrap();
    let old = claims.check_in(large()).await.unwrap();
    let young = claims.check_in(large()).await.unwrap();
    let folder = root.path().join("claims");
    let path = folder.join(old.claim.object().unwrap());
    // The day of the objects, and a process that was killed while it wrote.
    let day = path.parent().unwrap();
    let unfinished = day.join(format!("{}#1", "0".repeat(32)));
    File::create(&unfinished).unwrap();
    let other = day.join("notes#1");
    File::create(&other).unwrap();
    let long_ago = SystemTime::now() - 31 * DAY;
    for path in [&path, &unfinished, &other] {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    // Today's folder is young by its name.
    assert_eq!(claims.sweep(9).await.unwrap(), Swept::default());
    let (old_day, young_day) = (folder.join("2020-01-01"), day);
    std::fs::rename(young_day, &old_day).unwrap();
    let swept = claims.sweep(9).await.unwrap();
    assert_eq!((swept.looked_at, swept.removed), (2, 2));
    let name = young.claim.object().unwrap().split('/').nth(1).unwrap();
    let left = |file: &str| old_day.join(file).exists();
    assert!(left(name) && left("notes#1"));
    assert_eq!(std::fs::read_dir(&old_day).unwrap().count(), 2);

    // The last file of a day takes its folder along.
    std::fs::remove_file(old_day.join("notes#1")).unwrap();
    let file = File::options()
        .write(true)
        .open(old_day.join(name))
        .unwrap();
    file.set_modified(long_ago).unwrap();
    assert_eq!(claims.sweep(9).await.unwrap().removed, 1);
    assert!(!old_day.exists() && folder.exists());
}

#[tokio::test]
async fn two_sweeps_at_once_are_one() {
    let store = TestStore::new();
    let claims = store.claim_check();
    for _ in 0..20 {
        claims.check_in(large()).await.unwrap();
    }
    store.pass(31 * DAY);
    let (one, other) = tokio::join!(claims.sweep(99), claims.sweep(99));
    one.unwrap();
    other.unwrap();
    assert_eq!(store.names().await, []);
}

/// A queue may keep messages forever: then age says nothing, and nothing is removed.
#[tokio::test]
async fn a_sweep_must_know_how_long_messages_live() {
    let store = TestStore::new();
    let options = ClaimCheckOptions {
        message_life: None,
        ..TestStore::options()
    };
    let claims = ClaimCheck::new(ClaimStore::new(store.clone()), options).unwrap();
    let sent = claims.check_in(large()).await.unwrap();
    store.pass(4_000 * DAY);
    let error = claims.sweep(9).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("message_life"), "{error}");
    assert_eq!(claims.check_out(&sent.body).await.unwrap().content, large());
    assert_eq!(ClaimCheckOptions::default().message_life, None);
}

#[tokio::test]
async fn an_object_of_a_buried_message_is_removed_when_its_time_is_over() {
    let store = TestStore::new();
    let with = |buried_life| {
        let options = ClaimCheckOptions {
            buried_life,
            ..TestStore::options()
        };
        ClaimCheck::new(ClaimStore::new(store.clone()), options).unwrap()
    };
    let (claims, forever) = (with(Some(90 * DAY)), with(None));
    let sent = claims.check_in(large()).await.unwrap();
    store.pass(20 * DAY);
    claims.keep(&sent.claim).await.unwrap();
    store.pass(89 * DAY);
    let swept = claims.sweep(9).await.unwrap();
    assert_eq!((swept.removed, swept.kept), (0, 1));
    // Another copy of the message was handled: this one still lies there.
    claims.release(&sent.claim).await.unwrap();
    assert_eq!(claims.check_out(&sent.body).await.unwrap().content, large());
    // It is sent again on its last day among the dead letters, and lives as long as any other message.
    store.pass(30 * DAY);
    assert_eq!(claims.sweep(9).await.unwrap().kept, 1);
    assert_eq!(claims.check_out(&sent.body).await.unwrap().content, large());
    store.pass(2 * DAY);
    assert_eq!(forever.sweep(9).await.unwrap().kept, 1);
    let swept = claims.sweep(9).await.unwrap();
    assert_eq!((swept.removed, swept.kept), (1, 0));
    assert_eq!(store.names().await, []);
}

#[tokio::test]
async fn a_kept_object_is_removed_on_request() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let sent = claims.check_in(large()).await.unwrap();
    claims.keep(&sent.claim).await.unwrap();
    assert_eq!(store.names().await.len(), 2);
    claims.discard(&sent.claim).await.unwrap();
    assert_eq!(store.names().await, []);
    // What does not exist is not kept, and there is nothing to discard.
    claims.keep(&sent.claim).await.unwrap();
    claims.discard(&sent.claim).await.unwrap();
    assert_eq!(store.names().await, []);
}

/// Objects that stay cost no request of their own: those of a year of dead letters would be asked for in each sweep.
#[tokio::test]
async fn a_day_is_listed_once() {
    let store = TestStore::new();
    let claims = store.claim_check();
    for _ in 0..10 {
        let sent = claims.check_in(large()).await.unwrap();
        claims.keep(&sent.claim).await.unwrap();
    }
    store.pass(31 * DAY);
    let before = store.operations();
    assert_eq!(claims.sweep(99).await.unwrap().kept, 10);
    // The store counts each entry of a list. Four more: the clock is read with a marker, and days are listed.
    assert_eq!(store.operations() - before, 4 + 20);
}

/// A mark is all that is left if the object was released while its message was being buried.
#[tokio::test]
async fn a_mark_whose_object_is_gone_is_removed() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let [gone, lies] = [
        claims.check_in(large()).await.unwrap().claim,
        claims.check_in(large()).await.unwrap().claim,
    ];
    store.pass(20 * DAY);
    for claim in [&gone, &lies] {
        claims.keep(claim).await.unwrap();
    }
    let object = format!("claims/{}", gone.object().unwrap());
    store.remove(&object.as_str().into()).await;
    let mark = format!("{object}.kept").into();
    // The mark counts, and not the day of the object.
    store.pass(29 * DAY);
    assert_eq!(claims.sweep(9).await.unwrap().removed, 0);
    assert!(store.names().await.contains(&mark));
    store.pass(2 * DAY);
    let swept = claims.sweep(0).await.unwrap();
    assert_eq!((swept.removed, swept.has_more), (0, true));
    let swept = claims.sweep(9).await.unwrap();
    assert_eq!((swept.removed, swept.kept, swept.has_more), (1, 1, false));
    let left = store.names().await;
    assert!(left.len() == 2 && !left.contains(&mark), "{left:?}");
}

/// Messages are buried while a sweep runs. What it has listed is not what counts, but what is there when it removes.
#[tokio::test]
async fn an_object_that_is_kept_during_a_sweep_stays() {
    for was_kept in [false, true] {
        let store = TestStore::new();
        let options = ClaimCheckOptions {
            buried_life: Some(90 * DAY),
            ..TestStore::options()
        };
        let claims = ClaimCheck::new(ClaimStore::new(store.clone()), options).unwrap();
        let mut sent = Vec::new();
        for _ in 0..2 {
            sent.push(claims.check_in(large()).await.unwrap());
        }
        if was_kept {
            for outgoing in &sent {
                claims.keep(&outgoing.claim).await.unwrap();
            }
        }
        store.pass(121 * DAY);
        let mut sweep = pin!(claims.sweep(9));
        let mut context = Context::from_waker(Waker::noop());
        // The first orphan is gone, so the day is listed. The message of the other one is buried now.
        let other = loop {
            let polled = sweep.as_mut().poll(&mut context);
            assert!(polled.is_pending(), "it ended before");
            let names = store.names().await;
            let is_there = |it: &&Outgoing| {
                let object = format!("claims/{}", it.claim.object().unwrap());
                names.contains(&object.into())
            };
            let left: Vec<_> = sent.iter().filter(is_there).collect();
            if let [other] = left[..] {
                break other;
            }
        };
        claims.keep(&other.claim).await.unwrap();
        let swept = sweep.await.unwrap();
        assert_eq!((swept.removed, swept.kept), (1, 1), "{was_kept}");
        let received = claims.check_out(&other.body).await.unwrap();
        assert_eq!(received.content, large());
    }
}

/// The mark lies beside the object, in the folder of the day.
#[tokio::test]
async fn a_folder_keeps_what_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let store = ClaimStore::folder(root.path()).unwrap();
    let options = ClaimCheckOptions {
        buried_life: Some(90 * DAY),
        ..TestStore::options()
    };
    let claims = ClaimCheck::new(store, options).unwrap();
    let sent = claims.check_in(large()).await.unwrap();
    claims.keep(&sent.claim).await.unwrap();
    let folder = root.path().join("claims");
    let path = folder.join(sent.claim.object().unwrap());
    let mark = path.with_extension("kept");
    assert!(mark.exists(), "{}", mark.display());
    let age = |path: &std::path::Path, days: u32| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - days * DAY).unwrap();
    };
    age(&path, 400);
    let old_day = folder.join("2020-01-01");
    std::fs::rename(path.parent().unwrap(), &old_day).unwrap();
    let swept = claims.sweep(9).await.unwrap();
    assert_eq!((swept.removed, swept.kept), (0, 1));
    age(&old_day.join(mark.file_name().unwrap()), 121);
    assert_eq!(claims.sweep(9).await.unwrap().removed, 1);
    assert!(!old_day.exists());
}
