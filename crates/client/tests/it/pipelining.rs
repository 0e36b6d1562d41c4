//! What `examples/pipelining` shows, by a clock that the test moves.

#[path = "../../examples/pipelining/delay.rs"]
mod delay;
#[path = "../../examples/pipelining/sends.rs"]
mod sends;

use std::sync::Arc;
use std::time::Duration;

use delay::Delayed;
use kew_client::{BusClient, BusNamespace, BusOptions};
use tokio::time::Instant;

use crate::peer::{Peer, Verdict};
use crate::server::CONNECTION_STRING;

const MESSAGES: usize = 100;
const ROUND_TRIP: Duration = Duration::from_millis(70);

fn client(peer: &Arc<Peer>) -> BusClient {
    peer.with(|it| it.credit = 1_000);
    let delayed = Delayed {
        inner: peer.door(),
        round_trip: ROUND_TRIP,
    };
    let options = BusOptions {
        dial: Some(Arc::new(delayed)),
        ..BusOptions::default()
    };
    let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
    BusClient::new(namespace, options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn sends_in_flight_are_five_times_as_fast() {
    let peer = Peer::start();
    let sender = Arc::new(client(&peer).sender("jobs").await.unwrap());
    let begun = Instant::now();
    sends::one_by_one(&sender, MESSAGES).await.unwrap();
    let one_by_one = begun.elapsed();
    let begun = Instant::now();
    sends::pipelined(&sender, MESSAGES, 10).await.unwrap();
    let pipelined = begun.elapsed();
    assert_eq!(peer.with(|it| it.messages.len()), 2 * MESSAGES);
    // Each waits for its answer, and the path is no faster than it says.
    assert!(one_by_one >= 100 * ROUND_TRIP, "{one_by_one:?}");
    assert!(pipelined >= 10 * ROUND_TRIP, "{pipelined:?}");
    assert!(
        one_by_one >= 5 * pipelined,
        "{one_by_one:?} and {pipelined:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_a_send_in_flight_is_not_lost() {
    let peer = Peer::start();
    let sender = Arc::new(client(&peer).sender("jobs").await.unwrap());
    peer.with(|it| {
        let refused = Verdict::Reject("com.microsoft:entity-disabled");
        it.verdicts
            .extend([Verdict::Accept, refused, Verdict::Accept]);
    });
    let error = sends::pipelined(&sender, 10, 10).await.unwrap_err();
    assert_eq!(error.code(), Some("com.microsoft:entity-disabled"));
    assert_eq!(peer.with(|it| it.messages.len()), 10);
}
