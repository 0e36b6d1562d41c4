//! The simulation, in the size for every change. `KEW_SIM_SEEDS`, `KEW_SIM_FIRST_SEED` and
//! `KEW_SIM_OPERATIONS` make it longer or start it elsewhere; `kew-sim --seed N --step` replays one
//! seed step by step.

mod bus;
mod members;
mod planted;
mod regressions;
mod seeds;
mod support;
