//! Every planted bug.

use kew_planted::Bug;

use super::{
    Planted, backups, bus, damaged, directories, disk, door, forwards, history, loaded, lost,
    members, pages, scheduled, storage, topics, waiting,
};

const COMMIT_NOT_SYNCED: Planted = Planted::seams("CommitNotSynced", disk::commit_not_synced);
const PAGES_NOT_SYNCED: Planted = Planted::seams("PagesNotSynced", disk::pages_not_synced);
const SYNC_TRIED_AGAIN: Planted = Planted::seams("SyncTriedAgain", disk::sync_tried_again);
const DIRECTORY_NOT_SYNCED: Planted =
    Planted::seams("DirectoryNotSynced", disk::directory_not_synced);
const FULL_DISK_IGNORED: Planted = Planted::seams("FullDiskIgnored", disk::full_disk_ignored);
const OLD_RECORDS_TRUSTED: Planted = Planted::line("OldRecordsTrusted", Bug::OldRecordsTrusted);
const LAST_EVENT_OF_BATCH_DROPPED: Planted =
    Planted::seams("LastEventOfBatchDropped", lost::last_event_of_batch_dropped);
const TAIL_NOT_COPIED: Planted = Planted::line("TailNotCopied", Bug::TailNotCopied);
const FAILURE_IGNORED: Planted = Planted::line("FailureIgnored", Bug::FailureIgnored);
const ANSWERED_BEFORE_DURABLE: Planted =
    Planted::line("AnsweredBeforeDurable", Bug::AnsweredBeforeDurable);
const LIVE_SEGMENT_RETIRED: Planted =
    Planted::seams("LiveSegmentRetired", history::live_segment_retired);

/// Bugs below the partition that power cuts show.
pub const OF_POWER_CUTS: [Planted; 8] = [
    COMMIT_NOT_SYNCED,
    PAGES_NOT_SYNCED,
    DIRECTORY_NOT_SYNCED,
    OLD_RECORDS_TRUSTED,
    LAST_EVENT_OF_BATCH_DROPPED,
    TAIL_NOT_COPIED,
    ANSWERED_BEFORE_DURABLE,
    LIVE_SEGMENT_RETIRED,
];

/// Those that only failing calls show.
pub const OF_FAILING_CALLS: [Planted; 3] = [SYNC_TRIED_AGAIN, FULL_DISK_IGNORED, FAILURE_IGNORED];

/// Bugs of a migration.
pub const OF_MIGRATION: [Planted; 5] = [
    Planted::seams("SegmentsNotSynced", disk::segments_not_synced),
    PAGES_NOT_SYNCED,
    DIRECTORY_NOT_SYNCED,
    SYNC_TRIED_AGAIN,
    Planted::seams("LastEventOfLogDropped", lost::last_event_of_log_dropped),
];

/// Bugs of backups.
pub const OF_BACKUP: [Planted; 3] = [
    Planted::seams("CopiesNotSynced", disk::copies_not_synced),
    DIRECTORY_NOT_SYNCED,
    SYNC_TRIED_AGAIN,
];

/// Another one, which bit rot shows.
pub const OF_BACKUP_ROT: Planted = Planted::seams("CopyNotVerified", backups::copy_not_verified);

/// A bug that only bit rot shows.
pub const OF_SCRUB: Planted = Planted::line("SegmentNotScrubbed", Bug::SegmentNotScrubbed);

/// Another one, of the segment that is written to.
pub const OF_ACTIVE_ROT: Planted = Planted::seams("HeaderNotWritten", disk::header_not_written);

const QUARANTINE_NOT_LOGGED: Planted =
    Planted::seams("QuarantineNotLogged", damaged::quarantine_not_logged);
const OTHERS_QUARANTINED: Planted =
    Planted::seams("OthersQuarantined", damaged::others_quarantined);
const DAMAGED_IS_EMPTY: Planted = Planted::seams("DamagedIsEmpty", loaded::damaged_is_empty);

/// Bugs of messages whose records are lost.
pub const OF_QUARANTINE: [Planted; 3] =
    [QUARANTINE_NOT_LOGGED, OTHERS_QUARANTINED, DAMAGED_IS_EMPTY];

/// The same of Service Bus, where such messages end by an event of their own.
pub const OF_BUS_QUARANTINE: [Planted; 6] = [
    QUARANTINE_NOT_LOGGED,
    OTHERS_QUARANTINED,
    DAMAGED_IS_EMPTY,
    Planted::seams("LostEndsAtOnce", damaged::lost_ends_at_once),
    Planted::seams("LostSchedulesEndEarly", damaged::lost_schedules_end_early),
    Planted::seams("EndOfLostNotLogged", damaged::end_of_lost_not_logged),
];

/// Another one, of the proof.
pub const OF_PROOF: Planted = Planted::seams("MarkNotWritten", disk::mark_not_written);

/// Bugs of topics that only bit rot shows, and the promise that each breaks.
pub const OF_DAMAGED_TOPICS: [(Planted, &str); 2] = [
    (
        Planted::seams("ScrubListsOneCopy", damaged::one_copy_listed),
        "a scrub finds every damaged message",
    ),
    (
        Planted::seams("TopicDamagedLost", damaged::waiting_lost),
        crate::bus::checker::NO_LOSS,
    ),
];

/// What each family of bugs does without a bug. No suite may notice any of these, or what it notices of the others
/// is not their bug.
pub const CONTROLS: [Planted; 8] = [
    Planted::seams("storage queues", storage::nothing),
    Planted::seams("bus queues", bus::nothing),
    Planted::seams("the log", lost::nothing),
    Planted::seams("snapshots", history::nothing),
    Planted::seams("pages", pages::nothing),
    Planted::seams("directories", directories::nothing),
    Planted::seams("loads", loaded::nothing),
    Planted::seams("answers", door::nothing),
];

/// Every bug except those of bus queues.
pub const OF_STORAGE: [Planted; 54] = [
    Planted::seams("BackupNotPinned", backups::pins_ignored),
    Planted::seams("BackupWithoutBodies", backups::bodies_not_planned),
    Planted::seams("BackupPinLeft", backups::pin_left),
    Planted::seams("RemovedIsDamaged", pages::removed_is_damaged),
    COMMIT_NOT_SYNCED,
    PAGES_NOT_SYNCED,
    SYNC_TRIED_AGAIN,
    DIRECTORY_NOT_SYNCED,
    FULL_DISK_IGNORED,
    OLD_RECORDS_TRUSTED,
    LAST_EVENT_OF_BATCH_DROPPED,
    TAIL_NOT_COPIED,
    FAILURE_IGNORED,
    ANSWERED_BEFORE_DURABLE,
    LIVE_SEGMENT_RETIRED,
    Planted::line("StaleReceiptAccepted", Bug::StaleReceiptAccepted),
    Planted::seams("ExpiresEarly", storage::expires_early),
    Planted::line("CountNotLowered", Bug::CountNotLowered),
    Planted::seams("ChangedBeforeGathered", history::changed_before_gathered),
    Planted::seams("ReceiptNotRenewed", storage::receipt_not_renewed),
    Planted::seams("UpdatedBodyDropped", storage::updated_body_dropped),
    Planted::seams("LeaseEndsEarly", storage::lease_ends_early),
    Planted::seams("SizeNotGivenBack", storage::size_not_given_back),
    Planted::seams("ReplacedSizeKept", storage::replaced_size_kept),
    Planted::seams("StaleWas", storage::stale_was),
    Planted::seams("MovedToAnother", storage::moved_to_another),
    Planted::seams("MovesNotLogged", lost::moves_not_logged),
    Planted::seams("MovesForgotten", history::moves_forgotten),
    Planted::seams("AccountNotForgotten", storage::account_not_forgotten),
    Planted::seams("DeleteNotLogged", lost::delete_not_logged),
    Planted::seams("ClearNotLogged", lost::clear_not_logged),
    Planted::seams("BodyOfAnotherMessage", history::body_of_another_message),
    Planted::seams("LeasesForgotten", history::leases_forgotten),
    Planted::seams(
        "DeliveryCountsForgotten",
        history::delivery_counts_forgotten,
    ),
    Planted::seams("SequenceNumbersReused", history::sequence_numbers_reused),
    Planted::seams("IncarnationsReused", history::incarnations_reused),
    Planted::seams("PoliciesForgotten", history::policies_forgotten),
    Planted::seams("AnswerForgotten", door::answer_forgotten),
    Planted::seams("QueueNotListed", door::queue_not_listed),
    Planted::seams("ClockFollowsWall", door::clock_follows_wall),
    Planted::seams("RotationStuck", door::rotation_stuck),
    Planted::line("LaneForgotten", Bug::LaneForgotten),
    Planted::seams("ChangedHeadKeepsPage", pages::changed_head_keeps_page),
    Planted::seams(
        "ChangedDirectoryKeepsPage",
        pages::changed_directory_keeps_page,
    ),
    Planted::seams("ChangedRunKeepsPage", pages::changed_run_keeps_page),
    Planted::line("ChangedDropped", Bug::ChangedDropped),
    Planted::seams("EvictedAtAnyTime", pages::evicted_at_any_time),
    Planted::seams("PinsIgnored", pages::pins_ignored),
    Planted::seams("OlderPageTaken", loaded::older_taken),
    Planted::seams("LocksPassedOver", directories::locks_passed_over),
    Planted::seams("PatchesNotWritten", directories::patches_not_written),
    Planted::seams("PatchLost", directories::patch_lost),
    Planted::seams("PagesOfOlderRemoved", pages::pages_of_older_removed),
    Planted::seams("SecondCopyDiffers", pages::second_copy_differs),
];

/// The bugs of replicated logs and their owners.
pub const OF_MEMBERS: [Planted; 6] = [
    Planted::seams("AnsweredAfterFence", members::answered_after_fence),
    Planted::seams("ReadWithoutLease", members::read_without_lease),
    Planted::seams("ClockBehindLastBeat", members::clock_behind_last_beat),
    Planted::seams("AgreedEarly", members::agreed_early),
    Planted::seams("OutcomeOfFormerLog", members::outcome_of_former_log),
    Planted::seams("RetriedAtNewerPosition", members::retried_at_newer_position),
];

/// The bugs of bus queues.
pub const OF_BUS: [Planted; 52] = [
    Planted::seams("BusBackupNotPinned", backups::pins_ignored),
    Planted::seams("BusBackupWithoutBodies", backups::bodies_not_planned),
    Planted::seams("BusRemovedIsDamaged", pages::removed_is_damaged),
    Planted::seams("FarToldLate", directories::far_told_late),
    Planted::seams(
        "BusChangedSessionKeepsPage",
        pages::changed_session_keeps_page,
    ),
    Planted::seams("BusChangedRunKeepsPage", pages::changed_run_keeps_page),
    Planted::seams("BusPinsIgnored", pages::pins_ignored),
    Planted::seams("BusOlderPageTaken", loaded::older_taken),
    Planted::line("BusChangedDropped", Bug::ChangedDropped),
    Planted::seams("BusEvictedAtAnyTime", pages::evicted_at_any_time),
    Planted::seams("UnreadRemoved", loaded::unread_removed),
    Planted::line("DueHoldsBack", Bug::DueHoldsBack),
    Planted::line("BusSessionShared", Bug::BusSessionShared),
    Planted::line("BusFreedLockSettles", Bug::BusFreedLockSettles),
    Planted::line("BusLostLockRenewed", Bug::BusLostLockRenewed),
    Planted::line("BusWindowNeverEnds", Bug::BusWindowNeverEnds),
    Planted::line("BusDeadLettersLeft", Bug::BusDeadLettersLeft),
    Planted::line("BusStateInUseCleared", Bug::BusStateInUseCleared),
    Planted::line("BusTransactionOverfills", Bug::BusTransactionOverfills),
    Planted::seams("BusFailureNotCounted", bus::failure_not_counted),
    Planted::seams("BusReleaseCounts", bus::release_counts),
    Planted::seams("BusEndedLockSettles", bus::ended_lock_settles),
    Planted::seams("BusDeferredDelivered", bus::deferred_delivered),
    Planted::seams("BusDeferralForgotten", bus::deferral_forgotten),
    Planted::seams("BusExpiryForgotten", bus::expiry_forgotten),
    Planted::seams("BusMovedTwice", bus::moved_twice),
    Planted::seams("BusDeadLetterDoubled", bus::dead_letter_doubled),
    Planted::seams("BusHopsNotCounted", bus::hops_not_counted),
    Planted::seams("BusChangeDropped", bus::change_dropped),
    Planted::seams("BusSizeNotGivenBack", bus::size_not_given_back),
    Planted::seams("BusResubmittedTwice", bus::resubmitted_twice),
    Planted::seams("BusResubmittedKeepsCount", bus::resubmitted_keeps_count),
    Planted::seams("BusPurgeForgetsDeferred", bus::purge_forgets_deferred),
    Planted::seams("BusDeleteCounts", bus::delete_counts),
    Planted::seams("BusTakenUnderOldLock", bus::taken_under_old_lock),
    Planted::seams("BusTransactionLockKept", bus::transaction_lock_kept),
    Planted::seams("BusTransactionIdsForgotten", bus::transaction_ids_forgotten),
    Planted::seams("BusRemovalNotLogged", lost::removal_not_logged),
    Planted::seams("BusForwardNotLogged", lost::forward_not_logged),
    Planted::seams("BusResubmittedLost", lost::resubmitted_lost),
    Planted::seams("BusTransactionTorn", lost::transaction_torn),
    Planted::seams("BusLocksForgotten", history::bus_locks_forgotten),
    Planted::seams(
        "BusDeliveryCountsForgotten",
        history::bus_delivery_counts_forgotten,
    ),
    Planted::seams("BusDuplicatesForgotten", history::bus_duplicates_forgotten),
    Planted::seams("BusNumberReused", history::bus_number_reused),
    Planted::seams(
        "BusSessionStateForgotten",
        history::bus_session_state_forgotten,
    ),
    Planted::seams("BusSessionOrderBroken", door::session_order_broken),
    Planted::seams("BusAbandonedAtTail", door::abandoned_at_tail),
    Planted::seams("BusDryRunPurges", door::dry_run_purges),
    Planted::seams(
        "BusTransactionInOtherQueue",
        door::transaction_in_other_queue,
    ),
    Planted::seams("BusTransactionHalfDone", door::transaction_half_done),
    Planted::seams(
        "BusTransactionRefusalCounts",
        door::transaction_refusal_counts,
    ),
];

/// The bugs of topics.
pub const OF_TOPICS: [Planted; 41] = [
    Planted::seams("TopicRemovedIsDamaged", pages::removed_is_damaged),
    Planted::seams("TopicCopyMissing", topics::copy_missing),
    Planted::seams("TopicCopyDoubled", topics::copy_doubled),
    Planted::seams("TopicCopyNotLogged", topics::copy_not_logged),
    Planted::seams("TopicCopyLostWhileCold", topics::copy_lost_while_cold),
    Planted::seams("TopicOrderDiffers", topics::order_differs),
    Planted::seams("TopicRuleIgnored", topics::rule_ignored),
    Planted::seams("TopicRuleNotLogged", topics::rule_not_logged),
    Planted::seams("TopicActionIgnored", topics::action_ignored),
    Planted::seams("TopicSubscriptionLeft", topics::subscription_left),
    Planted::seams(
        "TopicSubscriptionNotListed",
        topics::subscription_not_listed,
    ),
    Planted::seams(
        "TopicOfSubscriptionForgotten",
        history::topic_of_subscription_forgotten,
    ),
    Planted::seams("TopicEndCountsTwice", topics::end_counts_twice),
    Planted::seams(
        "TopicBorrowerCountsNothing",
        history::borrowed_segment_retired,
    ),
    Planted::seams("TopicHoldLostByMove", topics::hold_lost_by_move),
    Planted::seams("TopicBorrowedNotLowered", topics::borrowed_not_lowered),
    Planted::seams("TopicNamedPlaceNotChecked", topics::named_place_not_checked),
    Planted::seams("TopicMoveOfCopyNotLogged", topics::move_of_copy_not_logged),
    Planted::seams("TopicMovedToAnother", topics::moved_to_another),
    Planted::seams("TopicIdsNotLogged", topics::ids_not_logged),
    Planted::seams("TopicNumberNotLogged", topics::number_not_logged),
    Planted::seams("TopicCursorNotMoved", waiting::cursor_not_moved),
    Planted::seams("TopicCursorNotLogged", waiting::cursor_not_logged),
    Planted::seams("TopicCursorTooEarly", waiting::cursor_too_early),
    Planted::seams("TopicCursorTooFar", waiting::cursor_too_far),
    Planted::seams("TopicNewRuleTooEarly", waiting::new_rule_too_early),
    Planted::seams("TopicWaitingPassed", waiting::waiting_passed),
    Planted::seams("TopicViaSentEarly", door::via_sent_early),
    Planted::seams("TopicTransferNotLogged", lost::transfer_not_logged),
    Planted::seams("TopicTransferFailsToo", door::transfer_fails_too),
    Planted::seams("TopicTransferLost", lost::transfer_to_topic_lost),
    Planted::seams("TopicRulesOfTheSend", scheduled::rules_of_the_send),
    Planted::seams("TopicCancelIgnored", scheduled::cancel_ignored),
    Planted::seams("TopicOldRuleTooLate", waiting::old_rule_too_late),
    Planted::seams("TopicRetiredRuleGone", waiting::retired_rule_gone),
    Planted::seams("TopicForwardedTwice", forwards::forwarded_twice),
    Planted::seams("TopicForwardLost", forwards::forward_lost),
    Planted::seams("TopicForwardSourceNotLogged", forwards::source_not_logged),
    Planted::seams("TopicForwardHopsForgotten", forwards::hops_forgotten),
    Planted::seams(
        "TopicFailedTransferLost",
        forwards::failed_transfer_of_topic_lost,
    ),
    Planted::seams("TopicActivationNotLogged", scheduled::activation_not_logged),
];
