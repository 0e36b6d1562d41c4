//! Bugs planted on purpose, so that the simulation can show that it catches them.
//!
//! The code under test calls [`is_planted`] at the place of each bug. In the product that is a
//! constant `false`, and the compiler removes it. With the feature `enabled`, `with` plants one bug
//! at run time, for one thread and one piece of work.

/// A realistic bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit writes and does not sync.
    CommitNotSynced,
    /// A failed sync is repeated, and trusted if the second one succeeds.
    SyncTriedAgain,
    /// The directory is not synced after names changed.
    DirectoryNotSynced,
    /// A write that failed because the disk is full counts as done.
    FullDiskIgnored,
    /// Records are checked without the epoch, salt and position that they were written for.
    OldRecordsTrusted,
    /// The last event of a batch is dropped when the log is replayed.
    LastEventOfBatchDropped,
    /// Recovery does not copy the tail that may not be durable.
    TailNotCopied,
    /// A partition continues after an I/O call has failed.
    FailureIgnored,
    /// Answers are sent before their data is durable.
    AnsweredBeforeDurable,
    /// One of several answers that become due at once is forgotten.
    AnswerForgotten,
    /// A segment is retired although it holds bodies that are still needed.
    LiveSegmentRetired,
    /// A snapshot gives a message the body of the one before it.
    BodyOfAnotherMessage,
    /// The partition's clock follows the wall clock when that jumps.
    ClockFollowsWall,
    /// A delete changes the state and is not logged.
    DeleteNotLogged,
    /// A clear changes the state and is not logged.
    ClearNotLogged,
    /// A receipt is accepted though the lease has passed on.
    StaleReceiptAccepted,
    /// An update hands out the old receipt again.
    ReceiptNotRenewed,
    /// A message expires a second before its time.
    ExpiresEarly,
    /// A message that is deleted still counts.
    CountNotLowered,
    /// An update keeps the old body.
    UpdatedBodyDropped,
    /// A listing leaves out the last queue.
    QueueNotListed,
    /// A lease ends two seconds before its time.
    LeaseEndsEarly,
    /// A snapshot forgets which messages are leased or delayed.
    LeasesForgotten,
    /// A snapshot forgets how often messages were delivered.
    DeliveryCountsForgotten,
    /// A snapshot forgets the sequence numbers of messages that no longer exist.
    SequenceNumbersReused,
    /// A snapshot forgets the incarnations of queues that no longer exist.
    IncarnationsReused,
    /// A snapshot forgets the access policies of queues.
    PoliciesForgotten,
    /// A message that is deleted still counts in the bytes of its account.
    SizeNotGivenBack,
    /// A body that is replaced still counts in the bytes of its account.
    ReplacedSizeKept,
    /// The event of a lease says of the message what was true before its first lease.
    StaleWas,
    /// An account that is removed is still there.
    AccountNotForgotten,
    /// The entity that is being served is served until nothing waits for it any more.
    RotationStuck,
    /// A snapshot forgets which messages of bus queues are locked.
    BusLocksForgotten,
    /// A lock of a bus queue that ends does not count as a failed delivery.
    BusFailureNotCounted,
    /// A snapshot forgets the ids by which duplicates are known.
    BusDuplicatesForgotten,
    /// A dead letter stays in its queue, too.
    BusMovedTwice,
    /// A snapshot forgets the states of sessions.
    BusSessionStateForgotten,
    /// A message of a bus queue is completed, and that is not logged.
    BusRemovalNotLogged,
    /// A session is locked although another receiver has its lock.
    BusSessionShared,
    /// A message that comes back to a bus queue comes last.
    BusAbandonedAtTail,
    /// The messages of a session come in another order than that of their numbers.
    BusSessionOrderBroken,
    /// A message that was delivered too often becomes two dead letters.
    BusDeadLetterDoubled,
    /// A message is forwarded, and that is not logged.
    BusForwardNotLogged,
    /// A lock that has ended still settles.
    BusEndedLockSettles,
    /// A deferred message is given to any receiver.
    BusDeferredDelivered,
    /// A deferred message that was locked comes back as an ordinary one.
    BusDeferralForgotten,
    /// The number of a deleted message is issued again.
    BusNumberReused,
    /// A snapshot forgets how many deliveries of a bus queue's messages failed.
    BusDeliveryCountsForgotten,
    /// A lock is renewed although another receiver has the message.
    BusLostLockRenewed,
    /// A message that is forwarded does not count that.
    BusHopsNotCounted,
    /// A change to a message's properties is lost when it becomes a dead letter.
    BusChangeDropped,
    /// The dead letters of a queue outlive it.
    BusDeadLettersLeft,
    /// A session that is left in order counts as failed deliveries.
    BusReleaseCounts,
    /// A deleted message still counts in the bytes of its bus queue.
    BusSizeNotGivenBack,
    /// A repeated id is dropped after its window as well.
    BusWindowNeverEnds,
    /// A message that returns to a bus queue never expires.
    BusExpiryForgotten,
    /// A message that is sent again stays where it was, too.
    BusResubmittedTwice,
    /// A resubmitted message is lost in a crash: only its removal is logged.
    BusResubmittedLost,
    /// A message that is sent again brings its failed deliveries with it.
    BusResubmittedKeepsCount,
    /// A purge leaves deferred messages out.
    BusPurgeForgetsDeferred,
    /// A dry run of a purge takes the messages.
    BusDryRunPurges,
    /// Deleting a message by its number counts as a failed delivery of the next one.
    BusDeleteCounts,
    /// A message that is taken by its number keeps the lock of its previous holder.
    BusTakenUnderOldLock,
    /// A lock that was broken, or released, still settles.
    BusFreedLockSettles,
    /// The state of a session is cleared although it has messages.
    BusStateInUseCleared,
    /// Parts of a transaction are done although a later one is refused.
    BusTransactionHalfDone,
    /// The last part of a transaction is not logged with the others: a crash tears it.
    BusTransactionTorn,
    /// A refused transaction counts as a failed delivery of the messages that it would have
    /// settled.
    BusTransactionRefusalCounts,
    /// A message that is released in a transaction stays locked.
    BusTransactionLockKept,
    /// The ids of messages sent in transactions are not remembered.
    BusTransactionIdsForgotten,
    /// A transaction works on a new queue with the same name as the queue that was meant.
    BusTransactionInOtherQueue,
    /// A transaction sends more than its queue has room for, if each part alone would fit.
    BusTransactionOverfills,
}

impl Bug {
    /// Every bug except those of bus queues.
    pub const ALL: [Self; 32] = [
        Self::CommitNotSynced,
        Self::SyncTriedAgain,
        Self::DirectoryNotSynced,
        Self::FullDiskIgnored,
        Self::OldRecordsTrusted,
        Self::LastEventOfBatchDropped,
        Self::TailNotCopied,
        Self::FailureIgnored,
        Self::AnsweredBeforeDurable,
        Self::AnswerForgotten,
        Self::LiveSegmentRetired,
        Self::BodyOfAnotherMessage,
        Self::ClockFollowsWall,
        Self::DeleteNotLogged,
        Self::ClearNotLogged,
        Self::StaleReceiptAccepted,
        Self::ReceiptNotRenewed,
        Self::ExpiresEarly,
        Self::CountNotLowered,
        Self::UpdatedBodyDropped,
        Self::QueueNotListed,
        Self::LeaseEndsEarly,
        Self::LeasesForgotten,
        Self::DeliveryCountsForgotten,
        Self::SequenceNumbersReused,
        Self::IncarnationsReused,
        Self::PoliciesForgotten,
        Self::SizeNotGivenBack,
        Self::ReplacedSizeKept,
        Self::StaleWas,
        Self::AccountNotForgotten,
        Self::RotationStuck,
    ];

    /// The bugs of bus queues.
    pub const OF_BUS: [Self; 40] = [
        Self::BusLocksForgotten,
        Self::BusFailureNotCounted,
        Self::BusDuplicatesForgotten,
        Self::BusMovedTwice,
        Self::BusSessionStateForgotten,
        Self::BusRemovalNotLogged,
        Self::BusSessionShared,
        Self::BusAbandonedAtTail,
        Self::BusSessionOrderBroken,
        Self::BusDeadLetterDoubled,
        Self::BusForwardNotLogged,
        Self::BusEndedLockSettles,
        Self::BusDeferredDelivered,
        Self::BusDeferralForgotten,
        Self::BusNumberReused,
        Self::BusDeliveryCountsForgotten,
        Self::BusLostLockRenewed,
        Self::BusHopsNotCounted,
        Self::BusChangeDropped,
        Self::BusDeadLettersLeft,
        Self::BusReleaseCounts,
        Self::BusSizeNotGivenBack,
        Self::BusWindowNeverEnds,
        Self::BusExpiryForgotten,
        Self::BusResubmittedTwice,
        Self::BusResubmittedLost,
        Self::BusResubmittedKeepsCount,
        Self::BusPurgeForgetsDeferred,
        Self::BusDryRunPurges,
        Self::BusDeleteCounts,
        Self::BusTakenUnderOldLock,
        Self::BusFreedLockSettles,
        Self::BusStateInUseCleared,
        Self::BusTransactionHalfDone,
        Self::BusTransactionTorn,
        Self::BusTransactionRefusalCounts,
        Self::BusTransactionLockKept,
        Self::BusTransactionIdsForgotten,
        Self::BusTransactionInOtherQueue,
        Self::BusTransactionOverfills,
    ];
}

/// Whether this bug is planted here: never in the product.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "enabled")]
pub use enabled::{is_any_planted, is_planted, with};

#[cfg(feature = "enabled")]
mod enabled {
    use std::cell::Cell;

    use super::Bug;

    /// Marks a binary that contains the bugs: look for these bytes in it.
    #[used]
    static MARKER: [u8; 35] = *b"kew-planted: bugs are compiled in!\n";

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this bug is planted on this thread.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Whether any bug is planted on this thread.
    pub fn is_any_planted() -> bool {
        PLANTED.get().is_some()
    }

    /// Runs `work` with this bug planted on this thread.
    pub fn with<T>(bug: Bug, work: impl FnOnce() -> T) -> T {
        let _uproot = Uproot(PLANTED.replace(Some(bug)));
        work()
    }

    /// Restores what was planted before, also when the work panics.
    struct Uproot(Option<Bug>);

    impl Drop for Uproot {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }
}
