//! `kew-bus-load`: puts load on a message broker, over AMQP 1.0 as in Service Bus, over plain AMQP
//! 1.0, over AMQP 0.9.1, or on the null stream that is the ceiling for all of them.
//!
//! One thread drives both ends, so there is one clock, and the program's own share of the processor
//! is known.

#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod amqp091;
mod amqp10;
mod attack;
mod backlog_cycle;
mod bystander;
mod client;
mod config;
mod cycle;
mod drain;
mod ends;
mod fill;
mod latency;
mod many;
mod null;
mod options;
mod report;
mod sessions;
mod token;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use tokio::runtime::Builder;

use crate::options::{Mode, Options};
use crate::report::print;

fn main() -> ExitCode {
    match start(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: a backtrace would hide what went wrong.
            let _ = writeln!(std::io::stderr(), "kew-bus-load: {error:#}");
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
        Mode::Cycle(cycle) => print(&cycle::run(target, cycle).await?),
        Mode::FanOut(fan_out) => print(&cycle::run_fan_out(target, fan_out).await?),
        Mode::Fill(fill) => print(&fill::run(target, fill).await?),
        Mode::BacklogCycle(cycle) => print(&backlog_cycle::run(target, cycle).await?),
        Mode::Drain(drain) => print(&drain::run(target, drain).await?),
        Mode::Latency(latency) => print(&latency::run(target, latency).await?),
        Mode::IdleConnections(idle) => print(&many::idle(target, idle).await?),
        Mode::Entities(entities) => print(&many::entities(target, entities).await?),
        Mode::Sessions(sessions) => print(&sessions::run(target, sessions).await?),
        Mode::Bystander(it) => print(&bystander::run(target, it).await?),
        Mode::Declare(it) => amqp091::declare(target, &it.queue, it.queue_type).await,
        Mode::DeclareExchange(it) => amqp091::declare_exchange(target, it).await,
        Mode::Config(it) => print(&config::config(it.entities, it.subscriptions)),
    }
}
