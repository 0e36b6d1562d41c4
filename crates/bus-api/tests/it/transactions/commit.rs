//! The effects of a commit, and commits that are refused.

use kew_amqp::message::{BATCH_FORMAT, Message, write_batch};
use kew_amqp::performative::Transfer;
use kew_broker::AdmissionLimits;
use kew_engine::SequenceNumber;
use kew_engine::bus::{BreakTarget, EntityStatus};
use kew_log_contract::{MemoryOptions, MemorySource};

use super::*;
use crate::client::settling;
use crate::metrics::{Page, until};
use crate::oversized;

const BUSY: &str = "com.microsoft:server-busy";

#[tokio::test]
async fn operations_of_a_transaction_take_effect_at_its_commit() {
    let server = start().await;
    let mut client = server.trusted().await;
    let (jobs, spare) = (
        client.sender("jobs").await.unwrap(),
        client.sender("spare").await.unwrap(),
    );
    client.fill(jobs, 5).await;
    let receiver = client.receiver("jobs").await.unwrap();
    let held_now = client.receive(receiver, 5).await;
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "one").await;
    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[message("two"), message("three")]);
    let state = Some(in_transaction(&id, None));
    let sent = client
        .send_in(spare, BATCH_FORMAT, batch.freeze(), state)
        .await;
    assert_eq!(sent, in_transaction(&id, Some(Outcome::Accepted)));
    for (delivery, outcome) in held_now.iter().zip([
        Outcome::Accepted,
        modified(false),
        modified(true),
        Outcome::Rejected(Rejected { error: None }),
        Outcome::Released,
    ]) {
        client.retire(delivery, &id, outcome).await;
    }
    assert_eq!(held(&server, "spare").await, (0, 0));
    assert_eq!(held(&server, "jobs").await, (5, 0));
    // Operations outside of it take effect at once.
    client.fill(spare, 1).await;
    client.commit(coordinator, &id).await;
    assert_eq!(held(&server, "spare").await, (4, 0));
    assert_eq!(held(&server, "jobs").await, (3, 1));
    let again = client.receive(receiver, 2).await;
    let counts = again.iter().map(|delivery| {
        let message = Message::scan(delivery.payload.clone()).unwrap();
        message.header().unwrap().delivery_count
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 0]);
    let twice = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&twice), UNKNOWN_ID);
}

#[tokio::test]
async fn a_refused_commit_names_the_operation_and_does_nothing() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    let steps = client.sender("steps").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    client.retire(&delivery, &id, Outcome::Accepted).await;
    let number = SequenceNumber::named(1);
    server
        .order(BusCommand::BreakLock {
            queue: queue_named("jobs"),
            target: BreakTarget::Message(number),
        })
        .await;
    let lost = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(lost.condition, ROLLBACK);
    let text = lost.description.unwrap();
    let says = |part: &str| assert!(text.as_str().contains(part), "{text}");
    says("operation 2, on 'jobs': com.microsoft:message-lock-lost");
    // A message without its session.
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    client.post(steps, &id, "x").await;
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    // A queue without room, and one that accepts no messages any more.
    let options = server.view("spare").await.options;
    for options in [
        BusQueueOptions {
            size_bytes_max: 100,
            ..options.clone()
        },
        BusQueueOptions {
            status: EntityStatus::SendDisabled,
            ..options
        },
    ] {
        let id = client.declare(coordinator).await;
        client.post(spare, &id, "x").await;
        client.post(jobs, &id, "x").await;
        server
            .order(BusCommand::UpdateQueue {
                queue: queue_named("spare"),
                options,
            })
            .await;
        let refused = client.discharge(coordinator, &id, false).await;
        assert_eq!(condition_of(&refused), ROLLBACK);
    }
    // A queue that was deleted.
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "x").await;
    client.post(steps, &id, "x").await;
    server
        .order(BusCommand::DeleteQueue {
            queue: queue_named("steps"),
        })
        .await;
    let refused = client.discharge(coordinator, &id, false).await;
    let text = error_of(&refused).description.unwrap();
    // The connection may hear of the deletion before the commit comes. Then the link has ended with its operations.
    let told = [
        "operation 2, on 'steps': amqp:not-found",
        "an operation was refused: amqp:not-found: The messaging entity 'steps'",
    ];
    assert!(
        told.iter().any(|told| text.as_str().contains(told)),
        "{text}"
    );
    assert_eq!(held(&server, "jobs").await, (1, 0));
    assert_eq!(held(&server, "spare").await, (0, 0));
}

#[tokio::test]
async fn a_transaction_in_which_something_was_refused_is_not_committed() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    client.fill(jobs, 2).await;
    let deliveries = client.receive(receiver, 2).await;
    let garbage = Bytes::from_static(b"\x00");
    // Sent unsettled, and settled: the client gets an answer, or none.
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "x").await;
    let state = || Some(in_transaction(&id, None));
    let refused = client.send_in(jobs, 0, garbage.clone(), state()).await;
    assert_eq!(condition_of(&refused), "amqp:decode-error");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    for (payload, count) in [(message("x"), 3), (garbage, 3)] {
        let id = client.declare(coordinator).await;
        let settled = Outgoing {
            tag: Tag::from([9; 16]),
            message_format: 0,
            is_settled: true,
            state: Some(in_transaction(&id, None)),
        };
        client
            .connection
            .send(jobs, settled, [payload, Bytes::new()])
            .unwrap();
        let _ = client.discharge(coordinator, &id, false).await;
        assert_eq!(held(&server, "jobs").await, (count, 0));
    }
    // A state that is not an outcome, and no state.
    let id = client.declare(coordinator).await;
    let told = client.tell(&deliveries[0], in_transaction(&id, None)).await;
    assert_eq!(condition_of(&told), "amqp:not-allowed");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    // In two transactions at once.
    let (one, two) = (
        client.declare(coordinator).await,
        client.declare(coordinator).await,
    );
    client.retire(&deliveries[1], &one, Outcome::Accepted).await;
    let completed = settling(&deliveries[1], "completed");
    let told = client
        .manage("jobs", "update-disposition", &completed, Some(&two))
        .await;
    assert_eq!(told, (400, "amqp:not-allowed".into()));
    let refused = client.discharge(coordinator, &two, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    client.commit(coordinator, &one).await;
    assert_eq!(held(&server, "jobs").await, (2, 0));
}

#[tokio::test]
async fn a_commit_for_which_there_is_no_room_is_over_and_counted_as_that() {
    let server = Server::start_with_admission(AdmissionLimits {
        body_bytes_max: 4000,
        ..AdmissionLimits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    for _ in 0..4 {
        client.post(jobs, &id, &"x".repeat(1000)).await;
    }
    // With a condition that keeps clients from repeating the same discharge.
    let refused = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(refused.condition, ROLLBACK);
    let text = refused.description.unwrap();
    assert!(text.as_str().contains(BUSY), "{text}");
    let again = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&again), UNKNOWN_ID);
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "x").await;
    client.commit(coordinator, &id).await;
    assert_eq!(held(&server, "jobs").await, (1, 0));
    let page = Page::of(&server);
    let commits = |code| {
        page.sum(
            "kew_requests_total",
            &[("operation", "commit"), ("code", code)],
        )
    };
    assert_eq!([commits(""), commits(BUSY), commits(ROLLBACK)], [1, 1, 0]);
}

#[tokio::test]
async fn transactions_and_their_memory_are_limited() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let held = |page: &Page| page.sum("kew_amqp_held_bytes", &[]);
    for commits in [false, true] {
        let id = client.declare(coordinator).await;
        client.post(jobs, &id, &"x".repeat(50_000)).await;
        until(&server, |page| held(page) >= 50_000).await;
        let sent = Page::of(&server).sum("kew_bus_messages_sent_total", &[]);
        assert_eq!(sent, 0);
        let state = client.discharge(coordinator, &id, !commits).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
        until(&server, |page| held(page) < 50_000).await;
    }
    let id = Bytes::from_static(b"?");
    client.discharge(coordinator, &id, false).await;
    let page = Page::of(&server);
    let requests = |operation, status, code| {
        let labels = [("operation", operation), ("status", status), ("code", code)];
        page.sum("kew_requests_total", &labels)
    };
    assert_eq!(requests("declare", "200", ""), 2);
    assert_eq!(requests("rollback", "200", ""), 1);
    assert_eq!(requests("commit", "200", ""), 1);
    assert_eq!(requests("commit", "400", UNKNOWN_ID), 1);
    assert_eq!(page.sum("kew_bus_messages_sent_total", &[]), 1);
}

#[tokio::test]
async fn a_message_that_is_too_large_cannot_be_left_out() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    client.can_send(jobs).await;
    let coordinator = client.coordinator().await;
    for is_settled in [false, true] {
        let id = client.declare(coordinator).await;
        // The two before it declared and discharged.
        let number = if is_settled { 4 } else { 1 };
        let first = Transfer {
            state: Some(in_transaction(&id, None)),
            settled: Some(is_settled),
            ..oversized::delivery(number)
        };
        let size = (1 << 20) + 1;
        oversized::transfer(&mut client, first, &vec![0; size]).await;
        if !is_settled {
            let state = oversized::verdict(&mut client, number).await;
            oversized::assert_too_large(&state, number, size, 1 << 20);
        }
        let refused = error_of(&client.discharge(coordinator, &id, false).await);
        assert_eq!(refused.condition, ROLLBACK);
        let text = refused.description.unwrap();
        assert!(text.as_str().contains("exceeds the limit"), "{text}");
    }
    client.fill(jobs, 1).await;
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

/// The client must not be told that it was rolled back: perhaps it was committed.
#[tokio::test]
async fn a_commit_whose_outcome_is_unknown_says_so() {
    let source = MemorySource::new(MemoryOptions::default());
    let server = Server::start_on_log(source.clone()).await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "one").await;
    server.at_rest().await;
    let other = Server::broker_on_log(source);
    let told = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(told.condition.as_str(), "amqp:internal-error");
    let text = told.description.unwrap();
    assert!(text.as_str().contains("not known whether"), "{text}");
    other.stop();
}
