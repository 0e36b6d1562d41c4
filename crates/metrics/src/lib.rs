//! Metrics: what is counted where the work is done, and the page that shows it.
//!
//! [`Counter`], [`Gauge`], [`HighWater`] and [`Histogram`] are written on hot paths: an observation is a few relaxed atomic
//! additions, without a lock and without an allocation. A [`Family`] is what a page says of one metric
//! at one time; [`page`] writes families in the OpenMetrics text format, which Prometheus reads.
//!
//! This crate knows no broker, no protocol and no socket: who owns an instrument makes its family.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod family;
mod instrument;
mod once_a_second;
mod process;
mod read;

pub use family::{CONTENT_TYPE, Family, Labels, Unit, page};
pub use instrument::{Counter, Gauge, HighWater, Histogram, Observed, SIZES_BYTES, Scale};
pub use once_a_second::OnceASecond;
pub use process::{disk_free_bytes, process};
pub use read::{Read, read};
