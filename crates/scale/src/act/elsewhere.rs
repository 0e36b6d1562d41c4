//! Systems other than Linux: nothing is started there.

use std::convert::Infallible;

use async_trait::async_trait;
use kew_scaling::Instances;

use super::{ActError, Happened, Stopped, Target};
use crate::config::{Group, Process};

/// There is none on this system.
#[derive(Debug)]
pub struct ProcessTarget(Infallible);

/// There is none on this system.
#[derive(Debug)]
pub struct Survey(Infallible);

impl ProcessTarget {
    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(_: &Group, _: &Process) -> Result<(Self, Vec<Happened>), ActError> {
        Err(ActError::NotLinux)
    }

    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open_to_stop(_: &Group, _: &Process) -> Result<(Self, Vec<Happened>), ActError> {
        Err(ActError::NotLinux)
    }

    /// Stops all instances.
    pub async fn stop_all(&mut self, _: impl FnMut(Happened)) -> Stopped {
        match self.0 {}
    }

    /// Instances whose processes run.
    #[must_use]
    pub fn running(&self) -> usize {
        match self.0 {}
    }
}

impl Survey {
    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn new(_: &Group, _: &Process) -> Result<Self, ActError> {
        Err(ActError::NotLinux)
    }
}

#[async_trait]
impl Target for ProcessTarget {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        match self.0 {}
    }

    async fn set(&mut self, _: u32) -> Vec<Happened> {
        match self.0 {}
    }

    async fn changed(&mut self) -> Vec<Happened> {
        match self.0 {}
    }
}

#[async_trait]
impl Target for Survey {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        match self.0 {}
    }

    async fn set(&mut self, _: u32) -> Vec<Happened> {
        match self.0 {}
    }

    async fn changed(&mut self) -> Vec<Happened> {
        match self.0 {}
    }
}
