//! A service that is busy, silent or stingy.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::message::write_data;
use kew_client::{BusOptions, ErrorKind, Message, ReceiverOptions, Retry};
use tokio::time::Instant;

use crate::peer::{Peer, Verdict};
use crate::server::Server;

const BUSY: &str = "com.microsoft:server-busy";

fn message() -> Message {
    Message::new("x")
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_is_given_time() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| {
        it.verdicts
            .extend([Verdict::Reject(BUSY), Verdict::Reject(BUSY)])
    });
    let began = Instant::now();
    sender.send(&message()).await.unwrap();
    let busy_delay = Retry::default().busy_delay;
    assert!(began.elapsed() >= 2 * busy_delay, "{:?}", began.elapsed());
    assert_eq!(peer.with(|it| it.messages.len()), 3);
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_pauses_all_sends_of_a_sender() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.push_back(Verdict::Reject(BUSY)));
    let message = message();
    let first = sender.send(&message);
    tokio::pin!(first);
    tokio::select! {
        _ = &mut first => panic!("the service was busy"),
        () = peer.until(|it| it.messages.len() == 1) => {}
    }
    // The verdict has to come back before the second one begins.
    tokio::select! {
        _ = &mut first => panic!("the service was busy"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let began = Instant::now();
    let (first, second) = tokio::join!(first, sender.send(&message));
    assert!(first.is_ok() && second.is_ok());
    assert!(
        began.elapsed() >= Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stays_busy_is_told_so() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.extend(vec![Verdict::Reject(BUSY); 10]));
    let error = sender.send(&message()).await.unwrap_err();
    assert!(
        error.is_busy() && error.kind() == ErrorKind::TryAgainLater,
        "{error}"
    );
    let tries = Retry::default().retries as usize + 1;
    assert_eq!(peer.with(|it| it.messages.len()), tries);
}

#[tokio::test(start_paused = true)]
async fn what_the_service_gives_back_is_sent_again_and_what_it_refuses_is_not() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.push_back(Verdict::Release));
    sender.send(&message()).await.unwrap();
    assert_eq!(peer.with(|it| it.messages.len()), 2);
    for (condition, kind) in [
        ("amqp:not-allowed", ErrorKind::Refused),
        ("amqp:resource-limit-exceeded", ErrorKind::Refused),
        ("com.microsoft:timeout", ErrorKind::OutcomeUnknown),
        ("amqp:internal-error", ErrorKind::OutcomeUnknown),
    ] {
        let before = peer.with(|it| it.messages.len());
        peer.with(|it| it.verdicts.push_back(Verdict::Reject(condition)));
        let error = sender.send(&message()).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (kind, Some(condition)));
        assert_eq!(peer.with(|it| it.messages.len()), before + 1, "{condition}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_leaves_the_outcome_open_and_the_link_is_replaced() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.push_back(Verdict::Wait));
    let began = Instant::now();
    let error = sender.send(&message()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(began.elapsed() >= Duration::from_secs(60));
    sender.send(&message()).await.unwrap();
    let (messages, attached) = peer.with(|it| {
        let jobs = it.attached.iter().filter(|it| *it == "jobs");
        (it.messages.len(), jobs.count())
    });
    assert_eq!(
        (messages, attached),
        (2, 2),
        "it was not sent again by itself"
    );
}

#[tokio::test(start_paused = true)]
async fn without_credit_nothing_is_sent() {
    let peer = Peer::start();
    peer.with(|it| it.credit = 0);
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    let error = sender.send(&message()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
    assert_eq!(peer.with(|it| it.messages.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_never_went_out_costs_no_other_its_outcome() {
    let peer = Peer::start();
    peer.with(|it| {
        it.credit = 2;
        it.verdicts.extend([Verdict::Release, Verdict::Wait]);
    });
    let client = peer.client(BusOptions {
        retry: Retry {
            retries: 1,
            first_delay: Duration::from_secs(40),
            delay_max: Duration::from_secs(40),
            ..Retry::default()
        },
        ..BusOptions::default()
    });
    let sender = client.sender("jobs").await.unwrap();
    let message = message();
    let began = Instant::now();
    // It comes back, is sent again after 20 s at least, and finds no credit.
    let first = sender.send(&message);
    let second = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        sender.send(&message).await
    };
    let accepted = async {
        tokio::time::sleep(Duration::from_secs(65)).await;
        peer.release();
    };
    let (first, second, ()) = tokio::join!(first, second, accepted);
    let error = first.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
    second.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(65));
    let attached = peer.with(|it| it.attached.iter().filter(|it| *it == "jobs").count());
    assert_eq!(attached, 1);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_never_takes_anything_is_replaced() {
    let peer = Peer::start();
    peer.with(|it| it.credit = 0);
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&message()).await.unwrap_err();
    peer.with(|it| it.credit = 1);
    sender.send(&message()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_nobody_has_is_given_up_without_an_outcome() {
    let peer = Peer::start();
    peer.with(|it| it.verdicts.push_back(Verdict::Wait));
    let client = peer.client(BusOptions {
        links_max: 1,
        ..BusOptions::default()
    });
    let sender = client.sender("jobs").await.unwrap();
    let message = message();
    tokio::select! {
        _ = sender.send(&message) => panic!("nothing was accepted"),
        () = peer.until(|it| it.messages.len() == 1) => {}
    }
    drop(sender);
    let taken = client.sender("jobs").await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Refused, "an outcome may come");
    tokio::time::sleep(Duration::from_secs(61)).await;
    client.sender("jobs").await.unwrap();
    assert_eq!(peer.with(|it| it.connections), 1);
}

#[tokio::test(start_paused = true)]
async fn sends_wait_for_a_place_and_settlements_have_their_own() {
    let peer = Peer::start();
    let client = peer.client(BusOptions {
        sends_max: 2,
        ..BusOptions::default()
    });
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.extend(vec![Verdict::Wait; 3]));
    let message = message();
    let three = async {
        tokio::join!(
            sender.send(&message),
            sender.send(&message),
            sender.send(&message)
        )
    };
    tokio::pin!(three);
    tokio::select! {
        _ = &mut three => panic!("nothing was accepted"),
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
    }
    assert_eq!(peer.with(|it| it.messages.len()), 2);
    // Another sender can still attach: that is no send.
    client.sender("spare").await.unwrap();
    peer.with(|it| it.verdicts.clear());
    peer.release();
    let (first, second, third) = three.await;
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
}

/// A message of the service whose body has that many bytes.
fn large(size: usize) -> Bytes {
    let mut out = BytesMut::new();
    write_data(&mut out, &vec![b'x'; size]);
    out.freeze()
}

/// Service Bus allows 100 MiB in its largest tier, and adds annotations.
#[tokio::test]
async fn by_default_a_client_receives_the_largest_message_of_any_tier() {
    let peer = Peer::start();
    let size = (100 << 20) + (512 << 10);
    peer.with(|it| it.deliveries.push_back(large(size)));
    let client = peer.client(BusOptions::default());
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let message = receiver.receive().await.unwrap();
    assert_eq!(message.body().len(), size);
    message.complete().await.unwrap();
}

#[tokio::test]
async fn a_message_above_the_limit_stays_and_the_error_names_the_setting() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    sender
        .send(&Message::new(vec![b'x'; 70_000]))
        .await
        .unwrap();
    let small = server.client_with(BusOptions {
        message_size_max: 65_536,
        ..server.options()
    });
    let options = ReceiverOptions::default();
    let mut receiver = small.receiver("jobs", options).await.unwrap();
    let error = receiver.receive().await.unwrap_err();
    let code = "amqp:link:message-size-exceeded";
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Refused, Some(code))
    );
    let text = error.text();
    assert!(text.ends_with("message_size_max is 65536 bytes"), "{text}");
    drop(receiver);
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let message = receiver.receive().await.unwrap();
    assert_eq!(
        (message.body().len(), message.delivery_count()),
        (70_000, 0)
    );
    message.complete().await.unwrap();
}
