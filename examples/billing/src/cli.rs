//! The command line of each program. The kind of file is a parameter, so that builds can choose it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::archive::Format;
use crate::check::{Findings, check};
use crate::journal::Journal;
use crate::place::{INLINE_BYTES, Place, Settings};
use crate::program::{print_line, start_log, stop_requested, until_done};
use crate::run::{RunArgs, run};
use crate::start::{PORTS, Plan, find_kew};
use crate::{controller, initiator, measure, page, submit, worker};

/// Seconds without work until the last worker stops, by default.
pub(crate) const IDLE_AFTER_S: u32 = 20;

/// Splits packages into work items. Start as many as you need.
#[derive(Parser)]
struct InitiatorArgs {
    #[command(flatten)]
    settings: Settings,
}

/// Charges the transactions of work items. The scaling agent starts as many as are needed.
#[derive(Parser)]
struct WorkerArgs {
    /// Items at most that are handled at once.
    #[arg(long, env = "BILLING_TASKS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    tasks: u32,
    /// Milliseconds that an item takes beside its computation, as a call of another service would.
    #[arg(long, env = "BILLING_PAUSE_MS", default_value_t = 0)]
    pause_ms: u64,
    /// Port of 127.0.0.1 for its metrics page. Without it, there is no page.
    #[arg(long, env = "BILLING_METRICS_PORT")]
    metrics_port: Option<u16>,
    #[command(flatten)]
    settings: Settings,
}

/// Collects results and keeps them as files. Start as many as you need.
#[derive(Parser)]
struct ControllerArgs {
    #[command(flatten)]
    settings: Settings,
}

/// Connects, and waits until the queues are there.
async fn ready(settings: &Settings) -> Result<Option<Place>> {
    let place = settings.place()?;
    let ensure = || place.ensure();
    tokio::select! {
        stopped = stop_requested() => { stopped?; Ok(None) }
        () = until_done("create the queues", ensure) => Ok(Some(place.clone())),
    }
}

/// The program `billing-initiator`.
pub async fn initiator() -> Result<()> {
    let InitiatorArgs { settings } = InitiatorArgs::parse();
    start_log();
    match ready(&settings).await? {
        Some(place) => initiator::serve(&place).await,
        None => Ok(()),
    }
}

/// The program `billing-worker`.
pub async fn worker() -> Result<()> {
    let args = WorkerArgs::parse();
    start_log();
    let pause = Duration::from_millis(args.pause_ms);
    let metrics = args
        .metrics_port
        .map(|port| (Ipv4Addr::LOCALHOST, port).into());
    match ready(&args.settings).await? {
        Some(place) => worker::serve(&place, args.tasks, pause, metrics).await,
        None => Ok(()),
    }
}

/// The program `billing-controller`.
pub async fn controller<F: Format>() -> Result<()> {
    let ControllerArgs { settings } = ControllerArgs::parse();
    start_log();
    match ready(&settings).await? {
        Some(place) => controller::serve::<F>(&place).await,
        None => Ok(()),
    }
}

/// Submits packages, checks their charges, and runs everything.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start Kew, all programs, the scaling agent and the page, submit transactions, check and report.
    Run(RunArgs),
    /// Submit packages of transactions.
    Submit(SubmitArgs),
    /// Wait until all submitted transactions are in files, compare each with what was submitted, and report.
    Check(CheckArgs),
    /// Serve a page that shows how far the work is.
    Page(PageArgs),
    /// Measure what saves requests, and what push costs, with a Kew of its own.
    Measure(MeasureArgs),
}

#[derive(Args)]
pub(crate) struct Amount {
    /// Transactions in all.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) transactions: u64,
    /// Transactions of each package.
    #[arg(long, default_value_t = 50_000)]
    package_size: u32,
    /// Transactions of each work item.
    #[arg(long, default_value_t = 1_000)]
    part_size: u32,
    /// What the transactions are made of.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Amount {
    pub(crate) fn plan(&self) -> submit::Plan {
        submit::Plan {
            transactions: self.transactions,
            package_size: self.package_size,
            part_size: self.part_size,
            seed: self.seed,
        }
    }
}

#[derive(Args)]
struct SubmitArgs {
    #[command(flatten)]
    amount: Amount,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Args)]
struct CheckArgs {
    /// Seconds to wait for packages that are not complete yet.
    #[arg(long, default_value_t = 600)]
    wait: u64,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Args)]
struct PageArgs {
    /// Address of the page.
    #[arg(long, env = "BILLING_LISTEN", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Args)]
struct MeasureArgs {
    /// Folder for its data: a new one, or that of an earlier measurement.
    #[arg(long, default_value = "billing-measured")]
    data: PathBuf,
    /// Transactions of the measurements under load.
    #[arg(long, default_value_t = 10_000)]
    transactions: u32,
    /// Seconds of each measurement of idle programs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// The program `billing`.
pub async fn billing<F: Format>() -> Result<()> {
    let Arguments { command } = Arguments::parse();
    start_log();
    match command {
        Command::Run(args) => run::<F>(&args).await,
        Command::Submit(args) => {
            let place = args.settings.place()?;
            until_done("create the queues", || place.ensure()).await;
            let count = submit::submit(&place, args.amount.plan()).await?;
            print_line(&format!("submitted={count}"));
            Ok(())
        }
        Command::Check(args) => {
            let place = args.settings.place()?;
            report::<F>(&place, Duration::from_secs(args.wait)).await
        }
        Command::Page(args) => {
            let place = args.settings.place()?;
            let archive = place.archive::<F>().await?;
            let listener = bind(args.listen).await?;
            print_line(&format!("BILLING_PAGE=http://{}", listener.local_addr()?));
            tokio::select! {
                stopped = stop_requested() => Ok(stopped?),
                served = page::serve(place, archive, listener) => served,
            }
        }
        Command::Measure(args) => {
            let plan = plan_of(&args.data, 20, 0, 2)?;
            let options = measure::Options {
                transactions: args.transactions,
                idle: Duration::from_secs(args.seconds),
            };
            measure::measure(&plan, options).await
        }
    }
}

pub(crate) async fn bind(listen: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(listen).await;
    listener.with_context(|| {
        format!("cannot listen on {listen}: free it, or choose another address with BILLING_LISTEN")
    })
}

pub(crate) fn plan_of(
    data: &std::path::Path,
    timeout_s: u32,
    pause_ms: u64,
    look_every_s: u32,
) -> Result<Plan> {
    let programs = std::env::current_exe()?;
    let programs = programs.parent().context("programs are in a folder")?;
    std::fs::create_dir_all(data)?;
    let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    Ok(Plan {
        kew: find_kew(programs)?,
        programs: programs.to_owned(),
        data: data.canonicalize()?,
        listen: [anywhere; 2],
        timeout_s,
        pause_ms,
        look_every_s,
        idle_after_s: IDLE_AFTER_S,
        inline_bytes: INLINE_BYTES,
        ports: PORTS.to_owned(),
        log: None,
    })
}

/// Waits until all packages are complete, compares them, and prints what was found.
pub(crate) async fn report<F: Format>(place: &Place, wait: Duration) -> Result<()> {
    let (journal, archive) = (Journal::of(&place.data), place.archive::<F>().await?);
    let began = Instant::now();
    let findings = loop {
        let submitted = journal.read()?;
        let complete = archive.packages().await?.len();
        if complete >= submitted.len() || began.elapsed() > wait {
            break check(&archive, &submitted).await?;
        }
        sleep(Duration::from_millis(100)).await;
    };
    print_findings(&findings);
    // Kew may be on its way back.
    let poisoned = until_done("read the poison queues", || poisoned(place)).await;
    match findings.is_good() && poisoned == 0 {
        true => {
            print_line("every submitted transaction is charged exactly once");
            Ok(())
        }
        false => bail!("the files are not as submitted; {poisoned} messages moved aside"),
    }
}

fn print_findings(findings: &Findings) {
    print_line(&findings.to_string());
    for (tariff, (count, cents)) in &findings.tariffs {
        print_line(&format!(
            "tariff={tariff} transactions={count} cents={cents}"
        ));
    }
    let [median, most] = [50, 100].map(|it| findings.latency_ms(it));
    print_line(&format!(
        "package_latency_ms_p50={median} package_latency_ms_max={most}"
    ));
    for fault in &findings.faults {
        print_line(fault);
    }
}

/// Messages that no program could handle.
async fn poisoned(place: &Place) -> Result<u64> {
    let mut count = 0;
    for queue in crate::place::QUEUES {
        let read = place
            .queues
            .queue_properties(&format!("{queue}-poison"))
            .await;
        match read {
            Ok(found) => count += found.approximate_message_count,
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}
