//! The file as it is written. Unknown keys are errors.

use serde::Deserialize;
use toml::{Spanned, Value};

/// A value with its place in the file.
pub(super) type At<T> = Spanned<T>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) group: Vec<At<Group>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: At<String>,
    pub(super) goal: Option<At<Goal>>,
    pub(super) minimum: Option<At<u32>>,
    pub(super) maximum: Option<At<u32>>,
    pub(super) spare: Option<At<u32>>,
    pub(super) every: Option<At<String>>,
    pub(super) start_delay: Option<At<String>>,
    pub(super) cool_down: Option<At<String>>,
    pub(super) idle_after: Option<At<String>>,
    pub(super) tasks_max: Option<At<u32>>,
    pub(super) rate_per_task: Option<At<f64>>,
    pub(super) time_zone: Option<At<String>>,
    #[serde(default)]
    pub(super) peaks: Vec<At<Peak>>,
    #[serde(default)]
    pub(super) source: Vec<At<Source>>,
    pub(super) target: At<Target>,
    pub(super) announcements: Option<At<Announcements>>,
    pub(super) socket: Option<At<String>>,
    #[serde(default)]
    pub(super) metrics: Vec<At<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    pub(super) age: Option<At<String>>,
    pub(super) backlog_per_task: Option<At<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peak {
    pub(super) days: Vec<At<String>>,
    pub(super) from: At<String>,
    pub(super) until: At<String>,
    pub(super) instances: At<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) queue: Option<At<String>>,
    pub(super) connection_env: At<String>,
    pub(super) ca_cert: Option<At<String>>,
    pub(super) metrics: Option<At<String>>,
    // Refused, with what to write instead.
    pub(super) topic: Option<At<Value>>,
    pub(super) subscription: Option<At<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Announcements {
    pub(super) connection_env: At<String>,
    pub(super) prefix: Option<At<String>>,
    pub(super) topic: Option<At<String>>,
    pub(super) ca_cert: Option<At<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    pub(super) process: Option<At<Process>>,
    pub(super) command: Option<At<Command>>,
    pub(super) http: Option<At<Http>>,
    pub(super) kubernetes: Option<At<Workload>>,
    pub(super) keda: Option<At<Keda>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Process {
    pub(super) command: At<Vec<At<String>>>,
    pub(super) state_directory: At<String>,
    pub(super) stop_within: Option<At<String>>,
    pub(super) ports: Option<At<String>>,
    pub(super) environment: Option<At<Vec<At<String>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    pub(super) count: At<Vec<At<String>>>,
    pub(super) set: At<Vec<At<String>>>,
    pub(super) environment: Option<At<Vec<At<String>>>>,
    pub(super) timeout: Option<At<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Http {
    pub(super) url: At<String>,
    pub(super) number: Option<At<String>>,
    pub(super) set_url: Option<At<String>>,
    pub(super) body: Option<At<String>>,
    pub(super) content_type: Option<At<String>>,
    pub(super) token_env: Option<At<String>>,
    pub(super) ca_cert: Option<At<String>>,
    pub(super) timeout: Option<At<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) name: At<String>,
    pub(super) namespace: Option<At<String>>,
    pub(super) api: Option<At<String>>,
    pub(super) resource: Option<At<String>>,
    pub(super) kubeconfig: Option<At<String>>,
    pub(super) context: Option<At<String>>,
    pub(super) timeout: Option<At<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keda {
    pub(super) listen: At<String>,
    pub(super) tolerance: Option<At<f64>>,
    pub(super) workload: At<Workload>,
}
