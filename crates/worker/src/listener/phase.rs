//! How far a listener is in its life.

/// What tasks of a listener may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything.
    Running,
    /// No more receives; handlers may finish.
    Finishing,
    /// Handlers are dropped, and messages go back.
    Returning,
    /// Nothing: all futures are dropped.
    Aborted,
}
