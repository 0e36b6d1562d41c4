//! Connections, retries, and requests without a credential.

use azure_core::http::{FixedRetryOptions, RetryOptions};
use azure_storage_queue::QueueClient;

use crate::front::Front;
use crate::kew::{Door, name_of, refused};
use crate::messages::{receive, send, try_send};
use crate::queues::count_of;

async fn through(door: &Door, front: &Front, retry: RetryOptions) -> QueueClient {
    let name = name_of(&door.fresh().await);
    let all = door.account_sas("sco", "rwdlacup");
    let service = door.service_by(door.url_at(front.port, ""), &all, retry);
    service.queue_client(&name).unwrap()
}

pub async fn many_requests_share_one_connection(door: Door) {
    let front = Front::open(door.port(), 0).await;
    let queue = through(&door, &front, RetryOptions::none()).await;
    for number in 0..20 {
        send(&queue, &number.to_string()).await;
        let message = receive(&queue, 1).await.remove(0);
        let (id, receipt) = (message.message_id.unwrap(), message.pop_receipt.unwrap());
        queue.delete_message(&id, &receipt, None).await.unwrap();
        // An error keeps the connection, too.
        refused(
            queue.delete_message(&id, &receipt, None).await,
            404,
            "MessageNotFound",
        );
    }
    assert_eq!(front.connections(), 1);
}

pub async fn a_busy_server_is_asked_again(door: Door) {
    if door.scheme != "http" {
        return; // The busy server has no TLS.
    }
    let front = Front::open(door.port(), 2).await;
    let quick = RetryOptions::fixed(FixedRetryOptions {
        delay: azure_core::time::Duration::milliseconds(10),
        max_retries: 3,
        ..Default::default()
    });
    let queue = through(&door, &front, quick).await;
    send(&queue, "text").await;
    assert_eq!(count_of(&queue).await, 1);
    assert_eq!(front.connections(), 3);
    let front = Front::open(door.port(), 1).await;
    let impatient = through(&door, &front, RetryOptions::none()).await;
    refused(
        try_send(&impatient, "text", None, None).await,
        503,
        "ServerBusy",
    );
}

pub async fn no_credential(door: Door) {
    let name = name_of(&door.fresh().await);
    let result = door.queue_by(&name, "").get_properties(None).await;
    refused(result, 401, "NoAuthenticationInformation");
}
