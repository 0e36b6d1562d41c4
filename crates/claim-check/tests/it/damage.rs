//! Damaged, false and malicious data is never returned.

use bytes::Bytes;
use kew_claim_check::{ClaimCheck, ClaimStore, Content, Error, ErrorKind};
use serde_json::Value;

use crate::store::TestStore;

/// Bytes that do not compress, so that they are stored as they are.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..size).map(|_| next()).collect()
}

/// Some of each: compressed, and not.
fn contents() -> [Content; 3] {
    let text: String = (0..400).map(|n| format!("{n} ")).collect();
    [
        Content::one("text/plain", noise(300)),
        Content::one("text/plain", text.clone()),
        Content::group("text/plain", vec![text.into(), noise(50).into()]),
    ]
}

async fn is_damaged(claims: &ClaimCheck, body: &[u8], what: &str) {
    let error = claims.check_out(body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
}

#[tokio::test]
async fn damage_of_each_byte_of_an_object_is_seen() {
    for content in contents() {
        let store = TestStore::new();
        let claims = store.claim_check();
        let sent = claims.check_in(content.clone()).await.unwrap();
        let (name, bytes) = store.only().await;
        for at in 0..bytes.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                store.replace(&name, damaged).await;
                is_damaged(&claims, &sent.body, &format!("byte {at}")).await;
            }
            store.replace(&name, bytes[..at].to_vec()).await;
            is_damaged(&claims, &sent.body, &format!("cut at {at}")).await;
        }
        store.replace(&name, [&bytes[..], b"x"].concat()).await;
        is_damaged(&claims, &sent.body, "longer").await;
        store.replace(&name, bytes).await;
        assert_eq!(claims.check_out(&sent.body).await.unwrap().content, content);
    }
}

#[tokio::test]
async fn damage_of_a_message_never_yields_other_data() {
    for content in contents() {
        let store = TestStore::new();
        let claims = store.claim_check();
        let sent = claims.check_in(content.clone()).await.unwrap();
        let mut refused = 0;
        for at in 0..sent.body.len() {
            for mask in [0x01, 0x20, 0x80] {
                let mut damaged = sent.body.to_vec();
                damaged[at] ^= mask;
                match claims.check_out(&damaged).await {
                    Ok(received) => assert_eq!(received.content.body, content.body, "byte {at}"),
                    Err(error) => {
                        refused += 1;
                        assert_ne!(error.kind(), ErrorKind::TryAgainLater, "byte {at}");
                    }
                }
            }
        }
        assert!(refused > sent.body.len());
    }
}

/// A message whose data is compressed, with some of its fields changed.
async fn changed(claims: &ClaimCheck, change: impl Fn(&mut Value)) -> Bytes {
    let [_, compressed, _] = contents();
    let sent = claims.check_in(compressed).await.unwrap();
    let mut json: Value = serde_json::from_slice(&sent.body).unwrap();
    change(&mut json);
    serde_json::to_vec(&json).unwrap().into()
}

#[tokio::test]
async fn a_bomb_is_not_read() {
    let store = TestStore::new();
    let claims = store.claim_check();
    // It says that it is small, and is not.
    let bomb = changed(&claims, |json| json["size"] = 100.into()).await;
    let error = claims.check_out(&bomb).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it has 101 bytes or more, and 100 were sent"),
        "{error}"
    );
    // It says how large it is: it is not even fetched.
    let operations = store.operations();
    let bomb = changed(&claims, |json| json["size"] = ((1_u64 << 20) + 1).into()).await;
    let puts = store.operations() - operations;
    let error = claims.check_out(&bomb).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLarge {
                size_bytes: 1_048_577,
                ..
            }
        ),
        "{error}"
    );
    let stored = changed(&claims, |json| {
        json["object"]["size"] = (2_u64 << 20).into()
    })
    .await;
    let error = claims.check_out(&stored).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(store.operations() - operations, 2 * puts);
    // A bomb in the message itself.
    let zeros = claims
        .check_in(Content::one("a/b", vec![0; 1 << 20]))
        .await
        .unwrap();
    assert!(zeros.claim.object().is_none());
    let mut json: Value = serde_json::from_slice(&zeros.body).unwrap();
    json["size"] = 5.into();
    is_damaged(&claims, &serde_json::to_vec(&json).unwrap(), "inline").await;
}

#[tokio::test]
async fn a_group_says_how_many_messages_it_has() {
    let store = TestStore::new();
    let claims = store.claim_check();
    let [.., group] = contents();
    let sent = claims.check_in(group).await.unwrap();
    let mut json: Value = serde_json::from_slice(&sent.body).unwrap();
    json["items"] = 3.into();
    is_damaged(&claims, &serde_json::to_vec(&json).unwrap(), "count").await;
    json["items"] = 100_001.into();
    let error = claims
        .check_out(&serde_json::to_vec(&json).unwrap())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::TooManyItems { count: 100_001, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_message_reaches_only_objects_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), noise(400)).unwrap();
    let store = ClaimStore::folder(folder.path().join("store")).unwrap();
    let claims = ClaimCheck::new(store, TestStore::options()).unwrap();
    for name in [
        "../../secret",
        "/etc/passwd",
        "2026-11-18/../../../secret",
        "..%2Fsecret",
        "",
    ] {
        let body = changed(&claims, |json| json["object"]["name"] = name.into()).await;
        let error = claims.check_out(&body).await.unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{name}: {error}");
        assert!(claims.claim_of(&body).is_err());
    }
}
