//! The records of a run as bytes, as they were at one moment (`directory.rs`). They never change.
//!
//! Groups of 128 slots are read by themselves: their neighbours are wanted next.

pub(crate) mod directory;
pub(super) mod group;
pub(crate) mod paged_run;

use super::record::{Record, Side};

/// A message of a page: its slot, its record, and what few messages have. A start holds many.
pub(crate) type Paged = (usize, Record, Option<Box<Side>>);
