//! The command line of the bank.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use hyper::Method;
use kew_bank::audit::{Confirmed, Findings, audit};
use kew_bank::chance::Chance;
use kew_bank::client::Client;
use kew_bank::ledger::Ledger;
use kew_bank::program::{print_line, start_log, stop_requested};
use kew_bank::replay::{Peak, open_journal, read_journal, replay, write_journal};
use kew_bank::returns::{Returned, return_all};
use kew_bank::settings::{Journal, LISTEN, Places, QueueSettings, ServiceSettings, WEB};
use kew_bank::start::{Plan, Profile, Program, find_kew};
use tokio::time::sleep;

/// Starts a bank, replays peaks, and checks that every confirmed transaction is booked exactly once.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start Kew, the web service and the workers. Ctrl-C stops all of them.
    Start(StartArgs),
    /// Send the transactions of a peak to the web service, and repeat each until it is confirmed.
    Replay(ReplayArgs),
    /// Wait until all confirmed transactions are booked, and compare balances with transactions.
    Check(CheckArgs),
    /// Show the balances.
    Balances(Places),
    /// Put messages back into the queue that were moved aside, after you fixed their cause.
    Return(ServiceSettings),
}

#[derive(Args)]
struct StartArgs {
    /// Number of workers.
    #[arg(long, env = "BANK_INSTANCES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    instances: u32,
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    queue: QueueSettings,
    /// Address of the web service and its page.
    #[arg(long, env = "BANK_LISTEN", default_value = LISTEN)]
    listen: SocketAddr,
    /// Put the queue on Kew's Service Bus, and not on its Queue Storage.
    #[arg(long)]
    bus: bool,
    /// Replay all peaks, check, and end.
    #[arg(long)]
    demo: bool,
    /// Transactions of each peak of the demo.
    #[arg(long, default_value_t = 500)]
    transactions: u64,
    /// Seconds of each peak of the demo.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Args)]
struct ReplayArgs {
    /// The peak.
    #[arg(long, value_enum)]
    peak: Peak,
    /// Address of the web service.
    #[arg(long, env = "BANK_WEB", default_value = WEB)]
    web: String,
    /// Number of transactions.
    #[arg(long, default_value_t = 500)]
    transactions: u64,
    /// Length of the peak.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Calls at the same time.
    #[arg(long, default_value_t = 32)]
    callers: usize,
    #[command(flatten)]
    journal: Journal,
    #[command(flatten)]
    places: Places,
}

#[derive(Args)]
struct CheckArgs {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    journal: Journal,
    /// Seconds to wait for transactions that are not booked yet.
    #[arg(long, default_value_t = 60)]
    wait: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { command } = Arguments::parse();
    start_log();
    match command {
        Command::Start(args) => start(args).await,
        Command::Replay(args) => {
            let chance = &mut Chance::from_system()?;
            replay_one(&args, chance).await.map(drop)
        }
        Command::Check(args) => {
            let journal = args.journal.path(&args.places);
            let confirmed = read_journal(&journal).with_context(|| {
                let path = journal.display();
                format!("cannot read {path}, which bank replay writes: replay a peak first")
            })?;
            check(&args.places, &confirmed, Duration::from_secs(args.wait)).await
        }
        Command::Balances(places) => {
            let ledger = stores_of(&places).await?;
            for balance in ledger.balances(u32::MAX).await? {
                print_line(&format!(
                    "{:<40}{:>16}",
                    balance.key,
                    balance.balance.to_string()
                ));
            }
            Ok(())
        }
        Command::Return(settings) => give_back(&settings).await,
    }
}

async fn give_back(settings: &ServiceSettings) -> Result<()> {
    let queue = settings.queue()?;
    let Returned {
        returned,
        unreadable,
    } = return_all(&queue).await?;
    print_line(&format!("returned={returned} unreadable={unreadable}"));
    if unreadable > 0 {
        print_line(
            "messages that are no transactions stay: look at them with kew queue peek or kew dlq list",
        );
    }
    Ok(())
}

/// Replays a peak, and returns what was confirmed.
async fn replay_one(args: &ReplayArgs, chance: &mut Chance) -> Result<Vec<Confirmed>> {
    let web = &args.web;
    let client = Client::new(web).with_context(|| format!("{web} is not http://HOST:PORT"))?;
    // Callers repeat each call forever, so this is found out before.
    let no_bank = || {
        format!(
            "no bank answers at {web}: start it with examples/bank/start, or set BANK_WEB to its address"
        )
    };
    let answer = client.call(Method::GET, "/state", None, "").await;
    let answer = answer.with_context(no_bank)?;
    let state: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
    if answer.status != 200 || state.is_none_or(|it| it.get("queue").is_none()) {
        bail!("{}", no_bank());
    }
    let path = args.journal.path(&args.places);
    let cannot_write = || format!("cannot write {}", path.display());
    let mut journal = open_journal(&path).with_context(cannot_write)?;
    let (name, count) = (args.peak.name(), args.transactions);
    print_line(&format!(
        "replaying {name}: {count} transactions in {} s",
        args.seconds
    ));
    let length = Duration::from_secs(args.seconds);
    let outcome = replay(&client, args.peak, count, length, args.callers, chance).await;
    print_line(&format!(
        "confirmed={} repeated_after_failures={} latency_p50={:.1?} latency_p99={:.1?}",
        outcome.confirmed.len(),
        outcome.failures,
        outcome.percentile(50),
        outcome.percentile(99)
    ));
    write_journal(&mut journal, &outcome.confirmed).with_context(cannot_write)?;
    Ok(outcome.confirmed)
}

/// The stores of a bank that ran before. A wrong path would make new ones, which are empty.
async fn stores_of(places: &Places) -> Result<Ledger> {
    let store = places.store();
    if !store.contains("://") && !Path::new(&store).exists() {
        bail!("{store} does not exist: start the bank first, or set BANK_STORE to its stores");
    }
    Ok(Ledger::open(&store).await?)
}

async fn check(places: &Places, confirmed: &[Confirmed], wait: Duration) -> Result<()> {
    let ledger = stores_of(places).await?;
    let begin = Instant::now();
    let findings = loop {
        let findings = audit(&ledger, confirmed).await?;
        if findings.is_complete() || begin.elapsed() > wait {
            break findings;
        }
        sleep(Duration::from_millis(200)).await;
    };
    judge(&findings)
}

fn judge(findings: &Findings) -> Result<()> {
    print_line(&findings.to_string());
    for fault in &findings.faults {
        print_line(fault);
    }
    if !findings.is_complete() {
        let more = match findings.not_looked_up {
            0 => String::new(),
            more => format!("; {more} of them were not looked up"),
        };
        bail!("confirmed transactions are not booked{more}; are workers running?");
    }
    if !findings.faults.is_empty() {
        bail!("the stores are not as confirmed");
    }
    match findings.out_of_range {
        0 => print_line("every confirmed transaction is booked exactly once"),
        count => print_line(&format!(
            "every confirmed transaction is booked exactly once, but {count} whose balance would be out of range"
        )),
    }
    Ok(())
}

/// Starts everything, and stops it at the end, whatever happened in between.
async fn start(args: StartArgs) -> Result<()> {
    let programs = std::env::current_exe()?;
    let programs = programs.parent().context("programs are in a folder")?;
    let plan = Plan {
        kew: find_kew(programs)?,
        programs: programs.to_owned(),
        data: Path::new(&args.places.data).join("kew"),
        profile: match args.bus {
            true => Profile::Bus,
            false => Profile::Storage,
        },
        store: args.places.store(),
        listen: args.listen,
        queue: args.queue.clone(),
        log: None,
    };
    let mut running = Vec::new();
    let done = {
        let mut stop = pin!(stop_requested());
        tokio::select! {
            stopped = &mut stop => stopped.map_err(Into::into),
            ran = run(&plan, &args, &mut running) => ran,
        }
    };
    // In reverse: no confirmation without a queue, and no worker without its store.
    while let Some(program) = running.pop() {
        let name = program.name().to_owned();
        let status = program.stop().await?;
        print_line(&format!("{name} stopped: {status}"));
    }
    done
}

async fn run(plan: &Plan, args: &StartArgs, running: &mut Vec<Program>) -> Result<()> {
    let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let kew = plan.kew(anywhere).await?;
    let queue_service = kew.fact.clone();
    running.push(kew);
    print_line(&format!("Kew runs: {queue_service}"));
    for instance in 1..=args.instances {
        running.push(plan.worker(instance, &queue_service).await?);
    }
    let (workers, seconds) = (args.instances, plan.queue.worker_timeout_s);
    print_line(&format!(
        "{workers} workers run, with {seconds} s for each message"
    ));
    let web = plan.web(&queue_service).await?;
    let url = web.fact.clone();
    running.push(web);
    print_line(&format!("the bank is open: {url}"));
    if args.demo {
        return demo(args, &url).await;
    }
    print_line("Ctrl-C stops everything");
    first_end(running).await
}

async fn demo(args: &StartArgs, url: &str) -> Result<()> {
    let chance = &mut Chance::from_system()?;
    let mut confirmed = Vec::new();
    for peak in Peak::ALL {
        let args = ReplayArgs {
            peak,
            web: url.to_owned(),
            transactions: args.transactions,
            seconds: args.seconds,
            callers: 32,
            journal: Journal::in_folder(),
            places: args.places.clone(),
        };
        confirmed.append(&mut replay_one(&args, chance).await?);
    }
    check(&args.places, &confirmed, Duration::from_mins(1)).await
}

/// Waits until one of the programs ends, which none does by itself.
async fn first_end(running: &mut [Program]) -> Result<()> {
    loop {
        for program in running.iter_mut() {
            // Asked in turns: each answer is there at once.
            let ended = tokio::time::timeout(Duration::from_millis(10), program.ended()).await;
            if let Ok(status) = ended {
                let (name, status) = (program.name(), status?);
                bail!("{name} ended: {status}; the others are stopped");
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}
