//! The scaling agent, `kew scale`: it observes queues, decides how many instances of a program they need, and starts and
//! stops them.
//!
//! - [`Config`] is its file.
//! - [`Sources`] are what it observes: [`ClientSources`] are queues of Queue Storage, and queues and subscriptions of
//!   Service Bus, through their public protocols or the metrics page of a Kew server.
//! - [`Target`] is what it acts on: [`ProcessTarget`] starts processes on this machine, and finds them again.
//!   [`CommandTarget`] and [`HttpTarget`] tell a number to what runs the instances. `kew-cluster` has targets in Kubernetes.
//! - [`Agent`] is the loop. The control law of `kew-scaling` decides. [`Socket`] tells an operator what it remembers.
//! - [`Simulation`] draws what the law does with a load. [`Recorder`] writes the load of sources down for it.
//!
//! It knows the protocols and the metrics page, and nothing else of Kew's server. It keeps no state that matters: what
//! runs is read from the system, and what cannot be read changes nothing.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod act;
mod agenda;
mod agent;
mod config;
#[cfg(test)]
mod layers;
mod log;
mod memory;
mod observe;
mod record;
mod simulate;
#[cfg(unix)]
mod socket;

pub use act::{
    ActError, Ages, CommandTarget, CountOnly, FailedStart, Happened, HttpTarget, Named,
    ProcessTarget, Stopped, Survey, Target,
};
pub use agent::{Agent, Look, Note};
pub use config::{
    Announcements, Command, Config, ConfigError, Connection, Environment, Group, Http, Keda,
    OwnPage, PageUrl, Place, Process, Source, TargetConfig, Template, Variable, Workload, Zone,
    is_loopback,
};
pub use log::log;
pub use memory::{Memory, Told};
pub use observe::{ClientSources, Connecting, ReadError, Resolve, Seen, Sources, Woken, Workers};
pub use record::{Recorded, Recorder};
pub use simulate::{LoadError, SimulateError, Simulation, load};
#[cfg(unix)]
pub use socket::{Socket, ask};
