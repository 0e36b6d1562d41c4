//! What a world has seen.

use std::ops::AddAssign;

/// Counts by name.
macro_rules! happened {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// What a seed did: a world in which little happens shows little.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Happened {
            $($(#[$doc])+ pub $name: usize,)+
            /// A hash of all steps, and of what is followed in the end.
            pub trace: u64,
        }

        impl Happened {
            /// All counts, with their names.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }

        impl AddAssign for Happened {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)+
                self.trace ^= other.trace;
            }
        }
    };
}

happened! {
    /// Batches that were acknowledged.
    acknowledged,
    /// Batches of owners that ended, which were not.
    refused,
    /// Batches of which no commit says whether they are agreed.
    unknown,
    /// Of these, the batches that are followed.
    unknown_and_followed,
    /// Promotions that succeeded.
    promoted,
    /// Promotions to an epoch that another member had begun.
    fenced,
    /// Moments at which an owner trusted its lease.
    leased,
    /// Late commits that arrived in a later epoch than their own.
    late_commits,
    /// Late renewals that arrived in a later epoch than their own.
    late_renewals,
    /// Commits that ended early because their owner was stopped.
    stopped,
    /// Commits within which the machine failed.
    cut,
    /// Of these, the commits of which a part was agreed before.
    cut_in_part,
    /// Copies that were lost.
    lost_copies,
    /// Copies that differed, which was reported.
    diverged,
}
