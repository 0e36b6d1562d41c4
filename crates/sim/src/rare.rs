//! States that are rare and must occur, or the simulation proves less than it seems to.

/// A state that must occur over enough seeds: the suite fails if one never occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rare {
    /// Recovery cut a torn tail.
    TornTailCut,
    /// Recovery copied records that might not be durable.
    TailCopied,
    /// A crash undid the roll to a new segment.
    RollTakenBack,
    /// Recovery replayed events behind a snapshot.
    SnapshotReplayed,
    /// Recovery skipped a damaged snapshot.
    SnapshotPassedOver,
    /// Recovery read a page from its second copy.
    PageReadFromCopy,
    /// The power went off during a recovery.
    PowerCutInRecovery,
    /// A process was killed during a recovery.
    KillInRecovery,
    /// The disk failed in the middle of a recovery.
    FailedCallInRecovery,
    /// The disk was too full for a recovery, until it got free space.
    FullDiskAtRecovery,
    /// The process died in the middle of a job.
    KillInJob,
    /// The power went off during a job.
    PowerCutInJob,
    /// A call failed and the partition stopped.
    StoppedByFailedCall,
    /// A segment's file was used again.
    SegmentRecycled,
    /// The live bodies of a nearly empty segment were moved to the log's end.
    BodiesMoved,
    /// The same while the disk was full.
    BodiesMovedOnFullDisk,
    /// A segment that two snapshots had made superfluous was retired.
    SegmentRetired,
    /// A snapshot was begun of a state that was not durable yet.
    SnapshotAhead,
    /// Commands were decided while a snapshot was being written.
    DecidedDuringSnapshot,
    /// A body was read from its file and not from memory.
    BodyReadFromFile,
    /// A batch was closed because it had no room for another command.
    BatchFull,
    /// Commands had to wait for a segment to be prepared.
    WaitedForSegment,
    /// Commands had to wait for a snapshot, because records took too much memory.
    WaitedForMemory,
    /// A snapshot was begun because records took too much memory.
    SnapshotDueByMemory,
    /// The partition was found full at its door.
    RefusedAtTheDoor,
    /// A command was refused because the disk was full.
    RefusedByFullDisk,
    /// A message was deleted while the disk was full.
    DrainedOnFullDisk,
    /// A message was sent after the disk had been full.
    SentAfterFullDisk,
    /// A client gave up waiting, and its command had been carried out.
    GivenUpAndHappened,
    /// A message whose send had an unknown outcome was delivered.
    UnknownSendDelivered,
    /// A receipt that was not the latest was refused.
    StaleReceiptRefused,
    /// A receipt of a queue's earlier incarnation was refused by the new queue of the same name.
    ReceiptOfEarlierLifeRefused,
    /// A lease ended, and the last receipt still updated the message.
    LateUpdate,
    /// A lease ended, and the last receipt still deleted the message.
    LateDelete,
    /// A message expired while it was leased.
    ExpiredWhileLeased,
    /// A message was delivered at least five times.
    DeliveredOften,
    /// The partition's clock was ahead of the wall clock and ran slower.
    ClockSlewedBack,
    /// The machine was suspended for longer than messages live.
    LongSuspension,
    /// A queue was created again with other metadata.
    QueueExistsOtherwise,
    /// A message was refused because its account had no bytes left.
    RefusedByQuota,
    /// A queue was refused because its account had its maximum of queues.
    QueueRefusedByQuota,
    /// A command waited for records that were not in memory.
    WaitedForRead,
    /// What a command waited for could not be read.
    ReadFailed,
    /// A command was decided after another one that came later.
    PassedWhileWaiting,
    /// A run was read back, so that its page is written again.
    RunWarmed,
    /// A pass of the scrub ended.
    ScrubPassEnded,
    /// The scrub found damage, and there was some.
    ScrubFoundDamage,
    /// A read of the scrub failed, or the process died in it.
    ReadOfScrubFailed,
    /// A file was removed while the scrub read it, or before.
    RemovedWhileScrubbed,
    /// A backup that was copied while its partition ran had everything when it was restored.
    BackupRestored,
    /// The same, and the restored partition began with records on pages alone.
    ColdBackupRestored,
    /// Files that the log did not need any more were kept for a backup.
    KeptForBackup,
    /// A file of a backup was removed, or a segment used again, after it was planned.
    RemovedAfterBackup,
    /// Bodies were moved while a backup was copied.
    BodiesMovedDuringBackup,
    /// Snapshots were written while a backup was copied.
    SnapshotDuringBackup,
    /// The disk was full, and the files of a backup were not kept any longer.
    BackupGivenUp,
    /// The process died while a backup was copied, and the next backup used the copies.
    BackupContinued,
    /// A backup had a page from its other copy.
    BackupMended,
}

impl Rare {
    /// Every one of them.
    pub const ALL: [Self; 58] = [
        Self::TornTailCut,
        Self::TailCopied,
        Self::RollTakenBack,
        Self::SnapshotReplayed,
        Self::SnapshotPassedOver,
        Self::PageReadFromCopy,
        Self::PowerCutInRecovery,
        Self::KillInRecovery,
        Self::FailedCallInRecovery,
        Self::FullDiskAtRecovery,
        Self::KillInJob,
        Self::PowerCutInJob,
        Self::StoppedByFailedCall,
        Self::SegmentRecycled,
        Self::BodiesMoved,
        Self::BodiesMovedOnFullDisk,
        Self::SegmentRetired,
        Self::SnapshotAhead,
        Self::DecidedDuringSnapshot,
        Self::BodyReadFromFile,
        Self::BatchFull,
        Self::WaitedForSegment,
        Self::WaitedForMemory,
        Self::SnapshotDueByMemory,
        Self::RefusedAtTheDoor,
        Self::RefusedByFullDisk,
        Self::DrainedOnFullDisk,
        Self::SentAfterFullDisk,
        Self::GivenUpAndHappened,
        Self::UnknownSendDelivered,
        Self::StaleReceiptRefused,
        Self::ReceiptOfEarlierLifeRefused,
        Self::LateUpdate,
        Self::LateDelete,
        Self::ExpiredWhileLeased,
        Self::DeliveredOften,
        Self::ClockSlewedBack,
        Self::LongSuspension,
        Self::QueueExistsOtherwise,
        Self::RefusedByQuota,
        Self::QueueRefusedByQuota,
        Self::WaitedForRead,
        Self::ReadFailed,
        Self::PassedWhileWaiting,
        Self::RunWarmed,
        Self::ScrubPassEnded,
        Self::ScrubFoundDamage,
        Self::ReadOfScrubFailed,
        Self::RemovedWhileScrubbed,
        Self::BackupRestored,
        Self::ColdBackupRestored,
        Self::KeptForBackup,
        Self::RemovedAfterBackup,
        Self::BodiesMovedDuringBackup,
        Self::SnapshotDuringBackup,
        Self::BackupGivenUp,
        Self::BackupContinued,
        Self::BackupMended,
    ];

    const fn index(self) -> usize {
        self as usize
    }
}

/// How often each rare state occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RareStates([u64; Rare::ALL.len()]);

impl Default for RareStates {
    fn default() -> Self {
        Self([0; Rare::ALL.len()])
    }
}

impl RareStates {
    pub(crate) fn note(&mut self, rare: Rare) {
        self.note_if(true, rare);
    }

    pub(crate) fn note_if(&mut self, occurred: bool, rare: Rare) {
        if let Some(count) = self.0.get_mut(rare.index()) {
            *count += u64::from(occurred);
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// Each with how often it occurred.
    pub fn counts(&self) -> impl Iterator<Item = (Rare, u64)> + '_ {
        Rare::ALL.into_iter().zip(self.0)
    }

    /// Those that never occurred.
    pub fn missing(&self) -> Vec<Rare> {
        self.counts()
            .filter(|(_, count)| *count == 0)
            .map(|(rare, _)| rare)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_place() {
        for (index, rare) in Rare::ALL.into_iter().enumerate() {
            assert_eq!(rare.index(), index, "{rare:?}");
        }
    }
}
