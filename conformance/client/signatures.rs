//! Shared access signatures that the client makes, and keys that are wrong.

use std::time::{Duration, SystemTime};

use kew_client::{AccessPolicy, ErrorKind, PutOptions, QueueSas};

use crate::services::Door;

const EXPIRY: &str = "2099-01-01T00:00:00Z";

fn sas<'a>(queue: Option<&'a str>, permissions: &'a str) -> QueueSas<'a> {
    QueueSas {
        queue,
        permissions: Some(permissions),
        expiry: EXPIRY,
        https_only: false,
    }
}

pub(crate) async fn of_an_account(door: Door) {
    let (client, queue) = door.fresh().await;
    client
        .put(&queue, "x", PutOptions::default())
        .await
        .unwrap();
    let url = door.account().signed_url(&sas(None, "rl")).unwrap();
    let reader = door.client_of(door.signed(url.expose()));
    assert_eq!(reader.peek(&queue, 1).await.unwrap().len(), 1);
    let (queues, _) = reader.list_queues(&queue, false, None).await.unwrap();
    assert!(queues.iter().any(|it| it.name == queue));
    let refused = reader.put(&queue, "y", PutOptions::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.status(), Some(403));
    assert_eq!(refused.code(), Some("AuthorizationPermissionMismatch"));
}

pub(crate) async fn of_a_queue(door: Door) {
    let (client, queue) = door.fresh().await;
    let url = door.account().signed_url(&sas(Some(&queue), "ap")).unwrap();
    let worker = door.client_of(door.signed(url.expose()));
    worker
        .put(&queue, "x", PutOptions::default())
        .await
        .unwrap();
    let got = worker.get(&queue, 1, Some(60)).await.unwrap().remove(0);
    worker
        .delete_message(&queue, &got.id, &got.receipt.unwrap().value)
        .await
        .unwrap();
    for refused in [
        worker.peek(&queue, 1).await.unwrap_err(),
        worker.delete_queue(&queue).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        assert_eq!(refused.status(), Some(403), "{refused}");
    }
    assert_eq!(client.peek(&queue, 1).await.unwrap(), []);
}

pub(crate) async fn of_a_stored_policy(door: Door) {
    let (client, queue) = door.fresh().await;
    let policy = AccessPolicy {
        id: "senders".to_owned(),
        start: None,
        expiry: Some(SystemTime::now() + Duration::from_hours(1)),
        permissions: Some("a".to_owned()),
    };
    client.set_access_policies(&queue, &[policy]).await.unwrap();
    let url = door
        .account()
        .signed_url_by_policy(&queue, "senders", false);
    let sender = door.client_of(door.signed(url.unwrap().expose()));
    sender
        .put(&queue, "x", PutOptions::default())
        .await
        .unwrap();
    let refused = sender.peek(&queue, 1).await.unwrap_err();
    assert_eq!(refused.status(), Some(403), "{refused}");
    client.set_access_policies(&queue, &[]).await.unwrap();
    let ended = sender.put(&queue, "y", PutOptions::default()).await;
    assert_eq!(ended.unwrap_err().status(), Some(403));
    assert_eq!(client.peek(&queue, 32).await.unwrap().len(), 1);
}

pub(crate) async fn a_key_that_is_wrong(door: Door) {
    let client = door.client_of(door.account_with("c2VjcmV0LWtleQ=="));
    let refused = client.list_queues("", false, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.status(), Some(403));
    assert!(!refused.to_string().contains("c2Vj"), "{refused}");
}
