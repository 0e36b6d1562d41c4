//! `kew scale run`: the agent, one task for each group.

use std::convert::Infallible;

use anyhow::{Context as _, Result, anyhow};
use kew_scale::{Agent, ClientSources, Group, Memory, Note, Socket, Target, TargetConfig, log};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{read, runtime, sources, target};
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
        // All are opened before any of them acts.
        let mut stop = Stop::new()?;
        let mut agents = Vec::new();
        for group in &config.groups {
            agents.push((group.clone(), open(group, args.dry_run).await?));
        }
        serve(agents, args.dry_run, &mut stop).await
    })
}

type OpenAgent = Agent<ClientSources, Box<dyn Target>>;

async fn open(group: &Group, is_dry: bool) -> Result<OpenAgent> {
    let sources = sources(group, !is_dry)?;
    let (target, found) = match is_dry {
        true => target::counting(group).await?,
        false => target::acting(group).await?,
    };
    for happened in found {
        log(&group.name, &Note::Happened(happened));
    }
    let agent = Agent::new(group, sources, target);
    agent.with_context(|| format!("the group {:?}", group.name))
}

async fn serve(agents: Vec<(Group, OpenAgent)>, is_dry: bool, stop: &mut Stop) -> Result<()> {
    let (stopping, stopped) = watch::channel(());
    let mut running = JoinSet::new();
    for (group, agent) in agents {
        tracing::info!(group = group.name, "observing {}", names(&group));
        if let Some(warning) = group.warning() {
            tracing::warn!(group = group.name, "{warning}");
        }
        running.spawn(one(group, agent, is_dry, stopped.clone()));
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

async fn one(group: Group, mut agent: OpenAgent, is_dry: bool, mut stopped: watch::Receiver<()>) {
    let answering = answer(&group, agent.memory(), is_dry);
    let zone = group.zone.clone();
    let week = move || zone.week_now();
    let stopped = async move {
        // It ends when the other side is dropped.
        while stopped.changed().await.is_ok() {}
    };
    tokio::select! {
        () = agent.run(week, |note| log(&group.name, &note), stopped) => {}
        never = answering => match never {},
    }
}

/// Answers operators who ask why the agent acted, or did not. A dry run may run beside the agent, which answers them.
async fn answer(group: &Group, memory: Memory, is_dry: bool) -> Infallible {
    let is_process = matches!(group.target, TargetConfig::Process(_));
    if group.socket.is_none() && is_process && !is_dry {
        tracing::warn!(
            group = group.name,
            "kew scale explain is not answered, because state_directory is too long for a socket in it: set socket to a \
             shorter path"
        );
    }
    if let Some(path) = group.socket.as_ref().filter(|_| !is_dry) {
        match Socket::open(path).await {
            Ok(socket) => return socket.answer(&group.name, &memory).await,
            Err(error) => {
                let path = path.display();
                tracing::warn!(
                    group = group.name,
                    "kew scale explain is not answered at {path}: {error}"
                );
            }
        }
    }
    std::future::pending().await
}

fn names(group: &Group) -> String {
    let names = group.sources.iter().map(|it| it.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

/// The signals that end the agent. Their handlers are installed before anything starts.
pub(super) struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    pub(super) fn new() -> Result<Self> {
        let take = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
