//! What the tests share.

use std::path::Path;

use kew_scale::{Config, Group, Keda, TargetConfig, Workload};
use tempfile::TempDir;

use crate::fake::FakeApi;

/// A group whose target is this text of TOML, in which `{file}` becomes the client's configuration.
pub(crate) fn group(place: &TempDir, api: &FakeApi, target: &str) -> Group {
    let file = place.path().join("kubeconfig");
    std::fs::write(&file, api.kubeconfig()).unwrap();
    let target = target.replace("{file}", &format!("{file:?}"));
    let text = format!(
        "[[group]]\nname = 'billing'\nstart_delay = '30s'\nrate_per_task = 1\ntasks_max = 1\nmaximum = 20\n\
         [[group.source]]\nqueue = 'in'\nconnection_env = 'STORAGE'\n{target}"
    );
    let config = Config::parse(Path::new("scale.toml"), &text).unwrap();
    config.groups.into_iter().next().unwrap()
}

pub(crate) fn workload(group: &Group) -> &Workload {
    match &group.target {
        TargetConfig::Kubernetes(workload) => workload,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn keda(group: &Group) -> &Keda {
    match &group.target {
        TargetConfig::Keda(keda) => keda,
        other => panic!("{other:?}"),
    }
}
