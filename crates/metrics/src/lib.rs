//! Metrics: what the code counts where it works, and the page that shows it.
//!
//! [`Counter`], [`Gauge`], [`HighWater`] and [`Histogram`] are written on hot paths: an observation
//! is a few relaxed atomic additions, without a lock and without an allocation. A [`Family`] is one
//! metric with its values at one time. [`page_in`] writes families in the OpenMetrics text format
//! or in the older one of Prometheus.
//!
//! This crate knows no broker, no protocol and no socket: the owner of an instrument makes its
//! family.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod family;
mod few_a_second;
mod format;
mod instrument;
mod lint;
mod once_a_second;
mod process;
mod processors;
mod read;

pub use family::{Family, Labels, Unit, page, page_in};
pub use few_a_second::{FewASecond, Line};
pub use format::Format;
pub use instrument::{Counter, Gauge, HighWater, Histogram, Observed, SIZES_BYTES, Scale};
pub use lint::lint;
pub use once_a_second::OnceASecond;
pub use process::{disk_free_bytes, process, process_cpu};
pub use processors::processors;
pub use read::{Read, read};
