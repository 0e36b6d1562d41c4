//! How front ends reach a partition: in this process, or in another one that owns it.

use std::fmt;
use std::sync::Arc;

use kew_engine::Command;

use crate::watch::Watchers;
use crate::{Asker, Rejection, Source};

/// The way to a partition. What goes through it can be passed on as bytes ([`kew_engine::wire`]).
pub trait Door: Send + Sync + fmt::Debug {
    /// Submits commands, which are carried out in their order, if `from` is no caller by itself. Each asker is answered
    /// once, or passed to `refused`.
    fn submit(
        &self,
        from: Source,
        commands: &mut dyn Iterator<Item = (Asker, Command)>,
        refused: &mut dyn FnMut(Asker, Rejection),
    );

    /// The receivers in this process that wait for something in the partition.
    fn watchers(&self) -> &Arc<Watchers>;
}
