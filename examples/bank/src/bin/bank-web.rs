//! The web service of the bank.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;
use kew_bank::ledger::Ledger;
use kew_bank::program::{print_line, start_log, stop_requested, until_done};
use kew_bank::settings::Settings;
use kew_bank::web::{Bank, router};
use tokio::net::TcpListener;

/// Accepts transactions, queues them, and confirms them at once. Answers card payments from the balance.
#[derive(Parser)]
struct Arguments {
    /// Address of the service. With port 0 the system chooses one; the first line of output says which.
    #[arg(long, env = "BANK_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    settings: Settings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { listen, settings } = Arguments::parse();
    start_log();
    let queue = settings.queue()?;
    let listener = TcpListener::bind(listen).await?;
    let ledger = until_done("open the store", || Ledger::open(&settings.store)).await;
    let bank = Arc::new(Bank::new(ledger, queue));
    let creating = {
        let bank = bank.clone();
        // Look-ups and card payments do not wait for the queue.
        tokio::spawn(async move {
            until_done("create the queue", || bank.queue().ensure()).await;
        })
    };
    print_line(&format!("BANK_WEB=http://{}", listener.local_addr()?));
    axum::serve(listener, router(bank))
        .with_graceful_shutdown(async {
            if let Err(error) = stop_requested().await {
                tracing::error!(%error, "signals cannot be received");
            }
        })
        .await?;
    creating.abort();
    Ok(())
}
