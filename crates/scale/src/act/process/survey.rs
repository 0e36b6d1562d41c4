//! Counts instances without a right to change anything: for dry runs, and beside an agent that runs.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use kew_scaling::Instances;

use super::{proc, process_of};
use crate::act::state::records;
use crate::act::{ActError, Happened, Target};
use crate::config::{Group, Process};

/// The instances of a state directory, read again each time. It starts and stops none.
#[derive(Debug)]
pub struct Survey {
    directory: PathBuf,
    start_delay: Duration,
    boot: String,
}

impl Survey {
    /// Looks at the state directory of a group. It need not exist.
    ///
    /// # Errors
    ///
    /// If the system does not say which run of it this is.
    pub fn new(group: &Group, process: &Process) -> Result<Self, ActError> {
        Ok(Self {
            directory: process.state_directory.clone(),
            start_delay: group.law.start_delay,
            boot: proc::boot_id()?,
        })
    }
}

#[async_trait]
impl Target for Survey {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        let mut found = Instances::default();
        for record in records(&self.directory, &self.boot)? {
            let Some(process) = process_of(&record, &self.boot)? else {
                continue;
            };
            let running = proc::stat(process.pid)?.map(|it| it.start_ticks);
            if running != Some(process.start_ticks) {
                continue;
            }
            match proc::age(&process) >= self.start_delay {
                true => found.ready += 1,
                false => found.starting += 1,
            }
        }
        Ok(found)
    }

    async fn set(&mut self, _: u32) -> Vec<Happened> {
        Vec::new()
    }
}
