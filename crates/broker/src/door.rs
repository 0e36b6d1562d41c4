//! How front ends reach a partition: in this process, or in another one that owns it.

use std::fmt;
use std::sync::Arc;

use kew_engine::Command;
use kew_log::Epoch;

use crate::watch::Watchers;
use crate::{Asker, Ownership, Rejection, Source};

/// The way to a partition. What goes through it can be passed on as bytes ([`kew_engine::wire`]).
pub trait Door: Send + Sync + fmt::Debug {
    /// Submits commands. They are carried out in their order, unless they are of [`Source::ALONE`]. Each asker is answered
    /// once, or passed to `refused`, which must not submit anything: it runs while the door is held.
    ///
    /// A command whose outcome is [`Rejection::Unknown`] is over: it is not carried out after one that is submitted later. So
    /// a read tells what has become of it.
    ///
    /// Commands `within` an epoch are carried out in that epoch, or refused as [`Rejection::NotOwner`].
    fn submit(
        &self,
        from: Source,
        within: Option<Epoch>,
        commands: &mut dyn Iterator<Item = (Asker, Command)>,
        refused: &mut dyn FnMut(Asker, Rejection),
    );

    /// The receivers in this process that wait for something in the partition.
    fn watchers(&self) -> &Arc<Watchers>;

    /// With which epoch the partition is owned.
    fn ownership(&self) -> &Arc<Ownership>;
}
