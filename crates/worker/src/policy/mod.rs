//! The formulas of a listener, behind traits. Each default is a value whose fields are the constants of its formula.
//!
//! A policy does no I/O, reads no clock and draws no random number: it gets all that as arguments.

mod delay;
mod idle;
mod loss;
mod pace;
mod visibility;
mod wake_up;

pub use self::delay::{BackOff, RetryDelay};
pub use self::idle::{Idle, IdleAnswer, IdleBackOff, IdleState, Steady};
pub use self::loss::{AfterLoss, LostLeases, OnLostLeases};
pub use self::pace::{Pace, RequestOutcome, SlowDown};
pub use self::visibility::{Adaptive, Fixed, Visibility};
pub use self::wake_up::{ByDepth, WakeUp};

pub(crate) use self::loss::{LossLimit, LossWindow};
