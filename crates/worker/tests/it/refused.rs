//! A service of Service Bus that refuses the details of a failure, because they make the message too large.

use bytes::{Bytes, BytesMut};
use kew_amqp::message::write_data;
use kew_client::BusOptions;
use kew_worker::{BusSource, Failure, Listener, Text, handler_fn};

use crate::peer::Peer;
use crate::suite::until;

fn data(text: &str) -> Bytes {
    let mut payload = BytesMut::new();
    write_data(&mut payload, text.as_bytes());
    payload.freeze()
}

/// Has a message fail whose first settlement is refused, over its link. Returns that and the second one, by its token, as
/// they are shown.
async fn settlements(failure: fn() -> Failure) -> [String; 2] {
    let peer = Peer::start();
    peer.with(|it| {
        it.deliveries.push_back(data("x"));
        it.refusals.push_back("amqp:not-allowed");
    });
    let client = peer.client(BusOptions::default());
    let listener = Listener::builder(BusSource::new(client, "ns", "jobs"), Text)
        .subscribe(handler_fn(move |_| async move { Err(failure()) }))
        .build();
    listener.start(1).unwrap();
    let settled = async || peer.with(|it| it.requests.len()) == 1;
    until("it is settled again", settled).await;
    peer.with(|it| match (&it.outcomes[..], &it.requests[..]) {
        ([refused], [second]) => [format!("{refused:?}"), second.clone()],
        other => panic!("{other:?}"),
    })
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_details_are_refused_goes_with_little() {
    let large = || Failure::new("long ".repeat(500)).permanent("Large");
    let [all, little] = settlements(large).await;
    let text = "long ".repeat(500);
    assert!(all.contains("kew-history") && all.contains(&text), "{all}");
    assert!(
        little.contains("Large") && little.contains("long long"),
        "{little}"
    );
    assert!(
        !little.contains("kew-history") && little.len() < 1_000,
        "{little}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_history_is_refused_returns_without_it() {
    let [with, without] = settlements(|| Failure::new("not now")).await;
    assert!(
        with.contains("Modified") && with.contains("kew-history"),
        "{with}"
    );
    assert!(
        without.contains("abandoned") && !without.contains("kew-history"),
        "{without}"
    );
}
