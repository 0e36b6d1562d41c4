//! What is checked in is checked out.

use kew_claim_check::{
    Body, CONTENT_TYPE, ClaimCheck, ClaimCheckOptions, ClaimStore, Content, Error,
};
use proptest::prelude::*;

use crate::store::TestStore;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

/// Text that compresses well, and bytes that do not.
fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c]{0,5000}".prop_map(String::into_bytes),
        "\\PC{0,300}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..3_000),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    let group = proptest::collection::vec(data(), 0..6);
    prop_oneof![
        data().prop_map(|data| Content::one("text/plain", data)),
        group.prop_map(|items| {
            let items = items.into_iter().map(Into::into).collect();
            Content::group("a/b; charset=utf-8", items)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn content_comes_back(contents in proptest::collection::vec(content(), 1..5)) {
        block_on(async {
            let store = TestStore::new();
            let claims = store.claim_check();
            for content in contents {
                let sent = claims.check_in(content.clone()).await.unwrap();
                assert_eq!(sent.content_type, CONTENT_TYPE);
                assert_eq!(sent.claim.object().is_some(), sent.send_before.is_some());
                if sent.claim.object().is_none() {
                    assert!(sent.body.len() <= TestStore::options().message_size_max_bytes);
                }
                assert_eq!(claims.claim_of(&sent.body).unwrap(), sent.claim);
                let received = claims.check_out(&sent.body).await.unwrap();
                assert_eq!((&received.content, &received.claim), (&content, &sent.claim));
                claims.release(&received.claim).await.unwrap();
                claims.release(&received.claim).await.unwrap();
            }
            assert_eq!(store.names().await, []);
        });
    }
}

/// As large as a user's, on threads for blocking work, in a folder.
#[tokio::test]
async fn large_content_comes_back_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("new/folder");
    let store = ClaimStore::folder(&root).unwrap();
    let claims = ClaimCheck::new(store.clone(), ClaimCheckOptions::default()).unwrap();
    let numbers = (0..1_000_000_u32).flat_map(u32::to_le_bytes);
    let items = vec![numbers.collect::<Vec<u8>>().into(); 2];
    let content = Content::group("application/octet-stream", items);
    let sent = claims.check_in(content.clone()).await.unwrap();
    assert!(sent.body.len() < 400, "{:?}", sent.body);

    // Another process, which has the folder too.
    let other = ClaimStore::folder(&root).unwrap();
    let other = ClaimCheck::new(other, ClaimCheckOptions::default()).unwrap();
    let received = other.check_out(&sent.body).await.unwrap();
    assert!(received.content == content);
    other.release(&received.claim).await.unwrap();
    let missing = claims.check_out(&sent.body).await.unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
}

#[tokio::test]
async fn small_content_is_not_stored_and_stays_readable() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let sent = claims
        .check_in(Content::one("text/plain", "hello"))
        .await
        .unwrap();
    assert_eq!(
        sent.body,
        r#"{"claimCheck":1,"contentType":"text/plain","form":"one","size":5,"encoding":"identity","text":"hello"}"#
    );
    assert_eq!(store.operations(), 0);
    // Larger than a message, but not when it is compressed.
    let sent = claims
        .check_in(Content::one("text/plain", "a".repeat(10_000)))
        .await
        .unwrap();
    assert!(sent.body.len() < 200);
    let received = claims.check_out(&sent.body).await.unwrap();
    assert_eq!(received.content.body, Body::One("a".repeat(10_000).into()));
    assert_eq!(store.operations(), 0);
}

#[tokio::test]
async fn memory_is_a_store() {
    let options = TestStore::options();
    let claims = ClaimCheck::new(ClaimStore::memory(), options).unwrap();
    let data: Vec<u8> = (0..=255)
        .cycle()
        .map(|byte: u8| byte.wrapping_mul(31))
        .take(256)
        .collect();
    let content = Content::one("a/b", [data.as_slice(), b"x"].concat());
    let sent = claims.check_in(content.clone()).await.unwrap();
    assert!(sent.claim.object().is_some());
    assert_eq!(claims.check_out(&sent.body).await.unwrap().content, content);
}

#[tokio::test]
async fn a_group_is_filled_and_sent() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let mut group = claims.new_group();
    let mut pushed = 0;
    while group.push(format!("message {pushed}")).is_ok() {
        pushed += 1;
    }
    assert!(group.size_bytes() <= 1 << 20 && pushed > 10_000);
    let sent = claims
        .check_in(Content::group("text/plain", group.into_items()))
        .await
        .unwrap();
    let received = claims.check_out(&sent.body).await.unwrap();
    let items = received.content.into_items();
    assert_eq!((items.len(), &items[7]), (pushed, &"message 7".into()));
}
