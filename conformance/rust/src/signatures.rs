//! Shared access signatures in URLs. The SDK cannot make them from a shared key.

use azure_core::Result;
use azure_storage_queue::QueueClient;

use crate::kew::{Door, QueueSas, name_of, refused};
use crate::messages::{change, send, try_peek, try_receive, try_send};

/// Every operation, with the rights that an account's signature needs for it.
const OPERATIONS: [(&str, &str, &str); 9] = [
    ("properties", "c", "r"),
    ("metadata", "c", "w"),
    ("peek", "o", "r"),
    ("send", "o", "a"),
    ("update", "o", "u"),
    ("receive", "o", "p"),
    ("remove", "o", "p"),
    ("clear", "o", "d"),
    ("delete", "c", "d"),
];

async fn run(operation: &str, queue: &QueueClient, id: &str, receipt: &str) -> Result<()> {
    match operation {
        "properties" => queue.get_properties(None).await.map(drop),
        "metadata" => queue
            .set_metadata(&Default::default(), None)
            .await
            .map(drop),
        "peek" => try_peek(queue, 1).await.map(drop),
        "send" => try_send(queue, "text", None, None).await.map(drop),
        "update" => change(queue, id, receipt, Some("new"), 0).await.map(drop),
        "receive" => try_receive(queue, 1, 600).await.map(drop),
        "remove" => queue.delete_message(id, receipt, None).await.map(drop),
        "clear" => queue.clear(None).await.map(drop),
        "delete" => queue.delete(None).await.map(drop),
        _ => panic!("{operation} is no operation"),
    }
}

pub async fn of_an_account(door: Door) {
    for (operation, kind, letter) in OPERATIONS {
        let queue = door.fresh().await;
        let sent = send(&queue, "text").await;
        let (id, receipt) = (sent.message_id.unwrap(), sent.pop_receipt.unwrap());
        let name = name_of(&queue);
        let tried = async |kinds: &str, letters: &str| {
            let signed = door.queue_by(&name, &door.account_sas(kinds, letters));
            run(operation, &signed, &id, &receipt).await
        };
        let others = "rwdlacup".replace(letter, "");
        refused(
            tried("sco", &others).await,
            403,
            "AuthorizationPermissionMismatch",
        );
        let kinds = "sco".replace(kind, "");
        refused(
            tried(&kinds, letter).await,
            403,
            "AuthorizationResourceTypeMismatch",
        );
        tried(kind, letter).await.unwrap();
    }
}

pub async fn of_a_queue(door: Door) {
    for (operation, letter, others) in [
        ("properties", "r", "aup"),
        ("peek", "r", "aup"),
        ("send", "a", "rup"),
        ("update", "u", "rap"),
        ("receive", "p", "rau"),
        ("remove", "p", "rau"),
    ] {
        let queue = door.fresh().await;
        let sent = send(&queue, "text").await;
        let (id, receipt) = (sent.message_id.unwrap(), sent.pop_receipt.unwrap());
        let name = name_of(&queue);
        let tried = async |permissions| {
            let sas = QueueSas {
                permissions,
                start_seconds: Some(-600),
                ..QueueSas::default()
            };
            let signed = door.queue_by(&name, &door.queue_sas(&name, &sas));
            run(operation, &signed, &id, &receipt).await
        };
        refused(tried(others).await, 403, "AuthorizationPermissionMismatch");
        tried(letter).await.unwrap();
    }
}

pub async fn when_where_and_how_they_are_good(door: Door) {
    let name = name_of(&door.fresh().await);
    let other = name_of(&door.fresh().await);
    let tried = async |name_in_address: &str, sas: QueueSas| {
        let signed = door.queue_by(name_in_address, &door.queue_sas(&name, &sas));
        signed.get_properties(None).await
    };
    tried(&name, QueueSas::default()).await.unwrap();
    refused(
        tried(&other, QueueSas::default()).await,
        403,
        "AuthenticationFailed",
    );
    let over = QueueSas {
        expiry_seconds: -600,
        ..QueueSas::default()
    };
    refused(tried(&name, over).await, 403, "AuthenticationFailed");
    let early = QueueSas {
        start_seconds: Some(300),
        ..QueueSas::default()
    };
    refused(tried(&name, early).await, 403, "AuthenticationFailed");
    let here = QueueSas {
        addresses: "127.0.0.1",
        ..QueueSas::default()
    };
    tried(&name, here).await.unwrap();
    let elsewhere = QueueSas {
        addresses: "192.0.2.1",
        ..QueueSas::default()
    };
    refused(
        tried(&name, elsewhere).await,
        403,
        "AuthorizationSourceIPMismatch",
    );
    let either = QueueSas {
        protocols: "https,http",
        ..QueueSas::default()
    };
    tried(&name, either).await.unwrap();
    let secret = tried(
        &name,
        QueueSas {
            protocols: "https",
            ..QueueSas::default()
        },
    )
    .await;
    if door.scheme == "https" {
        secret.unwrap();
    } else {
        refused(secret, 403, "AuthorizationProtocolMismatch");
    }
}
