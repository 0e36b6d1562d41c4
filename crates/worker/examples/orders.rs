//! A worker that books orders from a queue of Queue Storage, and a front end that sends some.
//!
//! Start Kew with `kew serve --ephemeral`, then run `cargo run -p kew-worker --example orders`. Set
//! `AZURE_STORAGE_CONNECTION_STRING` for another service. The program ends when all orders are booked.

use std::error::Error;
use std::time::Duration;

use kew_client::{ConnectionString, QueueAccount, QueueClient, QueueOptions};
use kew_worker::{
    AnnounceWhen, Delivery, Envelopes, Failure, Handler, Json, Lease, Listener, LocalPush,
    QueueSource, QueueTarget, Sender, Stop, install_panic_hook, metrics_page,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u32,
    amount: i64,
}

/// The work of the application.
struct Books;

impl<L: Lease> Handler<Order, L> for Books {
    async fn handle(&self, delivery: Delivery<Order, L>) -> Result<(), Failure> {
        let order = delivery.message();
        if order.amount < 0 {
            // Another try would not change it: it goes to `orders-poison`.
            return Err(Failure::new("a negative amount").permanent("InvalidAmount"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    install_panic_hook();
    let account = match std::env::var("AZURE_STORAGE_CONNECTION_STRING") {
        Ok(text) => match ConnectionString::parse(&text)? {
            ConnectionString::Queue(account) => account,
            ConnectionString::Bus(_) => return Err("not a string of Queue Storage".into()),
        },
        Err(_) => QueueAccount::development(),
    };
    let client = QueueClient::new(account, QueueOptions::default())?;
    client.create_queue("orders", &[]).await?;

    let push = LocalPush::new();
    let source = QueueSource::new(client.clone(), "orders-account", "orders");
    let listener = Listener::builder(source.envelopes(Envelopes::On), Json::<Order>::new())
        .subscribe(Books)
        .handlers_max(16)
        .push(push.subscribe())
        .build();
    listener.start(1)?;

    let target = QueueTarget::new(client, "orders-account", "orders");
    let sender = Sender::new(Json::new(), target.envelopes(Envelopes::On), "front end");
    let orders: Vec<Order> = (0..200)
        .map(|id| Order {
            id,
            amount: if id == 13 { -1 } else { 100 },
        })
        .collect();
    sender
        .send_package(&orders, &push, AnnounceWhen::First)
        .await?;

    while listener.state().completed + listener.state().buried < 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let report = listener.stop(Stop::default()).await;
    let mut out = std::io::stdout().lock();
    use std::io::Write as _;
    writeln!(out, "{}", metrics_page([listener.metrics()]))?;
    writeln!(out, "{report:?}")?;
    Ok(())
}
