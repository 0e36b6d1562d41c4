//! Counts instances without a right to change anything: for dry runs, and beside an agent that runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use kew_scaling::Instances;

use super::proc;
use super::readiness::Readiness;
use super::token::process_of;
use crate::act::state::records;
use crate::act::{ActError, Happened, Target};
use crate::config::{Group, OwnPage, Process};

/// The instances of a state directory, read again each time. It starts and stops none.
#[derive(Debug)]
pub struct Survey {
    directory: PathBuf,
    readiness: Readiness,
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
            readiness: Readiness::new(group.law.start_delay),
            boot: proc::boot_id()?,
        })
    }
}

impl Survey {
    /// Those that run, and their pages.
    fn look(&mut self) -> Result<(Instances, Vec<OwnPage>), ActError> {
        let (mut found, mut pages) = (Instances::default(), Vec::new());
        let mut numbers = BTreeSet::new();
        for record in records(&self.directory, &self.boot)? {
            let Some(process) = process_of(&record, &self.boot, &self.directory)?.process else {
                continue;
            };
            let running = proc::stat(process.pid)?.map(|it| it.start_ticks);
            if running != Some(process.start_ticks) {
                continue;
            }
            let is_ready = self.readiness.is_ready(&record, proc::age(&process));
            match is_ready {
                true => found.ready += 1,
                false => found.starting += 1,
            }
            pages.extend(record.page(is_ready));
            numbers.insert(record.number);
        }
        self.readiness.keep_only(&numbers);
        Ok((found, pages))
    }
}

#[async_trait]
impl Target for Survey {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        Ok(self.look()?.0)
    }

    fn pages(&mut self) -> Vec<OwnPage> {
        // What cannot be read is told when the instances are counted.
        self.look().map(|it| it.1).unwrap_or_default()
    }

    fn answered(&mut self, instances: &BTreeSet<u64>) {
        self.readiness.answered(instances);
    }

    async fn set(&mut self, _: u32) -> Vec<Happened> {
        Vec::new()
    }
}
