//! The same messages, sent in two ways.

use std::sync::Arc;

use kew_client::{Error, Message, Sender};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

fn message(number: usize) -> Message {
    Message::new(format!("message {number}"))
}

/// Each send waits until the one before it has its outcome.
pub(crate) async fn one_by_one(sender: &Sender, count: usize) -> Result<(), Error> {
    for number in 0..count {
        sender.send(&message(number)).await?;
    }
    Ok(())
}

/// Up to `in_flight` sends wait for their outcomes at the same time, and none of the outcomes is lost.
pub(crate) async fn pipelined(
    sender: &Arc<Sender>,
    count: usize,
    in_flight: usize,
) -> Result<(), Error> {
    let places = Arc::new(Semaphore::new(in_flight));
    let mut sends = JoinSet::new();
    for number in 0..count {
        // It waits here while all places are taken: the bound on what is in memory and on its way.
        let place = places.clone().acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        let sender = sender.clone();
        sends.spawn(async move {
            let sent = sender.send(&message(number)).await;
            drop(place);
            sent
        });
    }
    for sent in sends.join_all().await {
        sent?;
    }
    Ok(())
}
