//! A link over which a client sends messages.

use super::attached::Attached;

/// A link over which a client sends.
pub(crate) struct Sender {
    pub(crate) attached: Attached,
}

impl Sender {
    /// How many messages may come before more are granted. What bounds them is that no more is read.
    pub(crate) const CREDIT: u32 = 1_000;
}
