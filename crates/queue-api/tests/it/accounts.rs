//! Accounts that change while they are used.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_broker::Broker;
use kew_engine::{AccountQuota, AccountRecord};
use kew_principals::{Key, PrincipalError, WhichKey};
use kew_queue_api::{AccountStore, QueueApi, QueueApiOptions, ServedAccounts, StorageAccounts};

use crate::client::{Call, Door, call, message};

/// A front end, and the store that changes its accounts.
async fn door() -> (Door, AccountStore) {
    let broker = Broker::start_in_memory().unwrap();
    let api = QueueApi::new(broker.clone(), QueueApiOptions::default());
    let store = StorageAccounts::open(broker, api.accounts().clone(), false);
    let store = store.await.unwrap();
    (Door::of(api), store)
}

/// Adds an account with two new keys.
async fn add(
    store: &AccountStore,
    name: &str,
    quota: AccountQuota,
) -> Result<AccountRecord, PrincipalError> {
    let keys = Key::pair(None).unwrap();
    store
        .add(&(), StorageAccounts::record(name, quota, &keys))
        .await
}

fn keys(record: &AccountRecord) -> [String; 2] {
    [0, 1].map(|at| STANDARD.encode(record.keys[at].as_bytes()))
}

fn as_orders(method: &'static str, target: &str, key: &str) -> Call {
    call(method, "")
        .target(&format!("/orders{target}"))
        .key("orders", key)
}

#[tokio::test]
async fn either_key_works_until_it_is_rotated() {
    let (door, store) = door().await;
    let unlimited = AccountQuota::default();
    let added = add(&store, "orders", unlimited).await.unwrap();
    let [primary, secondary] = keys(&added);
    for key in [&primary, &secondary] {
        door.send(as_orders("GET", "/?comp=list", key))
            .await
            .check_status(200);
    }
    let rotated = store
        .rotate(&(), "orders", WhichKey::Primary)
        .await
        .unwrap();
    let [renewed, same] = keys(&rotated);
    assert_eq!(same, secondary);
    for (key, status) in [(&primary, 403), (&secondary, 200), (&renewed, 200)] {
        let answer = door.send(as_orders("GET", "/?comp=list", key)).await;
        answer.check_status(status);
    }
    store
        .rotate(&(), "orders", WhichKey::Secondary)
        .await
        .unwrap();
    door.send(as_orders("GET", "/?comp=list", &secondary))
        .await
        .check_error(403, "AuthenticationFailed");
}

#[tokio::test]
async fn only_a_client_with_a_key_learns_that_an_account_is_disabled() {
    let (door, store) = door().await;
    let added = add(&store, "orders", AccountQuota::default()).await;
    let [key, _] = keys(&added.unwrap());
    let disable = |account: &mut AccountRecord| account.is_disabled = true;
    store.change(&(), "orders", disable).await.unwrap();
    door.send(as_orders("GET", "/?comp=list", &key))
        .await
        .check_error(403, "AccountIsDisabled");
    door.send(as_orders("GET", "/?comp=list", "d3Jvbmc="))
        .await
        .check_error(403, "AuthenticationFailed");
    let enable = |account: &mut AccountRecord| account.is_disabled = false;
    store.change(&(), "orders", enable).await.unwrap();
    door.send(as_orders("GET", "/?comp=list", &key))
        .await
        .check_status(200);
}

#[tokio::test]
async fn the_error_of_a_full_account_has_its_limit() {
    let (door, store) = door().await;
    let quota = AccountQuota {
        queues_max: Some(1),
        size_bytes_max: Some(200),
    };
    let [key, _] = keys(&add(&store, "orders", quota).await.unwrap());
    door.send(as_orders("PUT", "/one", &key))
        .await
        .check_status(201);
    door.send(as_orders("PUT", "/two", &key))
        .await
        .check_error(403, "AccountQuotaExceeded")
        .check_element("QuotaName", "queues")
        .check_element("MaxLimit", "1");
    let put = |text: &str| as_orders("POST", "/one/messages", &key).body(message(text));
    door.send(put("fits")).await.check_status(201);
    door.send(put("too much"))
        .await
        .check_error(403, "AccountQuotaExceeded")
        .check_element("QuotaName", "bytes")
        .check_element("MaxLimit", "200");
    door.send(as_orders("DELETE", "/one/messages", &key))
        .await
        .check_status(204);
    door.send(put("fits again")).await.check_status(201);
}

#[tokio::test]
async fn a_removal_takes_effect_and_a_refused_one_does_not() {
    let (door, store) = door().await;
    let text = STANDARD.encode(b"a key of some bytes");
    let brought = Key::pair(Some(Key::brought(&text).unwrap())).unwrap();
    let unlimited = AccountQuota::default();
    let given = StorageAccounts::record("orders", unlimited, &brought);
    let added = store.add(&(), given).await.unwrap();
    assert_eq!(keys(&added), [text.clone(), text]);
    let [key, _] = keys(&added);
    door.send(as_orders("PUT", "/one", &key))
        .await
        .check_status(201);
    let refused = store.remove(&(), "orders", false).await;
    assert!(matches!(refused, Err(PrincipalError::NotEmpty(_, 1))));
    door.send(as_orders("GET", "/one?comp=metadata", &key))
        .await
        .check_status(200);
    store.remove(&(), "orders", true).await.unwrap();
    door.send(as_orders("GET", "/one?comp=metadata", &key))
        .await
        .check_error(404, "ResourceNotFound");
    // A new account with the same name gets nothing from the old one.
    let added = add(&store, "orders", unlimited).await.unwrap();
    let [key, _] = keys(&added);
    door.send(as_orders("GET", "/one?comp=metadata", &key))
        .await
        .check_error(404, "QueueNotFound");
}

#[tokio::test]
async fn names_that_cannot_be_are_refused_and_cost_nothing() {
    let (_door, store) = door().await;
    for name in ["ab", "With-Dash", "devstoreaccount1", ""] {
        let refused = add(&store, name, AccountQuota::default()).await;
        assert!(
            matches!(
                refused,
                Err(PrincipalError::Invalid(_) | PrincipalError::WellKnown(_))
            ),
            "{name}"
        );
    }
    assert_eq!(store.list(&()).await.unwrap(), []);
}

#[tokio::test]
async fn added_accounts_are_served_after_a_restart_of_the_front_end() {
    let broker = Broker::start_in_memory().unwrap();
    let served = ServedAccounts::default();
    let store = StorageAccounts::open(broker.clone(), served, false).await;
    let store = store.unwrap();
    let added = add(&store, "orders", AccountQuota::default()).await;
    let [key, _] = keys(&added.unwrap());
    let api = QueueApi::new(broker.clone(), QueueApiOptions::default());
    StorageAccounts::open(broker, api.accounts().clone(), false)
        .await
        .unwrap();
    Door::of(api)
        .send(as_orders("GET", "/?comp=list", &key))
        .await
        .check_status(200);
}

#[tokio::test]
async fn a_name_that_is_used_again_does_not_share_with_pages_of_before() {
    let (door, store) = door().await;
    let unlimited = AccountQuota::default();
    let added = add(&store, "orders", unlimited).await;
    let [key, _] = keys(&added.unwrap());
    let body = format!(
        "<StorageServiceProperties><Cors>{}</Cors></StorageServiceProperties>",
        crate::properties::cors("http://page")
    );
    let set = as_orders("PUT", "/?restype=service&comp=properties", &key).body(body);
    door.send(set).await.check_status(202);
    let ask = |key: &str| as_orders("GET", "/?comp=list", key).header("Origin", "http://page");
    let shared_with = "access-control-allow-origin";
    let answer = door.send(ask(&key)).await;
    assert_eq!(answer.header(shared_with), Some("http://page"));
    // A new key does not change the quota.
    let rotated = store
        .rotate(&(), "orders", WhichKey::Primary)
        .await
        .unwrap();
    let answer = door.send(ask(&keys(&rotated)[0])).await;
    assert_eq!(answer.header(shared_with), Some("http://page"));

    store.remove(&(), "orders", true).await.unwrap();
    let added = add(&store, "orders", unlimited).await;
    let [key, _] = keys(&added.unwrap());
    let answer = door.send(ask(&key)).await;
    answer.check_status(200);
    assert_eq!(answer.header(shared_with), None);
}

#[tokio::test]
async fn a_body_after_the_removal_of_its_key_does_nothing() {
    let (door, store) = door().await;
    let unlimited = AccountQuota::default();
    let added = add(&store, "orders", unlimited).await;
    let [key, _] = keys(&added.unwrap());
    let begin = |target| as_orders("PUT", target, &key).body("late").to_bytes();
    let cut = |bytes: &[u8]| bytes.len() - 1;

    // Requests with the other key still succeed.
    let wire = &mut door.connect();
    let bytes = begin("/kept");
    wire.write(&bytes[..cut(&bytes)]).await;
    let_in().await;
    store
        .rotate(&(), "orders", WhichKey::Secondary)
        .await
        .unwrap();
    wire.write(&bytes[cut(&bytes)..]).await;
    wire.answer(false).await.check_status(201);

    let bytes = begin("/late");
    let (one, other) = (&mut door.connect(), &mut door.connect());
    one.write(&bytes[..cut(&bytes)]).await;
    let_in().await;
    store
        .rotate(&(), "orders", WhichKey::Primary)
        .await
        .unwrap();
    one.write(&bytes[cut(&bytes)..]).await;
    one.answer(false)
        .await
        .check_error(403, "AuthenticationFailed");

    let rotated = store
        .rotate(&(), "orders", WhichKey::Primary)
        .await
        .unwrap();
    let [key, _] = keys(&rotated);
    let bytes = as_orders("PUT", "/late", &key).body("late").to_bytes();
    other.write(&bytes[..cut(&bytes)]).await;
    let_in().await;
    store.remove(&(), "orders", true).await.unwrap();
    other.write(&bytes[cut(&bytes)..]).await;
    other
        .answer(false)
        .await
        .check_error(404, "ResourceNotFound");
    let added = add(&store, "orders", unlimited).await;
    let [key, _] = keys(&added.unwrap());
    door.send(as_orders("GET", "/late?comp=metadata", &key))
        .await
        .check_error(404, "QueueNotFound");
}

/// Lets the server, which runs on the same thread, read the request.
async fn let_in() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
