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
    // Planned.
    pub(super) metrics: Option<At<Value>>,
    pub(super) processors: Option<At<Value>>,
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
    pub(super) instances: u32,
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
    pub(super) prefix: At<String>,
    pub(super) ca_cert: Option<At<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    pub(super) process: Option<At<Process>>,
    // Planned.
    pub(super) command: Option<At<Value>>,
    pub(super) http: Option<At<Value>>,
    pub(super) kubernetes: Option<At<Value>>,
    pub(super) keda: Option<At<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Process {
    pub(super) command: At<Vec<At<String>>>,
    pub(super) state_directory: At<String>,
    pub(super) stop_within: Option<At<String>>,
}
