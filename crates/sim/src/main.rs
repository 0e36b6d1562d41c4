//! `kew-sim`: runs seeds of the simulation, or replays one.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

use clap::Parser;
use kew_sim::{Moment, Report, Watch};

/// Runs the deterministic simulation. A seed that breaks a promise is printed, and ends the run.
#[derive(Debug, Parser)]
struct Args {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// How many operations each seed has at least, before it drains
    #[arg(long, default_value_t = 1000)]
    operations: u64,
    /// Worlds with bus queues
    #[arg(long)]
    bus: bool,
    /// Worlds with bus queues and topics
    #[arg(long, conflicts_with = "bus")]
    topics: bool,
    /// Worlds in which two members own a replicated log in turn
    #[arg(long)]
    model: bool,
    /// Print every step
    #[arg(long)]
    trace: bool,
    /// Wait for a line of input after each step: an empty line continues, `s` shows the state, `q`
    /// ends
    #[arg(long)]
    step: bool,
    /// Print every step up to this one, then the state, and end
    #[arg(long, value_name = "STEP")]
    until: Option<u64>,
}

/// A kind of world.
struct Kind {
    run: fn(u64, u64, bool) -> Report,
    replay: fn(u64, u64, Watch) -> Report,
    options: &'static str,
}

impl Args {
    fn kind(&self) -> Kind {
        match (self.bus, self.topics, self.model) {
            (_, true, true) => Kind {
                run: kew_sim::bus::run_with_topics_on_model,
                replay: kew_sim::bus::replay_with_topics_on_model,
                options: " --topics --model",
            },
            (_, true, false) => Kind {
                run: kew_sim::bus::run_with_topics,
                replay: kew_sim::bus::replay_with_topics,
                options: " --topics",
            },
            (true, false, false) => Kind {
                run: kew_sim::bus::run,
                replay: kew_sim::bus::replay,
                options: " --bus",
            },
            (true, false, true) => Kind {
                run: kew_sim::bus::run_on_model,
                replay: kew_sim::bus::replay_on_model,
                options: " --bus --model",
            },
            (false, false, true) => Kind {
                run: kew_sim::run_on_model,
                replay: kew_sim::replay_on_model,
                options: " --model",
            },
            (false, false, false) => Kind {
                run: kew_sim::run,
                replay: kew_sim::replay,
                options: "",
            },
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let report = if args.step || args.until.is_some() {
            let (step, until) = (args.step, args.until);
            let watch = Box::new(move |moment: &Moment<'_>| watch(moment, step, until));
            let replay = args.kind().replay;
            replay(seed, args.operations, watch)
        } else {
            let run = args.kind().run;
            run(seed, args.operations, args.trace)
        };
        let mut out = io::stdout().lock();
        if args.trace && !args.step && args.until.is_none() {
            for line in &report.trace {
                let _ = writeln!(out, "{line}");
            }
        }
        let _ = writeln!(out, "seed {seed}: {}", summary(&report));
        if args.trace {
            for (what, count) in &report.occurred {
                let _ = writeln!(out, "{count} times {what}");
            }
        }
        if let Some(violation) = report.violation {
            let _ = writeln!(out, "VIOLATION {violation}");
            let _ = writeln!(
                out,
                "replay: kew-sim{} --seed {seed} --operations {} --until {}",
                args.kind().options,
                args.operations,
                report.steps
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn summary(report: &Report) -> String {
    format!(
        "{} operations in {} steps, {} unknown, {} busy, {} kills, {} power cuts, {} failed calls, {} clock jumps, {} snapshots, trace {:016x}",
        report.operations,
        report.steps,
        report.unknown,
        report.busy,
        report.kills,
        report.power_cuts,
        report.failed_calls,
        report.clock_jumps,
        report.snapshots,
        report.trace_hash
    )
}

/// Shows a step, and stops if the user asked for that.
fn watch(moment: &Moment<'_>, step: bool, until: Option<u64>) {
    let mut out = io::stdout().lock();
    for line in moment.lines {
        let _ = writeln!(out, "{}: {line}", moment.step);
    }
    if until.is_some_and(|until| moment.step >= until) {
        let _ = writeln!(out, "{}", moment.state());
        std::process::exit(0);
    }
    if !step || moment.lines.is_empty() {
        return;
    }
    loop {
        let mut line = String::new();
        match io::stdin().lock().read_line(&mut line) {
            Ok(1..) => match line.trim() {
                "s" => {
                    let _ = writeln!(out, "{}", moment.state());
                }
                "q" => std::process::exit(0),
                _ => return,
            },
            _ => std::process::exit(0),
        }
    }
}
