//! Sends a large report through a queue: the report lies in a folder, and the message refers to it.
//!
//! Run it with `cargo run -p kew-claim-check --example claim_check`. The queue is a channel here; use any client.
#![expect(clippy::print_stdout, reason = "the example shows what it does")]

use std::time::Duration;

use kew_claim_check::{ClaimCheck, ClaimCheckOptions, ClaimStore, Content};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = ClaimStore::folder(folder.path())?;
    let options = ClaimCheckOptions {
        // The time to live of the queue's messages. Without it nothing is swept.
        message_life: Some(Duration::from_hours(7 * 24)),
        ..ClaimCheckOptions::default()
    };
    let claims = ClaimCheck::new(store, options)?;
    let (queue, mut messages) = tokio::sync::mpsc::channel(1);

    // The sender. Several messages go together, in one object and one message.
    let mut group = claims.new_group();
    for order in 0..10_000 {
        let order = format!(r#"{{"order":{order},"random":{}}}"#, order * 7_919 % 10_007);
        group.push(order).map_err(|_| "the group is full")?;
    }
    println!("{} messages have {} bytes", group.len(), group.size_bytes());
    let content = Content::group("application/json", group.into_items());
    let outgoing = claims.check_in(content).await?;
    println!("the message has {} bytes", outgoing.body.len());
    queue.send(outgoing.body).await?;

    // The receiver.
    let body = messages.recv().await.ok_or("no message")?;
    let incoming = claims.check_out(&body).await?;
    println!("{} messages came", incoming.content.into_items().len());
    // Settle the message here, and then remove the object.
    claims.release(&incoming.claim).await?;

    // Once a day: what crashes left behind.
    let swept = claims.sweep(10_000).await?;
    println!("{} orphans were removed", swept.removed);
    Ok(())
}
