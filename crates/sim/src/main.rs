//! `kew-sim`: runs seeds of the simulation, or replays one.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

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
    #[arg(long, default_value_t = 400)]
    operations: u64,
    /// Print what happened, step by step
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = std::io::stdout().lock();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let report = kew_sim::run(seed, args.operations, args.trace);
        for line in &report.trace {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(
            out,
            "seed {seed}: {} operations, {} unknown, {} kills, {} power cuts, {} clock jumps, {} snapshots, trace {:016x}",
            report.operations,
            report.unknown,
            report.kills,
            report.power_cuts,
            report.clock_jumps,
            report.snapshots,
            report.trace_hash
        );
        if let Some(violation) = report.violation {
            let _ = writeln!(out, "VIOLATION {violation}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
