//! Mistakes that a log could make. Each breaks one promise.

/// What an altered log does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A commit keeps half of the events of its last batch.
    HalfBatch,
    /// A commit makes durable what was staged behind it.
    DurableEarly,
    /// An append is durable at once.
    DurableInAppend,
    /// A mark moves the end.
    MarkMovesEnd,
    /// A commit comes out beside another one.
    TwoCommits,
    /// A reservation that an empty batch has used serves again.
    ReservationUsedTwice,
    /// The largest batch grows with the log.
    LimitGrows,
    /// Room is never prepared.
    NeverPrepared,
    /// A beat is not kept.
    BeatLeftOut,
    /// A body cannot be read once its batch is no longer among the recent ones.
    BodyGoneAfterTrim,
    /// A handle reads what has taken the place of its body.
    BodyRecycled,
    /// A snapshot does not wait for what lies before it.
    SnapshotAtOnce,
    /// A batch goes behind one snapshot.
    GoneBehindOne,
    /// A commit that runs after a later job keeps half of its last batch.
    OrderCounts,
    /// An end is reported once, and then the log continues.
    GoesOnAfterEnd,
    /// A follower gets the last batch again with the next piece.
    PieceRepeated,
    /// A follower is current although there is more to read.
    CurrentEarly,
    /// A promotion to an old epoch is accepted.
    OldEpochAccepted,
    /// What a former owner commits is followed, although its commit reports that it is fenced.
    VoidApplied,
    /// A follower continues behind batches that have gone before it has read them.
    GapSkipped,
    /// A commit whose answer was lost counts as failed.
    LostCountsAsFailed,
    /// A commit whose answer was lost is sent again at the place where the log ends by now.
    RetriedAtNewerPosition,
    /// The request of a commit does not name the place where its batches go, so a late one is applied where the log
    /// ends.
    PlaceLeftOut,
    /// A lease is counted from its answer.
    LeaseFromAnswer,
    /// A lease is trusted for as long as it lasts, on a clock that can be slow.
    MarginLeftOut,
    /// A copy is not compared with what was agreed.
    NotCompared,
}

impl Mistake {
    /// Whether only a log that asks other machines can make it.
    pub fn is_of_model(self) -> bool {
        match self {
            Self::LostCountsAsFailed
            | Self::RetriedAtNewerPosition
            | Self::PlaceLeftOut
            | Self::LeaseFromAnswer
            | Self::MarginLeftOut
            | Self::NotCompared => true,
            Self::HalfBatch
            | Self::DurableEarly
            | Self::DurableInAppend
            | Self::MarkMovesEnd
            | Self::TwoCommits
            | Self::ReservationUsedTwice
            | Self::LimitGrows
            | Self::NeverPrepared
            | Self::BeatLeftOut
            | Self::BodyGoneAfterTrim
            | Self::BodyRecycled
            | Self::SnapshotAtOnce
            | Self::GoneBehindOne
            | Self::OrderCounts
            | Self::GoesOnAfterEnd
            | Self::PieceRepeated
            | Self::CurrentEarly
            | Self::OldEpochAccepted
            | Self::VoidApplied
            | Self::GapSkipped => false,
        }
    }
}
