//! A link over which a client sends messages.

use super::attached::Attached;

/// A link over which a client sends.
pub(crate) struct Sender {
    pub(crate) attached: Attached,
}

impl Sender {
    /// How many messages may arrive before more credit is granted. The real limit is that no more
    /// input is read.
    pub(crate) const CREDIT: u32 = 1_000;
}
