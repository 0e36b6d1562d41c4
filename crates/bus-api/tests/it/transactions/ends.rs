//! Transactions that end without a commit, and what happens to their operations.

use kew_amqp::frame::{FrameType, write_frame};
use kew_amqp::performative::{Disposition, Transfer};
use kew_engine::bus::EntityStatus;

use super::*;
use crate::client::settling;
use crate::hostile::frame;

#[tokio::test]
async fn a_rollback_leaves_everything_and_its_locks() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    client.retire(&delivery, &id, Outcome::Accepted).await;
    // Meanwhile nothing else settles it, on this connection or another.
    let mut other = server.trusted().await;
    let completed = settling(&delivery, "completed");
    let refused = (400, "amqp:not-allowed".to_owned());
    for client in [&mut client, &mut other] {
        let told = client
            .manage("jobs", "update-disposition", &completed, None)
            .await;
        assert_eq!(told, refused);
    }
    // But it can be renewed.
    let told = other.manage("jobs", "renew-lock", &completed, None).await;
    assert_eq!(told, ok());
    let rolled_back = client.discharge(coordinator, &id, true).await;
    assert_eq!(rolled_back, DeliveryState::ACCEPTED);
    assert_eq!(held(&server, "spare").await, (0, 0));
    assert_eq!(held(&server, "jobs").await, (1, 0));
    let late = in_transaction(&id, None);
    let late = client.send_in(spare, 0, message("x"), Some(late)).await;
    assert_eq!(condition_of(&late), UNKNOWN_ID);
    // The lock is still valid.
    let told = other
        .manage("jobs", "update-disposition", &completed, None)
        .await;
    assert_eq!(told, ok());
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

#[tokio::test]
async fn no_transaction_is_committed_without_a_delivery_that_another_had_taken() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let coordinator = client.coordinator().await;
    let first = client.declare(coordinator).await;
    let second = client.declare(coordinator).await;
    client.post(jobs, &second, "x").await;
    let [taken, late] = [&first, &second].map(|id| in_transaction(id, Some(Outcome::Accepted)));
    assert!(client.connection.update(delivery.delivery, taken.clone()));
    // It is settled with the first commit before the second request arrives.
    assert_eq!(client.tell(&delivery, late).await, taken);
    let rolled_back = client.discharge(coordinator, &first, true).await;
    assert_eq!(rolled_back, DeliveryState::ACCEPTED);
    let refused = client.discharge(coordinator, &second, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

#[tokio::test]
async fn after_a_rollback_a_delivery_is_settled_by_a_request() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let steps = client.sender("steps").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 3).await;
    let [first, second, third] = client.receive(receiver, 3).await.try_into().unwrap();
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.retire(&first, &id, Outcome::Accepted).await;
    let rolled_back = client.discharge(coordinator, &id, true).await;
    assert_eq!(rolled_back, DeliveryState::ACCEPTED);
    // In another transaction, too.
    let id = client.declare(coordinator).await;
    let deferred = settling(&first, "defered");
    let told = client
        .manage("jobs", "update-disposition", &deferred, Some(&id))
        .await;
    assert_eq!(told, ok());
    client.commit(coordinator, &id).await;
    // A refused commit: a message without its session.
    let id = client.declare(coordinator).await;
    client.retire(&second, &id, Outcome::Accepted).await;
    client.post(steps, &id, "x").await;
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    // The coordinator's link is detached.
    let id = client.declare(coordinator).await;
    client.retire(&third, &id, Outcome::Accepted).await;
    client.detach(coordinator).await;
    for delivery in [&second, &third] {
        let completed = settling(delivery, "completed");
        let told = client
            .manage("jobs", "update-disposition", &completed, None)
            .await;
        assert_eq!(told, ok());
    }
    // The first one is deferred.
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

#[tokio::test]
async fn a_link_that_its_client_detaches_leaves_its_transactions() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 2).await;
    let deliveries = client.receive(receiver, 2).await;
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "x").await;
    for delivery in &deliveries {
        client.retire(delivery, &id, Outcome::Accepted).await;
    }
    client.detach(jobs).await;
    client.detach(receiver).await;
    assert_eq!(held(&server, "jobs").await, (2, 0));
    client.commit(coordinator, &id).await;
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

#[tokio::test]
async fn a_link_that_the_server_detaches_fails_the_transactions_of_its_connection() {
    let server = start().await;
    let options = server.view("jobs").await.options;
    for (status, condition) in [
        (
            Some(EntityStatus::SendDisabled),
            "com.microsoft:entity-disabled",
        ),
        (
            Some(EntityStatus::ReceiveDisabled),
            "com.microsoft:entity-disabled",
        ),
        // By the protocol: deliveries of an earlier link are not resumed.
        (None, "amqp:not-implemented"),
    ] {
        let mut client = server.trusted().await;
        let sender = client.sender("jobs").await.unwrap();
        let receiver = client.receiver("jobs").await.unwrap();
        let spare = client.sender("spare").await.unwrap();
        let coordinator = client.coordinator().await;
        let id = client.declare(coordinator).await;
        client.post(spare, &id, "x").await;
        let link = match status {
            Some(EntityStatus::ReceiveDisabled) => receiver,
            _ => sender,
        };
        let queue = queue_named("jobs");
        if let Some(status) = status {
            let options = BusQueueOptions {
                status,
                ..options.clone()
            };
            server
                .order(BusCommand::UpdateQueue { queue, options })
                .await;
        } else {
            client.say_by_hand(&resumed(&id)).await;
        }
        let error = client.detached(link).await.unwrap();
        assert_eq!(error.condition, condition);
        let refused = error_of(&client.discharge(coordinator, &id, false).await);
        assert_eq!(refused.condition, ROLLBACK);
        let text = refused.description.unwrap();
        assert!(text.as_str().contains(condition), "{text}");
        // Later transactions are not affected.
        let id = client.declare(coordinator).await;
        client.post(spare, &id, "x").await;
        let rolled_back = client.discharge(coordinator, &id, true).await;
        assert_eq!(rolled_back, DeliveryState::ACCEPTED);
        let queue = queue_named("jobs");
        let options = options.clone();
        server
            .order(BusCommand::UpdateQueue { queue, options })
            .await;
    }
    assert_eq!(held(&server, "spare").await, (0, 0));
}

/// A message in a transaction over the first link of a session that continues with another
/// delivery's part.
fn resumed(id: &Bytes) -> Transfer {
    Transfer {
        handle: 0,
        delivery_id: Some(1000),
        delivery_tag: Some(Tag::from([1; 16])),
        message_format: Some(0),
        settled: Some(false),
        more: false,
        rcv_settle_mode: None,
        state: Some(in_transaction(id, None)),
        resume: true,
        aborted: false,
        batchable: false,
    }
}

/// A disposition between the parts of a message, without a state: it stays in its transaction.
#[tokio::test]
async fn a_message_that_its_sender_settles_on_its_way_stays_in_its_transaction() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.can_send(jobs).await;
    client.say().await;
    // The first link's, behind the declaration.
    let begun = Transfer {
        delivery_id: Some(1),
        more: true,
        resume: false,
        ..resumed(&id)
    };
    let ended = Transfer {
        delivery_id: None,
        state: None,
        more: false,
        ..begun.clone()
    };
    let settled = Disposition {
        role: Role::Sender,
        first: 1,
        last: None,
        settled: true,
        state: None,
        batchable: false,
    };
    let body = message("x");
    let (start, end) = body.split_at(1);
    let part = |transfer: &Transfer, payload: &[u8]| {
        let mut out = BytesMut::new();
        write_frame(&mut out, FrameType::Amqp, 0, |out| {
            transfer.encode(out);
            out.extend_from_slice(payload);
        });
        out
    };
    for said in [part(&begun, start), frame(0, &settled), part(&ended, end)] {
        client.stream.write_all(&said).await.unwrap();
    }
    client.detach(coordinator).await;
    // By then every message that was sent has arrived.
    let mut other = server.trusted().await;
    let jobs = other.sender("jobs").await.unwrap();
    other.fill(jobs, 1).await;
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

#[tokio::test]
async fn a_transaction_goes_with_its_coordinator_link_and_with_its_connection() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 2).await;
    let deliveries = client.receive(receiver, 2).await;
    let [first, second] = [1, 2].map(|number| format!("coordinator {number}"));
    let first = client.coordinator_named(&first).await;
    let second = client.coordinator_named(&second).await;
    let ended = client.declare(first).await;
    let kept = client.declare(second).await;
    for id in [&ended, &kept] {
        client.post(jobs, id, "x").await;
    }
    client
        .retire(&deliveries[0], &ended, Outcome::Accepted)
        .await;
    client
        .retire(&deliveries[1], &kept, Outcome::Accepted)
        .await;
    client.detach(first).await;
    let gone = client.discharge(second, &ended, false).await;
    assert_eq!(condition_of(&gone), UNKNOWN_ID);
    assert_eq!(held(&server, "jobs").await, (2, 0));
    let mut other = server.trusted().await;
    let completed = |delivery| settling(delivery, "completed");
    let told = other
        .manage(
            "jobs",
            "update-disposition",
            &completed(&deliveries[0]),
            None,
        )
        .await;
    assert_eq!(told, ok());
    // An id is valid only on its own connection.
    let theirs = other.coordinator().await;
    let refused = other.discharge(theirs, &kept, false).await;
    assert_eq!(condition_of(&refused), UNKNOWN_ID);
    drop(client);
    // The server learns of it later.
    let completed = completed(&deliveries[1]);
    let claimed = (400, "amqp:not-allowed".to_owned());
    let is_free = async {
        loop {
            let told = other
                .manage("jobs", "update-disposition", &completed, None)
                .await;
            if told != claimed {
                break told;
            }
        }
    };
    let told = tokio::time::timeout(std::time::Duration::from_secs(60), is_free).await;
    assert_eq!(told.expect("a transaction ends with its connection"), ok());
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

#[tokio::test]
async fn a_transaction_ends_two_minutes_after_its_first_operation() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let [empty, used, late] = [
        client.declare(coordinator).await,
        client.declare(coordinator).await,
        client.declare(coordinator).await,
    ];
    client.post(jobs, &used, "x").await;
    let pass = async |seconds: u64| {
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    pass(119).await;
    client.post(jobs, &used, "y").await;
    client.post(jobs, &late, "in time").await;
    pass(2).await;
    let refused = in_transaction(&used, None);
    let refused = client.send_in(jobs, 0, message("z"), Some(refused)).await;
    assert_eq!(condition_of(&refused), TIMEOUT);
    let refused = client.discharge(coordinator, &used, false).await;
    assert_eq!(condition_of(&refused), TIMEOUT);
    let refused = client.discharge(coordinator, &used, false).await;
    assert_eq!(condition_of(&refused), UNKNOWN_ID);
    client.commit(coordinator, &empty).await;
    client.commit(coordinator, &late).await;
    assert_eq!(held(&server, "jobs").await, (1, 0));
}
