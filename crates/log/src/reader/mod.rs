//! Reads written data: records in order, and bodies at any place.

pub(crate) mod body;
pub(crate) mod records;
mod together;
