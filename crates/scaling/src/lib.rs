//! How many instances a queue needs: the control law of the scaling agent.
//!
//! [`Law::decide`] gets the time and an [`Observation`] of queues and instances, and returns a [`Decision`]: how many
//! instances should run, how many tasks each of them, and the reasons in words. `docs/scale.md` has the formulas, and
//! says why they are so. [`simulate`] runs the law, or KEDA's rule, over a load in a simulated queue with workers.
//!
//! It does no I/O and knows no clock, no protocol and no random source. It starts nothing: the agent acts.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
mod decision;
mod flow;
mod law;
#[cfg(test)]
mod layers;
mod need;
mod numbers;
mod observation;
mod settings;
pub mod simulate;
mod trend;
mod week;

pub use decision::{Action, Decision, Reason};
pub use law::Law;
pub use observation::{Instances, Moment, Observation, Reading, Source};
pub use settings::{Goal, Settings, SettingsError};
pub use week::{Day, Peak, TimeOfWeek};
