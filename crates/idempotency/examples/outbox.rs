//! Sends a mail for each booking, although the mail server fails at first. The mail is written with the booking, and
//! sent after its commit.
//!
//! Run it with `cargo run -p kew-idempotency --example outbox`. With the feature `client`, `BusPublisher` sends the
//! messages to Service Bus.
#![expect(clippy::print_stdout, reason = "the example shows what it does")]

use std::sync::atomic::{AtomicU32, Ordering};

use kew_idempotency::{
    BusinessId, Guard, GuardOptions, OutboxMessage, Publish, PublishError, Pump, PumpOptions,
    Scope, SqliteOptions, SqliteStore, StoreError, Transaction as _,
};
use tokio::sync::mpsc;

/// Accepts a message at the second try.
struct Mails {
    tries: AtomicU32,
    accepted: mpsc::Sender<String>,
}

impl Publish for Mails {
    async fn publish(&self, message: &OutboxMessage) -> Result<(), PublishError> {
        if self.tries.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            println!("{} is not accepted", message.id);
            return Err(PublishError::later("the mail server is busy"));
        }
        println!("{} is accepted", message.id);
        let accepted = self.accepted.send(message.id.clone()).await;
        accepted.map_err(PublishError::later)
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bank.sqlite");
    let store = SqliteStore::open(path, SqliteOptions::default()).await?;

    // The pump runs beside the workers, here or in another process.
    let (accepted, mut mails) = mpsc::channel(9);
    let publisher = Mails {
        tries: AtomicU32::new(0),
        accepted,
    };
    let pump = Pump::new(store.clone(), publisher, PumpOptions::default())?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        // An error says that the sender was dropped, which stops the pump, too.
        pump.run(async { drop(stopped.await) }).await;
    });

    let guard = Guard::new(store, Scope::new("bookings")?, GuardOptions::default())?;
    for booking in ["b-1", "b-2", "b-1"] {
        let id = BusinessId::new(booking)?;
        let booked = guard.run(&id, |transaction| {
            Box::pin(async move {
                // Change the balances here, with `transaction.call`.
                let text = format!("{booking} is booked");
                let mail = OutboxMessage::new("mails", format!("mail-{booking}"), text);
                transaction.enqueue(&mail).await?;
                Ok::<_, StoreError>(())
            })
        });
        let is_repeated = booked.await?.is_repeated();
        println!("{booking}: repeated: {is_repeated}");
    }
    for _ in 0..2 {
        mails.recv().await.ok_or("the pump ended")?;
    }
    drop(stop);
    running.await?;
    Ok(())
}
