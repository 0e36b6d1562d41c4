//! XML in and out, no more of it than the protocol needs.

pub(crate) mod read;
pub(crate) mod tree;
pub(crate) mod write;
