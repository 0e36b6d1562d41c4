//! `kew scale stop`: stops all instances.

use std::path::Path;

use anyhow::{Result, bail};
use kew_scale::{Group, Happened, ProcessTarget, Stopped, Target, TargetConfig};
use tokio::task::JoinSet;

use super::{in_group, read, refused, runtime, target};
use crate::cli::{print_error, print_line};
use crate::open_files;

/// What runs the instances of a group.
enum Runner {
    Agent(Box<ProcessTarget>),
    Elsewhere(Box<dyn Target>),
}

/// Locks every state directory first, so that no agent starts instances again.
pub(super) fn stop(file: &Path) -> Result<()> {
    let config = read(file)?;
    open_files::raise();
    runtime()?.block_on(async {
        let mut runners = Vec::new();
        for group in &config.groups {
            runners.push((group.name.clone(), runner(group).await?));
        }
        // Side by side: none waits for the instances of another group.
        let mut stopping = JoinSet::new();
        for (name, mut runner) in runners {
            stopping.spawn(async move {
                let stopped = stop_one(&name, &mut runner).await;
                // No agent starts instances before all are stopped.
                (name, stopped, runner)
            });
        }
        let mut groups = Vec::new();
        while let Some(done) = stopping.join_next().await {
            groups.push(done?);
        }
        result(
            groups
                .iter()
                .map(|(name, stopped, _)| (name.as_str(), stopped)),
        )
    })
}

async fn runner(group: &Group) -> Result<Runner> {
    match &group.target {
        TargetConfig::Process(process) => {
            let opened = ProcessTarget::open_to_stop(group, process);
            let (target, found) = opened.map_err(|error| in_group(group, error))?;
            found.into_iter().for_each(tell);
            Ok(Runner::Agent(Box::new(target)))
        }
        TargetConfig::Command(_) | TargetConfig::Http(_) | TargetConfig::Kubernetes(_) => {
            let (target, _) = target::acting(group).await?;
            Ok(Runner::Elsewhere(target))
        }
        TargetConfig::Keda(keda) => {
            let what = "KEDA runs these instances, and kew scale stop stops nothing of this file: pause the \
                        ScaledObject with the annotation autoscaling.keda.sh/paused-replicas: \"0\"";
            Err(refused(keda.place.error(what)).into())
        }
    }
}

async fn stop_one(name: &str, runner: &mut Runner) -> Stopped {
    match runner {
        Runner::Agent(target) => {
            let stopped = target.stop_all(tell).await;
            let count = stopped.ended;
            let plural = if count == 1 { "" } else { "s" };
            print_line(&format!("{name}: {count} instance{plural} stopped"));
            stopped
        }
        Runner::Elsewhere(target) => {
            let happened = match target.instances().await {
                Ok(_) => target.set(0).await,
                Err(error) => vec![Happened::Failed(error)],
            };
            let is_failure = |it: &Happened| matches!(it, Happened::Failed(_));
            let has_failed = happened.iter().any(is_failure);
            if !has_failed {
                print_line(&format!("{name}: the number of instances was set to 0"));
            }
            happened.into_iter().for_each(tell);
            Stopped {
                has_failed,
                ..Stopped::default()
            }
        }
    }
}

/// Success only if all instances were stopped, and nothing failed on the way.
fn result<'a>(groups: impl Iterator<Item = (&'a str, &'a Stopped)>) -> Result<()> {
    let mut left = Vec::new();
    let mut has_failed = false;
    for (group, stopped) in groups {
        has_failed |= stopped.has_failed;
        let named = stopped.left.iter();
        left.extend(named.map(|it| format!("{it} of the group {group}")));
    }
    if !left.is_empty() {
        bail!("these still run: {}", left.join(", "));
    }
    if has_failed {
        bail!("something failed: see the lines above");
    }
    Ok(())
}

/// What an operator should know beside the result.
fn tell(happened: Happened) {
    match happened {
        Happened::Killed(_) | Happened::Forgotten { .. } => {
            print_error(&anyhow::anyhow!("{happened}"))
        }
        Happened::Failed(error) => print_error(&error.into()),
        Happened::Found(_)
        | Happened::Started(_)
        | Happened::Stopping(_)
        | Happened::Ended { .. }
        | Happened::Delayed { .. }
        | Happened::Set(_)
        | Happened::Told(_)
        | Happened::Waiting
        | Happened::Full => {}
    }
}

#[cfg(test)]
mod tests {
    use kew_scale::Named;

    use super::*;

    #[test]
    fn what_still_runs_or_failed_is_an_error() {
        let stopped = |pid: Option<i32>, has_failed| Stopped {
            ended: 2,
            left: pid
                .map(|pid| Named { number: 7, pid })
                .into_iter()
                .collect(),
            has_failed,
        };
        let of = |it: &Stopped| result([("jobs", it)].into_iter()).map_err(|it| it.to_string());
        assert_eq!(of(&stopped(None, false)), Ok(()));
        let failed = of(&stopped(None, true)).unwrap_err();
        assert!(failed.contains("something failed"), "{failed}");
        let left = of(&stopped(Some(99), true)).unwrap_err();
        assert_eq!(
            left,
            "these still run: instance 7 (PID 99) of the group jobs"
        );
    }
}
