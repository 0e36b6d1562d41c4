//! A worker of the bank.

use clap::Parser;
use kew_bank::ledger::Ledger;
use kew_bank::program::{print_line, start_log, stop_requested, until_done};
use kew_bank::queue::EnsureError;
use kew_bank::settings::Settings;
use kew_bank::worker::Worker;

/// Takes transactions from the queue and books each one once. Start as many as you need.
#[derive(Parser)]
struct Arguments {
    /// Name of this instance on the page. Default: its process id.
    #[arg(long, env = "BANK_INSTANCE")]
    instance: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { instance, settings } = Arguments::parse();
    start_log();
    kew_worker::capture_backtraces();
    kew_worker::install_panic_hook();
    let instance = instance.unwrap_or_else(|| std::process::id().to_string());
    let queue = settings.service.queue()?;
    let store = settings.places.store();
    let begin = async {
        let open = || Ledger::open(&store);
        let ledger = until_done("open the store", open, Ledger::can_open_later).await?;
        let ensure = || queue.ensure();
        until_done("create the queue", ensure, EnsureError::can_pass).await?;
        anyhow::Ok(ledger)
    };
    let ledger = tokio::select! {
        stopped = stop_requested() => return Ok(stopped?),
        ledger = begin => ledger?,
    };
    let worker = Worker::start(&queue, ledger.clone());
    print_line(&format!("BANK_WORKER={instance}"));
    tokio::select! {
        stopped = stop_requested() => stopped?,
        () = worker.report_to(&ledger, &instance) => {}
    }
    let report = worker.stop().await;
    tracing::info!(?report, "stopped");
    Ok(())
}
