//! `kew-worker-bench`: measures listeners of `kew-worker` beside loops written by hand on the clients of the load
//! generators.
//!
//! Both run on one thread, so that the client's share of the processor is comparable. Each run prints one line of
//! JSON, and fails at the first wrong answer. `benches/run worker` runs it in turns and compares.

mod by_hand;
mod drain;
mod fill;
mod idle;
mod metrics;
mod options;
mod target;
mod wake;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use mimalloc::MiMalloc;
use serde::Serialize;
use tokio::runtime::Builder;

use crate::options::{Mode, Options};

/// As in `kew`, for both drainers alike.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match start(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: a backtrace would hide what went wrong.
            let _ = writeln!(std::io::stderr(), "kew-worker-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> Result<()> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(options))
}

async fn run(options: &Options) -> Result<()> {
    let target = &options.target;
    match &options.mode {
        Mode::Drain(it) => print(&drain::run(target, it).await?),
        Mode::Wake(it) => print(&wake::run(target, it).await?),
        Mode::Idle(it) => print(&idle::run(target, it).await?),
    }
}

/// Prints a result as one line, which is the purpose of this program.
fn print(result: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, result)?;
    writeln!(output)?;
    Ok(output.flush()?)
}
