//! `kew scale run`: the agent, one task for each group.

use anyhow::{Context as _, Result, anyhow};
use kew_scale::{Agent, Group, Note, ProcessTarget, Sources, Survey, Target, log};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{in_group, read, runtime, sources};
use crate::open_files;
use crate::scale_args::ScaleRunArgs;
use crate::settings::observing::LogFormat;

pub(super) fn run(args: &ScaleRunArgs) -> Result<()> {
    let config = read(&args.file)?;
    crate::logs::init(LogFormat::Text)?;
    // Each instance takes a descriptor.
    open_files::raise();
    let runtime = runtime()?;
    runtime.block_on(async {
        match args.dry_run {
            true => {
                serve(&config.groups, false, |group| {
                    Ok((Survey::new(group)?, Vec::new()))
                })
                .await
            }
            false => serve(&config.groups, true, ProcessTarget::open).await,
        }
    })
}

/// Runs all groups. None acts before all could be opened.
async fn serve<T: Target + 'static>(
    groups: &[Group],
    hears: bool,
    open: impl Fn(&Group) -> Result<(T, Vec<kew_scale::Happened>), kew_scale::ActError>,
) -> Result<()> {
    let mut stop = Stop::new()?;
    let mut agents = Vec::new();
    for group in groups {
        let sources = sources(group, hears)?;
        let (target, found) = open(group).map_err(|error| in_group(group, error))?;
        for happened in found {
            log(&group.name, &Note::Happened(happened));
        }
        let agent = Agent::new(group, sources, target);
        let agent = agent.with_context(|| format!("the group {:?}", group.name))?;
        agents.push((group.clone(), agent));
    }
    let (stopping, stopped) = watch::channel(());
    let mut running = JoinSet::new();
    for (group, agent) in agents {
        tracing::info!(group = group.name, "observing {}", names(&group));
        running.spawn(one(group, agent, stopped.clone()));
    }
    tokio::select! {
        () = stop.asked() => {}
        // An agent does not end by itself.
        ended = running.join_next() => {
            return Err(ended.and_then(Result::err).map_or_else(
                || anyhow!("an agent has ended"),
                |error| anyhow!(error).context("an agent has ended"),
            ));
        }
    }
    drop(stopping);
    while running.join_next().await.is_some() {}
    tracing::info!("stopped; instances go on: kew scale stop stops them");
    Ok(())
}

async fn one<S: Sources, T: Target>(
    group: Group,
    mut agent: Agent<S, T>,
    mut stopped: watch::Receiver<()>,
) {
    let zone = group.zone.clone();
    let week = move || zone.week_now();
    let stopped = async move {
        // It ends when the other side is dropped.
        while stopped.changed().await.is_ok() {}
    };
    agent
        .run(week, |note| log(&group.name, &note), stopped)
        .await;
}

fn names(group: &Group) -> String {
    let names = group.sources.iter().map(|it| it.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

/// The signals that end the agent. Their handlers are installed before anything starts.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self> {
        let take = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
