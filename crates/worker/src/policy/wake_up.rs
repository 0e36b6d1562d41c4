//! How many dequeue tasks run when work comes to an idle queue.

use std::fmt;

/// Decides how many dequeue tasks are to be active.
pub trait WakeUp: fmt::Debug + Send + Sync + 'static {
    /// The target for a queue that holds about so many messages; `None` if that is not known. The listener starts
    /// the target minus the active tasks, and none if enough run.
    fn target(&self, depth: Option<u64>) -> u32;
}

/// Ten tasks for fewer than 100 messages, 50 for fewer than 1,000, else 100. Without a depth ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByDepth;

impl WakeUp for ByDepth {
    fn target(&self, depth: Option<u64>) -> u32 {
        match depth {
            None | Some(..100) => 10,
            Some(100..1_000) => 50,
            Some(1_000..) => 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_grow_with_depth() {
        for (depth, target) in [
            (None, 10),
            (Some(0), 10),
            (Some(99), 10),
            (Some(100), 50),
            (Some(999), 50),
            (Some(1_000), 100),
            (Some(u64::MAX), 100),
        ] {
            assert_eq!(ByDepth.target(depth), target, "{depth:?}");
        }
    }
}
