//! Signatures with a stored access policy.

use kew_broker::Broker;
use kew_engine::storage::{AccessPolicies, AccessPolicy, Metadata, PolicyTime, StorageCommand};
use kew_engine::{Command, EntityName};

use super::door::{ACCOUNT, Answer, Door, Kind, NEWEST, NOW_SECONDS, PLAIN, Sas, api};
use crate::accounts::Accounts;

const EXPIRY: &str = "2026-06-21T09:00:00Z";

fn orders() -> EntityName {
    EntityName::storage_queue(ACCOUNT, "orders")
}

/// A policy that begins and ends a number of seconds from now.
fn policy(start: Option<i64>, expiry: Option<i64>, permissions: Option<&str>) -> AccessPolicy {
    let at = |offset: i64| PolicyTime(NOW_SECONDS.saturating_add_signed(offset) * 10_000_000);
    AccessPolicy {
        id: "the policy".into(),
        start: start.map(at),
        expiry: expiry.map(at),
        permissions: permissions.map(Into::into),
    }
}

async fn store(broker: &Broker, policies: Vec<AccessPolicy>) {
    let command = Command::Storage(StorageCommand::SetQueuePolicies {
        queue: orders(),
        policies: AccessPolicies::new(policies).unwrap(),
    });
    broker.submit(command).await.unwrap();
}

async fn open() -> (Broker, Door) {
    let broker = Broker::start_in_memory().unwrap();
    let command = Command::Storage(StorageCommand::CreateQueue {
        queue: orders(),
        metadata: Metadata::default(),
    });
    broker.submit(command).await.unwrap();
    let door = Door::with_api(api(broker.clone(), None)).await;
    (broker, door)
}

async fn peek(door: &Door, fields: &[(&'static str, &str)]) -> Answer {
    let sas = Sas::of(
        Kind::Queue("orders"),
        &[("si", "the policy"), ("sv", NEWEST)],
    );
    let sas = fields
        .iter()
        .fold(sas, |sas, (name, value)| sas.with(name, value));
    let query = sas.signed(Accounts::WELL_KNOWN_KEY);
    let target = format!("/orders/messages?peekonly=true&{query}");
    door.ask(PLAIN, "GET", &target, &[], "").await
}

#[tokio::test]
async fn each_field_comes_from_one_of_the_two() {
    let (broker, door) = open().await;
    let whole = || policy(Some(-60), Some(60), Some("rp"));
    let time = |seconds| policy(None, Some(seconds), Some("r"));
    type Fields = &'static [(&'static str, &'static str)];
    let cases: [(&str, AccessPolicy, Fields, u16, &str); 14] = [
        ("all stored", whole(), &[], 200, ""),
        (
            "all given",
            policy(None, None, None),
            &[("sp", "r"), ("se", EXPIRY)],
            200,
            "",
        ),
        (
            "empty permissions",
            policy(None, None, Some("")),
            &[("sp", "r"), ("se", EXPIRY)],
            200,
            "",
        ),
        (
            "expiry given",
            policy(None, None, Some("r")),
            &[("se", EXPIRY)],
            200,
            "",
        ),
        (
            "permissions given",
            policy(None, Some(1), None),
            &[("sp", "r")],
            200,
            "",
        ),
        (
            "st twice",
            whole(),
            &[("st", "2026-06-21")],
            400,
            "InvalidQueryParameterValue",
        ),
        (
            "se twice",
            whole(),
            &[("se", EXPIRY)],
            400,
            "InvalidQueryParameterValue",
        ),
        (
            "sp twice",
            whole(),
            &[("sp", "r")],
            400,
            "InvalidQueryParameterValue",
        ),
        (
            "no expiry",
            policy(None, None, Some("r")),
            &[],
            403,
            "AuthenticationFailed",
        ),
        (
            "no permissions",
            policy(None, Some(1), None),
            &[],
            403,
            "AuthenticationFailed",
        ),
        ("expired", time(0), &[], 403, "AuthenticationFailed"),
        ("a tick left", time(1), &[], 200, ""),
        (
            "not yet",
            policy(Some(1), Some(60), Some("r")),
            &[],
            403,
            "AuthenticationFailed",
        ),
        (
            "other letters",
            policy(None, Some(60), Some("aup")),
            &[],
            403,
            "AuthorizationPermissionMismatch",
        ),
    ];
    for (name, policy, fields, status, code) in cases {
        store(&broker, vec![policy]).await;
        let answer = peek(&door, fields).await;
        assert!(answer.is(status, code), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn a_policy_that_is_removed_permits_nothing_at_once() {
    let (broker, door) = open().await;
    store(&broker, vec![policy(None, Some(60), Some("r"))]).await;
    assert_eq!(peek(&door, &[]).await.status, 200);
    store(&broker, vec![policy(None, Some(-60), Some("r"))]).await;
    assert!(peek(&door, &[]).await.is(403, "AuthenticationFailed"));
    store(&broker, vec![policy(None, Some(60), Some("r"))]).await;
    assert_eq!(peek(&door, &[]).await.status, 200);
    store(&broker, Vec::new()).await;
    let answer = peek(&door, &[]).await;
    assert!(answer.is(403, "AuthenticationFailed"), "{answer:?}");
    let command = Command::Storage(StorageCommand::DeleteQueue { queue: orders() });
    broker.submit(command).await.unwrap();
    let answer = peek(&door, &[]).await;
    assert!(answer.is(403, "AuthenticationFailed"), "{answer:?}");
}
