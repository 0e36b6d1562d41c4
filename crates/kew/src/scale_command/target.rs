//! The target of a group, as its file names it.

use anyhow::Result;
use kew_scale::{
    CommandTarget, CountOnly, Group, Happened, Http, HttpTarget, ProcessTarget, Survey, Target,
    TargetConfig, Workload,
};

use super::{cluster, in_group, refused};

/// A target that counts and acts, and what it has found.
pub(super) async fn acting(group: &Group) -> Result<(Box<dyn Target>, Vec<Happened>)> {
    let target: Box<dyn Target> = match &group.target {
        TargetConfig::Process(process) => {
            let opened = ProcessTarget::open(group, process);
            let (target, found) = opened.map_err(|error| in_group(group, error))?;
            return Ok((Box::new(target), found));
        }
        TargetConfig::Command(command) => Box::new(CommandTarget::new(group, command)),
        TargetConfig::Http(http) => Box::new(open_http(group, http)?),
        TargetConfig::Kubernetes(workload) => kubernetes(group, workload).await?,
        TargetConfig::Keda(keda) => cluster::keda(group, keda).await.map_err(refused)?,
    };
    Ok((target, Vec::new()))
}

/// A target that counts, and changes nothing.
pub(super) async fn counting(group: &Group) -> Result<(Box<dyn Target>, Vec<Happened>)> {
    let target: Box<dyn Target> = match &group.target {
        TargetConfig::Process(process) => {
            let survey = Survey::new(group, process);
            Box::new(survey.map_err(|error| in_group(group, error))?)
        }
        TargetConfig::Command(command) => Box::new(CountOnly(CommandTarget::new(group, command))),
        TargetConfig::Http(http) => Box::new(CountOnly(open_http(group, http)?)),
        TargetConfig::Kubernetes(workload) => {
            Box::new(CountOnly(kubernetes(group, workload).await?))
        }
        TargetConfig::Keda(keda) => Box::new(CountOnly(kubernetes(group, &keda.workload).await?)),
    };
    Ok((target, Vec::new()))
}

fn open_http(group: &Group, http: &Http) -> Result<HttpTarget> {
    let variable = |name: &str| std::env::var_os(name);
    Ok(HttpTarget::open(group, http, &variable).map_err(refused)?)
}

async fn kubernetes(group: &Group, workload: &Workload) -> Result<Box<dyn Target>> {
    let opened = cluster::kubernetes(group, workload).await;
    Ok(opened.map_err(refused)?)
}
