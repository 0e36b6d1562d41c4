//! Stores that fail, stand still, or refuse, and content that is too large.

use bytes::Bytes;
use kew_claim_check::{
    Claim, ClaimCheck, ClaimCheckOptions, ClaimStore, Content, Error, ErrorKind,
};

use crate::store::{Mood, TestStore};

fn large() -> Content {
    let text: String = (0..400).map(|n| format!("{n} ")).collect();
    Content::one("text/plain", text)
}

/// What each operation answers while the store is in this mood.
async fn kinds(mood: Mood) -> [ErrorKind; 4] {
    let store = TestStore::new();
    let claims = store.claim_check();
    let sent = claims.check_in(large()).await.unwrap();
    store.set_mood(mood);
    let kinds = [
        claims.check_in(large()).await.unwrap_err().kind(),
        claims.check_out(&sent.body).await.unwrap_err().kind(),
        claims.release(&sent.claim).await.unwrap_err().kind(),
        claims.sweep(9).await.unwrap_err().kind(),
    ];
    // Nothing is lost.
    store.set_mood(Mood::Well);
    assert_eq!(claims.check_out(&sent.body).await.unwrap().content, large());
    kinds
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_not_one_without_the_object() {
    assert_eq!(kinds(Mood::Failing).await, [ErrorKind::TryAgainLater; 4]);
    assert_eq!(kinds(Mood::Silent).await, [ErrorKind::TryAgainLater; 4]);
    assert_eq!(kinds(Mood::Forbidden).await, [ErrorKind::Refused; 4]);
}

#[tokio::test]
async fn a_missing_object_is_missing() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let sent = claims.check_in(large()).await.unwrap();
    claims.release(&sent.claim).await.unwrap();
    let error = claims.check_out(&sent.body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(
        error.to_string().contains(sent.claim.object().unwrap()),
        "{error}"
    );
    claims.release(&Claim::default()).await.unwrap();
}

#[tokio::test]
async fn a_folder_that_is_gone_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = ClaimStore::folder(file.join("store")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("file/store"), "{error}");
}

#[tokio::test]
async fn content_has_limits() {
    let store = TestStore::new();
    let claims = ClaimCheck::new(
        ClaimStore::new(store.clone()),
        ClaimCheckOptions {
            items_max: 2,
            ..TestStore::options()
        },
    );
    let claims = claims.unwrap();
    let size_max = 1 << 20;
    let refused = |content| async { claims.check_in(content).await.unwrap_err() };
    let error = refused(Content::one("a/b", vec![0; size_max + 1])).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let items = vec![Bytes::from(vec![0; size_max / 2]); 2];
    let error = refused(Content::group("a/b", items)).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let error = refused(Content::group("a/b", vec![Bytes::new(); 3])).await;
    assert!(
        matches!(error, Error::TooManyItems { count: 3, limit: 2 }),
        "{error}"
    );
    for content_type in ["", "a\n", "é", &"a".repeat(256)] {
        let error = refused(Content::one(content_type, "x")).await;
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    assert_eq!(store.operations(), 0);
    let largest = Content::one("a".repeat(255), vec![0; size_max]);
    claims.check_in(largest).await.unwrap();
}

#[test]
fn options_are_checked() {
    for options in [
        ClaimCheckOptions {
            prefix: "a//b".to_owned(),
            ..ClaimCheckOptions::default()
        },
        ClaimCheckOptions {
            level: 20,
            ..ClaimCheckOptions::default()
        },
    ] {
        let error = ClaimCheck::new(ClaimStore::memory(), options).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}
