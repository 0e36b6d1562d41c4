//! One message after another, to a receiver that waits.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use serde::Serialize;

use crate::ends::{Ends, Received, Receiving, Sending, stamped};
use crate::options::{Latency, Target};
use crate::report::Spread;

/// The time limit for a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    protocol: String,
    size: u32,
    messages: u32,
    /// From the send to the settlement.
    settled: Option<Spread>,
    /// From the send to the arrival.
    arrived: Option<Spread>,
    /// From the settlement to the arrival. Negative if the message arrived first.
    settled_to_arrived: Option<Spread>,
}

/// The times of one message, in microseconds since it was sent.
struct Took {
    settled_us: i64,
    arrived_us: i64,
}

/// Measures, and leaves the queue empty.
pub(crate) async fn run(target: &Target, options: &Latency) -> Result<Outcome> {
    let took = match Ends::connect(target, &options.queue, 10).await? {
        Ends::Amqp10(mut ends) => measure(&mut ends.0, &mut ends.1, options).await?,
        Ends::Amqp091(mut ends) => measure(&mut ends.0, &mut ends.1, options).await?,
        Ends::Null(mut ends) => measure(&mut ends.0, &mut ends.1, options).await?,
    };
    let spread = |pick: fn(&Took) -> i64| Spread::of(took.iter().map(pick).collect());
    Ok(Outcome {
        mode: "latency",
        protocol: format!("{:?}", target.protocol).to_lowercase(),
        size: options.size,
        messages: options.count,
        settled: spread(|took| took.settled_us),
        arrived: spread(|took| took.arrived_us),
        settled_to_arrived: spread(|took| took.arrived_us - took.settled_us),
    })
}

async fn measure(
    sender: &mut impl Sending,
    receiver: &mut impl Receiving,
    options: &Latency,
) -> Result<Vec<Took>> {
    let mut all = Vec::new();
    for number in 0..options.count {
        // The receiver has completed the last message and waits again by now.
        tokio::time::sleep(Duration::from_millis(options.pause_ms)).await;
        let one = measure_one(sender, receiver, u64::from(number), options.size);
        let took = tokio::time::timeout(MESSAGE_TIMEOUT, one).await;
        all.push(took.with_context(|| format!("message {number} took too long"))??);
    }
    receiver.leave().await?;
    Ok(all)
}

async fn measure_one(
    sender: &mut impl Sending,
    receiver: &mut impl Receiving,
    stamp: u64,
    size: u32,
) -> Result<Took> {
    let body = Bytes::from(stamped(stamp, size));
    while !sender.send(body.clone()).await? {
        sender.settled().await?;
    }
    let began = Instant::now();
    let elapsed_us = || i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
    let (mut settled_us, mut arrived_us) = (None, None);
    let mut received = Received::default();
    while settled_us.is_none() || received.completed == 0 {
        tokio::select! {
            count = sender.settled() => {
                if count? > 0 {
                    settled_us = Some(elapsed_us());
                }
            }
            result = receiver.received(&mut received) => {
                result?;
                if received.stamps.iter().any(|&other| other != stamp) {
                    bail!("the queue was not empty");
                }
                if !received.stamps.is_empty() {
                    arrived_us.get_or_insert_with(elapsed_us);
                }
            }
        }
    }
    let (Some(settled_us), Some(arrived_us)) = (settled_us, arrived_us) else {
        bail!("a message was completed that did not arrive");
    };
    Ok(Took {
        settled_us,
        arrived_us,
    })
}
