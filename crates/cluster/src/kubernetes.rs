//! A workload whose replicas the agent changes.

use async_trait::async_trait;
use kew_scale::{ActError, Ages, ConfigError, Group, Happened, Place, Target, Workload};
use kew_scaling::Instances;

use crate::api::{Replicas, ScaleResource};

/// Counts the replicas of a workload, and changes how many it should have.
#[derive(Debug)]
pub struct KubernetesTarget {
    resource: ScaleResource,
    place: Place,
    ages: Ages,
    /// What the last look has read: a change is for that.
    read: Option<Replicas>,
}

impl KubernetesTarget {
    /// Reads how to reach the API. Nothing is connected yet. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If there is no configuration of a client, or it cannot be used.
    pub async fn open(group: &Group, workload: &Workload) -> Result<Self, ConfigError> {
        Ok(Self {
            resource: ScaleResource::open(workload).await?,
            place: workload.place.clone(),
            ages: Ages::new(group.law.start_delay),
            read: None,
        })
    }

    fn failed(&self, what: &str) -> ActError {
        ActError::elsewhere(&self.place, what)
    }
}

#[async_trait]
impl Target for KubernetesTarget {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        self.read = None;
        let read = self.resource.read().await;
        let read = read.map_err(|what| self.failed(&what))?;
        let mut found = self.ages.see(read.wanted);
        // Those that do not exist yet start, however long ago they were wanted.
        let absent = read.wanted.saturating_sub(read.present);
        let late = absent.saturating_sub(found.starting);
        found.ready -= late;
        found.starting += late;
        self.read = Some(read);
        Ok(found)
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        // It was decided for what was read: without it there is nothing to change.
        let Some(read) = self.read.take() else {
            return vec![Happened::Failed(self.failed("the scale was not read"))];
        };
        vec![match self.resource.write(count, &read).await {
            Ok(_) => Happened::Set(count),
            Err(what) => Happened::Failed(self.failed(&what)),
        }]
    }
}
