//! The web service of the bank.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use kew_bank::ledger::Ledger;
use kew_bank::program::{print_line, start_log, stop_requested, until_done};
use kew_bank::queue::EnsureError;
use kew_bank::settings::{LISTEN, Settings};
use kew_bank::web::{Bank, Limits, router, serve};
use tokio::net::TcpListener;

/// Accepts transactions, queues them, and confirms them at once. Answers card payments from the balance.
#[derive(Parser)]
struct Arguments {
    /// Address of the service. With port 0 the system chooses one; the first line of output says which.
    #[arg(long, env = "BANK_LISTEN", default_value = LISTEN)]
    listen: SocketAddr,
    #[command(flatten)]
    settings: Settings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { listen, settings } = Arguments::parse();
    start_log();
    let (queue, store) = (settings.service.queue()?, settings.places.store());
    let listener = TcpListener::bind(listen).await;
    let listener = listener.with_context(|| {
        format!("cannot listen on {listen}: free it, or choose another address with BANK_LISTEN")
    })?;
    let bank = Arc::new(Bank::without_stores(queue));
    print_line(&format!("BANK_WEB=http://{}", listener.local_addr()?));
    // The page and error answers wait for neither the stores nor the queue, and card payments not for the queue.
    let mut end = Ok(());
    let stop = async {
        end = tokio::select! {
            stopped = stop_requested() => stopped.map_err(Into::into),
            failed = Box::pin(prepare(&bank, &store)) => failed,
            () = Box::pin(bank.follow_lost_leases()) => Ok(()),
        };
    };
    serve(listener, router(bank.clone()), Limits::default(), stop).await;
    end
}

/// Opens the stores and creates the queue, as soon as they can be reached. Returns only if one of them never can.
async fn prepare(bank: &Bank, store: &str) -> anyhow::Result<()> {
    let open = async {
        let open = || Ledger::open(store);
        bank.open(until_done("open the store", open, Ledger::can_open_later).await?);
        anyhow::Ok(())
    };
    let ensure = async {
        let ensure = || bank.queue().ensure();
        until_done("create the queue", ensure, EnsureError::can_pass).await?;
        anyhow::Ok(())
    };
    tokio::try_join!(open, ensure)?;
    pending().await
}
