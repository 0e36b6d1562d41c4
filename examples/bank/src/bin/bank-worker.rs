//! A worker of the bank.

use std::time::Duration;

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
    kew_worker::install_panic_hook();
    let instance = instance.unwrap_or_else(|| std::process::id().to_string());
    let queue = settings.queue()?;
    let begin = async {
        let open = || Ledger::open(&settings.store);
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
    let reports = async {
        let mut last = None;
        for second in 0_u64.. {
            let report = worker.report(&instance);
            // An idle worker says every two seconds that it is there.
            if last.as_ref() != Some(&report) || second.is_multiple_of(2) {
                if let Err(error) = ledger.report(report.clone()).await {
                    tracing::debug!(%error, "the report was not stored");
                }
                last = Some(report);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        stopped = stop_requested() => stopped?,
        () = reports => {}
    }
    let report = worker.stop().await;
    tracing::info!(?report, "stopped");
    Ok(())
}
