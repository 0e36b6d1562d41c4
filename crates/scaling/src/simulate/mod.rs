//! A queue with workers in simulated time, to try a scaling rule on a load.
//!
//! Everything happens in steps of one second, and the same load gives the same course each time. A queue is a line of
//! seconds with the messages that arrived in each. Ready instances handle the oldest first, at a fixed rate for each
//! task. An instance that is ordered takes a while until it is ready, and counts as running meanwhile. One that is
//! stopped ends at once. The model has no failed messages, no network and no processors that get slower with more tasks.

mod chance;
mod keda;
mod load;
mod run;
mod world;

pub use keda::Keda;
pub use load::Load;
pub use run::{Course, Point, Scaler, Score, run};
pub use world::Workers;
