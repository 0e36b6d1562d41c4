//! One HTTP/1.1 connection, from its first request to its end: the front door of every service that speaks HTTP.
//!
//! hyper reads and writes HTTP. [`serve`] drives it, and defends the service behind it:
//!
//! - **Deadlines.** The head of a request, once begun, must arrive soon. A connection between requests may be idle
//!   for longer, and longest after an authentic request. A client that does not read its answer is closed.
//! - **Memory.** All connections together have one [`Budget`] for bodies and for long heads of known clients, and
//!   one for long heads of all others.
//! - **Framing.** `Listener` reads the same bytes as hyper, and is strict where hyper is lenient. A request that
//!   two programs could split differently is refused, with everything after it.
//! - **Turns.** After a few pipelined requests, other connections go first.
//! - **The end.** The last answer of a connection arrives even if the client is still sending, within bounds of
//!   time and size.
//! - **Names.** [`host`] finds the one name by which a request calls the server. [`judge`] asks [`kew_listen`]
//!   whether the request may use a public key.
//!
//! A [`Service`] answers the requests, gives the refusals their form, and counts. This crate knows no queue, no
//! account and no error code. It accepts no connection.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod activity;
mod body;
mod budget;
mod called;
mod farewell;
mod head_load;
mod heads;
mod limits;
mod listener;
mod serve;
mod service;
mod spelling;
mod watched;

pub use activity::{Activity, Overdue};
pub use body::{BodyError, Connection, Read, discard, read};
pub use budget::{Budget, NoRoom, Share, held};
pub use called::{HostError, host, judge, pages};
pub use farewell::say_farewell;
pub use limits::{BodyLimits, FarewellLimits, Limits, Patience};
pub use serve::{Switched, serve};
pub use service::{Answer, Event, Front, Refusal, Service};
pub use spelling::Spelling;
