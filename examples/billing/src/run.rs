//! The command `run`: everything at once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::archive::Format;
use crate::cli::{Amount, IDLE_AFTER_S, bind, plan_of, report};
use crate::place::{INLINE_BYTES, Place, RECHECK_S, Settings};
use crate::program::{print_line, stop_requested};
use crate::start::PORTS;
use crate::supervise::Supervisor;
use crate::{measure, page, submit};

/// How often the agent looks, unless work is announced.
const LOOK_EVERY_S: u32 = 10;

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    amount: Amount,
    /// Folder for all data. It is created if it does not exist.
    #[arg(long, env = "BILLING_DATA", default_value = "billing-data")]
    data: PathBuf,
    /// Address of the page.
    #[arg(long, env = "BILLING_LISTEN", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Worker instances at most.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=20))]
    instances: u32,
    /// Items at most that a worker handles at once.
    #[arg(long, default_value_t = 8)]
    tasks: u32,
    /// Milliseconds that an item takes beside its computation.
    #[arg(long, default_value_t = 100)]
    pause_ms: u64,
    /// Seconds that a program may have a message.
    #[arg(long, default_value_t = 20)]
    timeout_s: u32,
    /// Seconds without work until the last worker stops.
    #[arg(long, default_value_t = IDLE_AFTER_S)]
    idle_after_s: u32,
    /// Ports for the metrics of workers, at least as many as there are instances.
    #[arg(long, env = "BILLING_PORTS", default_value = PORTS)]
    ports: String,
    /// Bytes after compression that a message has itself. A longer one is an object that the message names.
    #[arg(long, env = "BILLING_INLINE_BYTES", default_value_t = INLINE_BYTES)]
    inline_bytes: usize,
    /// Seconds to wait for the last package.
    #[arg(long, default_value_t = 1_800)]
    wait: u64,
    /// Go on until Ctrl-C after the report, so that you can look at the page and submit more.
    #[arg(long)]
    stay: bool,
}

/// Starts everything, and stops it at the end, whatever happened in between.
pub(crate) async fn run<F: Format>(args: &RunArgs) -> Result<()> {
    let mut plan = plan_of(&args.data, args.timeout_s, args.pause_ms, LOOK_EVERY_S)?;
    plan.idle_after_s = args.idle_after_s;
    plan.inline_bytes = args.inline_bytes;
    plan.ports.clone_from(&args.ports);
    let mut programs = Supervisor::start(plan, args.instances, args.tasks).await?;
    let done = {
        let mut stop = pin!(stop_requested());
        tokio::select! {
            stopped = &mut stop => stopped.map_err(Into::into),
            ran = all::<F>(args, &mut programs) => ran,
        }
    };
    let stopped = programs.stop().await;
    done.and(stopped)
}

async fn all<F: Format>(args: &RunArgs, programs: &mut Supervisor) -> Result<()> {
    let (plan, services) = (programs.plan(), programs.services());
    let settings = Settings {
        data: plan.data.clone(),
        storage: services.storage.clone(),
        bus: Some(services.bus.clone()),
        timeout_s: plan.timeout_s,
        inline_bytes: plan.inline_bytes,
        recheck_s: RECHECK_S,
    };
    let kew = plan.queue_storage();
    let place = settings.place()?;
    place.ensure().await?;
    for name in ["billing-controller", "billing-initiator", "agent"] {
        programs.add(name).await?;
    }
    let listener = bind(args.listen).await?;
    print_line(&format!("the page is at http://{}", listener.local_addr()?));
    let archive = place.archive::<F>().await?;
    let shown = tokio::spawn(page::serve(place.clone(), archive, listener));
    let before = measure::requests(kew).await?;
    let took = tokio::select! {
        gave_up = programs.watch() => return gave_up,
        took = work::<F>(args, &place) => took?,
    };
    // Kew counts again from 0 when it starts again.
    let requests = match programs.has_restarted_kew() {
        true => None,
        false => Some(measure::requests(kew).await?.saturating_sub(before)),
    };
    summary(args, took, requests);
    if args.stay {
        say_how_to_submit(&settings);
        return programs.watch().await;
    }
    shown.abort();
    Ok(())
}

/// Submits, and waits until all is checked. Returns how long that took.
async fn work<F: Format>(args: &RunArgs, place: &Place) -> Result<Duration> {
    let began = Instant::now();
    let submitted = submit::submit(place, args.amount.plan()).await?;
    print_line(&format!(
        "submitted {submitted} packages in {:.1?}",
        began.elapsed()
    ));
    report::<F>(place, Duration::from_secs(args.wait)).await?;
    Ok(began.elapsed())
}

/// Kew has free ports and a key of its own, so a customer needs these.
fn say_how_to_submit(settings: &Settings) {
    print_line("to submit more, set these, and start billing submit; then billing check:");
    print_line(&format!("export BILLING_STORAGE='{}'", settings.storage));
    if let Some(bus) = &settings.bus {
        print_line(&format!("export BILLING_BUS='{bus}'"));
    }
    print_line(&format!(
        "export BILLING_DATA='{}'",
        settings.data.display()
    ));
    print_line("Ctrl-C stops everything");
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn summary(args: &RunArgs, took: Duration, requests: Option<u64>) {
    let (count, seconds) = (args.amount.transactions as f64, took.as_secs_f64());
    let cost = match requests {
        Some(requests) => {
            let dollars = requests as f64 * 0.01 / 10_000.0;
            format!("storage_requests={requests} dollars={dollars:.4}")
        }
        None => "storage_requests=unknown, because Kew was started again".to_owned(),
    };
    print_line(&format!(
        "seconds={seconds:.1} transactions_a_second={:.0} {cost}",
        count / seconds
    ));
}
